"""A separate process for the test: Spark with Unity Catalog's connector and Delta, driven by SQL statements.

Every step reports its result or its error.
"""

import json
import sys
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.interop.delta_sessions import delta_session

RACES = 4
TRIES_MAX = 50
DELTA_API = "/api/2.1/unity-catalog/delta/v1/catalogs/main/schemas/t"


class Session:
    """Runs steps and keeps the result of each."""

    def __init__(self, spark: SparkSession, url: str, folder: str) -> None:
        self.spark = spark
        self.url = url
        self.folder = folder
        self.facts: dict[str, Any] = {}

    def step(self, name: str, work: Callable[[], object] | str) -> None:
        try:
            self.facts[name] = self.sql(work) if isinstance(work, str) else work()
        except Exception as error:  # noqa: BLE001 - reported to the test, which judges it
            self.facts[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:300]}"

    def sql(self, statement: str) -> list[list[Any]]:
        return [list(row) for row in self.spark.sql(statement).collect()]


def main(url: str, folder: str, jars: str, is_older: str) -> None:
    options = {"spark.databricks.delta.commitLock.enabled": "false"}  # Sessions race as in two processes.
    if is_older == "older":
        options["spark.sql.catalog.main.deltaRestApi.enabled"] = "false"
    spark = delta_session(url, folder, jars, threads=2, options=options)
    session = Session(spark, url, folder)
    for steps in (_rows, _definitions, _changes, _streams, _races, _maintenance, _names, _iceberg):
        steps(session)
    spark.stop()
    print(f"FACTS {json.dumps(session.facts)}")  # noqa: T201 - what the test reads


def _rows(session: Session) -> None:
    step, spark = session.step, session.spark
    step("schema", "CREATE SCHEMA IF NOT EXISTS main.t")
    step("schemas", lambda: sorted(row[0] for row in session.sql("SHOW SCHEMAS IN main")))
    step("create", "CREATE TABLE main.t.a (id BIGINT, text STRING) USING delta")
    step("insert", "INSERT INTO main.t.a VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    step("select", "SELECT * FROM main.t.a ORDER BY id")
    step("update", "UPDATE main.t.a SET text = 'TWO' WHERE id = 2")
    step("delete", "DELETE FROM main.t.a WHERE id = 3")
    step(
        "merge",
        "MERGE INTO main.t.a t USING (SELECT 2 AS id, 'merged' AS text UNION ALL SELECT 4, 'four') s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET text = s.text WHEN NOT MATCHED THEN INSERT *",
    )
    step("after them", "SELECT * FROM main.t.a ORDER BY id")
    step("time travel", "SELECT count(*) FROM main.t.a VERSION AS OF 1")
    step(
        "time travel by time", lambda: session.sql(f"SELECT count(*) FROM main.t.a TIMESTAMP AS OF '{_time(session)}'")
    )
    step("history", lambda: [row.operation for row in reversed(spark.sql("DESCRIBE HISTORY main.t.a").collect())])


def _time(session: Session) -> str:
    """The time of the first insert according to the table."""
    rows = session.spark.sql("DESCRIBE HISTORY main.t.a").where("version = 1").select("timestamp").collect()
    return str(rows[0][0])


def _definitions(session: Session) -> None:
    step, spark = session.step, session.spark
    step("add column", "ALTER TABLE main.t.a ADD COLUMNS (more INT)")
    step("set property", "ALTER TABLE main.t.a SET TBLPROPERTIES ('k' = 'v')")
    step("columns", lambda: spark.table("main.t.a").columns)
    step("create as select", "CREATE TABLE main.t.b USING delta AS SELECT id, text FROM main.t.a")
    step("rows of it", "SELECT count(*) FROM main.t.b")
    step("replace", "REPLACE TABLE main.t.b (x INT) USING delta")
    step("columns of it", lambda: spark.table("main.t.b").columns)
    step("replace as select", "CREATE OR REPLACE TABLE main.t.b USING delta AS SELECT 5 AS y, 6 AS z")
    step("replaced", "SELECT * FROM main.t.b")
    external = f"{session.folder}/tables/default/default/main/ext"
    step("external", f"CREATE TABLE main.t.ext (id INT) USING delta LOCATION '{external}'")
    step("insert into it", "INSERT INTO main.t.ext VALUES (7)")
    step("read it", "SELECT * FROM main.t.ext")
    step("tables", lambda: sorted(row[1] for row in session.sql("SHOW TABLES IN main.t")))
    step("many commits", lambda: [session.sql(f"INSERT INTO main.t.a VALUES ({n}, '', 0)") for n in range(10, 23)][-1])
    step("rows in all", "SELECT count(*) FROM main.t.a")
    step("drop", "DROP TABLE main.t.b")
    step("tables left", lambda: sorted(row[1] for row in session.sql("SHOW TABLES IN main.t")))


def _changes(session: Session) -> None:
    step, spark = session.step, session.spark
    step("feed", "CREATE TABLE main.t.feed (id INT) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    step("rows for the feed", "INSERT INTO main.t.feed VALUES (1), (2)")
    step("a change for the feed", "UPDATE main.t.feed SET id = 3 WHERE id = 2")
    columns = ("id", "_change_type", "_commit_version")

    def read() -> list[list[Any]]:
        changes = spark.read.option("readChangeFeed", "true").option("startingVersion", 1).table("main.t.feed")
        return [list(row) for row in changes.select(*columns).orderBy(*reversed(columns)).collect()]

    step("change feed", read)


def _streams(session: Session) -> None:
    step, spark = session.step, session.spark
    step("source", "CREATE TABLE main.t.source (id INT) USING delta")
    step("sink", "CREATE TABLE main.t.sink (id INT) USING delta")

    def copied() -> list[list[Any]]:
        stream = spark.readStream.table("main.t.source").writeStream.format("delta")
        stream = stream.option("checkpointLocation", f"{session.folder}/checkpoint").trigger(availableNow=True)
        stream.toTable("main.t.sink").awaitTermination()
        return session.sql("SELECT * FROM main.t.sink ORDER BY id")

    step("first rows", "INSERT INTO main.t.source VALUES (1), (2)")
    step("streamed", copied)
    step("more rows", "INSERT INTO main.t.source VALUES (3)")
    step("streamed on", copied)


def _races(session: Session) -> None:
    """Two sessions on one table: no append and no increment is lost."""
    step = session.step
    step("raced", "CREATE TABLE main.t.raced (id INT) USING delta")
    step("counted", "CREATE TABLE main.t.counted USING delta AS SELECT 0 AS n")

    def appended(who: int) -> None:
        own = session.spark.newSession()
        for number in range(RACES):
            own.sql(f"INSERT INTO main.t.raced VALUES ({who * 100 + number})")

    def incremented(_: int) -> None:
        own = session.spark.newSession()
        done = 0
        for _ in range(TRIES_MAX):
            try:
                own.sql("UPDATE main.t.counted SET n = n + 1")
            except (PySparkException, Py4JJavaError) as error:
                if "concurrent" not in str(error).lower():
                    raise
            else:
                done += 1
            if done == RACES:
                return
        raise AssertionError(f"{done} of {RACES} increments in {TRIES_MAX} tries")

    def race(work: Callable[[int], None], statement: str) -> list[list[Any]]:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, range(2)))
        return session.sql(statement)

    step("appended by two", lambda: race(appended, "SELECT count(*), count(DISTINCT id) FROM main.t.raced"))
    step("incremented by two", lambda: race(incremented, "SELECT n FROM main.t.counted"))


def _maintenance(session: Session) -> None:
    step = session.step
    step("comment", "COMMENT ON TABLE main.t.feed IS 'noted'")
    step("commented", lambda: _comment(session, "feed"))
    step("restore", "RESTORE TABLE main.t.feed TO VERSION AS OF 1")
    step("restored", "SELECT * FROM main.t.feed ORDER BY id")
    step("comment after the restore", lambda: _comment(session, "feed"))
    step("optimize", lambda: bool(session.sql("OPTIMIZE main.t.a")))
    step("vacuum", lambda: bool(session.sql("VACUUM main.t.a RETAIN 240 HOURS")))
    step("compact with a write", lambda: _compacted(session))
    step("rows after them", "SELECT count(*) FROM main.t.a")


def _comment(session: Session, name: str) -> object:
    """The comment of a table in the catalog; None if it has none."""
    with urllib.request.urlopen(f"{session.url}/api/2.1/unity-catalog/tables/main.t.{name}") as answer:  # noqa: S310
        return json.load(answer).get("comment")


def _compacted(session: Session) -> str:
    """The operation of the last commit if Delta compacts with every write."""
    spark = session.spark
    spark.conf.set("spark.databricks.delta.autoCompact.enabled", "true")
    spark.conf.set("spark.databricks.delta.autoCompact.minNumFiles", "2")
    session.sql("INSERT INTO main.t.a VALUES (99, '', 0)")
    spark.conf.set("spark.databricks.delta.autoCompact.enabled", "false")
    return str(spark.sql("DESCRIBE HISTORY main.t.a LIMIT 1").collect()[0].operation)


def _names(session: Session) -> None:
    step = session.step
    step("rename", "ALTER TABLE main.t.feed RENAME TO main.t.fed")
    step("rename column", "ALTER TABLE main.t.feed RENAME COLUMN id TO number")
    step("rename by the API", lambda: _renamed(session, "sink", "drain"))
    step("read by its new name", "SELECT * FROM main.t.drain ORDER BY id")
    step("write by its new name", "INSERT INTO main.t.drain VALUES (4)")
    step("rows by its new name", "SELECT count(*) FROM main.t.drain")


def _iceberg(session: Session) -> None:
    """An Iceberg table beside Delta tables."""
    step = session.step
    field = {"id": 1, "name": "at", "type": "timestamp", "required": False}
    table = {"name": "ice", "schema": {"type": "struct", "schema-id": 0, "fields": [field]}}
    step("schema with both", "CREATE SCHEMA main.both")
    step("iceberg", lambda: _posted(session, "/v1/main/namespaces/both/tables", table))
    step("delta beside it", "CREATE TABLE main.both.d (at TIMESTAMP_NTZ) USING delta")
    step("rows beside it", "INSERT INTO main.both.d VALUES (TIMESTAMP_NTZ'2026-01-02 03:04:05')")
    step("both listed", lambda: sorted(row[1] for row in session.sql("SHOW TABLES IN main.both")))
    step("read beside it", "SELECT CAST(at AS STRING) FROM main.both.d")
    step("iceberg described", lambda: [row[:2] for row in session.sql("DESCRIBE TABLE main.both.ice")])
    step("iceberg refused", lambda: "unknown_default_open_api" in _error(session, "SELECT * FROM main.both.ice"))


def _error(session: Session, statement: str) -> str:
    """The whole text of the error, which names the data source."""
    try:
        return str(session.sql(statement))
    except (Py4JJavaError, PySparkException) as error:
        return str(error)


def _renamed(session: Session, old: str, new: str) -> int:
    return _posted(session, f"{DELTA_API}/tables/{old}/rename", {"new-name": new})


def _posted(session: Session, path: str, body: object) -> int:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(session.url + path, json.dumps(body).encode(), headers)  # noqa: S310 - our own server
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - our own server
        return int(answer.status)


if __name__ == "__main__":
    main(*sys.argv[1:])
