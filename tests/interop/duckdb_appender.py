"""A process in which DuckDB inserts into a table, one row at a time, and retries after a conflict."""

import sys
from typing import Final

import duckdb

from demo.duckdb_sessions import session

TRIES_MAX: Final = 200


def insert_once(opened: duckdb.DuckDBPyConnection, table: str, number: int) -> None:
    for _ in range(TRIES_MAX):
        try:
            opened.execute(f"INSERT INTO {table} VALUES ({number})")
        except duckdb.TransactionException as lost:
            if "409" not in str(lost):
                raise
        else:
            return
    raise RuntimeError(f"row {number}: no success after {TRIES_MAX} conflicts")


def main() -> None:
    url, table, first, count, *settings = sys.argv[1:]
    opened = session(url)
    for statement in settings:
        opened.execute(statement)
    for number in range(int(first), int(first) + int(count)):
        insert_once(opened, table, number)


if __name__ == "__main__":
    main()
