"""The lines of the banner work when they are pasted: without a token, with a token, and with tables on S3."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandur.cli.serve import recipes
from sandur.setting_sources import load_settings
from sandur.settings import Settings
from tests.interop.engines.environments import NotInstalled
from tests.interop.engines.trino import trino_with
from tests.interop.matrix import FOLDER, S3, operation
from tests.interop.recipes import Recipe, run_command, run_duckdb
from tests.interop.server_address import server_settings
from tests.server.logins import ADMIN_SECRET, created_api_key
from tests.server.process import ServerProcess, server_process

OPEN, SECURED, ON_S3 = "open", "with a token", "with a token on S3"
WITHOUT_KEYS = "with a token on S3, without keys"


@dataclass(frozen=True)
class Printed:
    """The printed lines for each engine, and the environment that they are pasted into."""

    lines: dict[str, str]
    environment: dict[str, str]
    secrets: dict[str, str]

    def filled(self, engine: str) -> str:
        """The lines with the placeholders filled in."""
        text = self.lines[engine]
        for place, secret in self.secrets.items():
            text = text.replace(f"{place} '…'", f"{place} '{secret}'")
        return text


@pytest.fixture(
    scope="module",
    params=[OPEN, *(pytest.param(kind, marks=pytest.mark.interop) for kind in (SECURED, WITHOUT_KEYS, ON_S3))],
)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server_options(kind: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """The settings of the server."""
    token = {} if kind == OPEN else {"authentication": "on", "admin_secret": ADMIN_SECRET}
    if kind in {OPEN, SECURED}:
        return token
    settings: Settings = request.getfixturevalue("seaweedfs_settings" if kind == ON_S3 else "seaweedfs_sts")
    return token | server_settings(settings.s3)


@pytest.fixture(scope="module")
def server(
    kind: str, server_options: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("printed")
    store = [] if kind in {OPEN, SECURED} else ["--store", f"s3://sandur/{folder.name}"]
    with server_process(folder, *store, fsync="never", **server_options) as running:
        yield running


@pytest.fixture
def printed(kind: str, server_options: dict[str, str], server: ServerProcess) -> Printed:
    store = {} if kind in {OPEN, SECURED} else {"store": "s3://sandur/any"}
    settings = load_settings(
        environment={f"SANDUR_{key.upper()}": value for key, value in server_options.items()}, flags=store
    )
    found = recipes(server.url, settings)
    for lines in found.values():
        assert all(f"  {line}" in server.printed for line in lines)
    keys = {"AWS_ACCESS_KEY_ID": settings.s3.access_key_id, "AWS_SECRET_ACCESS_KEY": settings.s3.secret_access_key}
    token = "" if kind == OPEN else created_api_key(server.url)
    secrets = {"TOKEN": token, "KEY_ID": settings.s3.access_key_id, "SECRET": settings.s3.secret_access_key}
    environment = {"SANDUR_TOKEN": token} | (keys if kind == ON_S3 else {})
    return Printed({engine: "\n".join(lines) for engine, lines in found.items()}, environment, secrets)


def run_shell(lines: str, folder: Path, printed: Printed) -> str:
    return run_command(["bash", "-euo", "pipefail", "-c", lines], folder, printed.environment)


@operation("PyIceberg", "bearer token", store=FOLDER)
def test_the_lines_for_pyiceberg_work(printed: Printed, tmp_path: Path) -> None:
    use = """
import pyarrow as pa
catalog.create_namespace_if_not_exists("p")
table = catalog.create_table("p.t", pa.schema({"id": pa.int64()}))
table.append(pa.table({"id": [42]}))
print(catalog.load_table("p.t").scan().to_arrow()["id"].to_pylist())
"""
    script = tmp_path / "pasted.py"
    script.write_text(printed.filled("PyIceberg") + use, encoding="utf-8")

    assert run_command(["python", str(script)], tmp_path, printed.environment).split() == ["[42]"]


@operation("DuckDB", "bearer token", store=FOLDER)
def test_the_lines_for_duckdb_work(printed: Printed, tmp_path: Path) -> None:
    use = "CREATE SCHEMA sandur.d; CREATE TABLE sandur.d.t AS SELECT 42 AS id; SELECT id FROM sandur.d.t;"

    output = run_duckdb(Recipe("printed", "sql", printed.filled("DuckDB") + use), tmp_path)

    assert output == "[(42,)]"


def test_the_lines_for_curl_work(printed: Printed, tmp_path: Path) -> None:
    output = run_shell(printed.filled("curl").replace("curl ", "curl -fsS "), tmp_path, printed)

    assert '"endpoints"' in output
    assert '"namespaces"' in output


@pytest.mark.interop
@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed, and Spark needs it")
@operation("Spark", "bearer token", store=FOLDER)
def test_the_lines_for_spark_work(printed: Printed, tmp_path: Path) -> None:
    start, options = printed.filled("Spark").splitlines()
    use = "CREATE NAMESPACE sandur.s; CREATE TABLE sandur.s.t AS SELECT 42 AS id; SELECT id FROM sandur.s.t"

    output = run_shell(f"{start} -e '{use}'", tmp_path, printed)

    assert "42" in output.split()
    assert "spark.sql.catalog.sandur.uri" in run_shell(options, tmp_path, printed)


@pytest.mark.interop
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("kind", [ON_S3, WITHOUT_KEYS], indirect=True)
@operation("Trino", "bearer token", store=S3)
def test_the_lines_for_trino_work(printed: Printed, tmp_path: Path) -> None:
    properties = printed.filled("Trino (etc/catalog/sandur.properties)")
    try:
        with trino_with(tmp_path, properties, printed.environment) as trino:
            trino.sql("CREATE SCHEMA sandur.trino")
            trino.sql("CREATE TABLE sandur.trino.t AS SELECT 42 AS id")
            assert trino.sql("SELECT id FROM sandur.trino.t") == [[42]]
    except NotInstalled as reason:
        pytest.skip(f"Trino cannot be installed: {reason}")
