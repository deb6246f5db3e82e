"""Structured streaming: into a table, out of a table, and after a restart."""

from pathlib import Path

from tests.interop.spark.flavours import NEW, shows
from tests.interop.spark.spark_processes import Sql


@shows("streaming", by=NEW)
def test_every_file_streams_into_a_table_exactly_once(sql: Sql, tmp_path: Path) -> None:
    sql("CREATE TABLE t (id BIGINT, word STRING) PARTITIONED BY (bucket(2, id))")
    files = tmp_path / "files"
    files.mkdir()
    place = {"folder": str(files), "checkpoint": str(tmp_path / "checkpoint"), "table": f"{sql.here}.t"}

    (files / "1.csv").write_text("1,a\n2,b\n")
    sql.job("stream_files", schema="id BIGINT, word STRING", **place)
    (files / "2.csv").write_text("3,c\n")
    sql.job("stream_files", schema="id BIGINT, word STRING", **place)
    sql.job("stream_files", schema="id BIGINT, word STRING", **place)

    assert sql("SELECT * FROM t ORDER BY id") == [[1, "a"], [2, "b"], [3, "c"]]
    written = "SELECT count(*) FROM {here}.t.snapshots WHERE summary['spark.sql.streaming.epochId'] IS NOT NULL"
    assert sql.column(written)[0] == 2


@shows("streaming", by=NEW)
def test_a_table_streams_into_another_and_continues_after_a_restart(sql: Sql, tmp_path: Path) -> None:
    sql("CREATE TABLE t (id BIGINT)")
    sql("CREATE TABLE u (id BIGINT)")
    stream = {"source": f"{sql.here}.t", "table": f"{sql.here}.u", "checkpoint": str(tmp_path / "checkpoint")}

    for number in range(3):
        sql("INSERT INTO t VALUES ({number})", number=number)
    sql.job("stream_table", options={}, **stream)
    assert sql.column("SELECT id FROM u ORDER BY id") == [0, 1, 2]
    sql("INSERT INTO t VALUES (3)")
    sql("DELETE FROM t WHERE id = 3")
    sql("INSERT INTO t VALUES (4)")
    sql.job("stream_table", options={"streaming-skip-delete-snapshots": "true"}, **stream)

    assert sql.column("SELECT id FROM u ORDER BY id") == [0, 1, 2, 3, 4]


@shows("streaming", by=NEW)
def test_a_stream_of_counts_replaces_its_table_each_time(sql: Sql, tmp_path: Path) -> None:
    sql("CREATE TABLE t (word STRING)")
    sql("CREATE TABLE counts (word STRING, count BIGINT)")
    stream = {"source": f"{sql.here}.t", "table": f"{sql.here}.counts", "checkpoint": str(tmp_path / "checkpoint")}

    sql("INSERT INTO t VALUES ('a'), ('b'), ('a')")
    sql.job("stream_counts", **stream)
    sql("INSERT INTO t VALUES ('b'), ('c')")
    sql.job("stream_counts", **stream)

    assert sql("SELECT * FROM counts ORDER BY word") == [["a", 2], ["b", 2], ["c", 1]]
