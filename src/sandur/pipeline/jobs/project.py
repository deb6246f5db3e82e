"""`project`: publish the current catalogs, namespaces, tables, columns, snapshots and refs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from sandur.operations.feed import FEED, Feed
from sandur.operations.published import PublishedFile
from sandur.pipeline import system_tables
from sandur.pipeline.executor_tasks.project import (
    FILES_AT_ONCE,
    PROBLEM,
    READABLE,
    metadata_task,
    readable_tables,
    recheck_tables,
)
from sandur.pipeline.executor_tasks.write import WRITTEN
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.publishing import DatasetUpdate, Publication
from sandur.pipeline.sources.catalog import SandurCatalogs, SandurNames, SandurNamespaces
from sandur.pipeline.sources.range_reader import OBJECTS_AT_ONCE, read_frame
from sandur.pipeline.tables import CATALOGS, NAMES, NAMESPACES, OF_METADATA, SHAPES, TABLES, Shape
from sandur.pipeline.tasks import lake_task, task_count
from sandur.pipeline.transforms import projection
from sandur.pipeline.transforms.projection import CREATED, DROPPED, SAME, UNREADABLE

NAME: Final = "project"
FILES_PER_TASK: Final = 64
FILES_PER_TASK_MAX: Final = 5_000
WARNINGS_MAX: Final = 10


def run(context: JobContext) -> JobReport:
    """Read new metadata files, keep the rows of unchanged ones, and publish everything at once.

    The result contains every commit with a position at the start of the run: a commit swaps its pointer before it
    writes its receipt, and the run reads pointers after positions.
    """
    context.progress("append new receipts to the feed")
    feed = Feed(context.lake)
    state = context.wait(feed.catch_up() if context.dry_run else feed.advance())
    as_of_ms = context.clock.now_ms()
    publication = Publication(context)
    before = publication.dataset(TABLES).watermark.get(FEED, 0)
    work = _Projection(context, publication, state.sequence)
    work.publish()
    refused = system_tables.refresh(context, publication.manifest, (CATALOGS, NAMESPACES, *OF_METADATA))
    staleness_ms = context.clock.now_ms() - as_of_ms
    return context.report(
        NAME,
        counts={"feed_from": before, "feed_to": state.sequence, "staleness_ms": staleness_ms, **work.counts},
        warnings=(*feed.problems, *work.warnings, *refused),
        published=publication.published,
    )


class _Projection:
    """One run; its result contains the feed at least up to `upto`."""

    def __init__(self, context: JobContext, publication: Publication, upto: int) -> None:
        self._context = context
        self._publication = publication
        self._upto = upto
        self._own = (context.settings.default_catalog, system_tables.NAMESPACE, tuple(SHAPES))
        self.counts: dict[str, int] = {}
        self.warnings: list[str] = []

    def publish(self) -> None:
        changes = {**self._containers(), **self._tables()}
        has_moved = self._publication.dataset(TABLES).watermark.get(FEED, 0) != self._upto
        if not self._context.dry_run and (changes or has_moved):
            changes.setdefault(TABLES.name, self._update((), appends=True))
            self._publication.publish(changes)

    def _containers(self) -> Mapping[str, DatasetUpdate]:
        """The new files of catalogs and namespaces, if they changed."""
        self._context.progress("read catalogs and namespaces")
        options, spark = self._context.source_options, self._context.spark
        containers = ((CATALOGS, SandurCatalogs(options)), (NAMESPACES, SandurNamespaces(options)))
        read = [(shape, self._context.persist(read_frame(spark, source))) for shape, source in containers]
        has_unreadable = self._count_unreadable(read)
        rows: dict[str, DataFrame] = {}
        compared: dict[str, DataFrame] = {}
        for shape, records in read:
            known = self._publication.read(shape)
            now = records.select(*shape.column_names)
            if has_unreadable:
                now = projection.with_unreadable(shape, records, known)
            rows[shape.name] = now
            compared[shape.name] = self._context.persist(projection.compare_containers(shape, now, known))
        changed = self._count_containers(compared)
        found: dict[str, DatasetUpdate] = {}
        for shape in (CATALOGS, NAMESPACES):
            if shape.name in changed:
                found[shape.name] = self._update(self._write(rows[shape.name].coalesce(1), shape))
        return found

    def _count_unreadable(self, read: Sequence[tuple[Shape, DataFrame]]) -> bool:
        """Count the catalogs and namespaces that cannot be read, and warn of some; returns whether there are any."""
        first, second = (projection.unreadable_containers(shape, rows) for shape, rows in read)
        unread = first.unionByName(second)
        self.counts |= {f"{shape.name}_unreadable": 0 for shape, _ in read}
        self.counts |= {
            f"{row.dataset}_unreadable": row["count"] for row in unread.groupBy("dataset").count().collect()
        }
        if not any(self.counts.values()):
            return False
        for row in unread.orderBy("dataset", "name").limit(WARNINGS_MAX).collect():
            self.warnings.append(f"{row.name}: {row.problem}; its last published row is kept")
        return True

    def _count_containers(self, compared: Mapping[str, DataFrame]) -> set[str]:
        """Count catalogs and namespaces; returns the datasets that changed."""
        changes = [frame.select(F.lit(name).alias("dataset"), "change") for name, frame in compared.items()]
        self.counts |= dict.fromkeys(compared, 0)
        changed: set[str] = set()
        for row in changes[0].unionByName(changes[1]).groupBy("dataset", "change").count().collect():
            self.counts[row.dataset] += row["count"] * (row.change != DROPPED)
            changed |= {row.dataset} if row.change != SAME else set()
        return changed

    def _tables(self) -> Mapping[str, DatasetUpdate]:
        """The new files of all datasets that come from names and metadata files, if they changed."""
        self._context.progress("read names")
        names = read_frame(self._context.spark, SandurNames(self._context.source_options))
        before = self._context.persist(self._publication.read(TABLES))
        compared = self._context.persist(projection.compare_tables(projection.current_tables(names, self._own), before))
        counts = self._count(compared)
        if counts.keys() & {DROPPED, UNREADABLE}:
            compared = self._recheck(compared, before)
            counts = self._count(compared)
        is_readable = self._readable_again(compared)
        tables = projection.read_now(compared, is_readable)
        if not (self.counts["metadata_files_read"] or counts.keys() - {SAME}):
            return {}
        is_scattered = any(self._publication.dataset(shape).is_scattered for shape in OF_METADATA)
        appends = counts.keys() <= {CREATED, SAME} and is_readable is None and not is_scattered
        fresh = self._read_metadata(tables)
        kept = self._write_kept(tables, before, appends=appends, has_new=CREATED in counts)
        return {
            shape.name: self._update((*fresh.get(shape.name, ()), *kept.get(shape.name, ())), appends=appends)
            for shape in OF_METADATA
        }

    def _recheck(self, compared: DataFrame, before: DataFrame) -> DataFrame:
        """Check again the tables that seem to be dropped, and leave out names that cannot be read.

        A table is dropped only if its pointer or its name says so. A table in doubt keeps its rows, with a warning.
        """
        self._context.progress("check tables that seem to be dropped")
        tables = compared.where(F.col("change") != UNREADABLE)
        missing = projection.as_published(tables.where(F.col("change") == DROPPED))
        task = lake_task(self._context.source_options, recheck_tables, rows_at_once=OBJECTS_AT_ONCE)
        again = self._context.persist(missing.mapInArrow(task, NAMES.spark_schema))
        found, in_doubt = again.agg(F.count("*"), F.count("problem")).collect()[0]
        self.counts["tables_in_doubt"] = in_doubt
        self._warn(compared.where(F.col("change") == UNREADABLE), "name_problem", self.counts["names_unreadable"])
        self._warn(again.where(F.col("problem").isNotNull()), "problem", in_doubt)
        if not found:
            return tables
        current = projection.current_tables(again.withColumn("problem", F.lit(None).cast("string")), self._own)
        return self._context.persist(projection.found_again(tables, current, before))

    def _warn(self, rows: DataFrame, problem: str, count: int) -> None:
        """Warn of some names with a problem, each once."""
        some = rows.limit(WARNINGS_MAX).collect() if count else []
        for row in some:
            name = f"{row.catalog}.{row.namespace}.{row.name}: "
            if len(self.warnings) < WARNINGS_MAX and not any(warning.startswith(name) for warning in self.warnings):
                self.warnings.append(f"{name}{row[problem]}; its last published rows are kept")

    def _write_kept(
        self, tables: DataFrame, before: DataFrame, *, appends: bool, has_new: bool
    ) -> Mapping[str, Sequence[PublishedFile]]:
        """Write the rows that do not come from new metadata files, by dataset."""
        if appends:
            without_file = projection.without_file(tables).coalesce(1)
            return {TABLES.name: self._write(without_file, TABLES)} if has_new else {}
        files: dict[str, Sequence[PublishedFile]] = {}
        for shape in OF_METADATA:
            self._context.progress(f"write {shape.name}")
            is_table = shape is TABLES
            known = before if is_table else self._publication.read(shape)
            kept = projection.kept_tables(tables, known) if is_table else projection.kept_rows(shape, tables, known)
            files[shape.name] = self._write(kept, shape)
        return files

    def _count(self, compared: DataFrame) -> Mapping[str, int]:
        """Count tables by change, and the metadata files to read."""
        counts: Counter[str] = Counter()
        for row in compared.groupBy("change", "is_unread", "is_retried").count().collect():
            counts[row.change] += row["count"]
            counts["unread"] += row["count"] * row.is_unread
            counts["retried"] += row["count"] * row.is_retried
        self.counts["metadata_files_read"] = counts.pop("unread", 0)
        self.counts["tables_with_problems"] = counts.pop("retried", 0)
        self.counts["tables"] = counts.total() - counts[DROPPED] - counts[UNREADABLE]
        self.counts = {"names_unreadable": counts[UNREADABLE], "tables_in_doubt": 0, **self.counts}
        return {change: count for change, count in counts.items() if count}

    def _readable_again(self, compared: DataFrame) -> Column | None:
        """Which tables with unreadable files can be read now; None if no table has such files.

        A run tries a random sample, and warns of files that are still unreadable. If the whole sample is readable, the
        cause is gone, and the run reads all of them.
        """
        count = self.counts["tables_with_problems"]
        if not count:
            return None
        tables_max = self._context.limits.files_retried_max
        sample = projection.sample_of_retried(compared, seed=self._context.run_id, tables_max=tables_max)
        task = lake_task(self._context.source_options, readable_tables, rows_at_once=FILES_AT_ONCE)
        readable = sorted(row.uuid for row in sample.mapInArrow(task, READABLE).collect())
        is_readable = F.col("uuid").isin(readable)
        if len(readable) == tables_max:
            is_readable, readable_count = F.col("is_retried"), count
        else:
            readable_count = len(readable)
            unreadable = sample.where(~is_readable).limit(WARNINGS_MAX).collect()
            self.warnings += [f"{row.catalog}.{row.namespace}.{row.name}: {row.was_problem}" for row in unreadable]
        self.counts["metadata_files_read"] += readable_count
        self.counts["tables_with_problems"] -= readable_count
        return is_readable if readable_count else None

    def _read_metadata(self, tables: DataFrame) -> Mapping[str, Sequence[PublishedFile]]:
        """Read new metadata files, in executors, which write the rows into files."""
        count = self.counts["metadata_files_read"]
        if not count or self._context.dry_run:
            return {}
        self._context.progress("read metadata files")
        tasks = task_count(self._context.spark, count, at_least=FILES_PER_TASK, at_most=FILES_PER_TASK_MAX)
        fresh = projection.fresh(tables).repartition(tasks, "uuid").sortWithinPartitions(*projection.NAMES)
        task = metadata_task(self._context.source_options, self._publication.attempt)
        rows = fresh.mapInArrow(task, WRITTEN).collect()
        problems = [row for row in rows if row.dataset == PROBLEM]
        self.counts["tables_with_problems"] += sum(row.rows for row in problems)
        self.warnings += [row.key for row in problems[: WARNINGS_MAX - len(self.warnings)]]
        return self._publication.add_written([row for row in rows if row.dataset != PROBLEM])

    def _update(self, files: Sequence[PublishedFile], *, appends: bool = False) -> DatasetUpdate:
        return DatasetUpdate(files, {FEED: self._upto}, appends=appends)

    def _write(self, rows: DataFrame, shape: Shape) -> Sequence[PublishedFile]:
        return () if self._context.dry_run else self._publication.write(rows, shape)


PROJECT: Final = Job(
    NAME,
    "Publish the current catalogs, namespaces, tables, columns, schemas, snapshots and refs.",
    run,
    reads=("names", "metadata files"),
)
