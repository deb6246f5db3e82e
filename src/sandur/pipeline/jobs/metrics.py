"""`metrics`: turn the reports of engines about scans and commits into statistics by table and day."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from sandur.operations.lake import Lake
from sandur.operations.tables.reports import DELTA_COMMIT_REPORT, Report
from sandur.pipeline import system_tables
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.publishing import DatasetUpdate, Publication
from sandur.pipeline.sources.range_reader import KeyRange, RangeSource, Row, ranges_between, read_frame
from sandur.pipeline.tables import TABLE_METRICS, shape
from sandur.splicing import INT64_MAX, NOT_JSON
from sandur.storage.contract import LIST_LIMIT_MAX, Listed, get_many, list_pages
from sandur.storage.layout import Layout

NAME: Final = "metrics"
REPORTS: Final = shape(
    "reports",
    """
    table_uuid string, catalog string, namespace string, name string, received_at timestamptz, kind string!,
    planning_ms long, scanned_files long, skipped_files long, scanned_bytes long, scanned_manifests long,
    skipped_manifests long, commit_ms long, commit_attempts long, added_files long, added_records long,
    removed_files long, removed_records long, problem string
    """,
    key="table_uuid",
)
REPORTS_PER_TASK_PAGES: Final = 5

_SCAN: Final = {
    "planning_ms": "total-planning-duration",
    "scanned_files": "result-data-files",
    "skipped_files": "skipped-data-files",
    "scanned_bytes": "total-file-size-in-bytes",
    "scanned_manifests": "scanned-data-manifests",
    "skipped_manifests": "skipped-data-manifests",
}
_COMMIT: Final = {
    "commit_ms": "total-duration",
    "commit_attempts": "attempts",
    "added_files": "added-data-files",
    "added_records": "added-records",
    "removed_files": "removed-data-files",
    "removed_records": "removed-records",
}
_DELTA_COMMIT: Final = {
    "added_files": "num-files-added",
    "added_records": "num-rows-inserted",
    "removed_files": "num-files-removed",
    "removed_records": "num-rows-removed",
}
_KINDS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "scan-report": ("scan", _SCAN),
    "commit-report": ("commit", _COMMIT),
    DELTA_COMMIT_REPORT: ("commit", _DELTA_COMMIT),
}
_PER_MS: Final = {"nanoseconds": 1_000_000, "microseconds": 1_000, "milliseconds": 1}
_MS: Final = {"seconds": 1_000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}
_SUMS: Final = {"scan_planning_ms" if name == "planning_ms" else name: name for name in (*_SCAN, *_COMMIT)}


def run(context: JobContext) -> JobReport:
    """Count every stored report once.

    Every run counts all stored reports again, so a second run changes nothing. A day whose reports were collected keeps
    its published row.
    """
    context.progress("read reports")
    publication = Publication(context)
    reports = context.persist(read_frame(context.spark, ReportsSource(context.source_options)))
    counts = {row.kind: row["count"] for row in reports.groupBy("kind").count().collect()}
    problems = [row.problem for row in reports.where("problem is not null").orderBy("problem").limit(3).collect()]
    _publish(context, publication, reports)
    refused = system_tables.refresh(context, publication.manifest, (TABLE_METRICS,))
    bad = counts.get("unread", 0) + counts.get("misplaced", 0)
    warnings = [f"{bad} reports are unreadable or misplaced, for example {problems[0]}"] if problems else []
    by_kind = {f"reports_{kind}": times for kind, times in sorted(counts.items())}
    return context.report(
        NAME,
        counts={"reports": sum(counts.values()), **by_kind},
        warnings=(*warnings, *refused),
        published=publication.published,
    )


def _publish(context: JobContext, publication: Publication, reports: DataFrame) -> None:
    before = publication.read(TABLE_METRICS)
    rows = context.persist(statistics(reports, before))
    is_same = rows.exceptAll(before).isEmpty() and before.exceptAll(rows).isEmpty()
    if context.dry_run or is_same:
        return
    context.progress("write statistics")
    files = publication.write(rows.coalesce(1), TABLE_METRICS)
    publication.publish({TABLE_METRICS.name: DatasetUpdate(files, {})})  # Reports have no positions.


class _Measure(msgspec.Struct, frozen=True, rename="kebab"):
    """A counter or a timer."""

    value: int | None = None
    total_duration: int | None = None
    time_unit: str = "nanoseconds"


class _Body(msgspec.Struct, frozen=True, rename="kebab"):
    metrics: dict[str, _Measure] = {}


class _DeltaReport(msgspec.Struct, frozen=True, rename="kebab"):
    commit_report: dict[str, object] = {}


class _DeltaBody(msgspec.Struct, frozen=True):
    report: _DeltaReport = _DeltaReport()


class ReportsSource(RangeSource):
    """Every stored report; one that cannot be decoded is a row with a `problem`."""

    shape = REPORTS

    async def ranges(self, lake: Lake) -> Sequence[KeyRange]:
        """The folder in ranges of a few pages each; reports are stored in the order of their arrival."""
        folder = lake.layout.operational_folder(NAME)
        limit = REPORTS_PER_TASK_PAGES * LIST_LIMIT_MAX
        bounds = [page[-1].key async for page in list_pages(lake.store, folder, limit=limit) if len(page) == limit]
        return ranges_between(folder, bounds)

    async def rows(self, lake: Lake, listed: Sequence[Listed]) -> Sequence[Row]:
        keys = [one.key for one in listed]
        found = await get_many(lake.store, keys)
        return [report_row(lake.layout, key, stored.data) for key, stored in zip(keys, found, strict=True) if stored]


def report_row(layout: Layout, key: str, data: bytes) -> Row:
    """The row of a report; only a `problem` if it cannot be decoded or is not stored under its own id.

    So a copy of a report is never counted.
    """
    try:
        report = msgspec.json.decode(data, type=Report)
        metrics = _metrics(report)
    except NOT_JSON as error:
        return {"kind": "unread", "problem": f"{key}: {error}"}
    if key != layout.operational(NAME, report.id):
        return {"kind": "misplaced", "problem": f"{key}: a copy of {layout.operational(NAME, report.id)}"}
    kind, wanted = _KINDS.get(report.report_type, ("other", {}))
    return {
        "table_uuid": report.table_uuid,
        "catalog": report.identifier.catalog,
        "namespace": str(report.identifier.namespace),
        "name": report.identifier.name,
        "received_at": report.received_ms,
        "kind": kind,
        **{column: _number(metrics.get(name), column) for column, name in wanted.items()},
    }


def _metrics(report: Report) -> Mapping[str, _Measure]:
    """The measures of a report; the Delta API sends plain numbers below `commit-report`."""
    if report.report_type != DELTA_COMMIT_REPORT:
        return msgspec.json.decode(report.report, type=_Body).metrics
    numbers = msgspec.json.decode(report.report, type=_DeltaBody).report.commit_report
    return {name: _Measure(value=number) for name, number in numbers.items() if isinstance(number, int)}


def _number(measure: _Measure | None, column: str) -> int | None:
    """A count, or a duration in milliseconds; None if it is missing or not a count."""
    if measure is None:
        return None
    number, unit = measure.value, measure.time_unit.lower()
    if column.endswith("_ms"):
        duration = measure.total_duration if unit in _PER_MS or unit in _MS else None
        number = None if duration is None else duration * _MS.get(unit, 1) // _PER_MS.get(unit, 1)
    return number if number is not None and 0 <= number <= INT64_MAX else None


def by_table_and_day(reports: DataFrame) -> DataFrame:
    """One row per table and day with a report; a missing measure counts as 0."""
    placed = reports.where("problem is null").withColumn("day", F.date_format("received_at", "yyyy-MM-dd"))
    names = ("catalog", "namespace", "name")
    grouped = placed.groupBy("table_uuid", "day").agg(
        *(F.max_by(name, F.struct("received_at", name)).alias(name) for name in names),
        F.count_if(F.col("kind") == "scan").alias("scans"),
        F.count_if(F.col("kind") == "commit").alias("commits"),
        F.count_if(F.col("kind") == "other").alias("other_reports"),
        F.coalesce(F.max("planning_ms"), F.lit(0)).alias("scan_planning_max_ms"),
        F.max("received_at").alias("last_reported_at"),
        *(_total(column).alias(name) for name, column in _SUMS.items()),
    )
    return grouped.select(*TABLE_METRICS.column_names)


def _total(column: str) -> Column:
    """The sum within 64 bits: two reports of large numbers would end the job for all tables."""
    total = F.coalesce(F.sum(F.col(column).cast("decimal(20,0)")), F.lit(0))
    return F.least(total, F.lit(INT64_MAX)).cast("long")


def statistics(reports: DataFrame, before: DataFrame) -> DataFrame:
    """One row per table and day: the published row or the one of the current reports, whichever counts more reports.

    Reports of a day only accumulate until they are collected, so the row with fewer reports is incomplete.
    """
    every = (
        by_table_and_day(reports).withColumn("is_fresh", F.lit(1)).unionByName(before.withColumn("is_fresh", F.lit(0)))
    )
    counted = F.col("scans") + F.col("commits") + F.col("other_reports")
    whole = F.max_by(F.struct(*TABLE_METRICS.column_names), F.struct(counted, F.col("is_fresh"))).alias("whole")
    return every.groupBy("table_uuid", "day").agg(whole).select("whole.*").select(*TABLE_METRICS.column_names)


METRICS: Final = Job(NAME, "Turn reports of scans and commits into statistics of each table.", run, reads=("reports",))
