"""DuckDB sessions on any of the stores, and the rows they return."""

import functools

import duckdb

from demo.duckdb_sessions import session
from sandur.settings import S3Settings
from tests.interop.matrix import RECORDER
from tests.interop.server_address import Served

RECORDER.version("DuckDB", duckdb.__version__)


class Duck:
    """A DuckDB session with the namespace of a test as its schema; sessions on one store share a DuckDB instance."""

    def __init__(self, served: Served, namespace: str) -> None:
        self._session = _instance(served).cursor()
        self._session.execute(f"USE sandur.{namespace}")

    def __call__(self, *statements: str) -> list[tuple[object, ...]]:
        """Run statements in order, and return the rows of the last one."""
        rows: list[tuple[object, ...]] = []
        for statement in statements:
            rows = self._session.execute(statement).fetchall()
        return rows

    def close(self) -> None:
        self._session.close()


@functools.cache
def _instance(served: Served) -> duckdb.DuckDBPyConnection:
    """Loading the extensions takes longer than most tests, so it is done once per store."""
    opened = session(served.url, served.token)
    if served.s3 and served.has_keys:
        opened.execute(secret(served.s3))
    return opened


def secret(s3: S3Settings) -> str:
    """The secret with the keys for DuckDB, which reads and writes files itself."""
    address = s3.endpoint.removeprefix("http://")
    return f"""CREATE SECRET (TYPE s3, ENDPOINT '{address}', URL_STYLE 'path', USE_SSL false,
        REGION '{s3.region}', KEY_ID '{s3.access_key_id}', SECRET '{s3.secret_access_key}')"""
