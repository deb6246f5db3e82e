"""`project`: what exists, from names and metadata files: catalogs, namespaces, tables, columns, snapshots and so on."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame

from sandur.pipeline import system_tables
from sandur.pipeline.feed import Feed
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.publishing import Change, CoreManifest, Publication
from sandur.pipeline.sources.homes import CatalogsReader, NamespacesReader
from sandur.pipeline.sources.metadata import OPENED, file_opener
from sandur.pipeline.sources.names import NamesReader
from sandur.pipeline.tables import CATALOGS, NAMES, NAMESPACES, OF_METADATA, SHAPES, TABLES
from sandur.pipeline.tasks import frame_of
from sandur.pipeline.transforms import projection

NAME: Final = "project"
FILES_PER_TASK: Final = 64
TASKS_MAX: Final = 256
_FEED: Final = "feed"


def run(context: JobContext) -> JobReport:
    """Read the metadata files that are new, keep what is known of the others, and publish all of it at once.

    Every commit that has a position when the run begins is in what it publishes: its pointer was swapped before its
    receipt was written, and pointers are read after that.
    """
    context.progress("see how far the catalog has come")
    feed = context.wait(Feed(context.workspace).caught_up() if context.dry_run else Feed(context.workspace).advance())
    as_of_ms = context.clock.now_ms()
    publication = Publication(context)
    before = publication.watermark(TABLES.name, _FEED)
    work = _Projection(context, publication, feed.sequence)
    try:
        manifest = work.published()
    finally:
        work.release()
    context.progress("update system tables")
    told = system_tables.refresh(context, manifest or publication.base, (CATALOGS, NAMESPACES, *OF_METADATA))
    staleness_ms = context.clock.now_ms() - as_of_ms
    return JobReport(
        job=NAME,
        run_id=context.run_id,
        dry_run=context.dry_run,
        counts={"feed_from": before, "feed_to": feed.sequence, "staleness_ms": staleness_ms, **work.counts},
        warnings=(*work.warnings, *told),
        manifest=publication.manifest_key,
        sequence=manifest.sequence if manifest else None,
    )


class _Projection:
    """One run, which reflects the feed up to `upto` at least."""

    def __init__(self, context: JobContext, publication: Publication, upto: int) -> None:
        self._context = context
        self._publication = publication
        self._watermark = {_FEED: upto}
        self._kept: list[DataFrame] = []
        self.counts: dict[str, int] = {}
        self.warnings: list[str] = []

    def published(self) -> CoreManifest | None:
        """What is published now; None when all is as it was."""
        spark, options = self._context.spark, self._context.source_options
        self._context.progress("read names")
        names = frame_of(spark, NamesReader(options), NAMES.spark_schema)
        own = (self._context.settings.default_catalog, system_tables.NAMESPACE, tuple(SHAPES))
        current = self._keep(projection.current_tables(names, own))
        changes = {
            **self._homes(),
            **self._of_metadata(current),
        }
        has_moved = self._publication.watermark(TABLES.name, _FEED) != self._watermark[_FEED]
        if self._context.dry_run or not (changes or has_moved):
            return None
        changes.setdefault(TABLES.name, Change((), self._watermark, appends=True))
        return self._publication.publish(changes)

    def release(self) -> None:
        for frame in self._kept:
            frame.unpersist()

    def _homes(self) -> Mapping[str, Change]:
        spark, options = self._context.spark, self._context.source_options
        found: dict[str, Change] = {}
        for reader, shape in ((CatalogsReader(options), CATALOGS), (NamespacesReader(options), NAMESPACES)):
            rows = self._keep(frame_of(spark, reader, shape.spark_schema))
            self.counts[shape.name] = rows.count()
            if not projection.difference(rows, self._publication.read(shape)).isEmpty():
                found[shape.name] = Change(self._publication.write(rows.coalesce(1), shape), self._watermark)
        return found

    def _of_metadata(self, current: DataFrame) -> Mapping[str, Change]:
        before = self._keep(self._publication.read(TABLES))
        fresh = self._keep(projection.unread(current, before))
        self.counts["metadata_files_read"] = fresh.count()
        opened = self._opened(fresh)
        self._context.progress("read metadata files", 0, self.counts["metadata_files_read"])
        rows = self._keep(projection.tables(opened, before, current, fresh))
        self.counts["tables"] = rows.count()
        self._warn(rows)
        if projection.difference(rows, before).isEmpty():
            return {}
        found = {TABLES.name: Change(self._publication.write(rows, TABLES), self._watermark)}
        for shape in OF_METADATA:
            if shape is not TABLES:
                self._context.progress(f"write {shape.name}")
                known = self._publication.read(shape)
                of_shape = projection.of_metadata(shape, opened, known, current, fresh)
                found[shape.name] = Change(self._publication.write(of_shape, shape), self._watermark)
        return found

    def _opened(self, fresh: DataFrame) -> DataFrame:
        tasks = min(self.counts["metadata_files_read"] // FILES_PER_TASK + 1, TASKS_MAX)
        files = fresh.select("uuid", "kind", "format", "metadata_location").repartition(tasks, "uuid")
        return self._keep(files.mapInArrow(file_opener(self._context.source_options), OPENED))

    def _warn(self, rows: DataFrame) -> None:
        wrong = rows.where("problem is not null").select("catalog", "namespace", "name", "problem").limit(10).collect()
        self.counts["tables_with_problems"] = rows.where("problem is not null").count() if wrong else 0
        self.warnings += [f"{row.catalog}.{row.namespace}.{row.name}: {row.problem}" for row in wrong]

    def _keep(self, frame: DataFrame) -> DataFrame:
        """Read once, used several times."""
        self._kept.append(frame.persist())
        return self._kept[-1]


PROJECT: Final = Job(NAME, "What exists: catalogs, namespaces, tables, columns, schemas, snapshots and refs.", run)
