"""The jobs on a cluster and through Spark Connect, started with the command line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.spark_processes import WAIT_SECONDS, cluster, connect_server, environment
from tests.pipeline.world import World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600)]

TABLES = 12


def _sandur(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """The reports of `sandur … --json`."""
    code = "from sandur.cli.main import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments, "--json"],
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=6 * WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _fill(world: World) -> None:
    for number in range(TABLES):
        world.make(f"t{number:02d}")
        world.set_property(f"t{number:02d}", "1")


def _counts(reports: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    assert all(not report.get("warnings") for report in reports), reports
    return {report["job"]: report["counts"] for report in reports}


def _finished_tasks(worker: Path) -> int:
    """The number of finished tasks in the logs of a worker's executors."""
    logs = worker.glob("app-*/*/stderr")
    return sum(log.read_text().count("Finished task") for log in logs)


def test_all_jobs_run_on_a_cluster_with_executors_in_two_workers(world: World, tmp_path: Path) -> None:
    _fill(world)

    with cluster(tmp_path, workers=2) as (master, workers):
        reports = _sandur(tmp_path, "run", "all", "--store", world.settings.store, "--master", master)
        finished = [_finished_tasks(worker) for worker in workers]

    counts = _counts(reports)
    assert list(counts) == ["reconcile", "compact", "project", "metrics", "rebuild-index", "collect-garbage"]
    assert counts["compact"]["commits"] == 2 * TABLES
    assert counts["project"]["tables"] >= TABLES
    assert all(times > 0 for times in finished), finished


def test_jobs_run_through_spark_connect(world: World, tmp_path: Path) -> None:
    _fill(world)

    with connect_server(tmp_path) as address:
        store = world.settings.store
        compacted = _counts(_sandur(tmp_path, "run", "compact", "--store", store, "--master", address))
        projected = _counts(_sandur(tmp_path, "run", "project", "--store", store, "--master", address))
        collected = _counts(_sandur(tmp_path, "run", "collect-garbage", "--store", store, "--master", address))

    assert compacted["compact"]["commits"] == 2 * TABLES
    assert projected["project"]["tables"] >= TABLES
    assert "collect-garbage" in collected
