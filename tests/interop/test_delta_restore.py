"""Spark reads what `sandur rollback` made of tables with deletion vectors, row tracking and column mapping."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from typer.testing import CliRunner

from sandur.cli.main import app
from tests.server.process import server_process

pytestmark = [pytest.mark.interop, pytest.mark.timeout(2_400)]
ROOT: Final = Path(__file__).parents[2]
SECONDS_MAX: Final = 1_000


RESTORED: Final = (1, 2, 7, 10)


def _spark(url: str, folder: Path, *restored: str) -> dict[str, Any]:
    command = (sys.executable, "-m", "tests.interop.delta_restore_session", url, str(folder), *restored)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, f"{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}"
    facts = [line.removeprefix("FACTS ") for line in done.stdout.splitlines() if line.startswith("FACTS ")]
    return json.loads(facts[0]) if facts else {}


def test_spark_reads_the_rows_of_every_restored_version_and_writes_on(tmp_path: Path) -> None:
    work = tmp_path / "work"
    made = {}
    with server_process(tmp_path, "--allow-location", work.as_uri(), fsync="never") as running:
        _spark(running.url, work)
        httpx.post(f"{running.url}/v1/main/namespaces", json={"namespace": ["d"]}, timeout=60).raise_for_status()
        table = {"name": "t", "format": "delta", "location": (work / "t").as_uri()}
        httpx.post(f"{running.url}/api/sandur/v1/tables/main/d", json=table, timeout=60).raise_for_status()
        for version in RESTORED:
            arguments = ["rollback", "main.d.t", "--to", str(version), "--yes", "--json", "--server", running.url]
            done = CliRunner().invoke(app, arguments, catch_exceptions=False)
            assert done.exit_code == 0, done.output
            made[version] = json.loads(done.stdout)["new_version"]
        facts = _spark(running.url, work, *(f"{then}:{now}" for then, now in made.items()))

    assert all(facts[f"{then} is {now}"] for then, now in made.items()), facts
    assert facts["operations"] == ["RESTORE"] * len(RESTORED)
    assert facts["rows"][:2] == [20, 19]
    assert facts["rows after"] == facts["row ids after"] == facts["rows"][-1] + 1
