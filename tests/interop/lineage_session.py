"""A separate process for the test: Spark with the OpenLineage agent, which sends its events to the server."""

import sys
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession

import sandur.spark
from tests.interop.delta_sessions import delta_session

AGENT: Final = "io.openlineage:openlineage-spark_2.13:1.53.0"
ICEBERG: Final[Sequence[str]] = (
    "CREATE NAMESPACE lake.sales",
    "CREATE TABLE lake.sales.raw (id BIGINT, country STRING, amount DOUBLE) USING iceberg",
    "INSERT INTO lake.sales.raw VALUES (1, 'IS', 10.0), (2, 'DK', 20.0)",
    """CREATE TABLE lake.sales.ctas USING iceberg AS
       SELECT country, sum(amount) AS total FROM lake.sales.raw WHERE id > 0 GROUP BY country""",
    "CREATE TABLE lake.sales.updates (id BIGINT, country STRING, amount DOUBLE) USING iceberg",
    "INSERT INTO lake.sales.updates VALUES (2, 'SE', 25.0), (3, 'NO', 5.0)",
    """MERGE INTO lake.sales.raw t USING lake.sales.updates s ON t.id = s.id
       WHEN MATCHED THEN UPDATE SET amount = s.amount WHEN NOT MATCHED THEN INSERT *""",
    "CREATE TABLE lake.sales.daily (country STRING, total DOUBLE) USING iceberg",
    "INSERT OVERWRITE lake.sales.daily SELECT country, sum(amount) FROM lake.sales.raw GROUP BY country",
    "CREATE TABLE lake.sales.streamed (id BIGINT, country STRING, amount DOUBLE) USING iceberg",
)
DELTA: Final[Sequence[str]] = (
    "CREATE SCHEMA IF NOT EXISTS main.d",
    "CREATE TABLE main.d.a (id BIGINT, text STRING) USING delta",
    "INSERT INTO main.d.a VALUES (1, 'one'), (2, 'two')",
    "CREATE TABLE main.d.b (id BIGINT, text STRING) USING delta",
    "INSERT INTO main.d.b SELECT id, upper(text) AS text FROM main.d.a",
)


def external_statements(folder: str) -> Sequence[str]:
    """Tables at paths, which no catalog coordinates: the agent knows them by their locations.

    It reports the version of a MERGE only for a table with a name in the session's own catalog.
    """
    a, b, c = (f"delta.`{folder}/{name}`" for name in "abc")
    return (
        f"CREATE TABLE {a} (id BIGINT, text STRING) USING delta",
        f"INSERT INTO {a} VALUES (1, 'one'), (2, 'two')",
        f"CREATE TABLE {b} (id BIGINT, text STRING) USING delta",
        f"INSERT INTO {b} SELECT id, upper(text) AS text FROM {a}",
        f"INSERT OVERWRITE {b} SELECT id, lower(text) AS text FROM {a}",
        f"CREATE TABLE {c} USING delta AS SELECT id, upper(text) AS text FROM {a}",
        "CREATE SCHEMA d",
        *(f"CREATE TABLE d.{name} USING delta LOCATION '{folder}/{name}'" for name in "ab"),
        """MERGE INTO d.b t USING d.a s ON t.id = s.id
           WHEN MATCHED THEN UPDATE SET text = s.text WHEN NOT MATCHED THEN INSERT *""",
    )


def agent_options(url: str) -> Mapping[str, str]:
    """As docs/lineage.md says it."""
    return {
        "spark.extraListeners": "io.openlineage.spark.agent.OpenLineageSparkListener",
        "spark.openlineage.transport.type": "http",
        "spark.openlineage.transport.url": url,
        "spark.openlineage.transport.compression": "gzip",
        "spark.openlineage.namespace": "etl",
        "spark.openlineage.columnLineage.datasetLineageEnabled": "true",
    }


def main(url: str, folder: str, kind: str, jars: str) -> None:
    local = {"spark.app.name": "nightly", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}
    options = {**local, **agent_options(url), "spark.master": "local[2]", "spark.driver.memory": "1g"}
    if kind in {"delta", "external"}:
        packages = f"io.delta:delta-spark_4.1_2.13:4.4.0,{AGENT}"
        spark = delta_session(url, folder, jars, threads=2, options={**options, "spark.jars.packages": packages})
        statements = DELTA if kind == "delta" else external_statements(folder)
    else:
        lake = sandur.spark.Connection(name="lake", uri=f"{url}/iceberg", warehouse="main")
        spark = sandur.spark.session(lake, packages=[AGENT], options=options)
        statements = ICEBERG
    for statement in statements:
        spark.sql(statement).collect()
    if kind == "iceberg":
        stream(spark, folder)
    if kind == "external":
        stream_delta(spark, folder)
    spark.stop()  # The agent sends its last events here.


def stream(spark: SparkSession, folder: str) -> None:
    """Two batches of a stream; the agent reports what is written in `foreachBatch`, not the sink of Iceberg itself."""

    def append(batch: DataFrame, _number: int) -> None:
        batch.writeTo("lake.sales.streamed").append()

    for _ in range(2):
        source = spark.readStream.format("iceberg").load("lake.sales.updates")
        query = source.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
        query.foreachBatch(append).start().awaitTermination()
        spark.sql("INSERT INTO lake.sales.updates VALUES (9, 'FO', 1.0)")


def stream_delta(spark: SparkSession, folder: str) -> None:
    """A stream from one Delta table into another, by the name of the session."""

    def append(batch: DataFrame, _number: int) -> None:
        batch.writeTo("d.b").append()

    source = spark.readStream.format("delta").load(f"{folder}/a")
    query = source.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    query.foreachBatch(append).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
