"""Delta clients without a JVM against a real server on a folder: DuckDB commits through the catalog, others by path."""

import concurrent.futures
import json
from collections.abc import Iterator
from pathlib import Path

import deltalake
import duckdb
import httpx
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from demo.duckdb_sessions import unity_session
from sandur.cli.main import app
from tests.server.process import ServerProcess, server_process

UNITY = "/api/2.1/unity-catalog"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the server's store."""
    return tmp_path_factory.mktemp("delta") / "data"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    with server_process(folder.parent, fsync="never") as running:
        httpx.post(f"{running.url}{UNITY}/schemas", json={"catalog_name": "main", "name": "s"}).raise_for_status()
        yield running


def create(folder: Path, name: str, *flags: str) -> dict[str, object]:
    """A table created by the command line directly on the store of the running server."""
    arguments = ["delta", "create", name, "--columns", "id BIGINT, text STRING", "--store", str(folder), "--json"]
    result = CliRunner().invoke(app, [*arguments, *flags], env={"SANDUR_FSYNC": "never"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    made: dict[str, object] = json.loads(result.stdout)
    return made


def loaded(server: ServerProcess, name: str) -> dict[str, object]:
    answer = httpx.get(f"{server.url}{UNITY}/delta/v1/catalogs/main/schemas/s/tables/{name}")
    found: dict[str, object] = answer.raise_for_status().json()
    return found


def test_duckdb_writes_and_reads_a_managed_table_and_publishes_its_commits(folder: Path, server: ServerProcess) -> None:
    made = create(folder, "main.s.managed")
    session = unity_session(server.url, "s")

    for number in range(12):  # More than the bound on unpublished commits.
        session.execute(f"INSERT INTO uc.s.managed VALUES ({number}, 'text {number}')")

    assert session.execute("SELECT count(*), sum(id) FROM uc.s.managed").fetchall() == [(12, 66)]
    assert unity_session(server.url, "s").execute("SELECT max(id) FROM uc.s.managed").fetchall() == [(11,)]
    table = loaded(server, "managed")
    assert table["latest-table-version"] == 12
    log = Path(str(made["location"]).removeprefix("file://")) / "_delta_log"
    assert (log / f"{11:020d}.json").exists()


@pytest.mark.usefixtures("server")
def test_a_new_managed_table_has_the_directory_into_which_clients_write_commits(folder: Path) -> None:
    made = create(folder, "main.s.empty")

    assert (Path(str(made["location"]).removeprefix("file://")) / "_delta_log" / "_staged_commits").is_dir()


def test_two_duckdb_sessions_lose_no_acknowledged_row(folder: Path, server: ServerProcess) -> None:
    create(folder, "main.s.raced")
    sessions = [unity_session(server.url, "s"), unity_session(server.url, "s")]

    def insert(at: int) -> list[int]:
        kept = []
        for number in range(5):
            value = at * 100 + number
            try:
                sessions[at].execute(f"INSERT INTO uc.s.raced VALUES ({value}, '')")
            except duckdb.Error:  # The version was taken, and DuckDB does not retry.
                continue
            kept.append(value)
        return kept

    with concurrent.futures.ThreadPoolExecutor() as pool:
        acknowledged = [value for kept in pool.map(insert, (0, 1)) for value in kept]

    rows = [
        row[0] for row in unity_session(server.url, "s").execute("SELECT id FROM uc.s.raced ORDER BY id").fetchall()
    ]
    assert set(acknowledged) <= set(rows)
    assert len(rows) == len(set(rows))
    assert loaded(server, "raced")["latest-table-version"] == len(rows)


def test_a_table_at_a_location_is_a_plain_delta_table(folder: Path, server: ServerProcess) -> None:
    location = f"{folder}/tables/default/default/main/plain"
    create(folder, "main.s.plain", "--location", location, "--partition-by", "text", "--comment", "mine")

    deltalake.write_deltalake(location, pa.table({"id": [1, 2], "text": ["a", "b"]}), mode="append")

    table = deltalake.DeltaTable(location)
    assert (table.version(), table.metadata().partition_columns) == (1, ["text"])
    assert table.metadata().description == "mine"
    assert table.history()[-1]["engineInfo"] == "Sandur"
    assert pl.read_delta(location).sort("id")["text"].to_list() == ["a", "b"]
    found = unity_session(server.url, "s").execute("SELECT id, text FROM uc.s.plain ORDER BY id").fetchall()
    assert found == [(1, "a"), (2, "b")]


def test_a_table_by_path_is_not_in_the_catalog(folder: Path, server: ServerProcess) -> None:
    location = f"{folder}/tables/default/default/main/path_only"

    made = create(folder, f"delta.`{location}`", "--property", "delta.enableChangeDataFeed=true")
    again = create(folder, f"delta.`{location}`", "--if-not-exists")

    assert (made["table_id"], made["is_new"], again["is_new"]) == (None, True, False)
    table = deltalake.DeltaTable(location)
    assert table.version() == 0
    assert table.metadata().configuration == {"delta.enableChangeDataFeed": "true"}
    listed = httpx.get(f"{server.url}{UNITY}/tables", params={"catalog_name": "main", "schema_name": "s"}).json()
    assert "path_only" not in [entry["name"] for entry in listed["tables"]]


def test_an_existing_table_is_not_created_again(folder: Path, server: ServerProcess) -> None:
    first = create(folder, "main.s.twice")

    assert create(folder, "main.s.twice", "--if-not-exists")["table_id"] == first["table_id"]
    arguments = ["delta", "create", "main.s.twice", "--columns", "id INT", "--store", str(folder)]
    assert CliRunner().invoke(app, arguments, env={"SANDUR_FSYNC": "never"}).exit_code != 0
    assert loaded(server, "twice")["latest-table-version"] == 0


def test_a_managed_table_renamed_by_the_command_line_is_read_and_written_by_its_new_name(
    folder: Path, server: ServerProcess
) -> None:
    create(folder, "main.s.before")
    unity_session(server.url, "s").execute("INSERT INTO uc.s.before VALUES (1, 'one')")

    arguments = ["delta", "rename", "main.s.before", "behind", "--store", str(folder), "--json"]
    result = CliRunner().invoke(app, arguments, env={"SANDUR_FSYNC": "never"}, catch_exceptions=False)

    assert (result.exit_code, json.loads(result.stdout)) == (0, {"name": "main.s.behind"})
    session = unity_session(server.url, "s")
    session.execute("INSERT INTO uc.s.behind VALUES (2, 'two')")
    assert session.execute("SELECT id FROM uc.s.behind ORDER BY id").fetchall() == [(1,), (2,)]
    missing = httpx.get(f"{server.url}{UNITY}/delta/v1/catalogs/main/schemas/s/tables/before")
    assert missing.status_code == 404


def test_a_managed_table_is_rolled_back_and_duckdb_reads_and_writes_on(folder: Path, server: ServerProcess) -> None:
    create(folder, "main.s.rolled", "--property", "delta.enableRowTracking=true")
    session = unity_session(server.url, "s")
    for number in range(11):  # More than the bound on unpublished commits.
        session.execute(f"INSERT INTO uc.s.rolled VALUES ({number}, 'text {number}')")
    answers = []
    for version in (3, 12):  # The second one takes the first one back: 12 is the version that it made.
        arguments = ["rollback", "main.s.rolled", "--to", str(version - (version == 12)), "--yes", "--json"]
        done = CliRunner().invoke(app, [*arguments, "--server", server.url], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        answers.append(unity_session(server.url, "s").execute("SELECT count(*), sum(id) FROM uc.s.rolled").fetchall())
    unity_session(server.url, "s").execute("INSERT INTO uc.s.rolled VALUES (99, 'after')")

    assert answers == [[(3, 3)], [(11, 55)]]
    assert unity_session(server.url, "s").execute("SELECT count(*), max(id) FROM uc.s.rolled").fetchall() == [(12, 99)]
    table = loaded(server, "rolled")
    assert table["latest-table-version"] == 14
