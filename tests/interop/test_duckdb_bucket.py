"""Managed Delta tables on S3 by DuckDB, whose only keys are those that the catalog gives out.

DuckDB uses them only at Amazon, so the S3 of the tests looks like Amazon's.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from sandur.cli.main import app
from sandur.settings import Settings
from tests.interop.server_address import server_settings
from tests.server.secured_server import SecuredServer, secured_server
from tests.servers.amazon_gateway import Gateway, amazon_gateway

UNITY = "/api/2.1/unity-catalog"

pytestmark = pytest.mark.interop


class Lakehouse(NamedTuple):
    """A server with authentication on a bucket, with the managed table `orders` of `writer` and `reader`."""

    server: SecuredServer
    gateway: Gateway
    tokens: dict[str, str]

    def run(self, who: str, *statements: str, mode: str = "") -> list[Any]:
        """The rows of each statement, or its error."""
        module = "tests.interop.duckdb_bucket_session"
        command = [sys.executable, "-m", module, self.server.url, self.tokens[who], mode]
        ran = subprocess.run(
            [*command, *statements],
            cwd=Path(__file__).parents[2],
            env=self.gateway.environment(),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        said = [line.removeprefix("FACTS ") for line in ran.stdout.splitlines() if line.startswith("FACTS ")]
        assert said, f"{ran.stdout[-2_000:]}\n{ran.stderr[-4_000:]}"
        found: list[Any] = json.loads(said[0])
        return found


@pytest.fixture(scope="module")
def lakehouse(seaweedfs_sts: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lakehouse]:
    folder, s3 = tmp_path_factory.mktemp("duckdb-bucket"), seaweedfs_sts.s3
    options = server_settings(s3)
    vending: dict[str, Any] = {"s3_access": s3.access, "s3_role_arn": s3.role_arn, "s3_sts_endpoint": s3.sts_endpoint}
    store = f"s3://sandur/{folder.name}"
    with (
        amazon_gateway(folder, s3.endpoint) as gateway,
        secured_server(folder, "--store", store, **options | vending) as server,
    ):
        server.administer("POST", f"{UNITY}/schemas", {"catalog_name": "main", "name": "s"})
        create = ["delta", "create", "main.s.orders", "--columns", "id BIGINT, text STRING", "--store", store]
        environment = {f"SANDUR_{name.upper()}": value for name, value in options.items()}
        made = CliRunner().invoke(app, create, env=environment, catch_exceptions=False)
        assert made.exit_code == 0, made.output
        tokens = {name: server.token(server.create_principal(name)) for name in ("writer", "reader", "stranger")}
        for name in tokens:
            server.grant(name, ["USE CATALOG", "USE SCHEMA"], "catalog", "main")
        server.grant("writer", ["SELECT", "MODIFY"], "table", "main.s.orders")
        server.grant("reader", ["SELECT"], "table", "main.s.orders")
        yield Lakehouse(server, gateway, tokens)


def test_duckdb_writes_commits_and_reads_without_keys_of_its_own(lakehouse: Lakehouse) -> None:
    inserted = lakehouse.run(
        "writer",
        *(f"INSERT INTO uc.s.orders VALUES ({number}, 'text {number}')" for number in (1, 2)),
        "SELECT * FROM uc.s.orders ORDER BY id",
    )
    read, refused = lakehouse.run(
        "reader",
        "SELECT * FROM uc.s.orders ORDER BY id",
        "INSERT INTO uc.s.orders VALUES (3, 'no')",
        mode=", READ_ONLY",
    )
    greedy = lakehouse.run("reader", "SELECT * FROM uc.s.orders")  # Without READ_ONLY it requests keys to write.
    hidden = lakehouse.run("stranger", "SELECT * FROM uc.s.orders")

    rows = [[1, "text 1"], [2, "text 2"]]
    assert inserted == [[[1]], [[1]], rows]
    assert read == rows
    assert "Error" in refused
    assert "it needs SELECT and MODIFY" in greedy[0]
    assert "Error" in hidden[0]
    path = f"{UNITY}/delta/v1/catalogs/main/schemas/s/tables/orders"
    assert lakehouse.server.administer("GET", path)["latest-table-version"] == 2
