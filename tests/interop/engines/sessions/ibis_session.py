"""Ibis with DuckDB: data frames over the catalog, one method per operation."""

import json
import sys
from collections.abc import Callable
from typing import Any, Final

import ibis  # type: ignore[import-not-found]  # it is in its own environment

from tests.interop.engines.session_io import answer_lines, taken_output

COLUMNS: Final = {"id": "int64", "country": "string", "amount": "float64"}


class Verbs:
    """The operations that a test may request."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._connection = ibis.duckdb.connect()
        self._connection.load_extension("iceberg")
        if (s3 := config["s3"]) is not None:
            endpoint = s3["endpoint"].removeprefix("http://")
            self._connection.raw_sql(
                f"CREATE SECRET (TYPE s3, KEY_ID '{s3['access_key_id']}', SECRET '{s3['secret_access_key']}', "
                f"REGION '{s3['region']}', ENDPOINT '{endpoint}', URL_STYLE 'path', USE_SSL false)"
            )
        self._connection.raw_sql(
            f"ATTACH 'main' AS sandur (TYPE iceberg, ENDPOINT '{config['uri']}', AUTHORIZATION_TYPE 'none')"
        )

    def create(self, namespace: str, table: str) -> None:
        """An empty table."""
        self._connection.create_table(table, schema=ibis.schema(COLUMNS), database=("sandur", namespace))

    def create_of(self, namespace: str, table: str, rows: list[list[Any]]) -> None:
        """A table made of rows."""
        self._connection.create_table(table, _frame(rows), database=("sandur", namespace))

    def insert(self, namespace: str, table: str, rows: list[list[Any]], *, overwrite: bool = False) -> None:
        self._connection.insert(table, _frame(rows), database=("sandur", namespace), overwrite=overwrite)

    def upsert(self, namespace: str, table: str, rows: list[list[Any]]) -> None:
        self._connection.upsert(table, _frame(rows), on="id", database=("sandur", namespace))

    def read(self, namespace: str, table: str, *, above: int = 0) -> list[list[Any]]:
        """The rows whose id is above a bound, in order."""
        found = self._connection.table(table, database=("sandur", namespace))
        chosen = found.filter(found.id > above).order_by("id").to_pyarrow()
        return [list(row.values()) for row in chosen.to_pylist()]

    def replace(self, namespace: str, table: str, rows: list[list[Any]]) -> None:
        self._connection.create_table(table, _frame(rows), database=("sandur", namespace), overwrite=True)

    def create_namespace(self, namespace: str) -> None:
        self._connection.create_database(namespace, catalog="sandur")

    def list_tables(self, namespace: str) -> list[str]:
        return list(self._connection.list_tables(database=("sandur", namespace)))

    def drop(self, namespace: str, table: str) -> None:
        self._connection.drop_table(table, database=("sandur", namespace))


def _frame(rows: list[list[Any]]) -> Any:
    columns = {name: [row[place] for row in rows] for place, name in enumerate(COLUMNS)}
    return ibis.memtable(columns, schema=ibis.schema(COLUMNS))


def main(config: dict[str, Any]) -> None:
    answers = taken_output()
    verbs = Verbs(config)

    def answer(request: dict[str, Any]) -> object:
        verb: Callable[..., object] = getattr(verbs, request.pop("do"))
        return verb(**request)

    answer_lines(answers, answer)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
