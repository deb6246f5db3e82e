"""Drivers and workers are killed before and after each step; the next run finishes their work."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import SparkSession

from sandur.operations.tables.documents import current_document
from sandur.operations.tables.reports import report_metrics
from sandur.pipeline.jobs import JOBS
from tests.pipeline.test_collect_garbage import age, exists, full_of_garbage
from tests.pipeline.test_compact import system_table
from tests.pipeline.world import World, identifier_of

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

Who = Literal["driver", "worker"]

ROOT = Path(__file__).parents[2]
DATASETS = {
    "compact": ("commits", "timeline", "activity"),
    "project": ("catalogs", "namespaces", "tables", "columns", "schema_history", "partition_spec_history"),
    "metrics": ("table_metrics",),
}
PUBLISHING: tuple[tuple[str, Who, str], ...] = (
    ("compact", "driver", "/feed/0"),  # Appends to the feed.
    ("compact", "worker", "/commits-"),  # Writes rows.
    ("compact", "driver", "/manifest.json"),  # Writes the manifest.
    ("compact", "driver", "core/manifest.json"),  # Swaps the manifest.
    ("compact", "driver", "iceberg_pointers/"),  # Creates a system table.
    ("compact", "driver", "/snap-"),  # Writes the manifest list.
    ("project", "worker", "/columns-"),
    ("project", "driver", "core/manifest.json"),
    ("project", "driver", "/snap-"),
    ("metrics", "worker", "/table_metrics-"),
    ("metrics", "driver", "core/manifest.json"),
    ("metrics", "driver", "/snap-"),
)
COLLECTING: tuple[tuple[Who, str], ...] = (
    ("worker", "operational/metrics/"),  # Deletes a report.
    ("worker", "iceberg_pointers/"),  # Bumps a pointer before it deletes a file that could become its head (GC1).
    ("worker", ".metadata.json"),  # Deletes the file.
    ("driver", "core/manifest.json"),  # The manifest is bumped before unreferenced files are deleted.
    ("worker", "core/snapshots/"),  # Deletes them.
)
# Spark reports a dead worker to the driver, which fails.
ENDS = {"driver": -signal.SIGKILL, "worker": 1}


def _killed(world: World, job: str, who: Who, step: str, *, after: bool) -> int:
    """Run a driver that is killed, or whose worker is; returns its exit code."""
    arguments = [world.settings.store, job, who, "after" if after else "before", step]
    command = [sys.executable, "-m", "tests.pipeline.killed_driver", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert who == "driver" or "Python worker exited unexpectedly" in done.stderr, done.stderr[-3_000:]
    return done.returncode


def _rows(world: World, spark: SparkSession, job: str) -> dict[str, list[dict[str, Any]]]:
    """The published rows; checks that the system tables have the same."""
    found = {name: world.dataset(spark, name) for name in DATASETS[job]}
    for name, rows in found.items():
        assert sorted(map(str, system_table(world, name))) == sorted(map(str, rows)), name
    return found


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("job", "who", "step"), PUBLISHING)
def test_the_run_after_a_killed_driver_or_worker_publishes_the_same_as_a_fresh_run(
    spark: SparkSession, world: World, job: str, who: Who, step: str, *, after: bool
) -> None:
    world.make("orders")
    world.commits("orders", 2)
    world.make("customers")
    world.wait(report_metrics(world.lake, identifier_of("orders"), b'{"report-type": "scan-report"}', world.request()))

    ended = _killed(world, job, who, step, after=after)
    world.run(spark, JOBS[job])
    rows = _rows(world, spark, job)

    assert ended == ENDS[who]
    world.remove(world.layout.core_manifest())
    world.run(spark, JOBS[job])
    again = _rows(world, spark, job)
    assert _of_users(again) == _of_users(rows)


def _of_users(found: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """The rows without the pipeline's own tables, which the first run does not know."""
    return {name: [row for row in rows if row.get("namespace") != "system"] for name, rows in found.items() if rows}


@pytest.mark.parametrize("after", [False, True])
def test_the_next_run_restores_the_receipts_that_a_killed_worker_did_not(
    spark: SparkSession, world: World, *, after: bool
) -> None:
    world.make("orders")
    world.commits("orders", 4)
    world.run(spark, JOBS["compact"])
    whole = world.receipts()
    for key in [key for key, data in whole.items() if b'"kind":"rest"' in data]:
        world.remove(key)

    ended = _killed(world, "reconcile", "worker", "/committed/", after=after)
    written = len(world.receipts())
    world.run(spark, JOBS["reconcile"])

    assert ended == ENDS["worker"]
    assert written < len(whole)
    assert world.receipts() == whole


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("who", "step"), COLLECTING)
def test_the_next_run_deletes_the_garbage_of_a_killed_run_and_nothing_live(
    spark: SparkSession, world: World, who: Who, step: str, *, after: bool
) -> None:
    files = full_of_garbage(world)
    world.run(spark, JOBS["compact"])
    commits = world.dataset(spark, "commits")
    age(world, days=31)

    ended = _killed(world, "collect-garbage", who, step, after=after)
    for _ in range(2):
        world.run(spark, JOBS["collect-garbage"])

    assert ended == ENDS[who]
    assert not any(exists(world, location) for location in files.values())
    assert world.dataset(spark, "commits") == commits
    document = world.wait(current_document(world.lake, identifier_of("kept")))
    assert all(exists(world, entry.metadata_file) for entry in document.metadata.metadata_log)
