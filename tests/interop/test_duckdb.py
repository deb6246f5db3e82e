"""DuckDB with its Iceberg extension against a real server: supported operations, and the errors of unsupported ones.

PyIceberg (the fixture `catalog`) checks the results.
"""

from collections.abc import Iterator

import duckdb
import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.interop.duckdb_sessions import Duck
from tests.interop.matrix import operation
from tests.interop.server_address import Served

DUCKDB = "DuckDB"


@pytest.fixture
def duck(served: Served, namespace: str) -> Iterator[Duck]:
    opened = Duck(served, namespace)
    yield opened
    opened.close()


def rows_of(catalog: RestCatalog, namespace: str, name: str) -> list[tuple[object, ...]]:
    rows = catalog.load_table((namespace, name)).scan().to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in rows)


@operation(DUCKDB, "namespaces")
def test_a_schema_is_created_found_and_dropped(duck: Duck, catalog: RestCatalog, namespace: str) -> None:
    name = f"{namespace}_more"

    duck(f"CREATE SCHEMA sandur.{name}")
    duck(f"CREATE SCHEMA IF NOT EXISTS sandur.{name}")

    assert catalog.namespace_exists(name)
    # Other tests attach the same catalog to this DuckDB under other names.
    found = duck(f"SELECT count(*) FROM duckdb_schemas() WHERE database_name = 'sandur' AND schema_name = '{name}'")
    assert found == [(1,)]
    with pytest.raises(duckdb.CatalogException, match="already exists"):
        duck(f"CREATE SCHEMA sandur.{name}")
    duck(f"DROP SCHEMA sandur.{name}")
    assert not catalog.namespace_exists(name)


@operation(DUCKDB, "namespaces")
def test_a_schema_with_a_table_is_not_dropped(duck: Duck, catalog: RestCatalog, namespace: str) -> None:
    duck("CREATE TABLE t (id BIGINT)")

    with pytest.raises(duckdb.Error, match="not empty"):
        duck(f"DROP SCHEMA sandur.{namespace}")

    assert catalog.table_exists((namespace, "t"))


@operation(DUCKDB, "create table")
@operation(DUCKDB, "insert")
@operation(DUCKDB, "read")
def test_every_kind_of_column_is_read_back_unchanged(duck: Duck, catalog: RestCatalog, namespace: str) -> None:
    duck(
        """CREATE TABLE t (b BOOLEAN, i INTEGER, l BIGINT, f REAL, d DOUBLE, n DECIMAL(12, 3), s VARCHAR, x BLOB,
            day DATE, t TIME, ts TIMESTAMP, tz TIMESTAMPTZ, u UUID, many INTEGER[], pair STRUCT(a INTEGER, b VARCHAR),
            m MAP(VARCHAR, BIGINT))""",
        "SET TimeZone = 'UTC'",
        """INSERT INTO t SELECT true, 1, 2, 0.5, 0.25, 7.125, 'þú ❄', 'ab'::BLOB,
            DATE '2024-02-29', TIME '12:34:56.789',
            TIMESTAMP '2024-02-29 12:34:56.123456', TIMESTAMPTZ '2024-02-29 12:34:56.123456+00',
            '5b6b2b4e-0000-4000-8000-00000000000a'::UUID, [1, NULL, 3], {'a': 1, 'b': 'x'}, MAP {'k': 9}""",
        "INSERT INTO t (l) VALUES (3)",
    )

    assert duck("SELECT count(*) FROM t WHERE s = 'þú ❄' AND many[3] = 3 AND pair.b = 'x' AND m['k'] = 9") == [(1,)]
    assert duck("SELECT l FROM t WHERE s IS NULL AND n IS NULL") == [(3,)]
    found = catalog.load_table((namespace, "t")).scan(row_filter="l = 2").to_arrow().to_pylist()
    assert (found[0]["s"], found[0]["many"], found[0]["m"]) == ("þú ❄", [1, None, 3], [("k", 9)])
    assert str(found[0]["ts"]) == "2024-02-29 12:34:56.123456"


@operation(DUCKDB, "create table as select")
def test_a_table_is_created_from_a_query(duck: Duck, catalog: RestCatalog, namespace: str) -> None:
    duck("CREATE TABLE t AS SELECT range AS id, 'row ' || range AS name FROM range(1000)")

    assert duck("SELECT count(*), min(name), max(id) FROM t") == [(1_000, "row 0", 999)]
    assert catalog.load_table((namespace, "t")).scan().count() == 1_000
    with pytest.raises(duckdb.CatalogException, match="already exists"):
        duck("CREATE TABLE t AS SELECT 1 AS id")
    duck("CREATE TABLE IF NOT EXISTS t (id BIGINT)")
    assert duck("SELECT count(*) FROM t") == [(1_000,)]


@operation(DUCKDB, "update")
@operation(DUCKDB, "delete")
def test_rows_are_changed_and_deleted(duck: Duck, catalog: RestCatalog, namespace: str) -> None:
    duck("CREATE TABLE t AS SELECT range AS id, 'old' AS name FROM range(6)")

    duck("UPDATE t SET name = 'new' WHERE id < 2", "DELETE FROM t WHERE id >= 4", "DELETE FROM t WHERE id = 77")

    wanted = [(0, "new"), (1, "new"), (2, "old"), (3, "old")]
    assert duck("SELECT * FROM t ORDER BY id") == wanted
    assert rows_of(catalog, namespace, "t") == wanted
    duck("TRUNCATE t")
    assert rows_of(catalog, namespace, "t") == []


@operation(DUCKDB, "merge")
def test_rows_are_merged(duck: Duck, catalog: RestCatalog, namespace: str) -> None:
    duck("CREATE TABLE t AS SELECT range AS id, 'old' AS name FROM range(3)")

    duck(
        """MERGE INTO t
            USING (SELECT 1::BIGINT AS id, 'new' AS name UNION ALL SELECT 9, 'more') s ON t.id = s.id
            WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.name)""",
        "MERGE INTO t USING (SELECT 0::BIGINT AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    )

    wanted = [(1, "new"), (2, "old"), (9, "more")]
    assert duck("SELECT * FROM t ORDER BY id") == wanted
    assert rows_of(catalog, namespace, "t") == wanted


@operation(DUCKDB, "evolve schema")
def test_a_schema_evolves_and_old_rows_stay_readable(duck: Duck, catalog: RestCatalog, namespace: str) -> None:
    duck("CREATE TABLE t (id INTEGER, name VARCHAR, gone DOUBLE)", "INSERT INTO t VALUES (1, 'one', 1.5)")

    duck(
        "ALTER TABLE t ADD COLUMN more VARCHAR",
        "ALTER TABLE t RENAME COLUMN name TO words",
        "ALTER TABLE t DROP COLUMN gone",
        "ALTER TABLE t ALTER id TYPE BIGINT",
        "INSERT INTO t VALUES (5000000000, 'many', 'more')",
    )

    assert duck("SELECT * FROM t ORDER BY id") == [(1, "one", None), (5_000_000_000, "many", "more")]
    schema = catalog.load_table((namespace, "t")).schema()
    assert [(field.field_id, field.name, str(field.field_type)) for field in schema.fields] == [
        (1, "id", "long"),
        (2, "words", "string"),
        (4, "more", "string"),
    ]
    assert rows_of(catalog, namespace, "t") == [(1, "one", None), (5_000_000_000, "many", "more")]


@operation(DUCKDB, "evolve partitioning")
def test_partitions_are_created_and_changed(duck: Duck, catalog: RestCatalog, namespace: str) -> None:
    duck("CREATE TABLE t (id BIGINT, name VARCHAR) PARTITIONED BY (name)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")

    duck("ALTER TABLE t SET PARTITIONED BY (bucket(4, id))", "INSERT INTO t VALUES (3, 'c'), (4, 'd')")

    assert duck("SELECT id FROM t WHERE name = 'b' OR id = 3 ORDER BY id") == [(2,), (3,)]
    table = catalog.load_table((namespace, "t"))
    assert [str(field.transform) for field in table.spec().fields] == ["bucket[4]"]
    assert len(list(table.scan(row_filter="name = 'b'").plan_files())) == 1
    duck("ALTER TABLE t RESET PARTITIONED BY")
    assert catalog.load_table((namespace, "t")).spec().is_unpartitioned()


@operation(DUCKDB, "properties")
def test_properties_are_set_and_removed(duck: Duck, catalog: RestCatalog, namespace: str) -> None:
    duck("CREATE TABLE t (id BIGINT)", "CALL set_iceberg_table_properties(t, {'a': '1', 'b': '2'})")

    duck("CALL remove_iceberg_table_properties(t, ['a'])")

    found = catalog.load_table((namespace, "t")).properties
    assert (found.get("a"), found.get("b")) == (None, "2")


@operation(DUCKDB, "rename")
@operation(DUCKDB, "drop")
def test_a_table_is_renamed_and_dropped(duck: Duck, catalog: RestCatalog, namespace: str) -> None:
    duck("CREATE TABLE t AS SELECT 1 AS id")

    duck("ALTER TABLE t RENAME TO u")
    assert [catalog.table_exists((namespace, name)) for name in ("t", "u")] == [False, True]
    assert duck("SELECT * FROM u") == [(1,)]
    duck("DROP TABLE u", "DROP TABLE IF EXISTS u")

    assert not catalog.table_exists((namespace, "u"))
    with pytest.raises(duckdb.CatalogException, match="does not exist"):
        duck("DROP TABLE u")


@operation(DUCKDB, "time travel")
def test_old_snapshots_stay_readable(duck: Duck, catalog: RestCatalog, namespace: str) -> None:
    duck("CREATE TABLE t AS SELECT 1 AS id", "INSERT INTO t VALUES (2)", "DELETE FROM t WHERE id = 1")

    history = catalog.load_table((namespace, "t")).history()

    travelled = [duck(f"SELECT id FROM t AT (VERSION => {entry.snapshot_id}) ORDER BY id") for entry in history]
    assert travelled == [[(1,)], [(1,), (2,)], [(2,)]]
    later_us = history[-1].timestamp_ms * 1_000 + 1_000
    assert duck(f"SELECT id FROM t AT (TIMESTAMP => make_timestamp({later_us}))") == [(2,)]
    assert duck(f"SELECT count(*) FROM iceberg_snapshots('sandur.{namespace}.t')") == [(3,)]


@operation(DUCKDB, "transaction over one table")
def test_a_transaction_is_invisible_until_it_is_committed(duck: Duck, catalog: RestCatalog, namespace: str) -> None:
    duck("CREATE TABLE t AS SELECT 1 AS id")

    duck("BEGIN", "INSERT INTO t VALUES (2)", "DELETE FROM t WHERE id = 1")
    assert duck("SELECT id FROM t") == [(2,)]
    assert rows_of(catalog, namespace, "t") == [(1,)]
    duck("COMMIT")

    assert rows_of(catalog, namespace, "t") == [(2,)]


@operation(DUCKDB, "transaction over two tables")
def test_two_tables_change_together_or_not_at_all(duck: Duck, catalog: RestCatalog, namespace: str) -> None:
    duck("CREATE TABLE t AS SELECT 1 AS id", "CREATE TABLE u AS SELECT 1 AS id")
    change = ("BEGIN", "INSERT INTO t VALUES (2)", "INSERT INTO u VALUES (2)", "CREATE TABLE v AS SELECT 2 AS id")

    duck(*change, "ROLLBACK")
    assert [rows_of(catalog, namespace, name) for name in ("t", "u")] == [[(1,)], [(1,)]]
    assert not catalog.table_exists((namespace, "v"))
    duck(*change, "COMMIT")

    assert [rows_of(catalog, namespace, name) for name in ("t", "u", "v")] == [[(1,), (2,)], [(1,), (2,)], [(2,)]]


@operation(DUCKDB, "transaction over two tables")
def test_one_of_two_conflicting_transactions_is_refused_completely(
    served: Served, duck: Duck, catalog: RestCatalog, namespace: str
) -> None:
    duck("CREATE TABLE t AS SELECT 1 AS id", "CREATE TABLE u AS SELECT 1 AS id")
    slower = Duck(served, namespace)
    slower("BEGIN", "INSERT INTO u VALUES (3)", "DELETE FROM t WHERE id = 1")

    duck("BEGIN", "UPDATE t SET id = 2", "INSERT INTO u VALUES (2)", "COMMIT")
    with pytest.raises(duckdb.TransactionException, match="409"):
        slower("COMMIT")

    slower.close()
    assert [rows_of(catalog, namespace, name) for name in ("t", "u")] == [[(2,)], [(1,), (2,)]]


@operation(DUCKDB, "format version 3")
def test_a_table_of_version_3_is_written_and_read(served: Served, duck: Duck, namespace: str) -> None:
    duck("CREATE TABLE t (id BIGINT) WITH ('format-version' = '3')", "INSERT INTO t VALUES (1), (2), (3)")

    duck("DELETE FROM t WHERE id = 2")

    assert duck("SELECT id FROM t ORDER BY id") == [(1,), (3,)]
    metadata = httpx.get(f"{served.url}/v1/namespaces/{namespace}/tables/t").json()["metadata"]
    assert (metadata["format-version"], metadata["next-row-id"]) == (3, 3)


@operation(DUCKDB, "replace table", cannot="the extension says that CREATE OR REPLACE is not implemented")
def test_duckdb_cannot_replace_a_table(duck: Duck) -> None:
    duck("CREATE TABLE t AS SELECT 1 AS id")

    with pytest.raises(duckdb.NotImplementedException):
        duck("CREATE OR REPLACE TABLE t AS SELECT 2 AS id")

    assert duck("SELECT id FROM t") == [(1,)]


@operation(DUCKDB, "views", cannot="the extension says that views are not implemented")
def test_duckdb_cannot_create_a_view(duck: Duck, catalog: RestCatalog, namespace: str) -> None:
    with pytest.raises(duckdb.NotImplementedException):
        duck("CREATE VIEW v AS SELECT 1 AS id")

    assert catalog.list_views(namespace) == []


@operation(DUCKDB, "sort order", cannot="the extension says that SET SORTED BY is not implemented")
def test_duckdb_cannot_set_a_sort_order(duck: Duck) -> None:
    duck("CREATE TABLE t AS SELECT 1 AS id")

    with pytest.raises(duckdb.NotImplementedException):
        duck("ALTER TABLE t SET SORTED BY (id)")


@operation(DUCKDB, "branches and tags", cannot="DuckDB has no syntax for branches and tags")
def test_duckdb_cannot_read_a_branch(duck: Duck, catalog: RestCatalog, namespace: str) -> None:
    duck("CREATE TABLE t AS SELECT 1 AS id")
    table = catalog.load_table((namespace, "t"))
    table.manage_snapshots().create_branch(table.history()[0].snapshot_id, "side").commit()

    with pytest.raises(duckdb.InvalidInputException):
        duck("SELECT id FROM t AT (VERSION => 'side')")

    assert duck("SELECT id FROM t") == [(1,)]


@operation(DUCKDB, "namespaces")
@pytest.mark.parametrize("name", ["with space", "slash/ed", "per%cent", "plus+ed", "é🧊", "a?b&c=d#e"])
def test_names_with_any_characters_work(duck: Duck, catalog: RestCatalog, namespace: str, name: str) -> None:
    schema = f"{namespace} {name}"

    duck(f'CREATE SCHEMA sandur."{schema}"', f'CREATE TABLE sandur."{schema}"."{name}" AS SELECT 1 AS id')

    assert duck(f'SELECT id FROM sandur."{schema}"."{name}"') == [(1,)]
    assert catalog.load_table((schema, name)).scan().to_arrow().num_rows == 1
    duck(f'DROP TABLE sandur."{schema}"."{name}"', f'DROP SCHEMA sandur."{schema}"')


@operation(DUCKDB, "namespaces")
def test_nested_namespaces_are_schemas_with_dots(served: Served, catalog: RestCatalog, namespace: str) -> None:
    catalog.create_namespace((namespace, "inner"))
    duck = Duck(served, namespace)

    duck(
        f"""ATTACH IF NOT EXISTS 'main' AS nested
            (TYPE iceberg, ENDPOINT '{served.url}', AUTHORIZATION_TYPE 'none', SUPPORT_NESTED_NAMESPACES true)""",
        f'CREATE TABLE nested."{namespace}.inner".t AS SELECT 1 AS id',
        f'CREATE SCHEMA nested."{namespace}.more"',
    )

    assert catalog.load_table((namespace, "inner", "t")).scan().to_arrow().num_rows == 1
    assert catalog.namespace_exists((namespace, "more"))
    duck.close()
