"""Sessions of `sandur.spark` on a server with authentication, and with several catalogs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.engines.conversation import EngineError
from tests.interop.matrix import FOLDER, operation
from tests.interop.server_address import Served
from tests.interop.spark.flavours import LATEST
from tests.interop.spark.spark_processes import SPARKS, catalog_of, running_spark
from tests.server.process import server_process

SECRET = "a secret that is long enough to sign with"  # noqa: S105 - of a server of this test

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that requires a token, with the catalogs `main` and `lake`."""
    SPARKS.end()
    folder = tmp_path_factory.mktemp("secured")
    sandur(folder, "catalog", "create", "lake", "--store", str(folder / "data"))
    with server_process(folder, authentication="token", token=SECRET, fsync="never") as server:
        yield Served(FOLDER, server)


def sandur(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-c", "from sandur.cli.main import run; run()", *arguments]
    environment = os.environ | {"SANDUR_TOKEN": SECRET}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


@operation("Spark", "bearer token")
def test_a_session_can_use_tokens_credentials_and_several_catalogs(secured: Served, tmp_path: Path) -> None:
    signed = sandur(tmp_path, "token", "ann")
    catalogs = [
        catalog_of(secured, name="by_secret", token=SECRET),
        catalog_of(secured, name="by_token", token=signed),
        catalog_of(secured, name="by_credential", credential=f"ann:{SECRET}"),
        catalog_of(secured, name="lake", warehouse="lake", token=signed),
        catalog_of(secured, name="stranger", token=SECRET[::-1]),
        catalog_of(secured, name="silent"),
    ]

    with running_spark(LATEST, tmp_path, catalogs) as spark:
        spark.sql("CREATE NAMESPACE by_secret.ns")
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
    tokens = {name: sandur(tmp_path, "token", name, "--tenant", name) for name in ("acme", "rival")}
    catalogs = [catalog_of(secured, name=name, token=token) for name, token in tokens.items()]

    with running_spark(LATEST, tmp_path, catalogs) as spark:
        spark.sql("CREATE NAMESPACE acme.secret")
        spark.sql("CREATE TABLE acme.secret.t AS SELECT 1 a")

        assert spark.sql("SHOW NAMESPACES IN rival") == []
        with pytest.raises(EngineError, match="cannot be found"):
            spark.sql("SELECT * FROM rival.secret.t")
