"""Reports of engines become statistics, once each, and outlive the reports."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sandur.clock import SystemClock
from sandur.operations.metrics import report_metrics
from sandur.pipeline.jobs.metrics import METRICS
from sandur.pipeline.report_rows import REPORTS
from sandur.pipeline.tables import TABLE_METRICS
from sandur.pipeline.transforms.reports import statistics
from sandur.storage.object_store import ABSENT
from tests.fakes.fixed_clock import FixedClock
from tests.pipeline.test_report_rows import counter, timer
from tests.pipeline.world import World, called

DAY_MS = 86_400_000


def _scan(world: World, name: str, files: int) -> None:
    _report(
        world, name, "scan-report", {"result-data-files": counter(files), "total-planning-duration": timer(3_000_000)}
    )


def _commit(world: World, name: str) -> None:
    _report(world, name, "commit-report", {"total-duration": timer(8, "milliseconds"), "attempts": counter(2)})


def _report(world: World, name: str, kind: str, metrics: dict[str, Any]) -> None:
    body = json.dumps({"report-type": kind, "metrics": metrics}).encode()
    world.wait(report_metrics(world.workspace, called(name), body, world.request()))


def test_reports_are_counted_once_however_often_the_job_runs_and_outlive_the_reports(
    world: World, spark: SparkSession
) -> None:
    for name in ("t", "u"):
        world.make(name)
    _scan(world, "t", 3)
    _scan(world, "t", 4)
    _commit(world, "t")
    _report(world, "u", "weather", {})
    world.wait(world.store.put(world.layout.operational("metrics", "damaged"), b"?", expected=ABSENT))

    first = world.run(spark, METRICS)
    again = world.run(spark, METRICS)
    rows = {row["name"]: row for row in world.dataset(spark, "table_metrics")}

    assert first.counts == {
        "reports": 5,
        "reports_commit": 1,
        "reports_other": 1,
        "reports_scan": 2,
        "reports_unread": 1,
    }
    assert "1 reports cannot be read" in first.warnings[0]
    assert (first.manifest is None, again.manifest) == (False, None)
    assert (rows["t"]["scans"], rows["t"]["scanned_files"], rows["t"]["scan_planning_ms"]) == (2, 7, 6)
    assert (rows["t"]["commits"], rows["t"]["commit_attempts"], rows["t"]["commit_ms"]) == (1, 2, 8)
    assert (rows["u"]["other_reports"], rows["u"]["scans"]) == (1, 0)

    for listed in world.listed(world.layout.operational_folder("metrics")):
        world.remove(listed.key)
    much_later = FixedClock(SystemClock().now_ms() + 40 * DAY_MS)
    world.run(spark, METRICS, clock=much_later)
    assert {row["name"]: row for row in world.dataset(spark, "table_metrics")} == rows


@pytest.mark.slow
def test_days_of_which_reports_may_be_gone_stay_as_they_were(spark: SparkSession) -> None:
    columns = [field.name for field in TABLE_METRICS.spark_schema.fields]
    numbers = [name for name in columns if TABLE_METRICS.spark_schema[name].dataType.typeName() == "long"]

    def published(day: str, scans: int) -> dict[str, Any]:
        texts = {"table_uuid": "u", "day": day, "catalog": "main", "namespace": "a", "name": "t"}
        return {**texts, **dict.fromkeys(numbers, 0), "scans": scans, "last_reported_at": None}

    before = spark.createDataFrame([published("2026-01-01", 5), published("2026-02-01", 9)], TABLE_METRICS.spark_schema)
    none = spark.createDataFrame([], REPORTS.spark_schema)

    kept = statistics(none, before, first_day="2026-02-01").collect()

    assert [(row.day, row.scans) for row in kept] == [("2026-01-01", 5)]
