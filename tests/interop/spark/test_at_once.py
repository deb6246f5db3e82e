"""Several writers on one table: nothing is lost, nothing is doubled, and who must not win is told so."""

import subprocess
import sys

from tests.interop.spark.flavours import LATEST, ON_S3, shows
from tests.interop.spark.running import Sql
from tests.server.process import ServerProcess

COUNT = 5


def inserts(sql: Sql, first: int) -> list[str]:
    return [sql.filled("INSERT INTO {here}.t VALUES ({number})", number=first + number) for number in range(COUNT)]


@shows("concurrent writers", by=(LATEST, ON_S3))
def test_two_sessions_append_to_one_table_at_once(sql: Sql) -> None:
    sql("CREATE TABLE t (id BIGINT) TBLPROPERTIES ('commit.retry.num-retries' = '20')")

    failures = sql.at_once(inserts(sql, 0), inserts(sql, 100))

    assert failures == []
    sql("REFRESH TABLE t")
    assert sql.column("SELECT id FROM t ORDER BY id") == [*range(COUNT), *range(100, 100 + COUNT)]
    assert len(sql.snapshots()) == 2 * COUNT


@shows("concurrent writers")
def test_of_two_merges_of_the_same_rows_both_count_or_one_is_refused(sql: Sql) -> None:
    sql("CREATE TABLE t (id BIGINT, n BIGINT) TBLPROPERTIES ('commit.retry.num-retries' = '20')")
    sql("INSERT INTO t VALUES (1, 0)")
    merge = "MERGE INTO {here}.t USING (SELECT 1L id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = n + 1"

    failures = sql.at_once([merge] * COUNT, [merge] * COUNT)

    sql("REFRESH TABLE t")
    assert all("ValidationException" in failure for failure in failures), failures
    assert sql("SELECT * FROM t") == [[1, 2 * COUNT - len(failures)]]


@shows("concurrent writers")
def test_a_table_is_created_by_one_of_two(sql: Sql) -> None:
    create = "CREATE TABLE {here}.t AS SELECT 1 a"

    failures = sql.at_once([create], [create])

    assert len(failures) == 1
    assert "already exists" in failures[0].lower()
    assert sql("SELECT * FROM t") == [[1]]


@shows("concurrent writers")
def test_spark_and_pyiceberg_append_to_one_table_at_once(sql: Sql, folder_server: ServerProcess) -> None:
    sql("CREATE TABLE t (id BIGINT) TBLPROPERTIES ('commit.retry.num-retries' = '20')")
    where = [folder_server.url, sql.here.removeprefix("sandur."), "t", "100", str(COUNT)]
    command = [sys.executable, "-m", "tests.interop.pyiceberg_appender", *where]

    with subprocess.Popen(command) as other:
        failures = sql.at_once(inserts(sql, 0))

    assert (failures, other.returncode) == ([], 0)
    sql("REFRESH TABLE t")
    assert sql.column("SELECT id FROM t ORDER BY id") == [*range(COUNT), *range(100, 100 + COUNT)]
