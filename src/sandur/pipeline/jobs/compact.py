"""`compact`: receipts become the history of commits, its timeline, and how busy each table was."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from sandur.pipeline import system_tables
from sandur.pipeline.executor_tasks.write import PublishedFile
from sandur.pipeline.feed import Feed
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.publishing import Change, CoreManifest, Publication
from sandur.pipeline.sources.catalog import NamesReader, PointersReader
from sandur.pipeline.sources.events import FeedReader
from sandur.pipeline.tables import ACTIVITY, COMMITS, EVENTS, NAMES, OWNERS, POINTERS, QUARANTINE, TIMELINE
from sandur.pipeline.tasks import frame_of, without_rows
from sandur.pipeline.transforms import commits as of_commits

NAME: Final = "compact"
WARNINGS_MAX: Final = 10
_FEED: Final = "feed"
_ENDS: Final = StructType([StructField("commit_key", StringType()), StructField("is_known", BooleanType())])


def run(context: JobContext) -> JobReport:
    """Everything that came since the last run, exactly once: the watermark is published with the rows."""
    context.progress("give positions to new receipts")
    log = Feed(context.lake)
    feed = context.wait(log.caught_up() if context.dry_run else log.advance())
    publication = Publication(context)
    after = publication.watermark(COMMITS.name, _FEED)
    work = _Compaction(context, publication, after=after, upto=feed.sequence)
    try:
        manifest = work.published()
    finally:
        work.release()
    context.progress("update system tables")
    told = system_tables.refresh(context, manifest or publication.base, (COMMITS, TIMELINE, ACTIVITY, QUARANTINE))
    return JobReport(
        job=NAME,
        run_id=context.run_id,
        dry_run=context.dry_run,
        counts={"feed_from": after, "feed_to": feed.sequence, "receipts_known": feed.next_position, **work.counts},
        warnings=(*log.problems, *work.warnings, *told),
        manifest=publication.manifest_key,
        sequence=manifest.sequence if manifest else None,
    )


class _Compaction:
    """One run over the entries of the feed behind `after` and up to `upto`."""

    def __init__(self, context: JobContext, publication: Publication, *, after: int, upto: int) -> None:
        self._context = context
        self._publication = publication
        self._after = after
        self._upto = upto
        self._has_registrations = False
        self.counts: dict[str, int] = {}
        self.warnings: list[str] = []
        self._kept: list[DataFrame] = []

    def published(self) -> CoreManifest | None:
        """What is published now; None when there was nothing to publish."""
        events = self._keep(self._events())
        self._count(events)
        owners = self._keep(self._owners(events))
        renamed = self._count_renamed(owners)
        if self._context.dry_run or (self._after == self._upto and not renamed):
            return None
        changes = self._quarantine(events)
        if self.counts["commits"] or renamed:
            changes |= self._history(events, owners, is_renamed=renamed > 0)
        else:
            changes[COMMITS.name] = self._change((), appends=True)
        return self._publication.publish(changes)

    def release(self) -> None:
        for frame in self._kept:
            frame.unpersist()

    def _count(self, events: DataFrame) -> None:
        """How many receipts there are of which kind, and how many are commits of others than ourselves."""
        self._context.progress("read receipts")
        counts: Counter[str] = Counter()
        is_own, is_over = of_commits.is_own().alias("is_own"), of_commits.is_registration().alias("is_over")
        totals = events.groupBy("problem", is_own, is_over).agg(F.count("*"), F.min("key")).collect()
        first = {problem: key for problem, _, _, _, key in totals}
        for problem, own, over, count, _ in totals:
            kind = f"quarantined_{problem}" if problem else "commits_of_system_tables" if own else "commits"
            counts["receipts"] += count
            counts[kind] += count
            counts["quarantined"] += count if problem else 0
            self._has_registrations |= bool(over)
        self.counts = {"commits": 0, "commits_of_system_tables": 0, "quarantined": 0, **counts}
        for kind, count in sorted(counts.items()):
            if problem := kind.removeprefix("quarantined_") if kind.startswith("quarantined_") else "":
                self.warnings.append(f"{count} receipts are {problem}, such as {first[problem]}; see system.quarantine")

    def _owners(self, events: DataFrame) -> DataFrame:
        """Which name stands for each table."""
        spark, options = self._context.spark, self._context.source_options
        self._context.progress("read names")
        names = self._keep(frame_of(spark, NamesReader(options), NAMES.spark_schema))
        pointers = self._keep(frame_of(spark, PointersReader(options), POINTERS.spark_schema))
        self._count_unread(names, pointers)
        owners = of_commits.owners(names, pointers, self._publication.read(OWNERS))
        if not self._has_registrations:
            return owners
        return of_commits.with_replaced(owners, events, self._publication.read(COMMITS))

    def _count_unread(self, names: DataFrame, pointers: DataFrame) -> None:
        """How many names and pointers cannot be read, and some of them."""
        problems = (
            names.select("problem").unionByName(pointers.select("problem")).where("problem is not null").distinct()
        )
        some = problems.orderBy("problem").limit(WARNINGS_MAX + 1).collect()
        self.counts["names_unreadable"] = problems.count() if len(some) > WARNINGS_MAX else len(some)
        self.warnings += [f"{row.problem}; its table keeps the name it had" for row in some[:WARNINGS_MAX]]

    def _count_renamed(self, owners: DataFrame) -> int:
        is_first = not self._publication.rows(OWNERS)
        count = 0 if is_first else of_commits.renamed(owners, self._publication.read(OWNERS)).count()
        self.counts["tables_renamed"] = count
        return count

    def _quarantine(self, events: DataFrame) -> dict[str, Change]:
        if not self.counts["quarantined"]:
            return {}
        files = self._publication.write(of_commits.quarantine(events), QUARANTINE)
        return {QUARANTINE.name: self._change(files, appends=True)}

    def _history(self, events: DataFrame, owners: DataFrame, *, is_renamed: bool) -> Mapping[str, Change]:
        """The new rows behind the others; all rows anew when names changed, or when there are too many files."""
        self._context.progress("put commits in order")
        rows = self._keep(of_commits.history(events, self._publication.read(COMMITS), owners))
        came, loose = rows.agg(F.count_if("is_new"), F.count_if(of_commits.is_loose())).collect()[0]
        self.counts["commits"] = came
        known = self._publication.base.datasets.get(COMMITS.name)
        is_anew = is_renamed or (known is not None and known.is_scattered)
        news = rows.where("is_new")
        busy = of_commits.activity(news, self._publication.read(ACTIVITY))
        timeline = of_commits.timeline(rows, self._loose_ends(rows, loose))
        self._context.progress("write commits, timeline and activity")
        return {
            COMMITS.name: self._change(
                self._publication.write(rows if is_anew else news, COMMITS), appends=not is_anew
            ),
            TIMELINE.name: self._change(self._publication.write(timeline, TIMELINE)),
            ACTIVITY.name: self._change(self._publication.write(busy, ACTIVITY)),
            OWNERS.name: self._change(self._publication.write(owners, OWNERS)),
        }

    def _loose_ends(self, rows: DataFrame, loose: int) -> DataFrame:
        """Every receipt but the first of a table names the one before it, which must be there."""
        if not loose:
            self.counts["links_missing"] = 0
            return without_rows(self._context.spark, _ENDS)
        ends = self._keep(of_commits.loose_ends(rows))
        missing = ends.where("is_known is null").count()
        self.counts["links_missing"] = missing
        if missing:
            self.warnings.append(
                f"{missing} commits are named by the ones after them and have no receipt; reconcile restores it"
            )
        return ends

    def _change(self, files: Sequence[PublishedFile], *, appends: bool = False) -> Change:
        return Change(files, {_FEED: self._upto}, appends=appends)

    def _events(self) -> DataFrame:
        told = {**self._context.source_options, "after": str(self._after), "upto": str(self._upto)}
        return frame_of(self._context.spark, FeedReader(told), EVENTS.spark_schema)

    def _keep(self, frame: DataFrame) -> DataFrame:
        """Read once, used several times."""
        self._kept.append(frame.persist())
        return self._kept[-1]


COMPACT: Final = Job(NAME, "Receipts become the history of commits, its timeline and what tables were busy.", run)
