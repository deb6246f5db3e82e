"""What runs beside the test: Spark, Delta Kernel and DuckDB create managed tables and write into those of the others.

It prints what each reader finds in each table. Spark takes part only with Unity Catalog's connector; Kernel runs in the
JVM of Spark in any case.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import duckdb
import httpx
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import sandur.spark
from demo.duckdb_sessions import unity_session
from tests.interop.delta_sessions import delta_session

COLUMNS = "(id INT, text STRING, amount DOUBLE)"
API = "/api/2.1/unity-catalog/delta/v1/catalogs/main/schemas/s/tables"
Row = tuple[int, str, float]


def main(url: str, folder: str, jars: str) -> None:
    spark, duck = delta_session(url, folder, jars), unity_session(url, "s")
    creators: dict[str, Callable[[], object]] = {
        "sandur": lambda: None,  # The test made it with the command line.
        "kernel": lambda: sandur.spark.sql(
            spark, f"CREATE TABLE main.s.by_kernel {COLUMNS} USING delta", mode="STRICT"
        ),
    }
    writers: dict[str, Callable[[str, Row], object]] = {
        "kernel": lambda table, row: _write_with_kernel(spark, url, table, row),
        "duckdb": lambda table, row: duck.execute(f"INSERT INTO uc.s.{table} VALUES {row}"),
    }
    readers: dict[str, Callable[[str], list[Any]]] = {
        "duckdb": lambda table: unity_session(url, "s").execute(f"SELECT * FROM uc.s.{table} ORDER BY id").fetchall()
    }
    if jars:
        creators["spark"] = lambda: spark.sql(f"CREATE TABLE main.s.by_spark {COLUMNS} USING delta")
        writers["spark"] = lambda table, row: spark.sql(f"INSERT INTO main.s.{table} VALUES {row}")
        readers["spark"] = lambda table: spark.sql(f"SELECT * FROM main.s.{table} ORDER BY id").collect()
    rows: dict[str, Any] = {}
    for creator, create in creators.items():
        create()
        duck = unity_session(url, "s")  # A session caches the list of tables.
        table = f"by_{creator}"
        for number, (writer, write) in enumerate(writers.items()):
            write(table, (number, writer, number + 0.5))
        rows[creator] = {reader: [list(row) for row in read(table)] for reader, read in readers.items()}
        if jars:
            spark.sql(f"UPDATE main.s.{table} SET amount = amount * 2")
            rows[creator]["duckdb, after UPDATE by spark"] = [list(row) for row in readers["duckdb"](table)]
    facts = {"rows": rows, "CREATE TABLE by duckdb": _refusal(duck, f"CREATE TABLE uc.s.by_duckdb {COLUMNS}")}
    if jars:
        facts["mapped"] = _mapped(spark, url)
    spark.stop()
    print(f"FACTS {json.dumps(facts)}")  # noqa: T201 - what the test reads


def _mapped(spark: SparkSession, url: str) -> dict[str, Any]:
    """What writers achieve in tables with column mapping."""
    mapping = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    spark.sql(f"CREATE TABLE main.s.mapped {COLUMNS} USING delta {mapping}")
    spark.sql("INSERT INTO main.s.mapped VALUES (1, 'spark', 1.5), (2, 'gone', 2.5)")
    spark.sql("INSERT INTO main.s.mapped VALUES (3, 'again', 3.5)")
    refused = _refusal(unity_session(url, "s"), "INSERT INTO uc.s.mapped VALUES (4, 'duckdb', 4.5)")
    try:
        _write_with_kernel(spark, url, "mapped", (5, "kernel", 5.5))
        refused_by_kernel = ""
    except PySparkException as error:
        refused_by_kernel = str(error)
    spark.sql("UPDATE main.s.mapped SET amount = 10 WHERE id = 1")
    spark.sql("DELETE FROM main.s.mapped WHERE id = 2")
    spark.sql(f"CREATE TABLE main.s.parts {COLUMNS} USING delta PARTITIONED BY (text) {mapping}")
    spark.sql("INSERT INTO main.s.parts SELECT * FROM main.s.mapped")
    select = "SELECT * FROM {} ORDER BY id"
    return {
        "refused": refused,
        "refused by kernel": refused_by_kernel,
        "spark": [list(row) for row in spark.sql(select.format("main.s.mapped")).collect()],
        "duckdb": [list(row) for row in unity_session(url, "s").execute(select.format("uc.s.mapped")).fetchall()],
        "partitioned": [list(row) for row in spark.sql(select.format("main.s.parts")).collect()],
        "partitioned, duckdb": [
            list(row) for row in unity_session(url, "s").execute(select.format("uc.s.parts")).fetchall()
        ],
    }


def _write_with_kernel(spark: SparkSession, url: str, table: str, row: Row) -> None:
    """One commit with one file, by the calls that a connector on Delta Kernel makes."""
    jvm: Any = spark.sparkContext._jvm
    metadata = httpx.get(f"{url}{API}/{table}").raise_for_status().json()["metadata"]
    kernel = jvm.io.delta.kernel
    engine = kernel.defaults.engine.DefaultEngine.create(jvm.org.apache.hadoop.conf.Configuration())
    coordinator = jvm.io.delta.storage.commit.uccommitcoordinator
    client = coordinator.UCDeltaTokenBasedRestClient({"uri": url, "auth.type": "static", "auth.token": "any"}, None)
    try:
        nothing = jvm.java.util.Optional.empty()
        named = kernel.unitycatalog.UCTableIdentifier("main", "s", table)
        managed = kernel.unitycatalog.UCCatalogManagedClient(client)
        found = (metadata["table-uuid"], metadata["location"], named)
        snapshot = managed.loadSnapshot(engine, *found, nothing, nothing)
        writing = snapshot.buildUpdateTableTransaction("pairs", kernel.Operation.WRITE).build(engine)
        state = writing.getTransactionState(engine)
        schema = snapshot.getSchema()
        written = kernel.internal.data.GenericRow(schema, dict(enumerate(row)))
        batch = kernel.defaults.internal.data.DefaultRowBasedColumnarBatch(schema, [written])
        utilities, transaction = kernel.internal.util.Utils, kernel.Transaction
        batches = utilities.singletonCloseableIterator(kernel.data.FilteredColumnarBatch(batch, nothing))
        physical = transaction.transformLogicalData(engine, state, batches, {})
        context = transaction.getWriteContext(engine, state, {})
        directory, columns = context.getTargetDirectory(), context.getStatisticsColumns()
        files = engine.getParquetHandler().writeParquetFiles(directory, physical, columns)
        actions = transaction.generateAppendActions(engine, state, files, context)
        writing.commit(engine, kernel.utils.CloseableIterable.inMemoryIterable(actions))
    finally:
        client.close()


def _refusal(duck: duckdb.DuckDBPyConnection, statement: str) -> str:
    try:
        duck.execute(statement)
    except duckdb.Error as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
