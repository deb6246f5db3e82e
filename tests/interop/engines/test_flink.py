"""Flink against a server on a folder and on a bucket: what its SQL does with Iceberg tables."""

from typing import Any

import pytest

from tests.interop.engines.conversation import Conversation, EngineError
from tests.interop.engines.registry import opened
from tests.interop.matrix import operation
from tests.interop.server_address import Served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3_000)]

ROWS = [[1, "IS", 10.5], [2, "DK", 20.0], [3, "IS", 7.25]]


@pytest.fixture
def flink(served: Served) -> Conversation:
    engine: Conversation = opened("Flink", served)
    return engine


@pytest.fixture
def orders(flink: Conversation, schema_name: str) -> str:
    """A partitioned table with three rows."""
    name = f"{schema_name}.orders"
    flink.sql(f"CREATE TABLE {name} (id BIGINT NOT NULL, country STRING, amount DOUBLE) PARTITIONED BY (country)")
    flink.sql(f"INSERT INTO {name} VALUES (1, 'IS', 10.5), (2, 'DK', 20.0), (3, 'IS', 7.25)")
    return name


def rows_of(flink: Conversation, name: str) -> list[list[Any]]:
    return sorted(flink.sql(f"SELECT * FROM {name}"))


@operation("Flink", "namespaces")
def test_databases_are_made_changed_listed_and_dropped(flink: Conversation) -> None:
    flink.sql("CREATE DATABASE made_by_flink WITH ('owner' = 'me')")
    flink.sql("ALTER DATABASE made_by_flink SET ('owner' = 'you')")
    listed = flink.sql("SHOW DATABASES")
    flink.sql("DROP DATABASE made_by_flink")

    assert ["made_by_flink"] in listed
    assert ["made_by_flink"] not in flink.sql("SHOW DATABASES")


@operation("Flink", "create table")
@operation("Flink", "insert")
@operation("Flink", "read")
def test_rows_are_read_as_they_were_written(flink: Conversation, orders: str) -> None:
    assert rows_of(flink, orders) == ROWS
    assert flink.sql(f"SELECT id FROM {orders} WHERE country = 'DK'") == [[2]]


@operation("Flink", "create table as select")
def test_a_table_is_made_of_a_query(flink: Conversation, orders: str) -> None:
    flink.sql(f"CREATE TABLE {orders}_made AS SELECT id, amount FROM {orders} WHERE country = 'IS'")

    assert rows_of(flink, f"{orders}_made") == [[1, 10.5], [3, 7.25]]


@operation("Flink", "overwrite")
def test_partitions_are_overwritten(flink: Conversation, orders: str) -> None:
    flink.sql(f"INSERT OVERWRITE {orders} PARTITION (country = 'IS') SELECT CAST(9 AS BIGINT), CAST(1 AS DOUBLE)")

    assert rows_of(flink, orders) == [[2, "DK", 20.0], [9, "IS", 1.0]]


@operation("Flink", "upsert")
def test_rows_of_a_key_are_replaced(flink: Conversation, schema_name: str) -> None:
    """Rows come with a key, and the last one of each key stays: Flink writes equality deletes."""
    name = f"{schema_name}.latest"
    flink.sql(
        f"CREATE TABLE {name} (id BIGINT NOT NULL, note STRING, PRIMARY KEY (id) NOT ENFORCED) "
        "WITH ('format-version' = '2', 'write.upsert.enabled' = 'true')"
    )

    flink.sql(f"INSERT INTO {name} VALUES (1, 'one'), (2, 'two')")
    flink.sql(f"INSERT INTO {name} VALUES (2, 'zwei')")

    assert rows_of(flink, name) == [[1, "one"], [2, "zwei"]]


@operation("Flink", "update", cannot="Flink's connector has no row-level changes but upserts")
@operation("Flink", "delete", cannot="Flink's connector has no row-level changes but upserts")
def test_rows_are_neither_updated_nor_deleted(flink: Conversation, orders: str) -> None:
    with pytest.raises(EngineError, match="SupportsRowLevelDelete"):
        flink.sql(f"DELETE FROM {orders} WHERE id = 1")
    with pytest.raises(EngineError, match="SupportsRowLevelUpdate"):
        flink.sql(f"UPDATE {orders} SET amount = 0 WHERE id = 1")

    assert rows_of(flink, orders) == ROWS


@operation("Flink", "evolve schema")
@operation("Flink", "properties")
def test_columns_and_properties_change(flink: Conversation, orders: str) -> None:
    flink.sql(f"ALTER TABLE {orders} ADD (note STRING COMMENT 'a remark')")
    flink.sql(f"ALTER TABLE {orders} SET ('write.format.default' = 'avro')")
    flink.sql(f"INSERT INTO {orders} VALUES (4, 'FO', 1.0, 'new')")
    flink.sql(f"ALTER TABLE {orders} RESET ('write.format.default')")
    flink.sql(f"ALTER TABLE {orders} DROP note")

    assert rows_of(flink, orders) == [*ROWS, [4, "FO", 1.0]]
    [[output]] = flink.sql(f"SHOW CREATE TABLE {orders}")
    assert "note" not in output
    assert "avro" not in output


@operation("Flink", "rename")
@operation("Flink", "drop")
def test_a_table_is_renamed_and_dropped(flink: Conversation, orders: str) -> None:
    schema = orders.partition(".")[0]

    flink.sql(f"ALTER TABLE {orders} RENAME TO renamed")
    moved = rows_of(flink, f"{schema}.renamed")
    flink.sql(f"DROP TABLE {schema}.renamed")

    assert moved == ROWS
    assert flink.sql(f"SHOW TABLES FROM {schema}") == []


@operation("Flink", "time travel")
def test_the_past_is_read_by_snapshot(flink: Conversation, orders: str) -> None:
    [[snapshot]] = flink.sql(f"SELECT snapshot_id FROM {_of(orders, 'snapshots')}")
    flink.sql(f"INSERT INTO {orders} VALUES (4, 'FO', 1.0)")

    past = rows_of(flink, f"{orders} /*+ OPTIONS('snapshot-id' = '{snapshot}') */")

    assert past == ROWS
    assert len(rows_of(flink, orders)) == 4


@operation("Flink", "branches and tags")
def test_a_branch_is_written_and_read(flink: Conversation, orders: str) -> None:
    flink.sql(f"INSERT INTO {orders} /*+ OPTIONS('branch' = 'audit') */ VALUES (4, 'FO', 1.0)")

    on_branch = rows_of(flink, f"{orders} /*+ OPTIONS('branch' = 'audit') */")

    assert on_branch == [*ROWS, [4, "FO", 1.0]]
    assert rows_of(flink, orders) == ROWS


@operation("Flink", "metadata tables")
def test_the_metadata_tables_are_read(flink: Conversation, orders: str) -> None:
    files = flink.sql(f"SELECT file_format, record_count FROM {_of(orders, 'files')}")

    assert sorted(files) == [["PARQUET", 1], ["PARQUET", 2]]


def _of(table: str, part: str) -> str:
    """The name of a metadata table."""
    schema, _, name = table.partition(".")
    return f"{schema}.`{name}${part}`"
