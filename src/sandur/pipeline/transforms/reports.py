"""Turn the reports of engines into statistics by table and day."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

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


def valid_reports(reports: DataFrame) -> DataFrame:
    return reports.where(F.col("problem").isNull())


def by_table_and_day(reports: DataFrame) -> DataFrame:
    """One row per table and day with a report; a missing measure counts as 0."""
    placed = valid_reports(reports).withColumn("day", F.date_format("received_at", "yyyy-MM-dd"))
    latest = {
        name: F.max_by(name, F.struct("received_at", name)).alias(name) for name in ("catalog", "namespace", "name")
    }
    grouped = placed.groupBy("table_uuid", "day").agg(
        *latest.values(),
        _count_of("scan").alias("scans"),
        _count_of("commit").alias("commits"),
        _count_of("other").alias("other_reports"),
        F.coalesce(F.max("planning_ms"), F.lit(0)).alias("scan_planning_max_ms"),
        F.max("received_at").alias("last_reported_at"),
        *(F.coalesce(F.sum(column), F.lit(0)).cast("long").alias(name) for name, column in _SUMS.items()),
    )
    return grouped.select(*TABLE_METRICS.column_names)


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


def _count_of(kind: str) -> Column:
    return F.count_if(F.col("kind") == kind)
