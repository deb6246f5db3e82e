"""A stream in its own process that is killed during a batch, like `kill -9`."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sandur.pipeline.blocking_lake import lake_options
from sandur.pipeline.runs import create_session
from sandur.pipeline.sources import register_sources
from sandur.settings import Settings
from tests.pipeline.conftest import OPTIONS


def _unchanged(rows: DataFrame) -> DataFrame:
    return rows


def follow(
    spark: SparkSession,
    options: Mapping[str, str],
    folder: Path,
    through: Callable[[DataFrame], DataFrame] = _unchanged,
) -> None:
    """Append the new entries of the feed to a table, starting at the checkpoint."""
    feed = spark.readStream.format("sandur_events").options(**options).load()
    rows = through(feed.select("commit_key", "position", "metadata_location", "problem"))
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start(str(folder / "table")).awaitTermination()


def _killing(process: int) -> Callable[[DataFrame], DataFrame]:
    """Write the rows, then kill the driver process."""

    def kill(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            os.kill(process, signal.SIGKILL)

    return lambda rows: rows.mapInArrow(kill, rows.schema)


def main() -> None:
    store, folder = sys.argv[1:]
    spark = create_session("local[2]", name="killed", options=OPTIONS)
    register_sources(spark)
    process = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]  # A session without Connect has a JVM.
    options = lake_options(Settings(store=store, fsync="never"))
    print("it is killed now", flush=True)  # noqa: T201 - what the test reads
    with contextlib.suppress(Exception):  # Python raises some error when its JVM is gone.
        follow(spark, options, Path(folder), _killing(process))
        print("it ended", flush=True)  # noqa: T201 - what the test reads
    os._exit(1)


if __name__ == "__main__":
    main()
