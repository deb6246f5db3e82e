"""Maintenance procedures: the rows stay the same, and removed files are gone."""

import os
from pathlib import Path

import pytest

from tests.interop.engines.conversation import EngineError
from tests.interop.spark.flavours import NEW, ON_A_FOLDER, ON_S3, shows
from tests.interop.spark.spark_processes import Sql

LONG_AGO_SECONDS = 1_700_000_000
FAR = "TIMESTAMP '2100-01-01 00:00:00'"


def folder_of(sql: Sql, table: str = "t") -> Path:
    """The local folder of the table."""
    described = {row[0]: row[1] for row in sql("DESCRIBE TABLE EXTENDED {table}", table=table)}
    return Path(described["Location"].removeprefix("file:"))


def make_small_files(sql: Sql, count: int = 4) -> None:
    sql("CREATE TABLE t (id BIGINT, word STRING)")
    for number in range(count):
        sql("INSERT INTO t VALUES ({number}, 'w{number}')", number=count - number)


@shows("compaction", by=NEW)
@pytest.mark.parametrize(
    "strategy",
    [
        "strategy => 'binpack'",
        "strategy => 'sort', sort_order => 'id DESC NULLS LAST'",
        "strategy => 'sort', sort_order => 'zorder(id, word)'",
    ],
)
def test_data_files_are_rewritten_by_every_strategy(sql: Sql, strategy: str) -> None:
    make_small_files(sql)

    rewritten = sql(
        "CALL sandur.system.rewrite_data_files(table => '{here}.t', {strategy}, "
        "options => map('min-input-files', '2'), where => 'id < 100')",
        strategy=strategy,
    )

    assert rewritten[0][:2] == [4, 1]
    assert sql.column("SELECT id FROM t ORDER BY id") == [1, 2, 3, 4]


@shows("compaction", by=NEW)
def test_a_compaction_and_a_concurrent_append_are_both_kept(sql: Sql) -> None:
    make_small_files(sql)

    failures = sql.at_once(
        ["CALL sandur.system.rewrite_data_files('{here}.t')"], ["INSERT INTO {here}.t VALUES (5, 'w')"]
    )

    assert failures == []
    sql("REFRESH TABLE t")
    assert sql.column("SELECT id FROM t ORDER BY id") == [1, 2, 3, 4, 5]


@shows("expire snapshots", by=NEW)
def test_expiring_snapshots_deletes_their_files(sql: Sql) -> None:
    make_small_files(sql, 2)
    sql("INSERT OVERWRITE t VALUES (7, 'x')")

    expired = sql(
        "CALL sandur.system.expire_snapshots(table => '{here}.t', older_than => {far}, retain_last => 1)", far=FAR
    )

    data_files, _, _, manifests, lists, _ = expired[0]
    assert (data_files, lists) == (2, 2)
    assert manifests >= 2
    assert sql("SELECT * FROM t") == [[7, "x"]]
    assert len(sql.snapshots()) == 1


@shows("expire snapshots", by=NEW)
def test_a_tagged_snapshot_does_not_expire(sql: Sql) -> None:
    make_small_files(sql, 3)
    sql("ALTER TABLE t CREATE TAG kept AS OF VERSION {first}", first=sql.snapshots()[0])

    sql("CALL sandur.system.expire_snapshots(table => '{here}.t', older_than => {far}, retain_last => 1)", far=FAR)

    assert len(sql.snapshots()) == 2
    assert sql("SELECT id FROM t VERSION AS OF 'kept'") == [[3]]


@shows("orphan files", by=ON_A_FOLDER)
def test_only_old_orphan_files_are_removed(sql: Sql) -> None:
    make_small_files(sql, 2)
    folder = folder_of(sql)
    old, young = folder / "data" / "old.parquet", folder / "data" / "young.parquet"
    for orphan in (old, young):
        orphan.write_bytes(b"an orphan")
    os.utime(old, (LONG_AGO_SECONDS, LONG_AGO_SECONDS))

    found = sql.column("CALL sandur.system.remove_orphan_files(table => '{here}.t', dry_run => true)")
    removed = sql.column("CALL sandur.system.remove_orphan_files(table => '{here}.t')")

    assert [Path(path).name for path in found] == [Path(path).name for path in removed] == ["old.parquet"]
    assert (old.exists(), young.exists()) == (False, True)
    assert sql.column("SELECT id FROM t ORDER BY id") == [1, 2]


@shows("orphan files", by=(ON_S3,))
def test_orphan_files_on_a_bucket_are_found_by_prefix_listing(sql: Sql) -> None:
    make_small_files(sql, 2)

    found = sql("CALL sandur.system.remove_orphan_files(table => '{here}.t', prefix_listing => true)")

    assert found == []
    assert sql.column("SELECT id FROM t ORDER BY id") == [1, 2]


@shows("rewrite manifests", by=NEW)
def test_manifests_are_merged(sql: Sql) -> None:
    make_small_files(sql)

    assert sql("CALL sandur.system.rewrite_manifests('{here}.t')") == [[4, 1]]

    assert sql.column("SELECT count(*) FROM {here}.t.manifests") == [1]
    assert sql.column("SELECT id FROM t ORDER BY id") == [1, 2, 3, 4]


@shows("rewrite deletes", by=NEW)
def test_position_deletes_are_merged(sql: Sql) -> None:
    sql(
        """CREATE TABLE t (id BIGINT) TBLPROPERTIES ('format-version' = '2', 'write.delete.mode' = 'merge-on-read',
           'write.delete.granularity' = 'partition')"""
    )
    sql("INSERT INTO t SELECT id FROM range(0, 10, 1, 1)")
    for number in range(3):
        sql("DELETE FROM t WHERE id = {number}", number=number)

    rewritten = sql(
        "CALL sandur.system.rewrite_position_delete_files(table => '{here}.t', options => map('rewrite-all', 'true'))"
    )

    assert rewritten[0][:2] == [3, 1]
    assert sql.column("SELECT count(*) FROM {here}.t.delete_files") == [1]
    assert sql.column("SELECT id FROM t ORDER BY id") == list(range(3, 10))


@shows("statistics", by=NEW)
def test_statistics_of_columns_are_computed_and_kept(sql: Sql) -> None:
    make_small_files(sql)

    (path,) = sql.column("CALL sandur.system.compute_table_stats(table => '{here}.t', columns => array('id'))")

    assert path.endswith(".stats")
    sql("INSERT INTO t VALUES (9, 'x')")
    assert sql.column("SELECT count(*) FROM t") == [5]


@shows("statistics", by=NEW)
def test_statistics_of_partitions_are_computed_and_kept(sql: Sql) -> None:
    sql("CREATE TABLE t (id BIGINT, country STRING) PARTITIONED BY (country)")
    sql("INSERT INTO t VALUES (1, 'IS'), (2, 'DK')")

    (path,) = sql.column("CALL sandur.system.compute_partition_stats('{here}.t')")

    assert "partition-stats" in path
    assert sql.column("SELECT sum(record_count) FROM {here}.t.partitions") == [2]


@shows("branches and tags", by=NEW)
def test_a_tag_cannot_be_written_to(sql: Sql) -> None:
    make_small_files(sql, 1)
    sql("ALTER TABLE t CREATE TAG v1")

    with pytest.raises(EngineError, match=r"(?i)tag"):
        sql("INSERT INTO {here}.t.branch_v1 VALUES (2, 'x')")
