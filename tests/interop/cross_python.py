"""The engines that run inside a Python process as writers and readers of each other's tables."""

from collections.abc import Iterable

import polars as pl
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from tests.interop.cross import ADDED_ROW, DELETED_ROW, ROWS, Reader, Row, Writer
from tests.interop.duckdb_sessions import Duck
from tests.interop.server_address import Served

_SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string()), pa.field("amount", pa.float64())])


def _arrow(rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(_SCHEMA.names, row, strict=True)) for row in rows], schema=_SCHEMA)


def _catalog(served: Served) -> Catalog:
    return load_catalog("sandur", type="rest", uri=served.url, **served.pyiceberg_properties)


def _write_with_pyiceberg(served: Served, namespace: str, name: str) -> None:
    with _catalog(served) as catalog:
        table = catalog.create_table((namespace, name), _SCHEMA)
        table.append(_arrow([*ROWS[:2], DELETED_ROW]))
        table.append(_arrow(ROWS[2:]))
        table.delete(f"id = {DELETED_ROW[0]}")


def _append_with_pyiceberg(served: Served, namespace: str, name: str) -> None:
    with _catalog(served) as catalog:
        catalog.load_table((namespace, name)).append(_arrow([ADDED_ROW]))


def _read_with_pyiceberg(served: Served, namespace: str, name: str) -> list[Row]:
    with _catalog(served) as catalog:
        rows = catalog.load_table((namespace, name)).scan().to_arrow()
    return [(row["id"], row["name"], row["amount"]) for row in rows.to_pylist()]


def _write_with_duckdb(served: Served, namespace: str, name: str) -> None:
    """Create with a query, then update and delete: both write position deletes."""
    duck = Duck(served, namespace)
    rows = ", ".join(str(row).replace("None", "NULL") for row in [*ROWS[:2], DELETED_ROW])
    duck(
        f"CREATE TABLE {name} AS SELECT id::BIGINT AS id, name, amount::DOUBLE AS amount"
        f" FROM (VALUES {rows}) AS given (id, name, amount)",
        f"INSERT INTO {name} VALUES (3, 'drei', 3.0)",
        f"UPDATE {name} SET name = '{ROWS[2][1]}', amount = NULL WHERE id = 3",
        f"DELETE FROM {name} WHERE id = {DELETED_ROW[0]}",
    )
    duck.close()


def _append_with_duckdb(served: Served, namespace: str, name: str) -> None:
    duck = Duck(served, namespace)
    duck(f"INSERT INTO {name} VALUES {ADDED_ROW}")
    duck.close()


def _read_with_duckdb(served: Served, namespace: str, name: str) -> list[Row]:
    duck = Duck(served, namespace)
    found = duck(f"SELECT id, name, amount FROM {name}")
    duck.close()
    return found  # type: ignore[return-value] # What the table holds decides; the test compares.


def _write_with_polars(served: Served, namespace: str, name: str) -> None:
    with _catalog(served) as catalog:
        target = f"{namespace}.{name}"
        catalog.create_table(target, _SCHEMA)
        _sink_with_polars(catalog, target, [*ROWS, DELETED_ROW])
        pl.delete_iceberg(catalog.load_table(target), pl.col("id") == DELETED_ROW[0])


def _append_with_polars(served: Served, namespace: str, name: str) -> None:
    with _catalog(served) as catalog:
        _sink_with_polars(catalog, f"{namespace}.{name}", [ADDED_ROW])


def _sink_with_polars(catalog: Catalog, target: str, rows: Iterable[Row]) -> None:
    frame = pl.DataFrame(list(rows), schema={"id": pl.Int64, "name": pl.String, "amount": pl.Float64}, orient="row")
    table = catalog.load_table(target)
    frame.lazy().sink_iceberg(table, mode="append", storage_options=_storage_options(table))


def _storage_options(table: Table) -> dict[str, str] | None:
    """The properties of the table's files: the keys of the client, or the credential that the server gave it."""
    return {key: str(value) for key, value in table.io.properties.items() if key.startswith("s3.")} or None


def _read_with_polars(served: Served, namespace: str, name: str) -> list[Row]:
    with _catalog(served) as catalog:
        table = catalog.load_table((namespace, name))
        found = pl.scan_iceberg(table, storage_options=_storage_options(table))
        return found.select("id", "name", "amount").collect().rows()


WRITERS = [
    Writer("PyIceberg", _write_with_pyiceberg, _append_with_pyiceberg, is_quick=True),
    Writer("DuckDB", _write_with_duckdb, _append_with_duckdb, is_quick=True),
    Writer("Polars", _write_with_polars, _append_with_polars, is_quick=True),
]
READERS = [
    Reader("PyIceberg", _read_with_pyiceberg, is_quick=True),
    Reader("DuckDB", _read_with_duckdb, is_quick=True),
    Reader("Polars", _read_with_polars, is_quick=True),
]
