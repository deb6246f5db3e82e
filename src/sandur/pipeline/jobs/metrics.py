"""`metrics`: what engines reported of their scans and commits becomes statistics, by table and day."""

import datetime as dt
from typing import Final

from pyspark.sql import DataFrame

from sandur.pipeline import system_tables
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.publishing import Change, CoreManifest, Publication
from sandur.pipeline.report_rows import REPORTS, ReportsReader
from sandur.pipeline.tables import TABLE_METRICS
from sandur.pipeline.tasks import frame_of
from sandur.pipeline.transforms import reports as of_reports
from sandur.settings import seconds_of

NAME: Final = "metrics"
_DAY_MS: Final = 86_400_000
_REPORTS: Final = "reports"


def run(context: JobContext) -> JobReport:
    """Count every report that is kept, once.

    The days of which all reports are still there are counted anew each time, so that running twice changes nothing;
    earlier ones stay as they were published.
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
    unread = counts.get("unread", 0)
    warnings = [f"{unread} reports cannot be read, such as {problems[0]}"] if problems else []
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
    rows = of_reports.statistics(reports, before, first_day=first_whole_day(context)).persist()
    try:
        is_same = rows.exceptAll(before).isEmpty() and before.exceptAll(rows).isEmpty()
        if context.dry_run or is_same:
            return None
        context.progress("write statistics")
        files = publication.write(rows.coalesce(1), TABLE_METRICS)
        watermark = {_REPORTS: publication.watermark(TABLE_METRICS.name, _REPORTS) + 1}
        return publication.publish({TABLE_METRICS.name: Change(files, watermark)})
    finally:
        rows.unpersist()


def first_whole_day(context: JobContext) -> str:
    """The first day of which no report can have been collected yet."""
    kept_ms = seconds_of(context.settings.report_retention) * 1_000
    day = max(0, context.clock.now_ms() - kept_ms) // _DAY_MS + 1
    return (dt.date(1970, 1, 1) + dt.timedelta(days=day)).isoformat()


METRICS: Final = Job(NAME, "Reports of scans and commits become statistics of each table.", run)
