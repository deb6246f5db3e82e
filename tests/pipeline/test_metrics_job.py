"""`metrics` counts every report once, and its statistics outlive the reports."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sandur.clock import SystemClock
from sandur.operations.tables.reports import report_metrics
from sandur.pipeline.jobs.metrics import METRICS
from sandur.storage.contract import ABSENT
from tests.fakes.fixed_clock import FixedClock
from tests.pipeline.test_report_rows import counter, timer
from tests.pipeline.world import World, identifier_of


@pytest.fixture
def world(world: World) -> World:
    """A world whose day does not end during a test."""
    world.lake.clock = FixedClock(SystemClock().now_ms())
    return world


def _scan(world: World, name: str, files: int) -> None:
    _report(
        world, name, "scan-report", {"result-data-files": counter(files), "total-planning-duration": timer(3_000_000)}
    )


def _commit(world: World, name: str) -> None:
    _report(world, name, "commit-report", {"total-duration": timer(8, "milliseconds"), "attempts": counter(2)})


def _report(world: World, name: str, kind: str, metrics: dict[str, Any]) -> None:
    body = json.dumps({"report-type": kind, "metrics": metrics}).encode()
    world.wait(report_metrics(world.lake, identifier_of(name), body, world.request()))


def test_reports_are_counted_once_and_statistics_outlive_the_reports(world: World, spark: SparkSession) -> None:
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
    assert "1 reports are unreadable or misplaced" in first.warnings[0]
    assert (first.manifest is None, again.manifest) == (False, None)
    assert (rows["t"]["scans"], rows["t"]["scanned_files"], rows["t"]["scan_planning_ms"]) == (2, 7, 6)
    assert (rows["t"]["commits"], rows["t"]["commit_attempts"], rows["t"]["commit_ms"]) == (1, 2, 8)
    assert (rows["u"]["other_reports"], rows["u"]["scans"]) == (1, 0)

    for listed in world.listed(world.layout.operational_folder("metrics")):
        world.remove(listed.key)
    world.run(spark, METRICS)
    assert {row["name"]: row for row in world.dataset(spark, "table_metrics")} == rows


def test_reports_of_large_numbers_do_not_end_the_job(world: World, spark: SparkSession) -> None:
    world.make("t")
    world.make("u")
    for files in (2**63 - 1, 2**63 - 1, 5):
        _scan(world, "t", files)
    _scan(world, "u", 3)

    world.run(spark, METRICS)

    scanned = {row["name"]: row["scanned_files"] for row in world.dataset(spark, "table_metrics")}
    assert scanned == {"t": 2**63 - 1, "u": 3}


def test_a_day_without_its_reports_keeps_its_statistics(world: World, spark: SparkSession) -> None:
    """The retention in the settings does not matter."""
    world.make("t")
    _scan(world, "t", 3)
    (first,) = world.listed(world.layout.operational_folder("metrics"))
    _scan(world, "t", 4)
    world.run(spark, METRICS)
    world.remove(first.key)

    fewer = world.run(spark, METRICS)
    rows = world.dataset(spark, "table_metrics")
    for files in (5, 6):
        _scan(world, "t", files)
    world.run(spark, METRICS)
    more = world.dataset(spark, "table_metrics")

    assert fewer.manifest is None
    assert [(row["scans"], row["scanned_files"]) for row in rows] == [(2, 7)]
    assert [(row["scans"], row["scanned_files"]) for row in more] == [(3, 15)]
