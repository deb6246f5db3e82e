"""Real clients that log in: PyIceberg and DuckDB, each in every way it can, with the same few things to do."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol

import duckdb
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog

from demo.duckdb_sessions import EXTENSIONS, extension_file
from tests.server.secured_server import SecuredServer
from tests.servers.oidc_provider import SCOPE


class Client(Protocol):
    """A client that is logged in to the catalog `main`."""

    def tables(self) -> list[str]:
        """The names of the tables in the namespace `sales`."""

    def rows(self, table: str) -> list[int]:
        """The numbers in a table of `sales`."""

    def append(self, table: str, number: int) -> None: ...

    def create(self, table: str) -> None: ...


class PyIceberg:
    """A PyIceberg catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def tables(self) -> list[str]:
        return sorted(name for _, name in self._catalog.list_tables("sales"))

    def rows(self, table: str) -> list[int]:
        found: list[int] = self._catalog.load_table(f"sales.{table}").scan().to_arrow()["number"].to_pylist()
        return found

    def append(self, table: str, number: int) -> None:
        self._catalog.load_table(f"sales.{table}").append(pa.table({"number": [number]}))

    def create(self, table: str) -> None:
        self._catalog.create_table(f"sales.{table}", pa.schema({"number": pa.int64()}))


class DuckDB:
    """A DuckDB session with the catalog attached."""

    def __init__(self, session: duckdb.DuckDBPyConnection) -> None:
        self._session = session

    def tables(self) -> list[str]:
        found = "SELECT table_name FROM duckdb_tables() WHERE database_name = 'sandur' ORDER BY 1"
        return [name for (name,) in self._session.execute(found).fetchall()]

    def rows(self, table: str) -> list[int]:
        return [number for (number,) in self._session.execute(f"FROM sandur.sales.{table}").fetchall()]

    def append(self, table: str, number: int) -> None:
        self._session.execute(f"INSERT INTO sandur.sales.{table} VALUES ({number})")

    def create(self, table: str) -> None:
        self._session.execute(f"CREATE TABLE sandur.sales.{table} (number BIGINT)")


class Identity(NamedTuple):
    """Who logs in, and where: at the server itself, or at an identity provider that the server trusts."""

    token_endpoint: str
    client_id: str
    client_secret: str
    token: str


def _pyiceberg(server: SecuredServer, **properties: object) -> Iterator[Client]:
    given: dict[str, Any] = {"type": "rest", "uri": server.url, "warehouse": "main", **properties}
    with load_catalog("sandur", **given) as catalog:
        yield PyIceberg(catalog)


def _duckdb(server: SecuredServer, secret: str) -> Iterator[Client]:
    with duckdb.connect() as session:
        for name in EXTENSIONS:
            session.load_extension(str(extension_file(name)))
        session.execute(f"CREATE SECRET login (TYPE iceberg, {secret})")
        session.execute(f"ATTACH 'main' AS sandur (TYPE iceberg, ENDPOINT '{server.url}', SECRET login)")
        yield DuckDB(session)


def pyiceberg_with_credential(server: SecuredServer, who: Identity) -> Iterator[Client]:
    credential = f"{who.client_id}:{who.client_secret}"
    return _pyiceberg(server, credential=credential, **{"oauth2-server-uri": who.token_endpoint})


def pyiceberg_with_auth_manager(server: SecuredServer, who: Identity) -> Iterator[Client]:
    given = {"client_id": who.client_id, "client_secret": who.client_secret, "token_url": who.token_endpoint}
    return _pyiceberg(server, auth={"type": "oauth2", "oauth2": {**given, "scope": SCOPE}})


def pyiceberg_with_token(server: SecuredServer, who: Identity) -> Iterator[Client]:
    return _pyiceberg(server, token=who.token)


def duckdb_with_secret(server: SecuredServer, who: Identity) -> Iterator[Client]:
    where = f"OAUTH2_SERVER_URI '{who.token_endpoint}', OAUTH2_SCOPE '{SCOPE}'"
    return _duckdb(server, f"CLIENT_ID '{who.client_id}', CLIENT_SECRET '{who.client_secret}', {where}")


def duckdb_with_token(server: SecuredServer, who: Identity) -> Iterator[Client]:
    return _duckdb(server, f"TOKEN '{who.token}'")


Way = Callable[[SecuredServer, Identity], Iterator[Client]]
WAYS: Final[tuple[Way, ...]] = (
    pyiceberg_with_credential,
    pyiceberg_with_auth_manager,
    pyiceberg_with_token,
    duckdb_with_secret,
    duckdb_with_token,
)


@contextlib.contextmanager
def logged_in(way: Way, server: SecuredServer, who: Identity) -> Iterator[Client]:
    """A client that logged in by this way, until the block ends."""
    yield from way(server, who)
