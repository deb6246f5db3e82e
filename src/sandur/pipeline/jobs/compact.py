"""`compact`: turn new receipts into the history of commits, its timeline, and the activity of each table."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from sandur.pipeline import system_tables
from sandur.pipeline.feed import FEED, Feed
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.publishing import DatasetUpdate, Publication
from sandur.pipeline.sources.catalog import SandurNames, SandurPointers
from sandur.pipeline.sources.datasets import PublishedFile
from sandur.pipeline.sources.events import FeedSource
from sandur.pipeline.sources.range_reader import read_frame
from sandur.pipeline.tables import ACTIVITY, COMMITS, OWNERS, QUARANTINE, TIMELINE, shape
from sandur.pipeline.tasks import empty_frame
from sandur.pipeline.transforms import commits as of_commits

NAME: Final = "compact"
WARNINGS_MAX: Final = 10
_ENDS: Final = shape("ends", "commit_key string, is_known boolean", key="commit_key")


def run(context: JobContext) -> JobReport:
    """Process every receipt since the last run exactly once: the watermark is published with the rows."""
    context.progress("append new receipts to the feed")
    feed = Feed(context.lake)
    publication = Publication(context)
    after = publication.dataset(COMMITS).watermark.get(FEED, 0)
    state = context.wait(feed.catch_up() if context.dry_run else feed.advance(unread_after=after))
    work = _Compaction(context, publication, after=after, upto=state.sequence)
    work.publish()
    refused = system_tables.refresh(context, publication.manifest, (COMMITS, TIMELINE, ACTIVITY, QUARANTINE))
    positions = {"feed_from": after, "feed_to": state.sequence, "receipts_known": state.next_position}
    return context.report(
        NAME,
        counts={**positions, **work.counts},
        warnings=(*feed.problems, *work.warnings, *refused),
        published=publication.published,
    )


class _Compaction:
    """One run over the feed's entries after `after` up to `upto`."""

    def __init__(self, context: JobContext, publication: Publication, *, after: int, upto: int) -> None:
        self._context = context
        self._publication = publication
        self._after = after
        self._upto = upto
        self._has_registrations = False
        self.counts: dict[str, int] = {}
        self.warnings: list[str] = []

    def publish(self) -> None:
        positions = {"after": str(self._after), "upto": str(self._upto)}
        source = FeedSource({**self._context.source_options, **positions})
        events = self._context.persist(read_frame(self._context.spark, source))
        self._count(events)
        owners = self._context.persist(self._owners(events))
        known = self._publication.read(OWNERS)
        renamed = of_commits.renamed_owners(owners, known).count() if self._publication.dataset(OWNERS).rows else 0
        self.counts["tables_renamed"] = renamed
        if self._context.dry_run or (self._after == self._upto and not renamed):
            return
        changes: dict[str, DatasetUpdate] = {}
        if self.counts["quarantined"]:
            files = self._publication.write(of_commits.quarantine(events), QUARANTINE)
            changes[QUARANTINE.name] = self._update(files, appends=True)
        if self.counts["commits"] or renamed:
            changes |= self._history(events, owners, is_renamed=renamed > 0)
        else:
            changes[COMMITS.name] = self._update((), appends=True)
        self._publication.publish(changes)

    def _count(self, events: DataFrame) -> None:
        """Count receipts by kind; commits of the pipeline to its own tables are counted separately."""
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
        for problem in sorted(filter(None, first)):
            count = counts[f"quarantined_{problem}"]
            self.warnings.append(f"{count} receipts are {problem}, for example {first[problem]}; see system.quarantine")

    def _owners(self, events: DataFrame) -> DataFrame:
        """The current name of each table."""
        spark, options = self._context.spark, self._context.source_options
        self._context.progress("read names")
        names = self._context.persist(read_frame(spark, SandurNames(options)))
        pointers = self._context.persist(read_frame(spark, SandurPointers(options)))
        self._count_unreadable(names, pointers)
        owners = of_commits.owners(names, pointers, self._publication.read(OWNERS))
        if not self._has_registrations:
            return owners
        return of_commits.with_replaced(owners, events, self._publication.read(COMMITS))

    def _count_unreadable(self, names: DataFrame, pointers: DataFrame) -> None:
        """Count the names and pointers that cannot be read, and warn of some."""
        problems = (
            names.select("problem").unionByName(pointers.select("problem")).where("problem is not null").distinct()
        )
        some = problems.orderBy("problem").limit(WARNINGS_MAX + 1).collect()
        self.counts["names_unreadable"] = problems.count() if len(some) > WARNINGS_MAX else len(some)
        self.warnings += [f"{row.problem}; the table keeps its last known name" for row in some[:WARNINGS_MAX]]

    def _history(self, events: DataFrame, owners: DataFrame, *, is_renamed: bool) -> Mapping[str, DatasetUpdate]:
        """Append the new rows; write all rows again if tables were renamed or there are too many small files."""
        self._context.progress("order commits")
        rows = self._context.persist(of_commits.history(events, self._publication.read(COMMITS), owners))
        new, loose = rows.agg(F.count_if("is_new"), F.count_if(of_commits.is_loose())).collect()[0]
        self.counts["commits"] = new
        is_rewritten = is_renamed or self._publication.dataset(COMMITS).is_scattered
        new_rows = rows.where("is_new")
        busy = of_commits.activity(new_rows, self._publication.read(ACTIVITY))
        timeline = of_commits.timeline(rows, self._loose_ends(rows, loose))
        self._context.progress("write commits, timeline and activity")
        return {
            COMMITS.name: self._update(
                self._publication.write(rows if is_rewritten else new_rows, COMMITS), appends=not is_rewritten
            ),
            TIMELINE.name: self._update(self._publication.write(timeline, TIMELINE)),
            ACTIVITY.name: self._update(self._publication.write(busy, ACTIVITY)),
            OWNERS.name: self._update(self._publication.write(owners, OWNERS)),
        }

    def _loose_ends(self, rows: DataFrame, loose: int) -> DataFrame:
        """Check the chain: every receipt but the first of a table names an existing one."""
        self.counts["links_missing"] = 0
        if not loose:
            return empty_frame(self._context.spark, _ENDS.spark_schema)
        ends = self._context.persist(of_commits.loose_ends(rows))
        missing = self.counts["links_missing"] = ends.where("is_known is null").count()
        if missing:
            self.warnings.append(f"{missing} commits have a successor but no receipt; sandur run reconcile restores it")
        return ends

    def _update(self, files: Sequence[PublishedFile], *, appends: bool = False) -> DatasetUpdate:
        return DatasetUpdate(files, {FEED: self._upto}, appends=appends)


COMPACT: Final = Job(NAME, "Turn receipts into the history of commits, its timeline and the activity of tables.", run)
