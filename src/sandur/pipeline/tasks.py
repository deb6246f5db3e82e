"""Work shared out among Spark's tasks, one item each; planned here, in the driver, without starting a process for it.

A data source plans in a Python process of its own, which Spark starts for every read and which costs a second. Jobs
read what the sources read, with the same readers, as tasks.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

T = TypeVar("T")

TASKS_MAX: Final = 10_000


def one_task_each(
    spark: SparkSession, items: Sequence[T], work: Callable[[T], Iterator[Any]], schema: StructType | str
) -> DataFrame:
    """The rows that the work makes of each item, as Arrow batches; beyond so many items a task does several."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(items[number])

    tasks = min(max(len(items), 1), TASKS_MAX)
    return spark.range(0, len(items), 1, tasks).mapInArrow(run, schema)


def frame_of(spark: SparkSession, reader: DataSourceReader, schema: StructType) -> DataFrame:
    """What a reader of a data source reads."""
    partitions = list(reader.partitions())
    return one_task_each(spark, partitions, lambda partition: iter(reader.read(partition)), schema)
