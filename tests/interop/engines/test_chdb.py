"""ClickHouse, as the library chDB, against a server on a bucket."""

from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from tests.interop.engines.clickhouse import engine_at
from tests.interop.engines.conversation import Conversation, EngineError
from tests.interop.engines.registry import opened
from tests.interop.matrix import FOLDER, S3, operation
from tests.interop.server_address import Served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3_000)]
on_s3 = pytest.mark.parametrize("served", [S3], indirect=True)

ROWS = [[1, "IS", 10.5], [2, "DK", 20.0], [3, None, None]]


@pytest.fixture
def chdb(served: Served) -> Conversation:
    engine: Conversation = opened("chDB", served)
    return engine


@pytest.fixture
def orders(chdb: Conversation, served: Served, schema_name: str) -> str:
    """A table with three rows."""
    name = f"sandur.`{schema_name}.orders`"
    chdb.sql(
        f"CREATE TABLE {name} (id Int64, country Nullable(String), amount Nullable(Float64)) "
        f"ENGINE = {engine_at(served, schema_name, 'orders')}"
    )
    chdb.sql(f"INSERT INTO {name} VALUES (1, 'IS', 10.5), (2, 'DK', 20.0), (3, NULL, NULL)")
    return name


def rows_of(chdb: Conversation, name: str) -> list[list[Any]]:
    return chdb.sql(f"SELECT * FROM {name} ORDER BY id")


@on_s3
@operation("chDB", "create table")
@operation("chDB", "insert")
@operation("chDB", "read")
def test_rows_are_read_as_they_were_written(chdb: Conversation, orders: str) -> None:
    assert rows_of(chdb, orders) == ROWS
    assert chdb.sql(f"SELECT id FROM {orders} WHERE country = 'DK'") == [[2]]
    assert [orders.split("`")[1]] in chdb.sql("SHOW TABLES FROM sandur")


@on_s3
@operation("chDB", "insert")
def test_a_partitioned_table_is_filled(chdb: Conversation, served: Served, schema_name: str) -> None:
    name = f"sandur.`{schema_name}.parts`"
    chdb.sql(
        f"CREATE TABLE {name} (id Int64, country String) ENGINE = {engine_at(served, schema_name, 'parts')} "
        "PARTITION BY (country)"
    )

    chdb.sql(f"INSERT INTO {name} VALUES (1, 'IS'), (2, 'DK'), (3, 'IS')")

    assert rows_of(chdb, name) == [[1, "IS"], [2, "DK"], [3, "IS"]]


@on_s3
@operation("chDB", "update")
@operation("chDB", "delete")
def test_rows_are_updated_and_deleted(chdb: Conversation, orders: str) -> None:
    chdb.sql(f"ALTER TABLE {orders} DELETE WHERE id = 1")
    chdb.sql(f"ALTER TABLE {orders} UPDATE country = 'FO' WHERE id = 3")

    assert rows_of(chdb, orders) == [[2, "DK", 20.0], [3, "FO", None]]


@on_s3
@operation("chDB", "evolve schema")
def test_columns_are_added_and_dropped(chdb: Conversation, orders: str) -> None:
    chdb.sql(f"ALTER TABLE {orders} ADD COLUMN note Nullable(String)")
    chdb.sql(f"INSERT INTO {orders} VALUES (4, 'FO', 1.0, 'new')")
    chdb.sql(f"ALTER TABLE {orders} DROP COLUMN amount")

    assert rows_of(chdb, orders) == [[1, "IS", None], [2, "DK", None], [3, None, None], [4, "FO", "new"]]


@on_s3
@operation(
    "chDB",
    "drop",
    cannot="the table is dropped, but ClickHouse repeats the request and reports the second answer, a 404",
)
def test_a_dropped_table_is_gone_though_the_engine_complains(chdb: Conversation, orders: str) -> None:
    with pytest.raises(EngineError, match="404"):
        chdb.sql(f"DROP TABLE {orders}")

    assert [orders.split("`")[1]] not in chdb.sql("SHOW TABLES FROM sandur")


@pytest.mark.parametrize("served", [FOLDER], indirect=True)
@operation("chDB", "read", cannot="ClickHouse reads catalog tables on object stores only")
def test_a_folder_is_out_of_reach(chdb: Conversation, served: Served, schema_name: str) -> None:
    with load_catalog("sandur", type="rest", uri=served.url, warehouse="main") as catalog:
        catalog.create_table((schema_name, "t"), Schema(NestedField(1, "id", LongType())))

    assert [f"{schema_name}.t"] in chdb.sql("SHOW TABLES FROM sandur")
    with pytest.raises(EngineError, match="Unexpected location format: file:/"):
        chdb.sql(f"SELECT * FROM sandur.`{schema_name}.t`")
