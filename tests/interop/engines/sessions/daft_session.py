"""Daft: data frames over the catalog, each verb a function of its own."""

import json
import sys
from collections.abc import Callable
from typing import Any, Final

import daft  # type: ignore[import-not-found]  # it is in its own environment
from daft import Catalog, DataFrame, Session
from pyiceberg.catalog import load_catalog

from tests.interop.engines.session_io import answer_lines, taken_output

COLUMNS: Final = ("id", "name", "amount")


class Verbs:
    """What a test may ask for."""

    def __init__(self, config: dict[str, Any]) -> None:
        opened = load_catalog("sandur", type="rest", uri=config["uri"], warehouse="main", **config["properties"])
        self._catalog = Catalog.from_iceberg(opened)
        self._session = Session()
        self._session.attach_catalog(self._catalog, "sandur")
        self._session.set_catalog("sandur")

    def sql(self, sql: str) -> list[list[Any]]:
        return [list(row.values()) for row in self._session.sql(sql).to_pylist()]

    def create_namespace(self, name: str) -> None:
        self._catalog.create_namespace(name)

    def drop_namespace(self, name: str) -> None:
        self._catalog.drop_namespace(name)

    def list_namespaces(self) -> list[str]:
        return [str(name) for name in self._catalog.list_namespaces()]

    def list_tables(self) -> list[str]:
        return [str(name) for name in self._catalog.list_tables()]

    def create(self, table: str) -> None:
        """An empty table."""
        self._catalog.create_table(table, _frame([[0, "", 0.0]]).schema())

    def create_of(self, table: str, rows: list[list[Any]]) -> None:
        """A table made of a data frame."""
        self._catalog.create_table(table, _frame(rows))

    def append(self, table: str, rows: list[list[Any]]) -> None:
        self._catalog.get_table(table).append(_frame(rows))

    def overwrite(self, table: str, rows: list[list[Any]]) -> None:
        self._catalog.get_table(table).overwrite(_frame(rows))

    def read(self, table: str, *, above: int = 0) -> list[list[Any]]:
        """The rows whose id is above a bound."""
        frame = self._catalog.get_table(table).read()
        return [[row[name] for name in COLUMNS] for row in frame.where(frame["id"] > above).to_pylist()]

    def drop(self, table: str) -> None:
        self._catalog.drop_table(table)


def _frame(rows: list[list[Any]]) -> DataFrame:
    return daft.from_pydict({name: [row[place] for row in rows] for place, name in enumerate(COLUMNS)})


def main(config: dict[str, Any]) -> None:
    answers = taken_output()
    verbs = Verbs(config)

    def answer(request: dict[str, Any]) -> object:
        verb: Callable[..., object] = getattr(verbs, request.pop("do", "sql"))
        return verb(**request)

    answer_lines(answers, answer)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
