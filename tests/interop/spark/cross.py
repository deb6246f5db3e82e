"""Spark as a writer and a reader of the cross-reading tests."""

from collections.abc import Iterable
from typing import Final

from tests.interop.cross import ADDED_ROW, DELETED_ROW, ROWS, Reader, Row, Writer
from tests.interop.matrix import FOLDER
from tests.interop.server_address import Served
from tests.interop.spark.flavours import LATEST, ON_S3
from tests.interop.spark.spark_processes import SPARKS, Sql


def _statements(served: Served, namespace: str) -> Sql:
    return Sql(SPARKS.on(LATEST if served.store == FOLDER else ON_S3, served), f"sandur.{namespace}")


def _written(rows: Iterable[Row]) -> str:
    return ", ".join(f"({', '.join('NULL' if value is None else repr(value) for value in row)})" for row in rows)


def write(served: Served, namespace: str, name: str) -> None:
    """Write a table with a row that a position delete removes."""
    sql = _statements(served, namespace)
    sql(
        """CREATE TABLE {here}.{name} (id BIGINT, name STRING, amount DOUBLE)
           TBLPROPERTIES ('format-version' = '2', 'write.delete.mode' = 'merge-on-read')""",
        name=name,
    )
    values = _written([*ROWS, DELETED_ROW])
    sql("INSERT INTO {here}.{name} SELECT /*+ COALESCE(1) */ * FROM VALUES {values}", name=name, values=values)
    sql("DELETE FROM {here}.{name} WHERE id = {id}", name=name, id=DELETED_ROW[0])


def append(served: Served, namespace: str, name: str) -> None:
    _statements(served, namespace)("INSERT INTO {here}.{name} VALUES {row}", name=name, row=_written([ADDED_ROW]))


def read(served: Served, namespace: str, name: str) -> list[Row]:
    found = _statements(served, namespace)("SELECT id, name, amount FROM {here}.{name}", name=name)
    return [(row[0], row[1], row[2]) for row in found]


WRITERS: Final = (Writer(LATEST.engine, write, append),)
READERS: Final = (Reader(LATEST.engine, read),)
