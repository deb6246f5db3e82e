"""Managed Delta tables on S3 by Delta Kernel, whose only keys are those that the catalog gives out."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandur.settings import Settings
from tests.interop.server_address import server_settings
from tests.server.secured_server import SecuredServer, secured_server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def facts(seaweedfs_sts: Settings, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The output of the session, with the state of the table in the catalog."""
    folder, s3 = tmp_path_factory.mktemp("delta-bucket"), seaweedfs_sts.s3
    vending = {"s3_access": s3.access, "s3_role_arn": s3.role_arn, "s3_sts_endpoint": s3.sts_endpoint}
    options: dict[str, Any] = {**server_settings(s3), **vending}
    store = f"s3://sandur/{folder.name}"
    with secured_server(folder, "--store", store, **options) as server:
        tokens = _tokens(server)
        ran = subprocess.run(
            [sys.executable, "-m", "tests.interop.delta_bucket_session", server.url, str(folder), s3.endpoint, *tokens],
            cwd=Path(__file__).parents[2],
            env={name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
        said = [line.removeprefix("FACTS ") for line in ran.stdout.splitlines() if line.startswith("FACTS ")]
        assert said, f"{ran.stdout[-2_000:]}\n{ran.stderr[-4_000:]}"
        table = server.administer("GET", "/api/2.1/unity-catalog/delta/v1/catalogs/main/schemas/s/tables/orders")
        return {**json.loads(said[0]), "table": table}


def _tokens(server: SecuredServer) -> tuple[str, str]:
    """The tokens of a writer, and of a reader of the table `orders` only."""
    server.administer("POST", "/api/2.1/unity-catalog/schemas", {"catalog_name": "main", "name": "s"})
    writer, reader = server.create_principal("writer"), server.create_principal("reader")
    for name in ("writer", "reader"):
        server.grant(name, ["USE CATALOG", "USE SCHEMA"], "catalog", "main")
    server.grant("writer", ["CREATE TABLE", "SELECT", "MODIFY"], "schema", "main.s")
    server.grant("reader", ["SELECT"], "schema", "main.s")
    return server.token(writer), server.token(reader)


def test_a_table_is_created_written_published_and_read(facts: dict[str, Any]) -> None:
    assert [facts[f"create {name}"] for name in ("orders", "neighbours")] == [None, None]
    assert [facts["append 1"], facts["append 2"], facts["publish"]] == [1, 2, 2]
    assert facts["table"]["latest-table-version"] == 2
    assert facts["rows"] == [[1, "text 1"], [2, "text 2"]]


def test_a_reader_cannot_write(facts: dict[str, Any]) -> None:
    assert "AccessDenied" in facts["a reader appends"]


def test_the_keys_of_a_table_do_not_open_its_neighbour(facts: dict[str, Any]) -> None:
    assert "AccessDenied" in facts["the keys of one table at the other"]
    assert facts["a reader reads the neighbour"] == []  # It may, and gets other keys.


def test_without_a_credential_the_bucket_is_closed(facts: dict[str, Any]) -> None:
    assert "AccessDenied" in facts["without a credential"]
