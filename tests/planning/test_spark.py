"""Spark reads the same rows with its own plans and with the server's."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.planning.spark_scans import FILTERS, MORE_FILTERS, TABLES
from tests.server.process import server_process

SECONDS_MAX = 1_500


@pytest.mark.interop
@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed, and Spark needs it")
@pytest.mark.timeout(1_600)
@pytest.mark.parametrize("inline_files_max", [1_000, 3], ids=["in the answer", "behind tasks"])
def test_spark_reads_the_same_rows_from_either_planner(tmp_path: Path, inline_files_max: int) -> None:
    limits = {"plan_inline_files_max": str(inline_files_max), "plan_task_files": "4"}
    with server_process(tmp_path, fsync="never", **limits) as server:
        command = [sys.executable, "-m", "tests.planning.spark_scans", server.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
        plans = planned(server.url)

    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"table"')]
    scans = len(TABLES) * len(FILTERS) + sum(map(len, MORE_FILTERS.values()))
    assert len(answers) == scans, done.stderr[-3_000:]
    assert [answer for answer in answers if not answer["same"]] == []
    assert sum(answer["rows"] for answer in answers) > 0
    assert plans >= len(answers)


def planned(url: str) -> int:
    """The number of plans that the server has made."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    counts = [line for line in lines if "sandur_request_seconds_count" in line and 'operation="planTableScan"' in line]
    return round(sum(float(line.rpartition(" ")[2]) for line in counts))
