"""Sail against a server on a folder and on a bucket."""

from typing import Any

import pytest

from tests.interop.engines.conversation import Conversation, EngineError
from tests.interop.engines.registry import opened
from tests.interop.matrix import operation
from tests.interop.server_address import Served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3_000)]

ROWS = [[1, "IS", 10.5], [2, "DK", 20.0], [3, "IS", None]]


@pytest.fixture
def sail(served: Served) -> Conversation:
    engine: Conversation = opened("Sail", served)
    return engine


@pytest.fixture
def orders(sail: Conversation, schema_name: str) -> str:
    """A partitioned table with three rows."""
    name = f"{schema_name}.orders"
    sail.sql(f"CREATE TABLE {name} (id BIGINT, country STRING, amount DOUBLE) USING iceberg PARTITIONED BY (country)")
    sail.sql(f"INSERT INTO {name} VALUES (1, 'IS', 10.5), (2, 'DK', 20.0), (3, 'IS', NULL)")
    return name


def rows_of(sail: Conversation, name: str, *columns: str) -> list[list[Any]]:
    """Named columns: what a table is partitioned by comes last when Sail chooses the order."""
    return sail.sql(f"SELECT {', '.join(columns or ('id', 'country', 'amount'))} FROM {name} ORDER BY 1")


@operation("Sail", "namespaces")
def test_databases_are_made_listed_and_dropped(sail: Conversation) -> None:
    sail.sql("CREATE DATABASE made_by_sail")

    listed = [row[0] for row in sail.sql("SHOW DATABASES")]
    sail.sql("DROP DATABASE made_by_sail")

    assert "made_by_sail" in listed
    assert "made_by_sail" not in [row[0] for row in sail.sql("SHOW DATABASES")]


@operation("Sail", "create table")
@operation("Sail", "insert")
@operation("Sail", "read")
def test_rows_are_read_as_they_were_written(sail: Conversation, orders: str) -> None:
    assert rows_of(sail, orders) == ROWS
    assert sail.sql(f"SELECT id FROM {orders} WHERE country = 'DK'") == [[2]]


@operation("Sail", "create table as select")
def test_a_table_is_made_of_a_query(sail: Conversation, orders: str) -> None:
    sail.sql(f"CREATE TABLE {orders}_made USING iceberg AS SELECT id, amount FROM {orders} WHERE country = 'IS'")

    assert rows_of(sail, f"{orders}_made", "id", "amount") == [[1, 10.5], [3, None]]


@operation("Sail", "replace table", cannot="Sail says that replacing a table is not supported yet")
def test_a_table_is_not_replaced(sail: Conversation, orders: str) -> None:
    with pytest.raises(EngineError, match="not supported yet"):
        sail.sql(f"CREATE OR REPLACE TABLE {orders} USING iceberg AS SELECT 1 AS id")

    assert rows_of(sail, orders) == ROWS


@operation("Sail", "overwrite")
def test_a_table_is_overwritten(sail: Conversation, orders: str) -> None:
    sail.sql(f"INSERT OVERWRITE {orders} VALUES (9, 'FO', 1.0)")

    assert rows_of(sail, orders) == [[9, "FO", 1.0]]


@operation("Sail", "update")
@operation("Sail", "delete")
def test_rows_are_updated_and_deleted(sail: Conversation, orders: str) -> None:
    sail.sql(f"UPDATE {orders} SET amount = 0 WHERE id = 3")
    sail.sql(f"DELETE FROM {orders} WHERE id = 1")

    assert rows_of(sail, orders) == [[2, "DK", 20.0], [3, "IS", 0.0]]


@operation("Sail", "merge")
def test_rows_are_merged(sail: Conversation, orders: str) -> None:
    sail.sql(
        f"MERGE INTO {orders} o "
        "USING (SELECT * FROM VALUES (1, 'IS', 99.0), (4, 'FO', 1.0) AS v (id, country, amount)) n "
        "ON o.id = n.id WHEN MATCHED THEN UPDATE SET amount = n.amount "
        "WHEN NOT MATCHED THEN INSERT (id, country, amount) VALUES (n.id, n.country, n.amount)"
    )

    assert rows_of(sail, orders) == [[1, "IS", 99.0], [2, "DK", 20.0], [3, "IS", None], [4, "FO", 1.0]]


@operation("Sail", "evolve schema", cannot="Sail has no ALTER TABLE for tables of a catalog")
@operation("Sail", "rename", cannot="Sail has no ALTER TABLE for tables of a catalog")
@operation("Sail", "properties", cannot="Sail has no ALTER TABLE for tables of a catalog")
@pytest.mark.parametrize("change", ["ADD COLUMN note STRING", "RENAME TO other", "SET TBLPROPERTIES ('a' = 'b')"])
def test_there_is_no_alter_table(sail: Conversation, orders: str, change: str) -> None:
    with pytest.raises(EngineError, match="ALTER TABLE"):
        sail.sql(f"ALTER TABLE {orders} {change}")


@operation("Sail", "views")
def test_a_view_is_made_read_and_dropped(sail: Conversation, orders: str) -> None:
    sail.sql(f"CREATE VIEW {orders}_per_country AS SELECT country, count(*) AS n FROM {orders} GROUP BY country")

    found = rows_of(sail, f"{orders}_per_country", "country", "n")
    sail.sql(f"DROP VIEW {orders}_per_country")

    assert found == [["DK", 1], ["IS", 2]]


@operation("Sail", "drop")
def test_a_table_is_dropped(sail: Conversation, orders: str) -> None:
    sail.sql(f"DROP TABLE {orders}")

    assert sail.sql(f"SHOW TABLES IN {orders.partition('.')[0]}") == []
