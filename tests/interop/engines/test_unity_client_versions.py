"""Older versions of `unitycatalog-client` list and load a schema that also has an Iceberg table and views."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.interop.engines.environments import PINS, NotInstalled, installed, run
from tests.server.process import ServerProcess, server_process
from tests.server.requests import create_table, create_view
from tests.server.unity.client import UNITY

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

_PINS: Final = PINS / "unitycatalog-client.txt"
_PROGRAM: Final = """
import asyncio, json, sys
import unitycatalog.client as uc

async def main(host):
    async with uc.ApiClient(uc.Configuration(host=host)) as client:
        tables = uc.TablesApi(client)
        listed = (await tables.list_tables("main", "s")).tables
        for table in listed:
            assert await tables.get_table(f"main.s.{table.name}") == table
        schemas = (await uc.SchemasApi(client).list_schemas("main")).schemas
        print(json.dumps({
            "agent": client.user_agent,
            "schemas": [schema.name for schema in schemas],
            "tables": {table.name: [column.name for column in table.columns or ()] for table in listed},
            "formats": {table.name: table.data_source_format for table in listed},
        }))

asyncio.run(main(sys.argv[1]))
"""
_FIELDS: Final = [
    {"id": 1, "name": "id", "type": "long", "required": False},
    {"id": 2, "name": "at", "type": "timestamp", "required": False},
    {"id": 3, "name": "any", "type": "variant", "required": False},
]


def _pinned() -> dict[str, str]:
    """The requirements by version."""
    lines = _PINS.read_text(encoding="utf-8").splitlines()
    return {line.split()[0].partition("==")[2]: line for line in lines if line}


@pytest.fixture(scope="module")
def versions() -> Path:
    """A folder with one folder per version; their dependencies are those of this environment."""

    def install(home: Path) -> None:
        for version, requirement in _pinned().items():
            pin = home / f"{version}.txt"
            pin.write_text(requirement, encoding="utf-8")
            uv = Path(sys.executable).parent / "uv"
            run(
                [
                    uv,
                    "pip",
                    "install",
                    "--quiet",
                    "--no-deps",
                    "--require-hashes",
                    "--target",
                    home / version,
                    "-r",
                    pin,
                ]
            )

    try:
        return installed("unitycatalog-client", [_PINS], install)
    except NotInstalled as reason:
        pytest.skip(f"unitycatalog-client cannot be installed: {reason}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a schema of a Delta table, an Iceberg table, an Iceberg view and a metric view."""
    folder = tmp_path_factory.mktemp("versions")
    with (
        server_process(folder, "--allow-location", f"file://{folder}/allowed", fsync="never") as running,
        httpx.Client(base_url=running.url) as http,
    ):
        where = {"catalog_name": "main", "schema_name": "s"}
        http.post(f"{UNITY}/schemas", json={"catalog_name": "main", "name": "s"}).raise_for_status()
        column = {"name": "id", "type_text": "bigint", "type_json": '"long"'}
        delta: dict[str, object] = {
            **where,
            "name": "delta",
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": [column],
        }
        delta["storage_location"] = f"file://{folder}/allowed/delta"
        http.post(f"{UNITY}/tables", json=delta).raise_for_status()
        iceberg = {**create_table("iceberg"), "properties": {"format-version": "3"}}
        iceberg["schema"] = {"type": "struct", "schema-id": 0, "fields": _FIELDS}
        http.post("/v1/main/namespaces/s/tables", json=iceberg).raise_for_status()
        http.post("/v1/main/namespaces/s/views", json=create_view("view")).raise_for_status()
        metric: dict[str, object] = {
            **where,
            "name": "metrics",
            "table_type": "METRIC_VIEW",
            "view_definition": "version: 0.1",
        }
        metric["view_dependencies"] = {"dependencies": [{"table": {"table_full_name": "main.s.delta"}}]}
        http.post(f"{UNITY}/tables", json=metric).raise_for_status()
        yield running


@pytest.mark.parametrize("version", _pinned())
def test_an_older_client_lists_and_loads_every_table(server: ServerProcess, versions: Path, version: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, f"{server.url}{UNITY}"],
        env={**os.environ, "PYTHONPATH": str(versions / version)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2_000:]
    seen = json.loads(done.stdout)
    assert "s" in seen["schemas"]
    assert seen["tables"] == {"delta": ["id"], "iceberg": ["id", "at", "any"], "metrics": [], "view": ["id", "text"]}
    assert seen["formats"] == {"delta": "DELTA", "iceberg": None, "metrics": None, "view": None}, seen["agent"]
