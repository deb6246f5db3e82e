"""`metrics`: what engines reported of their scans and commits becomes statistics, by table and day."""

from typing import Final

from pyspark.sql import DataFrame

from sandur.pipeline import system_tables
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.publishing import Change, CoreManifest, Publication
from sandur.pipeline.sources.reports import REPORTS, ReportsReader
from sandur.pipeline.tables import TABLE_METRICS
from sandur.pipeline.tasks import frame_of
from sandur.pipeline.transforms import reports as of_reports

NAME: Final = "metrics"


def run(context: JobContext) -> JobReport:
    """Count every report that is kept, once.

    All that are kept are counted anew each time, so that running twice changes nothing; a day of which reports are gone
    stays as it was published.
    """
    context.progress("read reports")
    publication = Publication(context)
    reports = frame_of(context.spark, ReportsReader(context.source_options), REPORTS.spark_schema).persist()
    try:
        counts = {row.kind: row["count"] for row in reports.groupBy("kind").count().collect()}
        problems = [row.problem for row in reports.where("problem is not null").orderBy("problem").limit(3).collect()]
        manifest = _published(context, publication, reports)
    finally:
        reports.unpersist()
    context.progress("update system tables")
    told = system_tables.refresh(context, manifest or publication.base, (TABLE_METRICS,))
    wrong = counts.get("unread", 0) + counts.get("misplaced", 0)
    said = f"{wrong} reports cannot be read, or lie where they do not belong, such as"
    warnings = [f"{said} {problems[0]}"] if problems else []
    return JobReport(
        job=NAME,
        run_id=context.run_id,
        dry_run=context.dry_run,
        counts={
            "reports": sum(counts.values()),
            **{f"reports_{kind}": times for kind, times in sorted(counts.items())},
        },
        warnings=(*warnings, *told),
        manifest=publication.manifest_key,
        sequence=manifest.sequence if manifest else None,
    )


def _published(context: JobContext, publication: Publication, reports: DataFrame) -> CoreManifest | None:
    """What is published now; None when all is as it was."""
    before = publication.read(TABLE_METRICS)
    rows = of_reports.statistics(reports, before).persist()
    try:
        is_same = rows.exceptAll(before).isEmpty() and before.exceptAll(rows).isEmpty()
        if context.dry_run or is_same:
            return None
        context.progress("write statistics")
        files = publication.write(rows.coalesce(1), TABLE_METRICS)
        return publication.publish({TABLE_METRICS.name: Change(files, {})})  # Reports have no positions.
    finally:
        rows.unpersist()


METRICS: Final = Job(NAME, "Reports of scans and commits become statistics of each table.", run)
