"""Polars over a real server: its own readers and writers, with PyIceberg as the catalog client."""

import polars as pl
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from tests.interop.duckdb_sessions import Duck
from tests.interop.matrix import RECORDER, operation
from tests.interop.server_address import Served

POLARS = "Polars"
ROWS = pl.DataFrame({"id": [1, 2, 3], "name": ["one", None, "þrír"]})

RECORDER.version(POLARS, pl.__version__)


@pytest.fixture
def table(catalog: RestCatalog, namespace: str) -> Table:
    made: Table = catalog.create_table((namespace, "t"), ROWS.to_arrow().schema)
    return made


class Frames:
    """Tables as Polars reads them. Its own reader needs the storage options; it does not get them from the catalog."""

    def __init__(self, served: Served) -> None:
        self.options = served.pyiceberg_properties or None

    def scan(self, table: Table, **options: object) -> pl.LazyFrame:
        options = {"storage_options": self.options, **options}
        return pl.scan_iceberg(table.refresh(), **options)  # type: ignore[arg-type] # Options by name.

    def __call__(self, table: Table, **options: object) -> pl.DataFrame:
        return self.scan(table, **options).sort("id").collect()


@pytest.fixture
def found(served: Served) -> Frames:
    return Frames(served)


@operation(POLARS, "read")
@operation(POLARS, "insert")
@pytest.mark.parametrize("reader", ["native", "pyiceberg"])
def test_rows_are_appended_and_read(found: Frames, table: Table, reader: str) -> None:
    ROWS.write_iceberg(table, mode="append")
    ROWS.write_iceberg(table, mode="append")

    frame = found.scan(table, reader_override=reader)

    assert frame.filter(pl.col("id") > 1).sort("id").collect()["name"].to_list() == [None, None, "þrír", "þrír"]
    assert frame.select(pl.len()).collect().item() == 6


@operation(POLARS, "create table")
def test_a_write_creates_a_missing_table(found: Frames, catalog: RestCatalog, namespace: str) -> None:
    ROWS.lazy().sink_iceberg(
        f"{namespace}.made",
        mode="append",
        create_if_not_exists=True,
        catalog=catalog,
        storage_options=found.options,
    )

    made = catalog.load_table((namespace, "made"))
    assert found(made).equals(ROWS)
    assert [str(field.field_type) for field in made.schema().fields] == ["long", "string"]


@operation(POLARS, "overwrite")
def test_all_or_some_rows_are_overwritten(found: Frames, table: Table) -> None:
    ROWS.write_iceberg(table, mode="append")

    changed = pl.DataFrame({"id": [9], "name": ["new"]})
    changed.lazy().sink_iceberg(
        table.refresh(), mode="overwrite", overwrite_filter=pl.col("id") == 1, storage_options=found.options
    )
    assert found(table)["id"].to_list() == [2, 3, 9]
    changed.write_iceberg(table.refresh(), mode="overwrite")

    assert found(table).equals(changed)


@operation(POLARS, "delete")
def test_rows_are_deleted(found: Frames, table: Table) -> None:
    ROWS.write_iceberg(table, mode="append")

    pl.delete_iceberg(table.refresh(), pl.col("id") >= 2)

    assert found(table)["id"].to_list() == [1]


@operation(POLARS, "evolve schema")
def test_a_write_adds_new_columns_to_the_schema(found: Frames, table: Table) -> None:
    ROWS.write_iceberg(table, mode="append")

    more = pl.DataFrame({"id": [4], "name": ["four"], "price": [1.5]})
    more.lazy().sink_iceberg(table.refresh(), mode="append", schema_mode="merge", storage_options=found.options)

    assert found(table)["price"].to_list() == [None, None, None, 1.5]


@operation(POLARS, "time travel")
def test_old_snapshots_stay_readable(found: Frames, table: Table) -> None:
    ROWS.write_iceberg(table, mode="append")
    first = table.refresh().history()[0].snapshot_id
    pl.DataFrame({"id": [4], "name": ["four"]}).write_iceberg(table, mode="append")

    assert found(table, snapshot_id=first).equals(ROWS)
    assert found(table)["id"].to_list() == [1, 2, 3, 4]


@operation(POLARS, "read")
def test_rows_that_another_engine_deleted_are_not_read(
    served: Served, found: Frames, table: Table, namespace: str
) -> None:
    """DuckDB writes position deletes, which readers must apply."""
    ROWS.write_iceberg(table, mode="append")
    duck = Duck(served, namespace)

    duck("DELETE FROM t WHERE id = 2", "UPDATE t SET name = 'uno' WHERE id = 1")
    duck.close()

    assert found(table).rows() == [(1, "uno"), (3, "þrír")]
