"""A Spark session that follows the stream of receipts into a Delta and an Iceberg table, by the recipe of the docs.

`python -m tests.interop.stream_sinks_session FOLDER SINK…`: the process is killed right after the first merge into the
sink that ends in `!`. The other sinks are followed to the end. It prints the rows of each table as FACTS.
"""

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sandur.pipeline.sources import register_sources
from sandur.spark.sessions import DELTA_PACKAGE, ICEBERG_EXTENSIONS, Versions

KILLED: Final = 9
"""The exit code of a process that was killed on purpose."""
PAGE: Final = Path(__file__).parents[2] / "docs" / "pipeline.md"
SINKS: Final = {"delta": "spark_catalog.default.receipts", "iceberg": "ice.db.receipts"}
_RECIPE: Final = re.compile(r"### Merge into a table\n.*?```sql\n(.*?)```.*?```python\n(.*?)```", re.DOTALL)


def make_session(folder: Path) -> SparkSession:
    options = {
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.extensions": f"io.delta.sql.DeltaSparkSessionExtension,{ICEBERG_EXTENSIONS}",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        # Each batch has a session of its own: the session of the test must not read a table from its cache.
        "spark.sql.catalog.ice.cache-enabled": "false",
        "spark.sql.catalog.ice.warehouse": str(folder / "ice"),
        "spark.jars.packages": ",".join((DELTA_PACKAGE, *Versions().packages(with_s3=False))),
    }
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # The sources are read in processes of their own.
    builder = SparkSession.builder.master("local[2]")
    for key, value in options.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def follow(spark: SparkSession, folder: Path, sink: str, *, kill: bool) -> list[list[Any]]:
    """Run the recipe, and return the rows of the table."""
    found = _RECIPE.search(PAGE.read_text(encoding="utf-8"))
    assert found, "the recipe is not in docs/pipeline.md"
    table = SINKS[sink]
    # The session's catalog forgets its tables with the process; the files of the Delta table stay.
    place = f" LOCATION '{folder / 'delta'}'" if sink == "delta" else ""
    create = found[1].replace("history.receipts", table).replace("USING iceberg", f"USING {sink}{place}")
    spark.sql(create.strip().rstrip(";").replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))
    recipe = found[2].replace("s3://bucket/prefix", str(folder / "store")).replace("history.receipts", table)
    recipe = recipe.replace("s3://bucket/checkpoints/history", str(folder / f"checkpoint-{sink}"))
    recipe = recipe.replace('"history"', f'"history-{sink}"')
    if kill:
        _kill_after_merge(spark)
    for _ in range(2):  # After a crash, the first run only finishes the planned batch.
        exec(compile(recipe, str(PAGE), "exec"), {"spark": spark})  # noqa: S102 - the recipe of our own page
    return sorted([list(row) for row in spark.table(table).select("commit_key", "position").collect()])


def _kill_after_merge(spark: SparkSession) -> None:
    """Kill the driver when a batch is in the sink and not yet in the checkpoint."""
    process = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]  # A session without Connect has a JVM.
    original = DataStreamWriter.foreachBatch

    def patched(writer: DataStreamWriter, merge: Callable[[DataFrame, int], None]) -> DataStreamWriter:
        def then_die(batch: DataFrame, number: int) -> None:
            merge(batch, number)
            os.kill(process, signal.SIGKILL)
            os._exit(KILLED)

        return original(writer, then_die)

    DataStreamWriter.foreachBatch = patched  # type: ignore[assignment,method-assign]


def main() -> None:
    folder, *sinks = Path(sys.argv[1]), *sys.argv[2:]
    spark = make_session(folder)
    register_sources(spark)
    rows = {sink.rstrip("!"): follow(spark, folder, sink.rstrip("!"), kill=sink.endswith("!")) for sink in sinks}
    print("FACTS " + json.dumps(rows), flush=True)  # noqa: T201 - what the test reads
    spark.stop()


if __name__ == "__main__":
    main()
