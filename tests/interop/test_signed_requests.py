"""Real clients without keys, whose requests to S3 the server signs: they write and read their table, and no other."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandur.settings import Settings
from tests.interop.engines.conversation import Conversation, EngineError, conversation
from tests.interop.engines.environments import NotInstalled, python_environment
from tests.interop.server_address import server_settings
from tests.interop.spark.flavours import LATEST, NEXT, Flavour
from tests.interop.spark.spark_processes import SPARKS, running_spark
from tests.server.secured_server import SecuredServer, secured_server
from tests.servers.seaweedfs import BUCKET

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

DELEGATION = {"header.X-Iceberg-Access-Delegation": "remote-signing"}
# No keys of the machine, and no search for some: the client has nothing but the server.
WITHOUT_KEYS = {
    "AWS_ACCESS_KEY_ID": "",
    "AWS_SECRET_ACCESS_KEY": "",
    "AWS_EC2_METADATA_DISABLED": "true",
    # PyIceberg replaces the signer of a connection that its threads share.
    "PYICEBERG_MAX_WORKERS": "1",
}
READS = ["USE CATALOG", "USE SCHEMA", "SELECT"]


@pytest.fixture(scope="module")
def server(seaweedfs_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    """A server that signs, with a principal `writer` that may create tables and `reader` that may read them."""
    folder = tmp_path_factory.mktemp("signing")
    options: dict[str, Any] = {**server_settings(seaweedfs_settings.s3), "s3_access": "sign"}
    with secured_server(folder, "--store", f"s3://{BUCKET}/{folder.name}", **options) as made:
        yield made


@pytest.fixture(scope="module")
def tokens(server: SecuredServer) -> dict[str, str]:
    logins = {name: server.create_principal(name) for name in ("writer", "reader")}
    server.grant("writer", [*READS, "MODIFY", "CREATE SCHEMA", "CREATE TABLE"], "catalog", "main")
    server.grant("reader", READS, "catalog", "main")
    return {name: server.token(login) for name, login in logins.items()}


Connect = Callable[[str], Conversation]


@pytest.fixture
def pyiceberg(server: SecuredServer, tokens: dict[str, str], tmp_path: Path) -> Iterator[Connect]:
    """PyIceberg with s3fs, as a principal."""
    running: list[Any] = []

    def connect(name: str) -> Conversation:
        config = {"uri": server.url, "properties": {"token": tokens[name], **DELEGATION}}
        folder = tmp_path / name
        folder.mkdir()
        command: list[str | Path] = [
            python_environment("pyiceberg-s3fs"),
            "-m",
            "tests.interop.engines.sessions.pyiceberg_signing_session",
            json.dumps(config),
        ]
        running.append(conversation(command, folder, environment=WITHOUT_KEYS))
        made: Conversation = running[-1].__enter__()
        return made

    try:
        yield connect
    except NotInstalled as reason:
        pytest.skip(f"PyIceberg with s3fs: {reason}")
    finally:
        for one in running:
            one.__exit__(None, None, None)


def test_pyiceberg_writes_and_reads_a_table_and_reaches_no_other(pyiceberg: Connect) -> None:
    writer, reader = pyiceberg("writer"), pyiceberg("reader")
    writer.ask(do="create_namespace", name="py")
    writer.ask(do="create", table="py.orders")
    other = writer.ask(do="create", table="py.other")
    writer.ask(do="append", table="py.orders", rows=[[1, "a"], [2, "b"]])
    writer.ask(do="append", table="py.other", rows=[[3, "c"]])
    writer.ask(do="delete", table="py.orders", id_=1)
    writer.ask(do="create_of", table="py.made", rows=[[4, "d"]])

    assert reader.ask(do="read", table="py.orders") == [[2, "b"]]
    assert reader.ask(do="read", table="py.other") == [[3, "c"]]
    assert reader.ask(do="read", table="py.made") == [[4, "d"]]
    assert reader.ask(do="read_after", table="py.orders", other="py.other") == [[2, "b"]]
    properties = reader.ask(do="properties", table="py.orders")
    assert not [key for key in properties if "access-key" in key or "session-token" in key]
    with pytest.raises(EngineError, match="403"):
        reader.ask(do="write", table="py.orders", location=f"{other}/data/written")
    beside = other.rpartition("/")[0] + "/beside"
    for do in ("write", "open"):
        with pytest.raises(EngineError, match=r"Failed to sign request 40[34]"):
            writer.ask(do=do, table="py.orders", location=beside)


@pytest.mark.parametrize("flavour", [LATEST, NEXT], ids=str)
def test_spark_writes_and_reads_a_table_and_reaches_no_other(
    server: SecuredServer, tokens: dict[str, str], tmp_path: Path, flavour: Flavour
) -> None:
    SPARKS.end()
    catalogs = [
        {"name": name, "uri": server.url, "token": token, "io_impl": "s3", "properties": DELEGATION}
        for name, token in tokens.items()
    ]
    schema = f"spark_{flavour.iceberg.replace('.', '_')}"
    try:
        with running_spark(flavour, tmp_path, catalogs) as spark:
            spark.sql(f"CREATE NAMESPACE writer.{schema}")
            spark.sql(f"CREATE TABLE writer.{schema}.orders (id bigint, name string) PARTITIONED BY (name)")
            spark.sql(f"INSERT INTO writer.{schema}.orders VALUES (1, 'a/b'), (2, 'x y'), (3, 'ü=1')")
            spark.sql(f"CREATE TABLE writer.{schema}.made AS SELECT * FROM writer.{schema}.orders")
            spark.sql(f"DELETE FROM writer.{schema}.orders WHERE id = 1")
            spark.sql(f"UPDATE writer.{schema}.orders SET name = 'z' WHERE id = 2")

            assert spark.sql(f"SELECT * FROM reader.{schema}.orders ORDER BY id") == [[2, "z"], [3, "ü=1"]]
            assert spark.sql(f"SELECT count(*) FROM reader.{schema}.made") == [[3]]
            with pytest.raises(EngineError, match="SELECT and MODIFY"):
                spark.ask(job="write_file", arguments={"table": f"reader.{schema}.orders", "location": ""})
            other = spark.ask(job="table_location", arguments={"table": f"writer.{schema}.made"})
            with pytest.raises(EngineError, match="not below a location of the table"):
                spark.ask(
                    job="write_file", arguments={"table": f"writer.{schema}.orders", "location": f"{other}/data/x"}
                )
            spark.ask(job="write_file", arguments={"table": f"writer.{schema}.orders", "location": ""})
    except NotInstalled as reason:
        pytest.skip(f"{flavour}: {reason}")
