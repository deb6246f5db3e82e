"""Trino against a server on a bucket: everything its Iceberg connector does."""

from typing import Any

import pytest

from tests.interop.engines.conversation import EngineError
from tests.interop.engines.recipes import s3_recipe
from tests.interop.engines.registry import Sql, opened
from tests.interop.matrix import S3, operation
from tests.interop.server_address import Served

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(3_000),
    pytest.mark.parametrize("served", [S3], indirect=True),
]

ROWS = [[1, "IS", 10.5], [2, "DK", 20.0], [3, "IS", 7.25]]


@pytest.fixture
def trino(served: Served) -> Sql:
    engine: Sql = opened("Trino", served)
    return engine


@pytest.fixture
def orders(trino: Sql, schema_name: str) -> str:
    """A partitioned table with three rows, by its full name."""
    name = f"sandur.{schema_name}.orders"
    trino.sql(
        f"CREATE TABLE {name} (id BIGINT NOT NULL, country VARCHAR, amount DOUBLE) "
        "WITH (partitioning = ARRAY['country', 'bucket(id, 4)'], format_version = 2)"
    )
    trino.sql(f"INSERT INTO {name} VALUES (1, 'IS', 10.5), (2, 'DK', 20.0), (3, 'IS', 7.25)")
    return name


def rows_of(trino: Sql, name: str) -> list[list[Any]]:
    return trino.sql(f"SELECT * FROM {name} ORDER BY 1")


@operation("Trino", "namespaces")
def test_schemas_are_made_listed_and_dropped(trino: Sql) -> None:
    trino.sql("CREATE SCHEMA sandur.made_by_trino")

    listed = trino.sql("SHOW SCHEMAS FROM sandur")
    with pytest.raises(EngineError, match="SCHEMA_ALREADY_EXISTS"):
        trino.sql("CREATE SCHEMA sandur.made_by_trino")
    trino.sql("DROP SCHEMA sandur.made_by_trino")

    assert ["made_by_trino"] in listed
    assert ["made_by_trino"] not in trino.sql("SHOW SCHEMAS FROM sandur")


@operation("Trino", "namespaces")
def test_a_schema_with_tables_is_dropped_only_with_them(trino: Sql, orders: str) -> None:
    schema = orders.rpartition(".")[0]

    with pytest.raises(EngineError, match="SCHEMA_NOT_EMPTY"):
        trino.sql(f"DROP SCHEMA {schema}")
    trino.sql(f"DROP SCHEMA {schema} CASCADE")

    assert [schema.partition(".")[2]] not in trino.sql("SHOW SCHEMAS FROM sandur")


@operation("Trino", "create table")
@operation("Trino", "insert")
@operation("Trino", "read")
def test_rows_are_read_as_they_were_written(trino: Sql, orders: str) -> None:
    assert rows_of(trino, orders) == ROWS
    assert trino.sql(f"SELECT id FROM {orders} WHERE country = 'DK'") == [[2]]


@operation("Trino", "create table")
def test_a_table_that_is_there_is_not_made_again(trino: Sql, orders: str) -> None:
    with pytest.raises(EngineError, match="TABLE_ALREADY_EXISTS"):
        trino.sql(f"CREATE TABLE {orders} (id BIGINT)")
    trino.sql(f"CREATE TABLE IF NOT EXISTS {orders} (id BIGINT)")

    assert rows_of(trino, orders) == ROWS


@operation("Trino", "read")
def test_every_type_comes_back(trino: Sql, schema_name: str) -> None:
    name = f"sandur.{schema_name}.types"
    trino.sql(
        f"CREATE TABLE {name} (a BOOLEAN, b INTEGER, c REAL, d DECIMAL(20, 3), e DATE, f TIME(6), g TIMESTAMP(6), "
        "h TIMESTAMP(6) WITH TIME ZONE, i VARBINARY, j UUID, k ARRAY(BIGINT), l MAP(VARCHAR, INTEGER), "
        "m ROW(x BIGINT, y ROW(z VARCHAR)))"
    )
    trino.sql(
        f"INSERT INTO {name} VALUES (true, 7, REAL '1.5', DECIMAL '12345678901234567.125', DATE '2024-02-29', "
        "TIME '12:34:56.789012', TIMESTAMP '1969-12-31 23:59:59.999999', "
        "TIMESTAMP '2024-02-29 00:00:00.000001 UTC', X'00ff', UUID '12151fd2-7586-11e9-8f9e-2a86e4085a59', "
        "ARRAY[1, NULL], MAP(ARRAY['a'], ARRAY[1]), ROW(1, ROW('þ')))"
    )

    [found] = trino.sql(f"SELECT * FROM {name}")

    assert found == [
        True,
        7,
        1.5,
        "12345678901234567.125",
        "2024-02-29",
        "12:34:56.789012",
        "1969-12-31 23:59:59.999999",
        "2024-02-29 00:00:00.000001 UTC",
        "AP8=",
        "12151fd2-7586-11e9-8f9e-2a86e4085a59",
        [1, None],
        {"a": 1},
        [1, ["þ"]],
    ]


@operation("Trino", "update")
def test_rows_are_updated(trino: Sql, orders: str) -> None:
    trino.sql(f"UPDATE {orders} SET amount = amount + 1 WHERE country = 'IS'")

    assert rows_of(trino, orders) == [[1, "IS", 11.5], [2, "DK", 20.0], [3, "IS", 8.25]]


@operation("Trino", "delete")
def test_rows_and_whole_partitions_are_deleted(trino: Sql, orders: str) -> None:
    trino.sql(f"DELETE FROM {orders} WHERE id = 1")
    trino.sql(f"DELETE FROM {orders} WHERE country = 'DK'")

    assert rows_of(trino, orders) == [[3, "IS", 7.25]]


@operation("Trino", "delete")
def test_a_truncated_table_is_empty_and_keeps_its_history(trino: Sql, orders: str) -> None:
    trino.sql(f"TRUNCATE TABLE {orders}")

    assert rows_of(trino, orders) == []
    assert len(trino.sql(f"SELECT * FROM {_of(orders, 'snapshots')}")) >= 2


@operation("Trino", "merge")
def test_rows_are_merged(trino: Sql, orders: str) -> None:
    trino.sql(
        f"MERGE INTO {orders} o USING (VALUES (1, 'IS', 99.0), (2, 'DK', 0.0), (4, 'FO', 1.0)) n (id, country, amount) "
        "ON o.id = n.id WHEN MATCHED AND n.amount = 0 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET amount = n.amount WHEN NOT MATCHED THEN INSERT VALUES (n.id, n.country, n.amount)"
    )

    assert rows_of(trino, orders) == [[1, "IS", 99.0], [3, "IS", 7.25], [4, "FO", 1.0]]


@operation("Trino", "create table as select")
@operation("Trino", "replace table")
def test_a_table_is_made_of_a_query_and_replaced_by_another(trino: Sql, orders: str) -> None:
    made = f"{orders}_made"
    trino.sql(f"CREATE TABLE {made} WITH (sorted_by = ARRAY['id']) AS SELECT id, amount FROM {orders}")
    first = rows_of(trino, made)

    trino.sql(f"CREATE OR REPLACE TABLE {made} AS SELECT country, count(*) AS n FROM {orders} GROUP BY country")

    assert first == [[1, 10.5], [2, 20.0], [3, 7.25]]
    assert rows_of(trino, made) == [["DK", 1], ["IS", 2]]


@operation("Trino", "overwrite", cannot="Trino has no INSERT OVERWRITE for Iceberg")
def test_there_is_no_insert_overwrite(trino: Sql, orders: str) -> None:
    with pytest.raises(EngineError, match="SYNTAX_ERROR"):
        trino.sql(f"INSERT OVERWRITE {orders} VALUES (9, 'FO', 1.0)")


@operation("Trino", "evolve schema")
def test_columns_are_added_renamed_widened_and_dropped(trino: Sql, orders: str) -> None:
    trino.sql(f"ALTER TABLE {orders} ADD COLUMN note ROW(text VARCHAR, stars INTEGER)")
    trino.sql(f"ALTER TABLE {orders} ALTER COLUMN note.stars SET DATA TYPE BIGINT")
    trino.sql(f"ALTER TABLE {orders} ADD COLUMN note.author VARCHAR")
    trino.sql(f"ALTER TABLE {orders} RENAME COLUMN amount TO total")
    trino.sql(f"INSERT INTO {orders} VALUES (4, 'FO', 1.0, ROW('good', 5, 'me'))")
    trino.sql(f"ALTER TABLE {orders} ALTER COLUMN id DROP NOT NULL")
    trino.sql(f"COMMENT ON COLUMN {orders}.total IS 'with tax'")
    trino.sql(f"ALTER TABLE {orders} DROP COLUMN note.text")

    columns = [[row[0], row[1], row[3]] for row in trino.sql(f"DESCRIBE {orders}")]

    assert columns == [
        ["id", "bigint", ""],
        ["country", "varchar", ""],
        ["total", "double", "with tax"],
        ["note", "row(stars bigint, author varchar)", ""],
    ]
    assert rows_of(trino, orders)[-1] == [4, "FO", 1.0, [5, "me"]]


@operation("Trino", "evolve partitioning")
@operation("Trino", "sort order")
@operation("Trino", "properties")
def test_partitioning_order_and_properties_change(trino: Sql, orders: str) -> None:
    trino.sql(
        f"ALTER TABLE {orders} SET PROPERTIES partitioning = ARRAY['truncate(country, 1)'], "
        "sorted_by = ARRAY['amount DESC NULLS LAST'], object_store_layout_enabled = true"
    )
    trino.sql(f"INSERT INTO {orders} VALUES (4, 'FO', 1.0)")
    trino.sql(f"COMMENT ON TABLE {orders} IS 'all of them'")

    [[output]] = trino.sql(f"SHOW CREATE TABLE {orders}")

    assert "partitioning = ARRAY['truncate(country, 1)']" in output
    assert "sorted_by = ARRAY['amount DESC NULLS LAST']" in output
    assert "COMMENT 'all of them'" in output
    assert rows_of(trino, orders) == [*ROWS, [4, "FO", 1.0]]


@operation("Trino", "format version 3", cannot="Trino 476 supports format versions 1 and 2")
def test_there_is_no_third_format(trino: Sql, orders: str) -> None:
    with pytest.raises(EngineError, match="format_version"):
        trino.sql(f"ALTER TABLE {orders} SET PROPERTIES format_version = 3")

    assert rows_of(trino, orders) == ROWS


@operation("Trino", "rename")
@operation("Trino", "drop")
def test_a_table_is_renamed_and_dropped(trino: Sql, orders: str) -> None:
    schema = orders.rpartition(".")[0]

    trino.sql(f"ALTER TABLE {orders} RENAME TO {schema}.renamed")
    moved = rows_of(trino, f"{schema}.renamed")
    with pytest.raises(EngineError, match="TABLE_NOT_FOUND"):
        rows_of(trino, orders)
    trino.sql(f"DROP TABLE {schema}.renamed")

    assert moved == ROWS
    assert trino.sql(f"SHOW TABLES FROM {schema}") == []


@operation("Trino", "register")
def test_a_table_is_unregistered_and_registered_again(trino: Sql, orders: str) -> None:
    _, schema, table = orders.split(".")
    [[path]] = trino.sql(f"SELECT file FROM {_of(orders, 'metadata_log_entries')} ORDER BY timestamp DESC LIMIT 1")
    location, _, file = path.rpartition("/metadata/")

    trino.sql(f"CALL sandur.system.unregister_table('{schema}', '{table}')")
    with pytest.raises(EngineError, match="TABLE_NOT_FOUND"):
        rows_of(trino, orders)
    trino.sql(f"CALL sandur.system.register_table('{schema}', 'again', '{location}', '{file}')")

    assert rows_of(trino, f"sandur.{schema}.again") == ROWS


@operation("Trino", "views")
def test_views_are_made_replaced_commented_and_dropped(trino: Sql, orders: str) -> None:
    view = f"{orders}_per_country"
    trino.sql(f"CREATE VIEW {view} COMMENT 'how many' AS SELECT country, count(*) AS n FROM {orders} GROUP BY country")
    first = rows_of(trino, view)
    trino.sql(f"CREATE OR REPLACE VIEW {view} AS SELECT country, sum(amount) AS s FROM {orders} GROUP BY country")
    second = rows_of(trino, view)
    with pytest.raises(EngineError, match="View with same name already exists"):
        trino.sql(f"CREATE TABLE {view} (id BIGINT)")
    trino.sql(f"ALTER VIEW {view} RENAME TO {view}_2")
    renamed = rows_of(trino, f"{view}_2")
    trino.sql(f"DROP VIEW {view}_2")

    assert first == [["DK", 1], ["IS", 2]]
    assert second == renamed == [["DK", 20.0], ["IS", 17.75]]
    assert trino.sql(f"SHOW TABLES FROM {orders.rpartition('.')[0]}") == [["orders"]]


@operation("Trino", "materialized views", cannot="Trino does not support them with REST catalogs")
def test_there_are_no_materialized_views(trino: Sql, orders: str) -> None:
    with pytest.raises(EngineError, match="not supported for Iceberg REST catalog"):
        trino.sql(f"CREATE MATERIALIZED VIEW {orders}_total AS SELECT sum(amount) AS s FROM {orders}")


@operation("Trino", "time travel")
@operation("Trino", "rollback")
def test_the_past_is_read_by_snapshot_and_by_time(trino: Sql, orders: str) -> None:
    [[snapshot, committed_at]] = trino.sql(
        f"SELECT snapshot_id, CAST(committed_at AS VARCHAR) FROM {_of(orders, 'snapshots')} "
        "ORDER BY committed_at DESC LIMIT 1"
    )
    trino.sql(f"DELETE FROM {orders} WHERE id = 1")

    by_snapshot = trino.sql(f"SELECT count(*) FROM {orders} FOR VERSION AS OF {snapshot}")
    by_time = trino.sql(f"SELECT count(*) FROM {orders} FOR TIMESTAMP AS OF TIMESTAMP '{committed_at}'")
    trino.sql(f"ALTER TABLE {orders} EXECUTE rollback_to_snapshot({snapshot})")

    assert by_snapshot == by_time == [[3]]
    assert rows_of(trino, orders) == ROWS


@operation("Trino", "expire snapshots")
def test_a_table_is_compacted_and_its_old_snapshots_go(trino: Sql, orders: str) -> None:
    trino.sql(f"INSERT INTO {orders} VALUES (4, 'IS', 1.0)")
    trino.sql(f"DELETE FROM {orders} WHERE id = 1")

    trino.sql(f"ALTER TABLE {orders} EXECUTE optimize")
    trino.sql(f"ALTER TABLE {orders} EXECUTE optimize_manifests")
    trino.sql(f"ANALYZE {orders}")
    trino.sql(f"ALTER TABLE {orders} EXECUTE drop_extended_stats")
    trino.sql(f"ALTER TABLE {orders} EXECUTE expire_snapshots(retention_threshold => '0s')")
    trino.sql(f"ALTER TABLE {orders} EXECUTE remove_orphan_files(retention_threshold => '0s')")

    assert rows_of(trino, orders) == [[2, "DK", 20.0], [3, "IS", 7.25], [4, "IS", 1.0]]
    assert trino.sql(f"SELECT count(*) FROM {_of(orders, 'snapshots')}") == [[1]]
    assert trino.sql(f"SELECT count(*) FROM {_of(orders, 'files')} WHERE content <> 0") == [[0]]


@operation("Trino", "metadata tables")
def test_the_metadata_tables_are_read(trino: Sql, orders: str) -> None:
    counts = {
        name: trino.sql(f"SELECT count(*) FROM {_of(orders, name)}")[0][0]
        for name in ("history", "snapshots", "manifests", "partitions", "files", "refs", "properties", "entries")
    }

    assert all(counts.values()), counts
    assert counts["files"] == 3


@operation("Trino", "read")
def test_the_recipe_of_the_page_works(trino: Sql) -> None:
    statements = s3_recipe("trino", address="", s3_address="").text.strip().rstrip(";").split(";\n")

    output = [trino.sql(statement) for statement in statements]

    assert sorted(output[-1]) == [["FO", 1], ["IS", 1]]


def _of(table: str, part: str) -> str:
    """The name of a metadata table."""
    schema, _, name = table.rpartition(".")
    return f'{schema}."{name}${part}"'
