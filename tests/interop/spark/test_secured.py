"""Sessions of `sandur.spark` on a server with authentication, and with several catalogs."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.interop.engines.conversation import EngineError
from tests.interop.matrix import FOLDER, operation
from tests.interop.server_address import Served
from tests.interop.spark.flavours import LATEST
from tests.interop.spark.spark_processes import SPARKS, catalog_of, running_spark
from tests.server.logins import ADMIN_SECRET, TOKENS, created_api_key
from tests.server.process import server_process

TENANTS = ("acme", "rival")

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that requires a token, with the catalogs `main` and `lake`."""
    SPARKS.end()
    folder = tmp_path_factory.mktemp("secured")
    sandur(folder, "catalog", "create", "lake", "--store", str(folder / "data"))
    for tenant in TENANTS:
        secret = json.loads(
            sandur(folder, "admin", "recover", "--tenant", tenant, "--store", str(folder / "data"), "--json")
        )
        (folder / tenant).write_text(secret["client_secret"])
    with server_process(folder, authentication="on", admin_secret=ADMIN_SECRET, fsync="never") as server:
        yield Served(FOLDER, server)


def sandur(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-c", "from sandur.cli.main import run; run()", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def client_token(url: str, secret: str = ADMIN_SECRET, tenant: str = "default") -> str:
    """A token for the administrator of a tenant."""
    form = {"grant_type": "client_credentials", "client_id": "admin", "client_secret": secret}
    answer = httpx.post(f"{url}{TOKENS}", data=form, headers={"X-Sandur-Tenant": tenant}, timeout=60)
    return str(answer.raise_for_status().json()["access_token"])


@operation("Spark", "bearer token")
def test_a_session_can_use_tokens_credentials_and_several_catalogs(secured: Served, tmp_path: Path) -> None:
    key = created_api_key(secured.url)
    token = client_token(secured.url)
    catalogs = [
        catalog_of(secured, name="by_key", token=key),
        catalog_of(secured, name="by_token", token=token),
        catalog_of(secured, name="by_credential", credential=f"admin:{ADMIN_SECRET}"),
        catalog_of(secured, name="lake", warehouse="lake", token=token),
        catalog_of(secured, name="stranger", token=token[::-1]),
        catalog_of(secured, name="silent"),
    ]

    with running_spark(LATEST, tmp_path, catalogs) as spark:
        spark.sql("CREATE NAMESPACE by_key.ns")
        spark.sql("CREATE TABLE by_token.ns.t AS SELECT id FROM range(3)")
        spark.sql("CREATE NAMESPACE lake.other")
        spark.sql("CREATE TABLE lake.other.t AS SELECT id * 2 AS twice FROM by_credential.ns.t")

        assert spark.sql("SELECT sum(twice) FROM lake.other.t") == [[6]]
        assert spark.sql("SHOW NAMESPACES IN lake") == [["other"]]
        assert spark.sql("SHOW NAMESPACES IN by_credential") == [["ns"]]
        for name in ("stranger", "silent"):
            with pytest.raises(EngineError, match=r"NotAuthorized|Not authorized"):
                spark.sql("SHOW NAMESPACES IN " + name)


@operation("Spark", "bearer token")
def test_a_token_for_one_tenant_cannot_read_another(secured: Served, tmp_path: Path) -> None:
    folder = secured.server.folder
    tokens = {name: client_token(secured.url, (folder / name).read_text(), name) for name in TENANTS}
    catalogs = [catalog_of(secured, name=name, token=token) for name, token in tokens.items()]

    with running_spark(LATEST, tmp_path, catalogs) as spark:
        spark.sql("CREATE NAMESPACE acme.secret")
        spark.sql("CREATE TABLE acme.secret.t AS SELECT 1 a")

        assert spark.sql("SHOW NAMESPACES IN rival") == []
        with pytest.raises(EngineError, match="cannot be found"):
            spark.sql("SELECT * FROM rival.secret.t")
