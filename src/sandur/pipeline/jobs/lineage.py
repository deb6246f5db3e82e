"""`lineage`: fold the events of runs, find their tables and commits, and publish the edges between them."""

import functools
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from sandur.operations.feed import LINEAGE_BATCHES, LINEAGE_FEED, Feed
from sandur.pipeline import system_tables
from sandur.pipeline.executor_tasks.lineage import (
    DERIVED,
    NEWEST_VERSION,
    TABLE_KEYS,
    derive_task,
    key_tables,
    merge_states,
    newest_external_version,
)
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.publishing import DatasetUpdate, Publication
from sandur.pipeline.sources.lineage import MISSING, LineageFacts
from sandur.pipeline.sources.range_reader import read_frame
from sandur.pipeline.tables import (
    COLUMN_LINEAGE,
    COLUMNS,
    COMMITS,
    LINEAGE,
    LINEAGE_RUNS,
    LINEAGE_STATES,
    OWNERS,
    QUARANTINE,
    TABLES,
    TIMELINE,
    Shape,
)
from sandur.pipeline.tasks import map_rows
from sandur.pipeline.transforms import lineage as of_lineage
from sandur.settings import seconds_of

NAME: Final = "lineage"
_PUBLISHED: Final = (LINEAGE, COLUMN_LINEAGE, LINEAGE_RUNS)
_INPUTS: Final = (COMMITS, TABLES, OWNERS, COLUMNS)


def run(context: JobContext) -> JobReport:
    """Publish what the events of the lineage feed state, with the tables and commits as they are published now."""
    context.progress("append new events to the lineage feed")
    feed = Feed(context.lake, LINEAGE_BATCHES)
    publication = Publication(context)
    after = publication.dataset(LINEAGE).watermark.get(LINEAGE_FEED, 0)
    state = context.wait(feed.catch_up() if context.dry_run else feed.advance(unread_after=after))
    work = _Lineage(context, publication, after=after, upto=state.sequence)
    work.publish()
    shapes = (*_PUBLISHED, COMMITS, TIMELINE, QUARANTINE)
    refused = system_tables.refresh(context, publication.manifest, shapes)
    return context.report(
        NAME,
        counts={"feed_from": after, "feed_to": state.sequence, **work.counts},
        warnings=(*feed.problems, *work.warnings, *refused),
        published=publication.published,
    )


class _Lineage:
    """One run over the entries of the lineage feed after `after` up to `upto`."""

    def __init__(self, context: JobContext, publication: Publication, *, after: int, upto: int) -> None:
        self._context = context
        self._publication = publication
        self._after = after
        self._upto = upto
        self.counts: dict[str, int] = {}
        self.warnings: list[str] = []

    def publish(self) -> None:
        self._context.progress("read lineage events")
        source = LineageFacts({**self._context.source_options, "after": str(self._after), "upto": str(self._upto)})
        facts = self._context.persist(read_frame(self._context.spark, source))
        has_news = self._count(facts)
        if not has_news and self._seen_inputs() == self._publication.dataset(LINEAGE).watermark.get("inputs", 0):
            return
        changes = self._changes(facts)
        if self._context.dry_run:
            return
        if self.counts["quarantined"]:
            files = self._publication.write(of_lineage.quarantine(facts, MISSING), QUARANTINE)
            watermark = self._publication.dataset(QUARANTINE).watermark
            changes[QUARANTINE.name] = DatasetUpdate(files, watermark, appends=True)
        self._publication.publish(changes)

    def _count(self, facts: DataFrame) -> bool:
        """Count events, and objects by problem; returns whether there is something to publish."""
        counts: Counter[str] = Counter()
        has_news = False
        totals = facts.groupBy("problem").agg(F.sum("events"), F.bool_or("is_news"), F.count("*"), F.min("key"))
        for problem, events, is_news, count, key in sorted(totals.collect(), key=str):
            if problem is None:
                counts["events"] += events
                has_news |= bool(is_news)
                continue
            counts[f"objects_{problem}"] += count
            counts["quarantined"] += count if problem != MISSING else 0
            has_news = True
            where = "; they were removed before they were read" if problem == MISSING else "; see system.quarantine"
            self.warnings.append(f"{count} objects are {problem}, for example {key}{where}")
        self.counts = {"events": 0, "quarantined": 0, **counts}
        return has_news

    def _changes(self, facts: DataFrame) -> dict[str, DatasetUpdate]:
        """The new files of all datasets whose rows changed."""
        context, publication = self._context, self._publication
        now_ms, settings = context.clock.now_ms(), context.settings
        before_ms = now_ms - seconds_of(settings.lineage_retention) * 1_000
        runs_before_ms = now_ms - seconds_of(settings.lineage_run_retention) * 1_000
        context.progress("fold runs")
        parts = of_lineage.parts_of_runs(facts, publication.read(LINEAGE_STATES))
        states = context.persist(parts.mapInArrow(merge_states, LINEAGE_STATES.spark_schema))
        derive = derive_task(settings.default_catalog, settings.allowed_hosts)
        derived = context.persist(states.mapInArrow(derive, DERIVED.spark_schema))
        context.progress("find tables and commits")
        tables = publication.read(TABLES)
        named = of_lineage.tables_and_owners(tables, publication.read(OWNERS))
        keys = context.persist(named.mapInArrow(key_tables, TABLE_KEYS.spark_schema))
        found = context.persist(of_lineage.candidates(derived, keys))
        references = context.persist(of_lineage.resolved(derived, found))
        made = of_lineage.commits_by_version(publication.read(COMMITS), found).unionByName(
            self._logged(context.persist(of_lineage.stated_delta_tables(derived, found, tables)))
        )
        output = context.persist(of_lineage.outputs(derived, references, found, made))
        edges = context.persist(of_lineage.run_edges(derived, references, output))
        fields = context.persist(
            publication.read(COLUMNS)
            .join(tables.select("uuid", "table_uuid"), on="uuid", how="inner")
            .select("table_uuid", "path", "field_id")
        )
        columns = of_lineage.completed(of_lineage.column_edges(derived, references, output), edges, fields)
        names = keys.groupBy("table_uuid").agg(F.min("full_name").alias("full_name"))
        rows = [
            (LINEAGE, of_lineage.lineage(edges, publication.read(LINEAGE), names, before_ms)),
            (
                COLUMN_LINEAGE,
                of_lineage.column_lineage(columns, fields, publication.read(COLUMN_LINEAGE), names, before_ms),
            ),
            (
                LINEAGE_RUNS,
                of_lineage.runs(derived, references, output, publication.read(LINEAGE_RUNS), runs_before_ms),
            ),
            (LINEAGE_STATES, of_lineage.kept_states(states, before_ms)),
        ]
        context.progress("write lineage")
        changes = self._changed(rows)
        changes |= self._history(of_lineage.lineage_of_commits(edges))
        return changes

    def _logged(self, stated: DataFrame) -> DataFrame:
        """The commits of external Delta tables, which only their own logs know."""
        tables = stated.select("uuid").distinct()
        newest = map_rows(tables, self._context.source_options, newest_external_version, NEWEST_VERSION)
        return of_lineage.commits_in_logs(stated, newest)

    def _changed(self, rows: Sequence[tuple[Shape, DataFrame]]) -> dict[str, DatasetUpdate]:
        """The datasets with other rows than published; the watermark moves in any case."""
        watermark = {LINEAGE_FEED: self._upto, "inputs": self._seen_inputs()}
        changes = {LINEAGE.name: DatasetUpdate((), watermark, appends=True)}
        new = {shape.name: self._context.persist(frame) for shape, frame in rows}
        tagged = [(f"{shape.name} now", new[shape.name], shape) for shape, _ in rows]
        tagged += [(f"{shape.name} before", self._publication.read(shape), shape) for shape, _ in rows]
        digests = _digests(tagged)
        for shape, _ in rows:
            now, before = digests[f"{shape.name} now"], digests[f"{shape.name} before"]
            self.counts[_COUNTED.get(shape.name, shape.name)] = now[0]
            if now != before:
                files = () if self._context.dry_run else self._publication.write(new[shape.name].coalesce(1), shape)
                changes[shape.name] = DatasetUpdate(files, watermark)
        return changes

    def _history(self, stated: DataFrame) -> Mapping[str, DatasetUpdate]:
        """The commits and the timeline, if lineage is known of commits that are published without it."""
        publication = self._publication
        commits = publication.read(COMMITS)
        changed = of_lineage.with_lineage(commits, stated).select("commit_key", "lineage")
        was = commits.select("commit_key", F.col("lineage").alias("was"))
        count = changed.join(was, on="commit_key", how="inner").where("lineage <> was").count()
        self.counts["commits_with_new_lineage"] = count
        if not count or self._context.dry_run:
            return {}
        return {
            shape.name: DatasetUpdate(
                publication.write(of_lineage.with_lineage(publication.read(shape), stated), shape),
                publication.dataset(shape).watermark,
            )
            for shape in (COMMITS, TIMELINE)
        }

    def _seen_inputs(self) -> int:
        """A number that changes with the published files that references are resolved with."""
        files = [file.sha256 for shape in _INPUTS for file in self._publication.dataset(shape).files]
        return int(_hash_of(files), 16)


def _hash_of(files: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(files).encode()).hexdigest()[:12]


def _digests(tagged: Sequence[tuple[str, DataFrame, Shape]]) -> Mapping[str, tuple[int, int]]:
    """The number of rows of each frame, and a hash of their set, in one query."""
    parts = [
        rows.agg(
            F.count("*").alias("rows"), F.sum(F.xxhash64(*shape.column_names).cast("decimal(38,0)")).alias("hash")
        ).withColumn("tag", F.lit(tag))
        for tag, rows, shape in tagged
    ]
    found = functools.reduce(DataFrame.unionByName, parts).collect()
    return {row.tag: (row.rows, int(row.hash or 0)) for row in found}


_COUNTED: Final = {"lineage": "edges", "column_lineage": "column_edges", "lineage_runs": "runs"}

LINEAGE_JOB: Final = Job(
    NAME, "Publish which tables and columns come from which, with the commit of each.", run, reads=("lineage events",)
)
