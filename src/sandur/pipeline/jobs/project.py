"""`project`: what exists, from names and metadata files: catalogs, namespaces, tables, columns, snapshots and so on."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from sandur.pipeline import system_tables
from sandur.pipeline.executor_tasks.metadata import PROBLEM, metadata_reader, readability_check
from sandur.pipeline.executor_tasks.recheck import recheck_task
from sandur.pipeline.executor_tasks.write import WRITTEN, PublishedFile
from sandur.pipeline.feed import Feed
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.publishing import Change, CoreManifest, Publication
from sandur.pipeline.sources.catalog import CatalogsReader, NamespacesReader, NamesReader
from sandur.pipeline.tables import CATALOGS, CHANGES, NAMES, NAMESPACES, OF_METADATA, SHAPES, TABLES, Shape
from sandur.pipeline.tasks import frame_of, tasks_for
from sandur.pipeline.transforms import projection
from sandur.pipeline.transforms import projection as of_changes
from sandur.pipeline.transforms.projection import CREATED, DROPPED, RENAMED, SAME, UNREADABLE

NAME: Final = "project"
FILES_PER_TASK: Final = 64
FILES_PER_TASK_MAX: Final = 5_000
WARNINGS_MAX: Final = 10
_FEED: Final = "feed"


def run(context: JobContext) -> JobReport:
    """Read the metadata files that are new, keep what is known of the others, and publish all of it at once.

    Every commit that has a position when the run begins is in what it publishes: its pointer was swapped before its
    receipt was written, and pointers are read after that.
    """
    context.progress("see how far the catalog has come")
    log = Feed(context.lake)
    feed = context.wait(log.caught_up() if context.dry_run else log.advance())
    as_of_ms = context.clock.now_ms()
    publication = Publication(context)
    before = publication.watermark(TABLES.name, _FEED)
    work = _Projection(context, publication, feed.sequence, as_of_ms)
    try:
        manifest = work.published()
    finally:
        work.release()
    context.progress("update system tables")
    shapes = (CATALOGS, NAMESPACES, *OF_METADATA, CHANGES)
    told = system_tables.refresh(context, manifest or publication.base, shapes)
    staleness_ms = context.clock.now_ms() - as_of_ms
    return JobReport(
        job=NAME,
        run_id=context.run_id,
        dry_run=context.dry_run,
        counts={"feed_from": before, "feed_to": feed.sequence, "staleness_ms": staleness_ms, **work.counts},
        warnings=(*log.problems, *work.warnings, *told),
        manifest=publication.manifest_key,
        sequence=manifest.sequence if manifest else None,
    )


class _Projection:
    """One run, which reflects the feed up to `upto` at least."""

    def __init__(self, context: JobContext, publication: Publication, upto: int, as_of_ms: int) -> None:
        self._context = context
        self._publication = publication
        self._upto = upto
        self._as_of_ms = as_of_ms
        self._kept: list[DataFrame] = []
        self._changes: list[DataFrame] = []
        self.counts: dict[str, int] = {}
        self.warnings: list[str] = []

    def published(self) -> CoreManifest | None:
        """What is published now; None when all is as it was."""
        found = {**self._homes(), **self._tables(), **self._told_changes()}
        has_moved = self._publication.watermark(TABLES.name, _FEED) != self._upto
        if self._context.dry_run or not (found or has_moved):
            return None
        found.setdefault(TABLES.name, self._change((), appends=True))
        return self._publication.publish(found)

    def release(self) -> None:
        for frame in self._kept:
            frame.unpersist()

    def _homes(self) -> Mapping[str, Change]:
        """Catalogs and namespaces, as far as they changed."""
        self._context.progress("read catalogs and namespaces")
        options, spark = self._context.source_options, self._context.spark
        homes = ((CATALOGS, CatalogsReader(options)), (NAMESPACES, NamespacesReader(options)))
        read = [(shape, self._keep(frame_of(spark, reader, reader.shape.spark_schema))) for shape, reader in homes]
        has_unread = self._count_unread(read)
        rows: dict[str, DataFrame] = {}
        compared: dict[str, DataFrame] = {}
        for shape, told in read:
            known = self._publication.read(shape)
            now = of_changes.with_unreadable(shape, told, known) if has_unread else told.select(*shape.column_names)
            rows[shape.name] = now
            compared[shape.name] = self._keep(of_changes.compare_containers(shape, now, known))
        changed = self._count_homes(compared)
        found: dict[str, Change] = {}
        for shape in (CATALOGS, NAMESPACES):
            if shape.name in changed:
                self._changes.append(of_changes.container_changes(shape, compared[shape.name], **self._seen))
                found[shape.name] = self._change(self._write(rows[shape.name].coalesce(1), shape))
        return found

    def _count_unread(self, read: Sequence[tuple[Shape, DataFrame]]) -> bool:
        """Whether some catalogs or namespaces cannot be read: how many, and some of them by name."""
        first, second = (of_changes.unreadable_containers(shape, rows) for shape, rows in read)
        unread = first.unionByName(second)
        self.counts |= {f"{shape.name}_unreadable": 0 for shape, _ in read}
        self.counts |= {
            f"{row.dataset}_unreadable": row["count"] for row in unread.groupBy("dataset").count().collect()
        }
        if not any(self.counts.values()):
            return False
        for row in unread.orderBy("dataset", "name").limit(WARNINGS_MAX).collect():
            self.warnings.append(f"{row.name}: {row.problem}; what was known of it is kept")
        return True

    def _count_homes(self, compared: Mapping[str, DataFrame]) -> set[str]:
        """How many catalogs and namespaces there are; those datasets of which something changed."""
        changes = [frame.select(F.lit(name).alias("dataset"), "change") for name, frame in compared.items()]
        self.counts |= dict.fromkeys(compared, 0)
        changed: set[str] = set()
        for row in changes[0].unionByName(changes[1]).groupBy("dataset", "change").count().collect():
            self.counts[row.dataset] += row["count"] * (row.change != DROPPED)
            changed |= {row.dataset} if row.change != SAME else set()
        return changed

    def _tables(self) -> Mapping[str, Change]:
        """What is made of names and metadata files, as far as it changed."""
        self._context.progress("read names")
        names = frame_of(self._context.spark, NamesReader(self._context.source_options), NAMES.spark_schema)
        before = self._keep(self._publication.read(TABLES))
        compared = self._keep(projection.compare_tables(projection.current_tables(names, self._own), before))
        counts = self._count(compared)
        if counts.keys() & {DROPPED, UNREADABLE}:
            compared = self._looked_again(compared, before)
            counts = self._count(compared)
        is_healed = self._healed(compared)
        tables = projection.read_now(compared, is_healed)
        if counts.keys() & {CREATED, DROPPED, RENAMED}:
            self._changes.append(of_changes.name_changes(tables, **self._seen))
        if not (self.counts["metadata_files_read"] or counts.keys() - {SAME}):
            return {}
        appends = counts.keys() <= {CREATED, SAME} and is_healed is None and not self._is_scattered()
        opened = self._opened(tables)
        rest = self._rest(tables, before, appends=appends, has_plain=CREATED in counts)
        return {
            shape.name: self._change((*opened.get(shape.name, ()), *rest.get(shape.name, ())), appends=appends)
            for shape in OF_METADATA
        }

    def _looked_again(self, compared: DataFrame, before: DataFrame) -> DataFrame:
        """What is compared, after a second look at what seems to be dropped; names that cannot be read are left out.

        A table is dropped only where something says so. What nobody can tell stays as it was, and is told.
        """
        self._context.progress("look again at what seems to be dropped")
        tables = compared.where(F.col("change") != UNREADABLE)
        gone = projection.as_published(tables.where(F.col("change") == DROPPED))
        again = self._keep(gone.mapInArrow(recheck_task(dict(self._context.source_options)), NAMES.spark_schema))
        found, in_doubt = again.agg(F.count("*"), F.count("problem")).collect()[0]
        self.counts["tables_in_doubt"] = in_doubt
        self._tell(compared.where(F.col("change") == UNREADABLE), "name_problem", self.counts["names_unreadable"])
        self._tell(again.where(F.col("problem").isNotNull()), "problem", in_doubt)
        if not found:
            return tables
        current = projection.current_tables(again.withColumn("problem", F.lit(None).cast("string")), self._own)
        return self._keep(projection.found_again(tables, current, before))

    def _tell(self, rows: DataFrame, problem: str, count: int) -> None:
        """Some of the names that something is wrong with, each once."""
        some = rows.limit(WARNINGS_MAX).collect() if count else []
        for row in some:
            name = f"{row.catalog}.{row.namespace}.{row.name}: "
            if len(self.warnings) < WARNINGS_MAX and not any(told.startswith(name) for told in self.warnings):
                self.warnings.append(f"{name}{row[problem]}; what was known of it is kept")

    def _rest(
        self, tables: DataFrame, before: DataFrame, *, appends: bool, has_plain: bool
    ) -> Mapping[str, Sequence[PublishedFile]]:
        """What the files of this run hold beside what metadata files say that are new, by dataset."""
        if appends:
            plain = projection.without_file(tables).coalesce(1)
            return {TABLES.name: self._write(plain, TABLES)} if has_plain else {}
        rest: dict[str, Sequence[PublishedFile]] = {}
        for shape in OF_METADATA:
            self._context.progress(f"write {shape.name}")
            is_table = shape is TABLES
            known = before if is_table else self._publication.read(shape)
            kept = projection.kept_tables(tables, known) if is_table else projection.kept_rows(shape, tables, known)
            rest[shape.name] = self._write(kept, shape)
        return rest

    def _count(self, compared: DataFrame) -> Mapping[str, int]:
        """How many tables there are by what became of them, and how many files are to be read."""
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

    def _healed(self, compared: DataFrame) -> Column | None:
        """Which of the tables whose files could not be read can be read now; None when there are none.

        Some are tried, others by the next run; what still cannot be read is told again. When there are more than are
        tried, and each of those can be read, all of them are read: what was wrong with them is over.
        """
        count = self.counts["tables_with_problems"]
        if not count:
            return None
        tried_max = self._context.limits.files_retried_max
        tried = projection.tried_again(compared, lot=self._context.run_id, tables_max=tried_max)
        tester = readability_check(dict(self._context.source_options))
        readable = sorted(row.uuid for row in tried.mapInArrow(tester, "uuid string").collect())
        is_healed = F.col("uuid").isin(readable)
        if len(readable) == tried_max:
            is_healed, healed = F.col("is_retried"), count
        else:
            healed = len(readable)
            wrong = tried.where(~is_healed).limit(WARNINGS_MAX).collect()
            self.warnings += [f"{row.catalog}.{row.namespace}.{row.name}: {row.was_problem}" for row in wrong]
        self.counts["metadata_files_read"] += healed
        self.counts["tables_with_problems"] -= healed
        return is_healed if healed else None

    def _opened(self, tables: DataFrame) -> Mapping[str, Sequence[PublishedFile]]:
        """Read the files that are new, in executors, which write what they say aside."""
        count = self.counts["metadata_files_read"]
        if not count or self._context.dry_run:
            return {}
        self._context.progress("read metadata files", 0, count)
        tasks = tasks_for(self._context.spark, count, at_least=FILES_PER_TASK, at_most=FILES_PER_TASK_MAX)
        fresh = projection.fresh(tables).repartition(tasks, "uuid").sortWithinPartitions(*projection.NAMES)
        opener = metadata_reader(dict(self._context.source_options), self._publication.attempt)
        rows = fresh.mapInArrow(opener, WRITTEN).collect()
        wrong = [row for row in rows if row.dataset == PROBLEM]
        self.counts["tables_with_problems"] += sum(row.rows for row in wrong)
        self.warnings += [row.key for row in wrong[: WARNINGS_MAX - len(self.warnings)]]
        return self._publication.written([row for row in rows if row.dataset != PROBLEM])

    def _told_changes(self) -> Mapping[str, Change]:
        """What happened to the catalog since the last run, behind what happened before."""
        if not self._changes:
            return {}
        self._context.progress("write changes")
        rows = self._changes[0]
        for more in self._changes[1:]:
            rows = rows.unionByName(more)
        known = self._publication.base.datasets.get(CHANGES.name)
        if known and known.is_scattered:
            everything = rows.unionByName(self._publication.read(CHANGES))
            return {CHANGES.name: self._change(self._write(everything, CHANGES))}
        return {CHANGES.name: self._change(self._write(rows.coalesce(1), CHANGES), appends=True)}

    def _is_scattered(self) -> bool:
        datasets = self._publication.base.datasets
        return any(shape.name in datasets and datasets[shape.name].is_scattered for shape in OF_METADATA)

    @property
    def _own(self) -> tuple[str, str, Sequence[str]]:
        """The pipeline's own tables."""
        return self._context.settings.default_catalog, system_tables.NAMESPACE, tuple(SHAPES)

    @property
    def _seen(self) -> Mapping[str, int]:
        return {"seen_at_ms": self._as_of_ms, "feed_entry": self._upto}

    def _change(self, files: Sequence[PublishedFile], *, appends: bool = False) -> Change:
        return Change(files, {_FEED: self._upto}, appends=appends)

    def _write(self, rows: DataFrame, shape: Shape) -> Sequence[PublishedFile]:
        return () if self._context.dry_run else self._publication.write(rows, shape)

    def _keep(self, frame: DataFrame) -> DataFrame:
        """Read once, used several times."""
        self._kept.append(frame.persist())
        return self._kept[-1]


PROJECT: Final = Job(NAME, "What exists: catalogs, namespaces, tables, columns, schemas, snapshots and refs.", run)
