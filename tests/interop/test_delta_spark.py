"""Spark with Unity Catalog's connector and Delta against a real server, by the Delta API and by the older commit API.

The connector is taken from the jars that `SANDUR_UC_JARS` names; without it the tests are skipped.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.server.process import server_process

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1_800)]


@pytest.fixture(scope="module", params=["newer", "older"])
def facts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    jars = os.environ.get("SANDUR_UC_JARS", "")
    if not jars:
        pytest.skip("SANDUR_UC_JARS names no jars of io.unitycatalog:unitycatalog-spark_4.1_2.13")
    folder = tmp_path_factory.mktemp("spark")
    with server_process(folder, fsync="never") as server:
        data = str(folder / "data")
        ran = subprocess.run(
            [sys.executable, "-m", "tests.interop.delta_spark_session", server.url, data, jars, request.param],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=1_700,
            check=False,
        )
    said = [line.removeprefix("FACTS ") for line in ran.stdout.splitlines() if line.startswith("FACTS ")]
    assert said, f"{ran.stdout[-2_000:]}\n{ran.stderr[-4_000:]}"
    found: dict[str, Any] = json.loads(said[0])
    return found | {"api": request.param}


EXPECTED: dict[str, Any] = {
    "schema": [],
    "schemas": ["t"],
    "create": [],
    "insert": [],
    "select": [[1, "one"], [2, "two"], [3, "three"]],
    "after them": [[1, "one"], [2, "merged"], [4, "four"]],
    "time travel": [[3]],
    "time travel by time": [[3]],
    "history": ["CREATE TABLE", "WRITE", "UPDATE", "DELETE", "MERGE"],
    "columns": ["id", "text", "more"],
    "rows of it": [[3]],
    "columns of it": ["x"],
    "replaced": [[5, 6]],
    "read it": [[7]],
    "tables": ["a", "b", "ext"],
    "rows in all": [[16]],
    "drop": [],
    "tables left": ["a", "ext"],
    "change feed": [[1, "insert", 1], [2, "insert", 1], [3, "update_postimage", 2], [2, "update_preimage", 2]],
    "streamed": [[1], [2]],
    "streamed on": [[1], [2], [3]],
    "appended by two": [[8, 8]],
    "incremented by two": [[8]],
    "comment": [],
    "commented": "noted",
    "restored": [[1], [2]],
    "compact with a write": "OPTIMIZE",
    "rows after them": [[17]],
    "rename by the API": 204,
    "read by its new name": [[1], [2], [3]],
    "rows by its new name": [[4]],
    "iceberg": 200,
    "both listed": ["d", "ice"],
    "read beside it": [["2026-01-02 03:04:05"]],
    "iceberg described": [["at", "timestamp_ntz"]],
    "iceberg refused": True,
}
REFUSED = {
    "optimize": "OPTIMIZE is blocked by the catalog for Catalog-Managed tables",
    "vacuum": "VACUUM is blocked by the catalog for Catalog-Managed tables",
    "rename": "Renaming a table is not supported yet",
    "rename column": "ALTER TABLE RENAME COLUMN is not supported",
}
"""What Delta and the connector refuse by themselves, whatever the server."""


@pytest.mark.parametrize("step", EXPECTED)
def test_spark_executes_every_supported_statement(facts: dict[str, Any], step: str) -> None:
    assert facts[step] == EXPECTED[step]


def test_a_restore_removes_a_later_comment(facts: dict[str, Any]) -> None:
    """The older API has no request for it: one without a description keeps the comment."""
    assert facts["comment after the restore"] == (None if facts["api"] == "newer" else "noted")


@pytest.mark.parametrize("step", REFUSED)
def test_spark_refuses_unsupported_statements_without_a_request(facts: dict[str, Any], step: str) -> None:
    assert REFUSED[step] in facts[step]
