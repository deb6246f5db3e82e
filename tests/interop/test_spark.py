"""Spark with Iceberg's runtime against a real server: what a session of a day does, once."""

import json
import shutil
import subprocess
import sys

import pytest

from tests.interop.spark_statements import STATEMENTS
from tests.server.process import ServerProcess

SECONDS_MAX = 280


@pytest.mark.interop
@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed, and Spark needs it")
@pytest.mark.timeout(300)
def test_spark_creates_writes_evolves_branches_and_drops(folder_server: ServerProcess) -> None:
    command = [sys.executable, "-m", "tests.interop.spark_statements", folder_server.url]

    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)

    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]
    assert [answer["name"] for answer in answers] == list(STATEMENTS), done.stderr[-3_000:]
    rows = {answer["name"]: answer["rows"] for answer in answers}
    assert rows["rows"] == [[2, "DK", 99.0, None], [3, "IS", 8.0, None], [4, "NO", 1.0, None]]
    assert rows["replaced"] == [[3]]
    assert rows["read branch"] == [[4]]
    assert rows["main"] == [[4]]
    assert rows["read view"] == [[3]]
    assert sorted(row[1] for row in rows["tables"]) == ["t", "totals"]
    assert rows["snapshots"] == [[True]]
    assert rows["row ids"] == [[2, 1]]
