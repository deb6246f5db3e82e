"""What the server prints when it is ready works when it is pasted, with and without a token."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandur.cli.banner import recipes
from tests.interop.matrix import operation
from tests.interop.recipes import Recipe, run_command, run_duckdb
from tests.server.process import ServerProcess, server_process

TOKEN = "a-secret-for-this-test"  # noqa: S105 - of a server that lives for seconds


@pytest.fixture(scope="module", params=[False, True], ids=["open", "with a token"])
def needs_token(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def server(needs_token: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:  # noqa: FBT001 - a fixture
    settings = {"authentication": "token", "token": TOKEN} if needs_token else {}
    with server_process(tmp_path_factory.mktemp("printed"), fsync="never", **settings) as running:
        yield running


@pytest.fixture
def printed(server: ServerProcess, needs_token: bool) -> dict[str, str]:  # noqa: FBT001 - a fixture
    """The lines for each engine, as they stand on the screen."""
    found = recipes(server.url, "main", needs_token=needs_token)
    for lines in found.values():
        assert all(f"  {line}" in server.printed for line in lines)
    return {engine: "\n".join(lines) for engine, lines in found.items()}


def run_shell(lines: str, folder: Path) -> str:
    return run_command(["bash", "-euo", "pipefail", "-c", lines], folder, {"SANDUR_TOKEN": TOKEN})


@operation("PyIceberg", "bearer token")
def test_the_lines_for_pyiceberg_work(printed: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "pasted.py"
    script.write_text(
        f"{printed['PyIceberg']}\ncatalog.create_namespace_if_not_exists('p')\nprint(catalog.list_namespaces())"
    )

    assert "('p',)" in run_command(["python", str(script)], tmp_path, {"SANDUR_TOKEN": TOKEN})


@operation("DuckDB", "bearer token")
def test_the_lines_for_duckdb_work(printed: dict[str, str], tmp_path: Path) -> None:
    use = "CREATE SCHEMA sandur.d; CREATE TABLE sandur.d.t AS SELECT 42 AS id; SELECT id FROM sandur.d.t;"

    shown = run_duckdb(Recipe("printed", "sql", printed["DuckDB"].replace("…", TOKEN) + use), tmp_path)

    assert shown == "[(42,)]"


def test_the_lines_for_curl_work(printed: dict[str, str], tmp_path: Path) -> None:
    shown = run_shell(printed["curl"].replace("curl ", "curl -fsS "), tmp_path)

    assert '"endpoints"' in shown
    assert '"namespaces"' in shown


@pytest.mark.interop
@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed, and Spark needs it")
@operation("Spark", "bearer token")
def test_the_lines_for_spark_work(printed: dict[str, str], tmp_path: Path) -> None:
    start, options = printed["Spark"].splitlines()

    shown = run_shell(f"{start} -e 'CREATE NAMESPACE sandur.s; SHOW NAMESPACES IN sandur'", tmp_path)

    assert "s" in shown.split()
    assert "spark.sql.catalog.sandur.uri" in run_shell(options, tmp_path)
