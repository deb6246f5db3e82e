"""A lake on S3 whose clients have no keys: its tables, its two principals, and what its bucket contains."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pyarrow as pa
from obstore.store import S3Store
from pyiceberg.catalog import Catalog, load_catalog

from sandur.settings import S3Settings
from tests.interop.cross import ROWS
from tests.interop.matrix import S3
from tests.interop.server_address import Served, server_settings
from tests.server.secured_server import SecuredServer, secured_server
from tests.servers.seaweedfs import BUCKET

SCHEMA: Final = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())])
_KEYS: Final = ("access_key_id", "secret_access_key")
_CREDENTIAL: Final = {
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
}
READER: Final = "reader"
WRITER: Final = "writer"
# Without it PyIceberg requests credentials, and would use them instead of the keys of the administrator.
_NO_DELEGATION: Final = {"header.X-Iceberg-Access-Delegation": "none"}


@dataclass(frozen=True)
class KeylessLake:
    """A running server with tables in two namespaces.

    Both principals may read `sales.prices`, and the writer may write `sales.orders`. `sales.salaries` is a neighbour
    that neither may know. `sales.trap` may be read, and one of its files belongs to the neighbour. In `work` the writer
    may create tables; the reader may do nothing there.
    """

    server: SecuredServer
    s3: S3Settings
    root: str
    reader: Served
    writer: Served

    def administrator(self) -> Catalog:
        """A catalog that uses the keys of the bucket, and no credential of the server."""
        keys = Served(S3, self.server.process, self.s3, self.server.admin_token).pyiceberg_properties
        return load_catalog("admin", type="rest", uri=self.server.url, warehouse="main", **keys, **_NO_DELEGATION)

    def location(self, table: str) -> str:
        with self.administrator() as catalog:
            return str(catalog.load_table(table).location())

    def keys_below(self, location: str) -> set[str]:
        """The keys of the objects below a location."""
        found = self.bucket().list(prefix=key_of(location) + "/").collect()
        return {entry["path"] for entry in found}

    def bucket(self, credential: Mapping[str, str] | None = None) -> S3Store:
        """The bucket as a client with a credential sees it; without one, as the administrator does."""
        options: dict[str, Any] = {"endpoint": self.s3.endpoint, "region": self.s3.region}
        if credential:
            options |= {name: credential[given] for name, given in _CREDENTIAL.items()}
        else:
            options |= {name: getattr(self.s3, name) for name in _KEYS}
        return S3Store(BUCKET, client_options={"allow_http": True}, retry_config={"max_retries": 0}, **options)

    def loaded(self, served: Served, table: str) -> tuple[str, dict[str, str]]:
        """The location of a table, and the one credential for its files, as a client gets them in one answer."""
        namespace, _, name = table.partition(".")
        headers = {"Authorization": f"Bearer {served.token}", "X-Iceberg-Access-Delegation": "vended-credentials"}
        address = f"{self.server.url}/v1/main/namespaces/{namespace}/tables/{name}"
        body = httpx.get(address, headers=headers, timeout=60).raise_for_status().json()
        [credential] = body["storage-credentials"]
        assert str(body["metadata-location"]).startswith(credential["prefix"])
        return body["metadata"]["location"], credential["config"]

    def grant(self, principal: str, table: str, *privileges: str) -> None:
        self.server.grant(principal, privileges, "table", f"main.{table}")


def key_of(location: str) -> str:
    """The key of a location in the bucket."""
    return location.removeprefix(f"s3://{BUCKET}/")


@contextlib.contextmanager
def keyless_lake(folder: Path, s3: S3Settings, **settings: str) -> Iterator[KeylessLake]:
    """A server on a fresh prefix of the bucket, with its tables and principals, until the block ends."""
    root = f"s3://{BUCKET}/{folder.name}"
    options = server_settings(s3) | settings
    with secured_server(folder, "--store", root, issuers=(), **options) as server:
        logins = {name: server.create_principal(name) for name in (READER, WRITER)}
        without_keys = S3Settings(endpoint=s3.endpoint, region=s3.region)
        served = {name: Served(S3, server.process, without_keys, server.token(login)) for name, login in logins.items()}
        lake = KeylessLake(server, s3, root, served[READER], served[WRITER])
        _create_tables(lake)
        _grant(lake)
        yield lake


def _create_tables(lake: KeylessLake) -> None:
    rows = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in ROWS], schema=SCHEMA)
    with lake.administrator() as catalog:
        catalog.create_namespace("sales")
        catalog.create_namespace("work")
        for name in ("prices", "orders", "salaries", "trap"):
            catalog.create_table(f"sales.{name}", SCHEMA).append(rows)
        neighbour: Any = catalog.load_table("sales.salaries").inspect.files()
        catalog.load_table("sales.trap").add_files(neighbour["file_path"].to_pylist())


def _grant(lake: KeylessLake) -> None:
    for principal in (READER, WRITER):
        lake.server.grant(principal, ["USE CATALOG"], "catalog", "main")
        lake.server.grant(principal, ["USE SCHEMA"], "schema", "main.sales")
        lake.grant(principal, "sales.prices", "SELECT")
        lake.grant(principal, "sales.trap", "SELECT")
    lake.grant(WRITER, "sales.orders", "SELECT", "MODIFY")
    lake.grant(WRITER, "sales.trap", "MODIFY")
    lake.server.grant(WRITER, ["USE SCHEMA", "CREATE TABLE", "SELECT", "MODIFY"], "schema", "main.work")
