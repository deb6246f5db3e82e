"""`compact`: receipts become the history of commits, its timeline, and how busy each table was."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame

from sandur.pipeline import system_tables
from sandur.pipeline.feed import Feed
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.publishing import Change, CoreManifest, Publication
from sandur.pipeline.sources.events import FeedReader
from sandur.pipeline.sources.names import NamesReader, PointersReader
from sandur.pipeline.tables import ACTIVITY, COMMITS, EVENTS, NAMES, OWNERS, POINTERS, QUARANTINE, TIMELINE
from sandur.pipeline.tasks import frame_of
from sandur.pipeline.transforms import commits as of_commits

NAME: Final = "compact"
FILES_MAX: Final = 64
_FEED: Final = "feed"


def run(context: JobContext) -> JobReport:
    """Everything that came since the last run, exactly once: the watermark is published with the rows."""
    context.progress("give positions to new receipts")
    feed = context.wait(Feed(context.workspace).caught_up() if context.dry_run else Feed(context.workspace).advance())
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
        warnings=(*work.warnings, *told),
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
        self.counts: dict[str, int] = {}
        self.warnings: list[str] = []
        self._kept: list[DataFrame] = []

    def published(self) -> CoreManifest | None:
        """What is published now; None when there was nothing to publish."""
        before = self._publication.read(OWNERS)
        names = frame_of(self._context.spark, NamesReader(self._context.source_options), NAMES.spark_schema)
        pointers = frame_of(self._context.spark, PointersReader(self._context.source_options), POINTERS.spark_schema)
        events = self._keep(self._events())
        self._count(events)
        owners = of_commits.owners(names, pointers, before)
        if not of_commits.registrations(events).isEmpty():
            owners = of_commits.with_replaced(owners, events, self._publication.read(COMMITS))
        owners = self._keep(owners)
        renamed = of_commits.renamed(owners, before).count()
        self.counts["tables_renamed"] = renamed
        has_news = self.counts["commits"] > 0
        if self._context.dry_run or (self._after == self._upto and not renamed):
            return None
        watermark = {_FEED: self._upto}
        changes = {COMMITS.name: self._commits(events, owners, is_renamed=renamed > 0)}
        if self.counts["quarantined"]:
            files = self._publication.write(of_commits.quarantine(events), QUARANTINE)
            changes[QUARANTINE.name] = Change(files, watermark, appends=True)
        if has_news or renamed:
            changes |= self._derived(events, owners, watermark)
        return self._publication.publish(changes)

    def release(self) -> None:
        for frame in self._kept:
            frame.unpersist()

    def _commits(self, events: DataFrame, owners: DataFrame, *, is_renamed: bool) -> Change:
        """The new rows behind the others; all rows anew when names changed, or when there are too many files."""
        known = self._publication.base.datasets.get(COMMITS.name)
        is_scattered = known is not None and len(known.files) >= FILES_MAX
        watermark = {_FEED: self._upto}
        self._context.progress("write commits")
        if is_renamed or is_scattered:
            return Change(self._publication.write(self._all(events, owners), COMMITS), watermark)
        if not self.counts["commits"]:
            return Change((), watermark, appends=True)
        return Change(self._publication.write(of_commits.commits(events, owners), COMMITS), watermark, appends=True)

    def _derived(self, events: DataFrame, owners: DataFrame, watermark: Mapping[str, int]) -> Mapping[str, Change]:
        self._context.progress("write timeline and activity")
        rows = self._keep(of_commits.timeline(self._all(events, owners)))
        self._check_chains(rows)
        busy = of_commits.activity(of_commits.commits(events, owners), self._publication.read(ACTIVITY))
        return {
            TIMELINE.name: Change(self._publication.write(rows, TIMELINE), watermark),
            ACTIVITY.name: Change(self._publication.write(busy, ACTIVITY), watermark),
            OWNERS.name: Change(self._publication.write(owners, OWNERS), watermark),
        }

    def _check_chains(self, timeline: DataFrame) -> None:
        """Every receipt but the first of a table names the one before it, which must be there."""
        missing = timeline.where("not is_linked").count()
        self.counts["links_missing"] = missing
        if missing:
            self.warnings.append(f"{missing} commits name one before them that has no receipt; reconcile restores it")

    def _all(self, events: DataFrame, owners: DataFrame) -> DataFrame:
        before = of_commits.named(self._publication.read(COMMITS), owners)
        return before.unionByName(of_commits.commits(events, owners))

    def _count(self, events: DataFrame) -> None:
        """How many receipts there are of which kind, and how many are commits of others than ourselves."""
        self._context.progress("read receipts")
        problems = {row.problem: row["count"] for row in events.groupBy("problem").count().collect()}
        understood = of_commits.understood(events).count()
        self.counts |= {
            "receipts": sum(problems.values()),
            "commits": understood,
            "commits_of_system_tables": problems.get(None, 0) - understood,
            "quarantined": sum(count for problem, count in problems.items() if problem),
        }
        for problem, count in sorted((name, count) for name, count in problems.items() if name):
            self.counts[f"quarantined_{problem}"] = count
            self.warnings.append(f"{count} receipts are {problem}; see system.quarantine")

    def _events(self) -> DataFrame:
        told = {**self._context.source_options, "after": str(self._after), "upto": str(self._upto)}
        return frame_of(self._context.spark, FeedReader(told), EVENTS.spark_schema)

    def _keep(self, frame: DataFrame) -> DataFrame:
        """Read once, used several times."""
        self._kept.append(frame.persist())
        return self._kept[-1]


COMPACT: Final = Job(NAME, "Receipts become the history of commits, its timeline and what tables were busy.", run)
