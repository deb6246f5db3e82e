"""`compact`: turn new receipts into the history: commits, their timeline, the activity of tables, and changes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from sandur.operations.feed import FEED, Feed
from sandur.operations.published import PublishedFile
from sandur.pipeline import system_tables
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.publishing import DatasetUpdate, Publication
from sandur.pipeline.sources.catalog import SandurNames, SandurPointers
from sandur.pipeline.sources.events import FeedSource, unread_entries
from sandur.pipeline.sources.range_reader import read_frame
from sandur.pipeline.tables import ACTIVITY, CHANGES, COMMITS, OWNERS, QUARANTINE, TIMELINE, shape
from sandur.pipeline.tasks import empty_frame
from sandur.pipeline.transforms import commits as of_commits

NAME: Final = "compact"
WARNINGS_MAX: Final = 10
REGISTRATIONS: Final = "registrations"
"""The newest entry with a registration over another table, among the watermarks; 0 if there was none."""
_ENDS: Final = shape("ends", "commit_key string, is_known boolean", key="commit_key")


def run(context: JobContext) -> JobReport:
    """Process every receipt since the last run exactly once: the watermark is published with the rows."""
    context.progress("append new receipts to the feed")
    feed = Feed(context.lake)
    publication = Publication(context)
    after = publication.dataset(COMMITS).watermark.get(FEED, 0)
    state = context.wait(feed.catch_up() if context.dry_run else feed.advance(unread_after=after))
    unread = unread_entries(context.blocking, feed, after, state.sequence, is_new=not after)
    work = _Compaction(context, publication, unread.options, upto=state.sequence, has_news=after != state.sequence)
    work.publish()
    refused = system_tables.refresh(context, publication.manifest, (COMMITS, TIMELINE, ACTIVITY, QUARANTINE, CHANGES))
    positions = {"feed_from": after, "feed_to": state.sequence, "receipts_known": state.next_position}
    return context.report(
        NAME,
        counts={**positions, **work.counts},
        warnings=(*feed.problems, *unread.warnings, *work.warnings, *refused),
        published=publication.published,
    )


class _Compaction:
    """One run over entries of the feed, the last of which is `upto`."""

    def __init__(
        self, context: JobContext, publication: Publication, entries: Mapping[str, str], *, upto: int, has_news: bool
    ) -> None:
        self._context = context
        self._publication = publication
        self._entries = entries
        self._upto = upto
        self._has_news = has_news
        self._has_registrations = False
        self._registrations = 0
        self.counts: dict[str, int] = {}
        self.warnings: list[str] = []

    def publish(self) -> None:
        source = FeedSource({**self._context.source_options, **self._entries})
        events = self._context.persist(read_frame(self._context.spark, source))
        self._count(events)
        owners = self._context.persist(self._owners(events))
        known = self._publication.read(OWNERS)
        renamed = of_commits.renamed_owners(owners, known).count() if self._publication.dataset(OWNERS).rows else 0
        self.counts["tables_renamed"] = renamed
        if self._context.dry_run or (not self._has_news and not renamed):
            return
        changes: dict[str, DatasetUpdate] = {}
        if self.counts["quarantined"]:
            files = self._publication.write(of_commits.quarantine(events), QUARANTINE)
            changes[QUARANTINE.name] = self._update(files, appends=True)
        if self.counts["changes"]:
            changes[CHANGES.name] = self._changes(events)
        if self.counts["commits"] or renamed:
            changes |= self._history(events, owners, is_renamed=renamed > 0)
        else:
            changes[COMMITS.name] = self._update((), appends=True)
        self._publication.publish(changes)

    def _count(self, events: DataFrame) -> None:
        """Count receipts by kind: commits, the pipeline's own to its tables, changes of the catalog, and bad ones."""
        self._context.progress("read receipts")
        counts: Counter[str] = Counter()
        is_over = (F.col("problem").isNull() & of_commits.is_registration()).alias("is_over")
        is_own, is_change = of_commits.is_own(), of_commits.is_change()
        valid = F.when(is_change, "changes").when(is_own, "commits_of_system_tables").otherwise("commits")
        kinds = F.when(F.col("problem").isNull(), valid).otherwise(F.concat(F.lit("quarantined_"), "problem"))
        totals = events.groupBy("problem", kinds.alias("kind"), is_over).agg(F.count("*"), F.min("key")).collect()
        first = {problem: key for problem, _, _, _, key in totals}
        for problem, kind, over, count, _ in totals:
            counts["receipts"] += count
            counts[kind] += count
            counts["quarantined"] += count if problem else 0
            self._has_registrations |= bool(over)
        self.counts = {"commits": 0, "commits_of_system_tables": 0, "changes": 0, "quarantined": 0, **counts}
        for problem in sorted(filter(None, first)):
            count = counts[f"quarantined_{problem}"]
            self.warnings.append(f"{count} receipts are {problem}, for example {first[problem]}; see system.quarantine")

    def _owners(self, events: DataFrame) -> DataFrame:
        """The current name of each table. The history is searched for replaced tables only if there is one."""
        spark, options = self._context.spark, self._context.source_options
        self._context.progress("read names")
        names = self._context.persist(read_frame(spark, SandurNames(options)))
        pointers = self._context.persist(read_frame(spark, SandurPointers(options)))
        self._count_unreadable(names, pointers)
        owners = of_commits.owners(names, pointers, self._publication.read(OWNERS))
        commits = self._publication.read(COMMITS)
        seen = self._publication.dataset(COMMITS).watermark.get(REGISTRATIONS)
        if seen is None:  # A run of an older release did not look for them.
            seen = int(not commits.where(of_commits.is_registration()).isEmpty())
        self._registrations = self._upto if self._has_registrations else seen
        if not self._registrations:
            return owners.select(*OWNERS.column_names)
        return of_commits.with_replaced(owners, of_commits.replacements(events, commits))

    def _count_unreadable(self, names: DataFrame, pointers: DataFrame) -> None:
        """Count the names and pointers that cannot be read, and warn of some."""
        problems = (
            names.select("problem").unionByName(pointers.select("problem")).where("problem is not null").distinct()
        )
        some = problems.orderBy("problem").limit(WARNINGS_MAX + 1).collect()
        self.counts["names_unreadable"] = problems.count() if len(some) > WARNINGS_MAX else len(some)
        self.warnings += [f"{row.problem}; the table keeps its last known name" for row in some[:WARNINGS_MAX]]

    def _changes(self, events: DataFrame) -> DatasetUpdate:
        """Append the new changes of the catalog; write all of them again if there are too many small files."""
        before = self._publication.read(CHANGES)
        rows = self._context.persist(of_commits.changes(events, before).coalesce(1))
        self.counts["changes"] = rows.count()
        appends = not self._publication.dataset(CHANGES).is_scattered
        files = self._publication.write(rows if appends else rows.unionByName(before), CHANGES)
        return self._update(files, appends=appends)

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
        return DatasetUpdate(files, {FEED: self._upto, REGISTRATIONS: self._registrations}, appends=appends)


COMPACT: Final = Job(
    NAME,
    "Turn receipts into the history: commits, their timeline, activity of tables, changes of the catalog.",
    run,
    reads=("receipts", "names"),
)
