"""Drivers that are killed for real, before and after every step at which they publish: the next run ends their work."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sandur.pipeline.jobs import JOBS
from tests.pipeline.test_compact import system_table
from tests.pipeline.world import World

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
DATASETS = {
    "compact": ("commits", "timeline", "activity"),
    "project": ("catalogs", "namespaces", "tables", "columns", "schema_history", "partition_spec_history"),
}
STEPS = (
    ("compact", "/feed/0"),  # A position is given.
    ("compact", "/manifest.json"),  # The manifest is written, and then swapped in.
    ("compact", "core/manifest.json"),  # The swap by which it is published.
    ("compact", "iceberg_pointers/"),  # A system table is made.
    ("compact", "/snap-"),  # The files of its snapshot are written.
    ("project", "core/manifest.json"),
    ("project", "/snap-"),
)


def _killed(world: World, job: str, step: str, *, after: bool) -> int:
    """How a driver ended that was to be killed."""
    told = [world.settings.store, job, step, "after" if after else "before"]
    command = [sys.executable, "-m", "tests.pipeline.killed_driver", *told]
    return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=300, check=False).returncode


def _rows(world: World, spark: SparkSession, job: str) -> dict[str, list[dict[str, Any]]]:
    """What is published, and that the system tables hold the same."""
    found = {name: world.dataset(spark, name) for name in DATASETS[job]}
    for name, rows in found.items():
        assert sorted(map(str, system_table(world, name))) == sorted(map(str, rows)), name
    return found


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("job", "step"), STEPS)
def test_after_a_driver_was_killed_the_next_run_publishes_the_same_as_one_from_the_start(
    spark: SparkSession, world: World, job: str, step: str, *, after: bool
) -> None:
    world.make("orders")
    world.commits("orders", 2)
    world.make("customers")

    ended = _killed(world, job, step, after=after)
    world.run(spark, JOBS[job])
    rows = _rows(world, spark, job)

    assert ended == -signal.SIGKILL
    world.remove(world.layout.core_manifest())
    world.run(spark, JOBS[job])
    again = _rows(world, spark, job)
    assert _of_users(again) == _of_users(rows)


def _of_users(found: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Without the tables that the pipeline made, of which the first run knows nothing."""
    return {name: [row for row in rows if row.get("namespace") != "system"] for name, rows in found.items() if rows}
