"""Every pair of creator and writer of a managed Delta table: what one writes, the others read with its values.

Without Spark, a table that adopts everything that the catalog suggests stands for one that Spark creates.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import duckdb
import httpx
import pytest
from typer.testing import CliRunner

from demo.duckdb_sessions import unity_session
from sandur.cli.main import app
from tests.interop.delta_creators import MAPPING_MODE, UNITY, create_as_suggested
from tests.interop.matrix import ROOT
from tests.server.process import ServerProcess, server_process

JARS: Final = os.environ.get("SANDUR_UC_JARS", "")
WRITERS: Final = ("kernel", "duckdb", "spark")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("pairs"), fsync="never") as running:
        httpx.post(f"{running.url}{UNITY}/schemas", json={"catalog_name": "main", "name": "s"}).raise_for_status()
        yield running


def test_duckdb_writes_values_into_a_table_that_adopts_every_suggestion(server: ServerProcess) -> None:
    create_as_suggested(server.url, "s", "suggested")

    unity_session(server.url, "s").execute("INSERT INTO uc.s.suggested VALUES (1, 'one', 1.5), (2, NULL, 2.5)")

    rows = unity_session(server.url, "s").execute("SELECT * FROM uc.s.suggested ORDER BY id").fetchall()
    assert rows == [(1, "one", 1.5), (2, None, 2.5)]


def test_duckdb_is_refused_where_its_rows_would_be_null(server: ServerProcess) -> None:
    folder = create_as_suggested(server.url, "s", "mapped", {MAPPING_MODE: "name"})

    with pytest.raises(duckdb.Error, match="column mapping"):
        unity_session(server.url, "s").execute("INSERT INTO uc.s.mapped VALUES (1, 'one', 1.5)")

    loaded = httpx.get(f"{server.url}{UNITY}/delta/v1/catalogs/main/schemas/s/tables/mapped").json()
    assert (loaded["latest-table-version"], loaded["commits"]) == (0, [])
    assert unity_session(server.url, "s").execute("SELECT count(*) FROM uc.s.mapped").fetchall() == [(0,)]
    assert [file.name for file in (folder / "_delta_log").glob("*.json")] == [f"{0:020d}.json"]


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What three engines in one process found in the tables of each other; a table of the command line is one more."""
    folder = tmp_path_factory.mktemp("engines")
    with server_process(folder, fsync="never") as server:
        httpx.post(f"{server.url}{UNITY}/schemas", json={"catalog_name": "main", "name": "s"}).raise_for_status()
        create = ["delta", "create", "main.s.by_sandur", "--columns", "id INT, text STRING, amount DOUBLE"]
        made = CliRunner().invoke(app, [*create, "--store", str(folder / "data")], env={"SANDUR_FSYNC": "never"})
        assert made.exit_code == 0, made.output
        session = [sys.executable, "-m", "tests.interop.delta_pairs_session", server.url, str(folder), JARS]
        ran = subprocess.run(session, cwd=ROOT, capture_output=True, text=True, timeout=1_700, check=False)
    said = [line.removeprefix("FACTS ") for line in ran.stdout.splitlines() if line.startswith("FACTS ")]
    assert said, f"{ran.stdout[-2_000:]}\n{ran.stderr[-4_000:]}"
    found: dict[str, Any] = json.loads(said[0])
    return found


def _is_possible(*engines: str) -> None:
    if "spark" in engines and not JARS:
        pytest.skip(
            "SANDUR_UC_JARS names no jar of io.unitycatalog:unitycatalog-spark_4.1_2.13, Spark's way to a catalog"
        )


@pytest.mark.interop
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("reader", ["duckdb", "spark"])
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("creator", ["sandur", "kernel", "spark"])
def test_a_row_of_any_writer_has_its_values_in_a_table_of_any_creator(
    facts: dict[str, Any], creator: str, writer: str, reader: str
) -> None:
    _is_possible(creator, writer, reader)
    number = WRITERS.index(writer)

    rows = facts["rows"][creator][reader]

    assert [row for row in rows if row[0] == number] == [[number, writer, number + 0.5]]
    assert len(rows) == len(WRITERS) - (not JARS)


@pytest.mark.interop
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("creator", ["sandur", "kernel", "spark"])
def test_rows_of_all_writers_can_be_updated_by_spark(facts: dict[str, Any], creator: str) -> None:
    _is_possible("spark")

    rows = facts["rows"][creator]["duckdb, after UPDATE by spark"]

    assert rows == [[number, writer, 2 * number + 1.0] for number, writer in enumerate(WRITERS)]


@pytest.mark.interop
@pytest.mark.timeout(1_800)
def test_duckdb_creates_no_tables_in_a_unity_catalog(facts: dict[str, Any]) -> None:
    """When this fails, DuckDB has learned it, and becomes a creator above."""
    assert facts["CREATE TABLE by duckdb"]


@pytest.mark.interop
@pytest.mark.timeout(1_800)
def test_spark_which_supports_column_mapping_is_not_refused(facts: dict[str, Any]) -> None:
    """Kernel refuses by itself to write to such a table."""
    _is_possible("spark")
    rows = [[1, "spark", 10.0], [3, "again", 3.5]]

    found = facts["mapped"]

    assert "column mapping" in found["refused"]
    assert "column mapping" in found["refused by kernel"]
    assert (found["spark"], found["duckdb"], found["partitioned"]) == (rows, rows, rows)
    # DuckDB 1.5.5 does not find the values of mapped partition columns; docs/delta.md says so.
    assert found["partitioned, duckdb"] == [[number, None, amount] for number, _, amount in rows]
