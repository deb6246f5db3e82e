"""Reports of engines become statistics, by table and day."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from sandur.pipeline.tables import TABLE_METRICS

_SUMS: Final = {
    "scan_planning_ms": "planning_ms",
    "scanned_files": "scanned_files",
    "skipped_files": "skipped_files",
    "scanned_bytes": "scanned_bytes",
    "scanned_manifests": "scanned_manifests",
    "skipped_manifests": "skipped_manifests",
    "commit_ms": "commit_ms",
    "commit_attempts": "commit_attempts",
    "added_files": "added_files",
    "added_records": "added_records",
    "removed_files": "removed_files",
    "removed_records": "removed_records",
}


def understood(reports: DataFrame) -> DataFrame:
    return reports.where(F.col("kind") != "unread")


def by_table_and_day(reports: DataFrame) -> DataFrame:
    """One row for every table and day with a report; what nobody reported counts as 0."""
    placed = understood(reports).withColumn("day", F.date_format("received_at", "yyyy-MM-dd"))
    latest = {
        name: F.max_by(name, F.struct("received_at", name)).alias(name) for name in ("catalog", "namespace", "name")
    }
    grouped = placed.groupBy("table_uuid", "day").agg(
        *latest.values(),
        _times("scan").alias("scans"),
        _times("commit").alias("commits"),
        _times("other").alias("other_reports"),
        F.coalesce(F.max("planning_ms"), F.lit(0)).alias("scan_planning_max_ms"),
        F.max("received_at").alias("last_reported_at"),
        *(F.coalesce(F.sum(column), F.lit(0)).cast("long").alias(name) for name, column in _SUMS.items()),
    )
    return grouped.select(*TABLE_METRICS.column_names)


def statistics(reports: DataFrame, before: DataFrame, *, first_day: str) -> DataFrame:
    """The statistics of all days: from `first_day` on made of the reports, which are all there; before, as it was."""
    is_settled = F.col("day") < F.lit(first_day)
    fresh = by_table_and_day(reports).where(~is_settled)
    return before.where(is_settled).unionByName(fresh).select(*TABLE_METRICS.column_names)


def _times(kind: str) -> Column:
    return F.count_if(F.col("kind") == kind)
