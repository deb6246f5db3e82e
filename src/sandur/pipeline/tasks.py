"""Spark tasks over Arrow: one item per task, or rows in portions with one open lake per task.

A Python data source plans in a separate Python process, which takes Spark a second per read. Jobs avoid that: the
driver plans with the same readers, and tasks read with them.
"""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import StructType

from sandur.operations.lake import Lake
from sandur.pipeline.blocking_lake import BlockingLake, open_lake
from sandur.storage.contract import portions

T = TypeVar("T")

TASKS_MAX: Final = 10_000
ROWS_AT_ONCE: Final = 1_000
_ARROW: Final = {"string": pa.string(), "long": pa.int64(), "boolean": pa.bool_()}

Batches = Iterable[Any]
"""Record batches, as Spark passes them to a function in an executor."""

Row = Mapping[str, Any]

ArrowTask = Callable[[Batches], Iterator[Any]]
"""What `mapInArrow` runs in each task."""


def run_per_item(
    spark: SparkSession, items: Sequence[T], work: Callable[[T], Iterator[Any]], schema: StructType | str
) -> DataFrame:
    """The record batches that `work` yields for each item; one task per item, up to TASKS_MAX tasks."""

    def run(batches: Batches) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(items[number])

    tasks = min(max(len(items), 1), TASKS_MAX)
    return spark.range(0, len(items), 1, tasks).mapInArrow(run, schema)


def lake_task(
    options: Mapping[str, str], work: Callable[[BlockingLake, Sequence[Row]], Any], *, rows_at_once: int
) -> ArrowTask:
    """A task that opens the lake once and calls `work` with portions of its rows; `work` returns a record batch."""

    def run(batches: Batches) -> Iterator[Any]:
        with open_lake(options) as blocking:
            for batch in batches:
                for rows in portions(batch.to_pylist(), rows_at_once):
                    yield work(blocking, rows)

    return run


def map_rows(
    rows: DataFrame,
    options: Mapping[str, str],
    work: Callable[[Lake, Row], Coroutine[Any, Any, Sequence[object]]],
    fields: str,
) -> DataFrame:
    """One row per row, computed in executors by `work`."""

    def run(blocking: BlockingLake, some: Sequence[Row]) -> pa.RecordBatch:
        return record_batch(fields, [blocking.wait(work(blocking.lake, row)) for row in some])

    return rows.mapInArrow(lake_task(options, run, rows_at_once=ROWS_AT_ONCE), fields)


def column_names(fields: str) -> list[str]:
    """The names in a schema such as `key string, size long`."""
    return [field.split()[0] for field in fields.split(", ")]


def record_batch(fields: str, rows: Sequence[Sequence[object]]) -> pa.RecordBatch:
    """Rows as a record batch of a schema such as `key string, size long`."""
    kinds = [_ARROW[field.split()[1]] for field in fields.split(", ")]
    arrays = [pa.array([row[at] for row in rows], type=kind) for at, kind in enumerate(kinds)]
    return pa.RecordBatch.from_arrays(arrays, names=column_names(fields))


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """A frame that Spark knows to be empty, so that joins with it cost nothing."""
    columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema]
    return spark.range(1).select(*columns).limit(0)


def task_count(spark: SparkSession, items: int, *, at_least: int, at_most: int) -> int:
    """The number of tasks for this many items: the session's parallelism, with bounds on the items of one task."""
    return max(1, min(items // at_least, parallelism(spark)), -(-items // at_most))


def parallelism(spark: SparkSession) -> int:
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
