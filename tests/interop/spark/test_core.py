"""Operations of every tested Spark on tables, on a folder and on a bucket."""

import pytest

from tests.interop.engines.conversation import EngineError
from tests.interop.spark.flavours import EVERY, NEW, shows
from tests.interop.spark.spark_processes import Sql

DELETED_ROWS = "SELECT sum(record_count) FROM {here}.t.delete_files"


def make_rows(sql: Sql) -> None:
    sql("CREATE TABLE t (id BIGINT, country STRING, amount DOUBLE) PARTITIONED BY (bucket(2, id), country)")
    sql("INSERT INTO t VALUES (1, 'IS', 10.5), (2, 'DK', 20.0), (3, 'IS', 7.25)")


@shows("namespaces", by=EVERY)
def test_a_namespace_is_created_described_changed_and_dropped(sql: Sql) -> None:
    sql("CREATE NAMESPACE {here}.child COMMENT 'of a test' WITH DBPROPERTIES (color = 'red')")
    sql("ALTER NAMESPACE {here}.child SET PROPERTIES (color = 'blue', size = '3')")

    described = dict(sql("DESCRIBE NAMESPACE EXTENDED {here}.child"))
    assert described["Comment"] == "of a test"
    assert "(color,blue)" in described["Properties"]
    assert sql.column("SHOW NAMESPACES IN {here}") == [f"{sql.here.removeprefix('sandur.')}.child"]
    with pytest.raises(EngineError, match="not empty"):
        sql("DROP NAMESPACE {here}")
    sql("DROP NAMESPACE {here}.child")
    assert sql("SHOW NAMESPACES IN {here}") == []


@shows("create table", "insert", "read", by=EVERY, always=True)
def test_a_partitioned_table_is_created_filled_and_read(sql: Sql) -> None:
    make_rows(sql)

    sql("INSERT INTO t SELECT id + 10, country, amount * 2 FROM t WHERE country = 'IS'")

    assert sql("SELECT * FROM t WHERE country = 'IS' ORDER BY id") == [
        [1, "IS", 10.5],
        [3, "IS", 7.25],
        [11, "IS", 21.0],
        [13, "IS", 14.5],
    ]
    assert sql.column("SELECT count(*) FROM t WHERE id = 2") == [1]


@shows("create table as select", by=EVERY)
def test_a_table_is_created_from_a_query(sql: Sql) -> None:
    make_rows(sql)

    sql("CREATE TABLE sums PARTITIONED BY (country) AS SELECT country, sum(amount) total FROM t GROUP BY country")

    assert sql("SELECT * FROM sums ORDER BY country") == [["DK", 20.0], ["IS", 17.75]]
    assert sorted(row[1] for row in sql("SHOW TABLES IN {here}")) == ["sums", "t"]


@shows("create table as select", by=EVERY)
def test_a_query_that_fails_leaves_no_table(sql: Sql) -> None:
    with pytest.raises(EngineError):
        sql("CREATE TABLE broken AS SELECT raise_error('on purpose') AS a")

    assert sql("SHOW TABLES IN {here}") == []


@shows("replace table", by=EVERY)
def test_a_table_is_replaced_and_keeps_its_history(sql: Sql) -> None:
    sql("CREATE TABLE t AS SELECT id FROM range(1, 4)")
    first = sql.snapshots()[0]

    sql("REPLACE TABLE t AS SELECT count(*) n FROM t")
    assert sql("SELECT * FROM t") == [[3]]
    sql("CREATE OR REPLACE TABLE t AS SELECT 'a' word")
    assert sql("SELECT * FROM t") == [["a"]]
    sql("CREATE OR REPLACE TABLE t (id BIGINT)")

    assert sql("SELECT * FROM t") == []
    assert sql("SELECT id FROM t VERSION AS OF {first} ORDER BY id", first=first) == [[1], [2], [3]]
    with pytest.raises(EngineError, match=r"(?i)cannot be found|not found"):
        sql("REPLACE TABLE nothing AS SELECT 1 a")


@shows("replace table", by=NEW)
def test_a_table_is_replaced_by_one_without_its_partition_columns(sql: Sql) -> None:
    """Iceberg 1.5 cannot do this on any catalog: its tasks need the removed column of every old spec."""
    make_rows(sql)

    sql("REPLACE TABLE t PARTITIONED BY (n) AS SELECT count(*) n FROM t")

    assert sql("SELECT * FROM t") == [[3]]
    assert sql("SELECT id FROM t VERSION AS OF {first} ORDER BY id", first=sql.snapshots()[0]) == [[1], [2], [3]]


@shows("overwrite", by=EVERY)
def test_an_overwrite_replaces_the_partitions_it_names_or_touches(sql: Sql) -> None:
    sql("CREATE TABLE t (id BIGINT, country STRING) PARTITIONED BY (country)")
    sql("INSERT INTO t VALUES (1, 'IS'), (2, 'DK'), (3, 'NO')")

    sql("INSERT OVERWRITE t PARTITION (country = 'IS') SELECT 10")
    assert sql("SELECT * FROM t ORDER BY id") == [[2, "DK"], [3, "NO"], [10, "IS"]]
    sql("SET spark.sql.sources.partitionOverwriteMode = dynamic")
    sql("INSERT OVERWRITE t VALUES (20, 'DK')")
    sql("RESET spark.sql.sources.partitionOverwriteMode")
    assert sql("SELECT * FROM t ORDER BY id") == [[3, "NO"], [10, "IS"], [20, "DK"]]
    sql("INSERT OVERWRITE t VALUES (30, 'FO')")

    assert sql("SELECT * FROM t") == [[30, "FO"]]


@shows("merge", by=EVERY, always=True)
def test_a_merge_updates_deletes_and_inserts(sql: Sql) -> None:
    make_rows(sql)

    sql(
        """MERGE INTO t USING (SELECT 1L id, 'IS' country, 0D amount UNION ALL SELECT 2L, 'DK', 99D
               UNION ALL SELECT 4L, 'NO', 1D) s ON t.id = s.id
           WHEN MATCHED AND s.amount = 0 THEN DELETE
           WHEN MATCHED THEN UPDATE SET amount = s.amount
           WHEN NOT MATCHED THEN INSERT *"""
    )

    assert sql("SELECT * FROM t ORDER BY id") == [[2, "DK", 99.0], [3, "IS", 7.25], [4, "NO", 1.0]]


@shows("update", by=EVERY)
def test_an_update_changes_rows_and_moves_them_between_partitions(sql: Sql) -> None:
    make_rows(sql)

    sql("UPDATE t SET amount = amount + 1, country = 'FO' WHERE id IN (1, 2)")

    assert sql("SELECT * FROM t ORDER BY id") == [[1, "FO", 11.5], [2, "FO", 21.0], [3, "IS", 7.25]]


@shows("delete", by=EVERY)
def test_a_delete_with_copy_on_write_rewrites_files(sql: Sql) -> None:
    make_rows(sql)

    sql("DELETE FROM t WHERE amount < 8")
    sql("DELETE FROM t WHERE country = 'DK'")

    assert sql("SELECT * FROM t") == [[1, "IS", 10.5]]
    assert sql(DELETED_ROWS) == [[None]]


@shows("delete", by=EVERY)
def test_delete_update_and_merge_write_position_deletes_with_merge_on_read(sql: Sql) -> None:
    sql(
        """CREATE TABLE t (id BIGINT, v STRING) TBLPROPERTIES ('format-version' = '2',
           'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read',
           'write.merge.mode' = 'merge-on-read')"""
    )
    sql("INSERT INTO t SELECT id, 'old' FROM range(10)")

    sql("DELETE FROM t WHERE id = 1")
    sql("UPDATE t SET v = 'new' WHERE id = 2")
    sql("MERGE INTO t USING (SELECT 3L id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 'merged'")

    assert sql("SELECT id, v FROM t WHERE id < 5 ORDER BY id") == [[0, "old"], [2, "new"], [3, "merged"], [4, "old"]]
    assert sql(DELETED_ROWS) == [[3]]


@shows("evolve schema", by=EVERY)
def test_a_schema_evolves_without_touching_data(sql: Sql) -> None:
    sql("CREATE TABLE t (id INT, name STRING, point STRUCT<x: INT, y: INT>, gone STRING)")
    sql("INSERT INTO t VALUES (1, 'a', named_struct('x', 1, 'y', 2), 'g')")

    sql("ALTER TABLE t ADD COLUMNS (note STRING COMMENT 'more' AFTER id, point.z INT)")
    sql("ALTER TABLE t RENAME COLUMN name TO title")
    sql("ALTER TABLE t ALTER COLUMN id TYPE BIGINT")
    sql("ALTER TABLE t DROP COLUMN gone")
    sql("ALTER TABLE t ALTER COLUMN title FIRST")
    sql("INSERT INTO t VALUES ('b', 5000000000, 'n', named_struct('x', 3, 'y', 4, 'z', 5))")

    assert sql("SELECT * FROM t ORDER BY id") == [
        ["a", 1, None, [1, 2, None]],
        ["b", 5_000_000_000, "n", [3, 4, 5]],
    ]


@shows("evolve partitioning", by=EVERY)
def test_a_partition_spec_evolves_and_old_files_stay(sql: Sql) -> None:
    sql("CREATE TABLE t (id BIGINT, at TIMESTAMP, country STRING)")
    sql("INSERT INTO t VALUES (1, TIMESTAMP '2026-01-01 00:00:00', 'IS')")

    sql("ALTER TABLE t ADD PARTITION FIELD days(at)")
    sql("INSERT INTO t VALUES (2, TIMESTAMP '2026-01-02 00:00:00', 'IS')")
    sql("ALTER TABLE t REPLACE PARTITION FIELD at_day WITH months(at)")
    sql("ALTER TABLE t ADD PARTITION FIELD truncate(1, country) AS first_letter")
    sql("INSERT INTO t VALUES (3, TIMESTAMP '2026-02-01 00:00:00', 'DK')")
    sql("ALTER TABLE t DROP PARTITION FIELD first_letter")
    sql("INSERT INTO t VALUES (4, TIMESTAMP '2026-02-01 00:00:00', 'NO')")

    assert sql.column("SELECT id FROM t WHERE at >= TIMESTAMP '2026-01-02 00:00:00' ORDER BY id") == [2, 3, 4]
    assert len(set(sql.column("SELECT spec_id FROM {here}.t.files"))) == 4


@shows("sort order", by=EVERY)
def test_a_sort_order_is_set_and_removed(sql: Sql) -> None:
    make_rows(sql)

    sql("ALTER TABLE t WRITE ORDERED BY country DESC, id")
    sql("INSERT INTO t VALUES (4, 'NO', 1.0)")
    assert dict(sql("SHOW TBLPROPERTIES t"))["sort-order"] == "country DESC NULLS LAST, id ASC NULLS FIRST"
    sql("ALTER TABLE t WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY id")
    sql("INSERT INTO t VALUES (5, 'NO', 1.0)")
    assert dict(sql("SHOW TBLPROPERTIES t"))["write.distribution-mode"] == "hash"
    sql("ALTER TABLE t WRITE UNORDERED")
    sql("INSERT INTO t VALUES (6, 'NO', 1.0)")

    assert "sort-order" not in dict(sql("SHOW TBLPROPERTIES t"))
    assert sql.column("SELECT count(*) FROM t") == [6]


@shows("properties", by=EVERY)
def test_properties_are_set_listed_and_unset(sql: Sql) -> None:
    sql("CREATE TABLE t (id BIGINT) COMMENT 'first' TBLPROPERTIES ('a' = '1', 'b' = '2')")

    sql("ALTER TABLE t SET TBLPROPERTIES ('a' = 'one', 'comment' = 'second')")
    sql("ALTER TABLE t UNSET TBLPROPERTIES ('b')")

    properties = dict(sql("SHOW TBLPROPERTIES t"))
    assert (properties["a"], "b" in properties) == ("one", False)
    described = {row[0]: row[1] for row in sql("DESCRIBE TABLE EXTENDED t")}
    assert described["Comment"] == "second"


@shows("branches and tags", by=EVERY)
def test_branches_and_tags_are_independent_of_main(sql: Sql) -> None:
    make_rows(sql)
    sql("ALTER TABLE t CREATE TAG v1 RETAIN 365 DAYS")
    sql("ALTER TABLE t CREATE BRANCH audit RETAIN 7 DAYS WITH SNAPSHOT RETENTION 2 SNAPSHOTS")

    sql("INSERT INTO {here}.t.branch_audit VALUES (9, 'FO', 1.0)")
    sql("DELETE FROM t WHERE id = 1")

    for ref, count in (("v1", 3), ("audit", 4), ("main", 2)):
        assert sql("SELECT count(*) FROM t VERSION AS OF '{ref}'", ref=ref) == [[count]]
    refs = "SELECT name, type, min_snapshots_to_keep FROM {here}.t.refs ORDER BY name"
    assert sql(refs) == [["audit", "BRANCH", 2], ["main", "BRANCH", None], ["v1", "TAG", None]]
    sql("CALL sandur.system.rollback_to_snapshot('{here}.t', {first})", first=sql.snapshots()[0])
    assert sql("CALL sandur.system.fast_forward('{here}.t', 'main', 'audit')")[0][0] == "main"
    sql("ALTER TABLE t DROP BRANCH audit")
    sql("ALTER TABLE t DROP TAG v1")
    assert sql.column("SELECT id FROM t ORDER BY id") == [1, 2, 3, 9]
    assert sql(refs) == [["main", "BRANCH", None]]


@shows("time travel", by=EVERY)
def test_a_table_is_read_at_an_old_snapshot_or_time(sql: Sql) -> None:
    sql("CREATE TABLE t (id BIGINT)")
    for number in range(3):
        sql("INSERT INTO t VALUES ({number})", number=number)
    sql("ALTER TABLE t RENAME COLUMN id TO number")

    first, second, _ = sql.snapshots()
    then = sql.column("SELECT committed_at FROM {here}.t.snapshots ORDER BY committed_at")[1]
    assert sql("SELECT id FROM t VERSION AS OF {first}", first=first) == [[0]]
    assert sql("SELECT id FROM t FOR SYSTEM_VERSION AS OF {second} ORDER BY id", second=second) == [[0], [1]]
    assert sql("SELECT count(*) FROM t TIMESTAMP AS OF '{then}'", then=then) == [[2]]
    assert sql.column("SELECT number FROM t ORDER BY number") == [0, 1, 2]


@shows("views", by=EVERY, always=True)
def test_a_view_is_created_read_replaced_and_dropped(sql: Sql) -> None:
    make_rows(sql)

    sql("CREATE VIEW v (who COMMENT 'the id', many) COMMENT 'rich' AS SELECT id, amount FROM t WHERE amount > 8")
    assert sql("SELECT * FROM v ORDER BY who") == [[1, 10.5], [2, 20.0]]
    sql("CREATE OR REPLACE VIEW v AS SELECT country FROM t WHERE id = 2")
    sql("ALTER VIEW v SET TBLPROPERTIES ('k' = 'w')")
    assert sql("SELECT * FROM v") == [["DK"]]
    assert ["k", "w"] in sql("SHOW TBLPROPERTIES v")
    assert [row[1] for row in sql("SHOW VIEWS IN {here}")] == ["v"]
    with pytest.raises(EngineError, match=r"(?i)already exists"):
        sql("CREATE VIEW t AS SELECT 1 a")
    sql("DROP VIEW v")

    assert sql("SHOW VIEWS IN {here}") == []


@shows("rename", "drop", by=EVERY, always=True)
def test_tables_and_views_are_renamed_and_dropped(sql: Sql) -> None:
    make_rows(sql)
    sql("CREATE VIEW v AS SELECT id FROM {here}.t")

    sql("ALTER TABLE {here}.t RENAME TO {namespace}.u", namespace=sql.here.removeprefix("sandur."))
    with pytest.raises(EngineError, match=r"(?i)cannot be found|not found"):
        sql("SELECT * FROM t")
    with pytest.raises(EngineError):
        sql("SELECT * FROM v")
    sql("ALTER TABLE {here}.u RENAME TO {namespace}.t", namespace=sql.here.removeprefix("sandur."))
    assert sql("SELECT count(*) FROM v") == [[3]]
    sql("DROP VIEW v")
    sql("DROP TABLE t PURGE")

    assert sql("SHOW TABLES IN {here}") == []
    sql("CREATE TABLE t (other STRING)")
    assert sql("SELECT * FROM t") == []


@shows("metadata tables", by=EVERY)
def test_every_metadata_table_can_be_read(sql: Sql) -> None:
    sql(
        """CREATE TABLE t (id BIGINT) TBLPROPERTIES ('format-version' = '2', 'write.delete.mode' = 'merge-on-read',
           'write.delete.granularity' = 'file')"""
    )
    sql("INSERT INTO t SELECT id FROM range(0, 3, 1, 1)")
    sql("DELETE FROM t WHERE id = 1")

    counts = {
        "history": 2,
        "metadata_log_entries": 3,
        "snapshots": 2,
        "entries": 2,
        "files": 2,
        "data_files": 1,
        "delete_files": 1,
        "manifests": 2,
        "partitions": 1,
        "position_deletes": 1,
        "all_data_files": 1,
        "all_delete_files": 1,
        "all_files": 2,
        "all_entries": 2,
        "all_manifests": 3,
        "refs": 1,
    }
    assert {name: sql.column("SELECT count(*) FROM {here}.t.{name}", name=name)[0] for name in counts} == counts


@shows("compaction", "expire snapshots", by=EVERY)
def test_small_files_are_compacted_and_old_snapshots_expire(sql: Sql) -> None:
    sql("CREATE TABLE t (id BIGINT)")
    for number in range(6):
        sql("INSERT INTO t VALUES ({number})", number=number)

    rewritten = sql("CALL sandur.system.rewrite_data_files('{here}.t')")
    expired = sql(
        "CALL sandur.system.expire_snapshots(table => '{here}.t', retain_last => 1, older_than => TIMESTAMP '{then}')",
        then="2100-01-01 00:00:00",
    )

    assert rewritten[0][:2] == [6, 1]
    assert expired[0][0] == 6
    assert len(sql.snapshots()) == 1
    assert sql.column("SELECT id FROM t ORDER BY id") == list(range(6))
