"""delta-rs with `uc://` addresses on S3, without keys: external Delta tables, with credentials of the server."""

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from sandur.settings import Settings
from tests.interop.server_address import server_settings
from tests.server.secured_server import SecuredServer, secured_server
from tests.server.unity.client import UNITY

# In a process that used other clients before, delta-rs may wait for itself for ever when it opens `uc://`.
pytestmark = pytest.mark.interop

COLUMN = {
    "name": "id",
    "type_name": "LONG",
    "type_text": "bigint",
    "type_json": '{"name":"id","type":"long","nullable":true,"metadata":{}}',
    "position": 0,
    "nullable": True,
}


class Lake:
    """A server with the external Delta table `main.sales.orders`."""

    def __init__(self, server: SecuredServer, settings: Settings, root: str) -> None:
        self._server = server
        self._where = {
            "AWS_ENDPOINT_URL": settings.s3.endpoint,
            "AWS_REGION": settings.s3.region,
            "AWS_ALLOW_HTTP": "true",
        }
        self._keys = {
            "AWS_ACCESS_KEY_ID": settings.s3.access_key_id,
            "AWS_SECRET_ACCESS_KEY": settings.s3.secret_access_key,
        }
        self.location = f"{root}/tables/default/default/main/orders"

    def create(self) -> None:
        write_deltalake(self.location, pa.table({"id": [1, 2]}), storage_options=self._where | self._keys)
        self._server.administer("POST", f"{UNITY}/schemas", {"catalog_name": "main", "name": "sales"})
        where = {"catalog_name": "main", "schema_name": "sales", "name": "orders", "storage_location": self.location}
        kind = {"table_type": "EXTERNAL", "data_source_format": "DELTA", "columns": [COLUMN]}
        self._server.administer("POST", f"{UNITY}/tables", where | kind)

    def token(self, name: str, *privileges: str) -> str:
        login = self._server.create_principal(name)
        self._server.grant(name, ["USE CATALOG", "USE SCHEMA"], "catalog", "main")
        self._server.grant(name, privileges, "table", "main.sales.orders")
        return self._server.token(login)

    def table(self, token: str) -> DeltaTable:
        """The table as delta-rs opens it by its name."""
        login = {"unity_workspace_url": self._server.url, "unity_access_token": token, "unity_allow_http_url": "true"}
        return DeltaTable("uc://main.sales.orders", storage_options=login | self._where)

    def rows(self) -> list[int]:
        """The rows, as the owner of the bucket sees them."""
        found = DeltaTable(self.location, storage_options=self._where | self._keys).to_pyarrow_table()
        return sorted(found["id"].to_pylist())


@pytest.fixture(scope="module", autouse=True)
def no_keys() -> Iterator[None]:
    """Nothing of AWS in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="module")
def lake(seaweedfs_sts: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("delta-rs")
    root = f"s3://sandur/{folder.name}"
    options = server_settings(seaweedfs_sts.s3)
    with secured_server(folder, "--store", root, issuers=(), **options) as server:
        found = Lake(server, seaweedfs_sts, root)
        found.create()
        yield found


def test_a_table_is_read_and_written_by_its_name(lake: Lake) -> None:
    table = lake.table(lake.token("writer", "SELECT", "MODIFY"))
    before = lake.rows()
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == before

    write_deltalake(table, pa.table({"id": [3]}), mode="append")

    assert lake.rows() == [*before, 3]


def test_a_reader_reads_and_the_store_refuses_its_writes(lake: Lake) -> None:
    table = lake.table(lake.token("reader", "SELECT"))
    before = lake.rows()
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == before

    with pytest.raises(DeltaError, match=r"403 Forbidden"):
        write_deltalake(table, pa.table({"id": [3]}), mode="append")

    assert lake.rows() == before
