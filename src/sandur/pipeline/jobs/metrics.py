"""`metrics`: turn the reports of engines about scans and commits into statistics by table and day."""

from typing import Final

from pyspark.sql import DataFrame

from sandur.pipeline import system_tables
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.publishing import CoreManifest, DatasetUpdate, Publication
from sandur.pipeline.sources.reports import REPORTS, ReportsReader
from sandur.pipeline.tables import TABLE_METRICS
from sandur.pipeline.tasks import read_frame
from sandur.pipeline.transforms import reports as of_reports

NAME: Final = "metrics"


def run(context: JobContext) -> JobReport:
    """Count every stored report once.

    Every run counts all stored reports again, so a second run changes nothing. A day whose reports were collected keeps
    its published row.
    """
    context.progress("read reports")
    publication = Publication(context)
    reports = read_frame(context.spark, ReportsReader(context.source_options), REPORTS.spark_schema).persist()
    try:
        counts = {row.kind: row["count"] for row in reports.groupBy("kind").count().collect()}
        problems = [row.problem for row in reports.where("problem is not null").orderBy("problem").limit(3).collect()]
        manifest = _publish(context, publication, reports)
    finally:
        reports.unpersist()
    context.progress("update system tables")
    refused = system_tables.refresh(context, manifest or publication.base, (TABLE_METRICS,))
    bad = counts.get("unread", 0) + counts.get("misplaced", 0)
    warnings = [f"{bad} reports are unreadable or misplaced, for example {problems[0]}"] if problems else []
    by_kind = {f"reports_{kind}": times for kind, times in sorted(counts.items())}
    return context.report(
        NAME,
        counts={"reports": sum(counts.values()), **by_kind},
        warnings=(*warnings, *refused),
        manifest=publication.manifest_key,
        sequence=manifest.sequence if manifest else None,
    )


def _publish(context: JobContext, publication: Publication, reports: DataFrame) -> CoreManifest | None:
    """Publish the statistics; None if nothing changed."""
    before = publication.read(TABLE_METRICS)
    rows = of_reports.statistics(reports, before).persist()
    try:
        is_same = rows.exceptAll(before).isEmpty() and before.exceptAll(rows).isEmpty()
        if context.dry_run or is_same:
            return None
        context.progress("write statistics")
        files = publication.write(rows.coalesce(1), TABLE_METRICS)
        return publication.publish({TABLE_METRICS.name: DatasetUpdate(files, {})})  # Reports have no positions.
    finally:
        rows.unpersist()


METRICS: Final = Job(NAME, "Turn reports of scans and commits into statistics of each table.", run)
