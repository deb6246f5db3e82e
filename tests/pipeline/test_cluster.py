"""The jobs on a cluster and through Spark Connect, started with the command line."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.spark_processes import HOME, WAIT_SECONDS, cluster, connect_server, environment
from tests.pipeline.world import World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600)]

Reports = list[dict[str, Any]]

TABLES = 12
PROGRAM = "from sandur.cli.main import run; run()"


def _sandur(folder: Path, *arguments: str, program: Sequence[str | Path] = (sys.executable, "-c", PROGRAM)) -> Reports:
    """The reports of `sandur … --json`."""
    done = subprocess.run(
        [*program, *arguments, "--json"],
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


def _counts(reports: Reports) -> dict[str, dict[str, int]]:
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


def test_a_job_that_spark_submit_starts_runs_on_its_cluster(world: World, tmp_path: Path) -> None:
    """As a Spark operator starts it: a file in Python, without the option --master."""
    _fill(world)
    program = tmp_path / "pipeline.py"
    program.write_text(PROGRAM, encoding="utf-8")

    with cluster(tmp_path, workers=1) as (master, (worker,)):
        submit = (HOME / "bin" / "spark-submit", "--master", master, program)
        reports = _sandur(tmp_path, "run", "compact", "--store", world.settings.store, program=submit)
        finished = _finished_tasks(worker)

    assert _counts(reports)["compact"]["commits"] == 2 * TABLES
    assert finished > 0


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
