"""Several writers on one table: no row is lost or repeated, and a writer that must not win gets an error."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.interop.engines.conversation import Conversation
from tests.interop.matrix import FOLDER, operation
from tests.interop.server_address import Served
from tests.interop.spark.flavours import LATEST, NEW, ON_A_FOLDER, ON_S3, shows
from tests.interop.spark.spark_processes import SPARKS, Sql, catalog_of, running_spark
from tests.server.process import ServerProcess

COUNT = 5
SMALL = {"spark.master": "local[1]", "spark.driver.memory": "1g"}


def inserts(sql: Sql, first: int) -> list[str]:
    return [sql.filled("INSERT INTO {here}.t VALUES ({number})", number=first + number) for number in range(COUNT)]


@shows("concurrent writers", by=NEW)
def test_two_sessions_append_to_one_table_at_once(sql: Sql) -> None:
    sql("CREATE TABLE t (id BIGINT) TBLPROPERTIES ('commit.retry.num-retries' = '20')")

    failures = sql.at_once(inserts(sql, 0), inserts(sql, 100))

    assert failures == []
    sql("REFRESH TABLE t")
    assert sql.column("SELECT id FROM t ORDER BY id") == [*range(COUNT), *range(100, 100 + COUNT)]
    assert len(sql.snapshots()) == 2 * COUNT


@shows("concurrent writers", by=NEW)
def test_two_merges_of_the_same_rows_are_both_applied_or_one_is_refused(sql: Sql) -> None:
    sql("CREATE TABLE t (id BIGINT, n BIGINT) TBLPROPERTIES ('commit.retry.num-retries' = '20')")
    sql("INSERT INTO t VALUES (1, 0)")
    merge = "MERGE INTO {here}.t USING (SELECT 1L id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = n + 1"

    failures = sql.at_once([merge] * COUNT, [merge] * COUNT)

    sql("REFRESH TABLE t")
    assert all("ValidationException" in failure for failure in failures), failures
    assert sql("SELECT * FROM t") == [[1, 2 * COUNT - len(failures)]]


@shows("concurrent writers", by=NEW)
def test_exactly_one_of_two_concurrent_creations_succeeds(sql: Sql) -> None:
    create = "CREATE TABLE {here}.t AS SELECT 1 a"

    failures = sql.at_once([create], [create])

    assert len(failures) == 1
    assert "already exists" in failures[0].lower()
    assert sql("SELECT * FROM t") == [[1]]


@shows("concurrent writers", by=ON_A_FOLDER)
def test_spark_and_pyiceberg_append_to_one_table_at_once(sql: Sql, folder_server: ServerProcess) -> None:
    sql("CREATE TABLE t (id BIGINT) TBLPROPERTIES ('commit.retry.num-retries' = '20')")
    where = [folder_server.url, sql.here.removeprefix("sandur."), "t", "100", str(COUNT)]
    command = [sys.executable, "-m", "tests.interop.pyiceberg_appender", *where]

    with subprocess.Popen(command) as other:
        failures = sql.at_once(inserts(sql, 0))

    assert (failures, other.returncode) == ([], 0)
    sql("REFRESH TABLE t")
    assert sql.column("SELECT id FROM t ORDER BY id") == [*range(COUNT), *range(100, 100 + COUNT)]


@pytest.mark.interop
@pytest.mark.timeout(600)
@operation("Spark", "concurrent writers")
def test_two_spark_processes_append_to_one_table_at_once(served: Served, namespace: str, tmp_path: Path) -> None:
    SPARKS.end()
    folders = tmp_path / "one", tmp_path / "other"
    for folder in folders:
        folder.mkdir()
    flavour = LATEST if served.store == FOLDER else ON_S3
    table = f"sandur.{namespace}.t"

    def append(spark: Conversation, first: int) -> list[str]:
        inserts = [f"INSERT INTO {table} VALUES ({first + number})" for number in range(COUNT)]
        failures: list[str] = spark.ask(job="run_at_once", arguments={"sessions": [inserts]})
        return failures

    with (
        running_spark(flavour, folders[0], [catalog_of(served)], **SMALL) as one,
        running_spark(flavour, folders[1], [catalog_of(served)], **SMALL) as other,
        ThreadPoolExecutor() as threads,
    ):
        one.sql(f"CREATE TABLE {table} (id BIGINT) TBLPROPERTIES ('commit.retry.num-retries' = '20')")
        other.sql(f"SELECT * FROM {table}")
        failures = list(threads.map(append, (one, other), (0, 100)))

        assert failures == [[], []]
        for spark in (one, other):
            spark.sql(f"REFRESH TABLE {table}")
            found = [row[0] for row in spark.sql(f"SELECT id FROM {table} ORDER BY id")]
            assert found == [*range(COUNT), *range(100, 100 + COUNT)]
