"""Procedures that import files, other tables, and tables of other catalogs."""

from pathlib import Path

import pytest

from tests.interop.engines.conversation import EngineError
from tests.interop.spark.flavours import NEW, ON_A_FOLDER, shows
from tests.interop.spark.spark_processes import Sql
from tests.interop.spark.test_maintenance_procedures import folder_of

METADATA = "SELECT file FROM {here}.{table}.metadata_log_entries ORDER BY timestamp DESC LIMIT 1"


@shows("add files", by=ON_A_FOLDER)
def test_files_are_added_to_a_table_in_place(sql: Sql, tmp_path: Path) -> None:
    files = tmp_path / "files"
    sql.job("write_parquet", query="SELECT id, 'IS' country FROM range(3)", folder=f"{files}/country=IS")
    sql.job("write_parquet", query="SELECT id + 3 id, 'DK' country FROM range(2)", folder=f"{files}/country=DK")
    sql("CREATE TABLE t (id BIGINT, country STRING) PARTITIONED BY (country)")

    added = sql("CALL sandur.system.add_files(table => '{here}.t', source_table => '`parquet`.`{files}`')", files=files)
    assert added[0][0] >= 2
    assert sql.column("SELECT id FROM t WHERE country = 'DK' ORDER BY id") == [3, 4]
    with pytest.raises(EngineError, match=r"(?i)already"):
        sql("CALL sandur.system.add_files(table => '{here}.t', source_table => '`parquet`.`{files}`')", files=files)

    assert sql.column("SELECT count(*) FROM t") == [5]


@shows("register", by=NEW)
def test_a_table_is_registered_by_its_metadata(sql: Sql) -> None:
    sql("CREATE TABLE t AS SELECT id FROM range(3)")
    (metadata,) = sql.column(METADATA, table="t")
    sql("DROP TABLE t")

    registered = sql("CALL sandur.system.register_table('{here}.u', '{metadata}')", metadata=metadata)

    assert registered[0][1:] == [3, 1] or registered[0][1] == 3
    sql("INSERT INTO u VALUES (3)")
    assert sql.column("SELECT id FROM u ORDER BY id") == [0, 1, 2, 3]
    with pytest.raises(EngineError, match=r"(?i)already exists"):
        sql("CALL sandur.system.register_table('{here}.u', '{metadata}')", metadata=metadata)


@shows("snapshot and migrate", by=ON_A_FOLDER)
def test_a_snapshot_of_a_spark_table_leaves_it_unchanged(sql: Sql) -> None:
    sql("CREATE TABLE spark_catalog.default.plain USING parquet AS SELECT id FROM range(3)")

    assert sql("CALL sandur.system.snapshot('spark_catalog.default.plain', '{here}.t')")[0][0] >= 1

    sql("DELETE FROM t WHERE id = 1")
    sql("INSERT INTO t VALUES (9)")
    assert sql.column("SELECT id FROM t ORDER BY id") == [0, 2, 9]
    assert sql.column("SELECT id FROM spark_catalog.default.plain ORDER BY id") == [0, 1, 2]
    sql("DROP TABLE spark_catalog.default.plain")


@shows("snapshot and migrate", by=ON_A_FOLDER)
def test_a_spark_table_is_migrated_in_place(sql: Sql) -> None:
    """Its location must be allowed by the server: here, below the root of the catalog."""
    sql("CREATE TABLE neighbour (id BIGINT)")
    place = folder_of(sql, "neighbour").parent / "migrated"

    migrated, rows = sql.job(
        "migrate_plain_table", catalog="sandur", folder=str(place), query="SELECT id FROM range(4)"
    )

    assert migrated >= 1
    assert sorted(rows) == [0, 1, 2, 3]


@shows("rewrite table path", by=ON_A_FOLDER)
def test_a_table_is_prepared_for_another_location(sql: Sql, tmp_path: Path) -> None:
    """The procedure compares texts, so the location must begin as Hadoop writes it into manifests and statistics."""
    sql("CREATE TABLE t AS SELECT id FROM range(3)")
    sql("INSERT INTO t VALUES (3)")
    sql("CALL sandur.system.compute_table_stats('{here}.t')")
    (metadata,) = sql.column(METADATA, table="t")
    place = metadata.rpartition("/metadata/")[0]

    prepared = sql(
        """CALL sandur.system.rewrite_table_path(table => '{here}.t', source_prefix => '{place}',
           target_prefix => 'file:/elsewhere/t', staging_location => 'file:{staging}')""",
        place=place,
        staging=tmp_path,
    )

    assert place == f"file:{folder_of(sql, 't')}"
    assert prepared[0][0].endswith(".metadata.json")
    assert any(tmp_path.rglob("*.metadata.json"))
    assert sql.column("SELECT id FROM t ORDER BY id") == [0, 1, 2, 3]
