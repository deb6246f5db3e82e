"""What the heavy engines add to the test that everybody reads what everybody writes."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from tests.interop.cross import ADDED_ROW, DELETED_ROW, ROWS, Reader, Row, Writer
from tests.interop.engines.clickhouse import engine_at
from tests.interop.engines.registry import opened
from tests.interop.matrix import S3
from tests.interop.server_address import Served


def values(rows: Iterable[Row], *, text: str) -> str:
    """Rows as a list of SQL values; a null has a type for engines that need one."""
    return ", ".join(
        f"(CAST({number} AS BIGINT), {_text(name, text)}, CAST({'NULL' if amount is None else amount} AS DOUBLE))"
        for number, name, amount in rows
    )


def _text(value: str | None, text: str) -> str:
    return f"CAST(NULL AS {text})" if value is None else f"'{value}'"


def sql_writer(engine: str, *, prefix: str = "", text: str = "STRING", tail: str = "") -> Callable[..., None]:
    """Creates and fills a table in SQL that most engines understand; `tail` ends the CREATE."""

    def write(served: Served, namespace: str, name: str) -> None:
        sql: Callable[[str], Any] = opened(engine, served).sql
        table = f"{prefix}{namespace}.{name}"
        sql(f"CREATE TABLE {table} (id BIGINT, name {text}, amount DOUBLE) {tail}")
        sql(f"INSERT INTO {table} VALUES {values(ROWS, text=text)}")

    return write


def sql_appender(engine: str, *, prefix: str = "", text: str = "STRING") -> Callable[[Served, str, str], object]:
    def append(served: Served, namespace: str, name: str) -> None:
        opened(engine, served).sql(f"INSERT INTO {prefix}{namespace}.{name} VALUES {values([ADDED_ROW], text=text)}")

    return append


def appender(engine: str) -> Callable[[Served, str, str], object]:
    """How an engine appends that has a verb for it."""

    def append(served: Served, namespace: str, name: str) -> None:
        opened(engine, served).ask(do="append", table=f"{namespace}.{name}", rows=[ADDED_ROW])

    return append


def deleting(engine: str, write: Callable[..., None], *, prefix: str = "", text: str = "STRING") -> Callable[..., None]:
    """As `write`, with a row that comes and goes."""

    def written(served: Served, namespace: str, name: str) -> None:
        write(served, namespace, name)
        sql: Callable[[str], Any] = opened(engine, served).sql
        table = f"{prefix}{namespace}.{name}"
        sql(f"INSERT INTO {table} VALUES {values([DELETED_ROW], text=text)}")
        sql(f"DELETE FROM {table} WHERE id = {DELETED_ROW[0]}")

    return written


def sql_reader(engine: str, *, prefix: str = "") -> Callable[[Served, str, str], Iterable[Row]]:
    def read(served: Served, namespace: str, name: str) -> Iterable[Row]:
        found = opened(engine, served).sql(f"SELECT id, name, amount FROM {prefix}{namespace}.{name}")
        return [(row[0], row[1], row[2]) for row in found]

    return read


def write_with_chdb(served: Served, namespace: str, name: str) -> None:
    sql = opened("chDB", served).sql
    table = f"sandur.`{namespace}.{name}`"
    columns = "id Int64, name Nullable(String), amount Nullable(Float64)"
    sql(f"CREATE TABLE {table} ({columns}) ENGINE = {engine_at(served, namespace, name)}")
    rows = [*ROWS, DELETED_ROW]
    lines = ", ".join(f"({', '.join('NULL' if value is None else repr(value) for value in row)})" for row in rows)
    sql(f"INSERT INTO {table} VALUES {lines}")
    sql(f"ALTER TABLE {table} DELETE WHERE id = {DELETED_ROW[0]}")


def append_with_chdb(served: Served, namespace: str, name: str) -> None:
    opened("chDB", served).sql(f"INSERT INTO sandur.`{namespace}.{name}` VALUES {ADDED_ROW}")


def read_with_chdb(served: Served, namespace: str, name: str) -> Iterable[Row]:
    found = opened("chDB", served).sql(f"SELECT id, name, amount FROM sandur.`{namespace}.{name}`")
    return [(row[0], row[1], row[2]) for row in found]


def write_with_daft(served: Served, namespace: str, name: str) -> None:
    opened("Daft", served).ask(do="create_of", table=f"{namespace}.{name}", rows=ROWS)


def read_with_datafusion(served: Served, namespace: str, name: str) -> Iterable[Row]:
    query = "SELECT id, name, amount FROM t"
    found = opened("DataFusion", served).ask(sql=query, tables={"t": f"{namespace}.{name}"})
    return [(row[0], row[1], row[2]) for row in found]


def write_with_go(served: Served, namespace: str, name: str) -> None:
    ask = opened("iceberg-go", served).ask
    table = f"{namespace}.{name}"
    ask(do="create", table=table)
    ask(do="append", table=table, rows=[*ROWS, DELETED_ROW])
    ask(do="delete", table=table, id=DELETED_ROW[0])


def write_with_rust(served: Served, namespace: str, name: str) -> None:
    ask = opened("iceberg-rust", served).ask
    ask(do="create", table=f"{namespace}.{name}")
    ask(do="append", table=f"{namespace}.{name}", rows=ROWS)


def read_with(engine: str) -> Callable[[Served, str, str], Iterable[Row]]:
    """How an engine reads that has a verb for it."""

    def read(served: Served, namespace: str, name: str) -> Iterable[Row]:
        found = opened(engine, served).ask(do="read", table=f"{namespace}.{name}")
        return [(row[0], row[1], row[2]) for row in found]

    return read


_TRINO: Final = {"prefix": "sandur.", "text": "VARCHAR"}

# How others write manifests, within the specification or beside it, is more than iceberg-go understands.
_GO_REFUSES: Final = {
    "DuckDB": "only parquet format is implemented, got parquet",
    "Sail": "reader FieldSummary vs writer field_summary: record names do not match",
    "chDB": "manifest file's 'content' metadata is missing",
}

WRITERS: Final = [
    Writer(
        "Trino",
        deleting("Trino", sql_writer("Trino", **_TRINO), **_TRINO),
        sql_appender("Trino", **_TRINO),
        stores=(S3,),
    ),
    Writer("Flink", sql_writer("Flink"), sql_appender("Flink")),
    Writer("chDB", write_with_chdb, append_with_chdb, stores=(S3,)),
    Writer("Daft", write_with_daft, appender("Daft")),
    Writer("iceberg-go", write_with_go, appender("iceberg-go")),
    Writer("iceberg-rust", write_with_rust, appender("iceberg-rust")),
    Writer("Sail", deleting("Sail", sql_writer("Sail", tail="USING iceberg")), sql_appender("Sail")),
]
READERS: Final = [
    Reader("Trino", sql_reader("Trino", prefix="sandur."), stores=(S3,)),
    Reader("Flink", sql_reader("Flink")),
    Reader("chDB", read_with_chdb, stores=(S3,)),
    Reader("Daft", read_with("Daft")),
    Reader("DataFusion", read_with_datafusion),
    Reader("iceberg-go", read_with("iceberg-go"), refuses=_GO_REFUSES),
    Reader("iceberg-rust", read_with("iceberg-rust")),
    Reader("Sail", sql_reader("Sail")),
]
