"""PyIceberg with s3fs, whose requests to S3 the server signs: it has no keys of its own."""

import json
import sys
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from tests.interop.engines.session_io import answer_lines, taken_output

COLUMNS = ("id", "name")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


class Verbs:
    """What a test may ask for."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._catalog = load_catalog("sandur", type="rest", uri=config["uri"], warehouse="main", **config["properties"])

    def create_namespace(self, name: str) -> None:
        self._catalog.create_namespace(name)

    def create(self, table: str) -> str:
        """A new table; returns its location."""
        return self._catalog.create_table(table, SCHEMA).location()

    def append(self, table: str, rows: list[list[Any]]) -> None:
        self._catalog.load_table(table).append(_arrow(rows))

    def create_of(self, table: str, rows: list[list[Any]]) -> None:
        """A table whose files are written before it exists."""
        with self._catalog.create_table_transaction(table, SCHEMA) as transaction:
            transaction.append(_arrow(rows))

    def delete(self, table: str, id_: int) -> None:
        self._catalog.load_table(table).delete(f"id == {id_}")

    def read(self, table: str) -> list[list[Any]]:
        return _rows(self._catalog.load_table(table))

    def read_after(self, table: str, other: str) -> list[list[Any]]:
        """Read a table that was loaded before another one was read: both share one connection to S3."""
        loaded = self._catalog.load_table(table)
        _rows(self._catalog.load_table(other))
        return _rows(loaded)

    def open(self, table: str, location: str) -> int:
        """The length of a file, opened with the file access of a table."""
        with self._catalog.load_table(table).io.new_input(location).open() as file:
            return len(file.read())

    def write(self, table: str, location: str) -> None:
        with self._catalog.load_table(table).io.new_output(location).create(overwrite=True) as file:
            file.write(b"written by PyIceberg")

    def properties(self, table: str) -> dict[str, str]:
        """How the table's files are accessed."""
        return {key: str(value) for key, value in self._catalog.load_table(table).io.properties.items()}


def _rows(table: Table) -> list[list[Any]]:
    return sorted([row[name] for name in COLUMNS] for row in table.scan().to_arrow().to_pylist())


def _arrow(rows: list[list[Any]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows], schema=SCHEMA)


def main() -> None:
    answers = taken_output()
    verbs = Verbs(json.loads(sys.argv[1]))

    def answer(request: dict[str, Any]) -> object:
        return getattr(verbs, request.pop("do"))(**request)

    answer_lines(answers, answer)


if __name__ == "__main__":
    main()
