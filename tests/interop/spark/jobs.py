"""Jobs beyond SQL statements: streams and concurrent sessions. They run in the process of the session."""

import sys
import threading
from typing import Any

import msgspec
from pyspark.sql import SparkSession, functions
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sandur.catalog.identifiers import Identifier
from sandur.catalog.maintenance.health import TableHealth
from sandur.catalog.maintenance.policies import Orphans, Policy
from sandur.clock import SystemClock
from sandur.operations.tables.names import resolve_name
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.maintenance import orphans
from sandur.pipeline.maintenance.engine import SparkTable
from sandur.settings import Settings


def write_parquet(spark: SparkSession, *, query: str, folder: str) -> None:
    """Write Parquet files without a table."""
    spark.sql(query).write.mode("append").parquet(folder)


def write_frame(spark: SparkSession, *, query: str, table: str, how: str, partition_by: str = "") -> None:
    """Write a query to a table by a method of Spark's writer."""
    writer = spark.sql(query).writeTo(table)
    if partition_by:
        writer = writer.partitionedBy(functions.col(partition_by))
    getattr(writer, how)()


def stream_files(spark: SparkSession, *, folder: str, schema: str, table: str, checkpoint: str) -> None:
    """Append the new CSV files of a folder."""
    source = spark.readStream.schema(schema).csv(folder)
    _run(source.writeStream, table, checkpoint)


def stream_table(spark: SparkSession, *, source: str, table: str, checkpoint: str, options: dict[str, str]) -> None:
    """Append the new rows of a table to another table."""
    _run(spark.readStream.options(**options).table(source).writeStream, table, checkpoint)


def stream_counts(spark: SparkSession, *, source: str, table: str, checkpoint: str) -> None:
    """Count the words of a table into another table, which is overwritten each time."""
    counts = spark.readStream.table(source).groupBy("word").count()
    _run(counts.writeStream.outputMode("complete"), table, checkpoint)


def _run(stream: DataStreamWriter, table: str, checkpoint: str) -> None:
    query = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).toTable(table)
    query.awaitTermination()


def run_at_once(spark: SparkSession, *, sessions: list[list[str]]) -> list[str]:
    """Run lists of statements concurrently, each in its own session; returns the error messages.

    Each session has its own catalog instance, so it sees other sessions' writes only through the server.
    """
    failures: list[str] = []
    barrier = threading.Barrier(len(sessions))

    def run(statements: list[str]) -> None:
        own = spark.newSession()
        barrier.wait()
        for statement in statements:
            try:
                own.sql(statement).collect()
            except Exception as error:  # noqa: BLE001 - the test judges what went wrong
                failures.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=run, args=(statements,)) for statements in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def options_of(spark: SparkSession, *, prefix: str) -> dict[str, Any]:
    """The options of the session with a given prefix."""
    return {key: value for key, value in spark.sparkContext.getConf().getAll() if key.startswith(prefix)}


def migrate_plain_table(spark: SparkSession, *, catalog: str, folder: str, query: str) -> tuple[int, list[int]]:
    """Create a Spark table in the folder and migrate it; returns the number of files and the rows.

    It uses its own session with the catalog as Spark's session catalog, which the procedure requires.
    """
    own = spark.newSession()
    session_catalog = "spark.sql.catalog.spark_catalog"
    for key, value in options_of(spark, prefix=f"spark.sql.catalog.{catalog}.").items():
        own.conf.set(key.replace(f"spark.sql.catalog.{catalog}", session_catalog), value)
    own.conf.set(session_catalog, "org.apache.iceberg.spark.SparkSessionCatalog")
    # In such a session Spark's own catalog keeps the namespaces.
    own.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.default")
    own.sql(f"CREATE TABLE default.migrated USING parquet LOCATION '{folder}' AS {query}")
    migrated = own.sql("CALL spark_catalog.system.migrate('default.migrated')").collect()[0][0]
    rows = [row[0] for row in own.sql("SELECT * FROM default.migrated").collect()]
    own.sql(f"DROP TABLE {catalog}.default.migrated")
    return migrated, rows


def table_location(spark: SparkSession, *, table: str) -> str:
    """Where a table lies."""
    return str(_loaded(spark, table).location())


def write_file(spark: SparkSession, *, table: str, location: str = "") -> None:
    """Write a file with the file access of a table; without a location, into the table itself."""
    loaded = _loaded(spark, table)
    stream = loaded.io().newOutputFile(location or f"{loaded.location()}/data/written").createOrOverwrite()
    stream.write(bytearray(b"written by Spark"))
    stream.close()


def _loaded(spark: SparkSession, table: str) -> Any:
    """A table of Iceberg's Java library."""
    util = spark.sparkContext._jvm.org.apache.iceberg.spark.Spark3Util  # type: ignore[union-attr]
    return util.loadIcebergTable(spark._jsparkSession, table)


class _LaterClock(SystemClock):
    """A clock that is ahead by some days."""

    def __init__(self, days: float) -> None:
        self._ahead_ms = int(days * 86_400_000)

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


def remove_orphans(
    spark: SparkSession, *, store: str, namespace: str, table: str, run: str, days: float, share_max: float = 0.5
) -> dict[str, Any]:
    """One run that deletes and condemns the orphans of a table, some days from now."""
    spark.sparkContext.pythonExec = sys.executable  # The workers of this session need Sandur, too.
    with BlockingLake(Settings(store=store), clock=_LaterClock(days)) as blocking:
        found = blocking.wait(resolve_name(blocking.lake, Identifier("main", (namespace,), table)))
        if found is None:
            raise LookupError(table)
        health = TableHealth(uuid=found.uuid, catalog="main", namespace=namespace, name=table, format="iceberg")
        result = orphans.remove_orphans(
            orphans.begin(blocking, run, lambda: None),
            SparkTable(spark, "sandur", f"sandur.{namespace}.{table}", f"{namespace}.{table}"),
            health,
            Policy(orphans=Orphans(share_max=share_max)),
        )
    built: dict[str, Any] = msgspec.to_builtins(result)
    return built
