"""Work shared out among Spark's tasks, one item each; planned here, in the driver, without starting a process for it.

A data source plans in a Python process of its own, which Spark starts for every read and which costs a second. Jobs
read what the sources read, with the same readers, as tasks.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
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
    if not partitions:
        return without_rows(spark, schema)
    return one_task_each(spark, partitions, lambda partition: iter(reader.read(partition)), schema)


def without_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    """A frame of which Spark knows that it is empty, so that joins with it cost nothing."""
    columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema]
    return spark.range(1).select(*columns).limit(0)


def tasks_for(spark: SparkSession, things: int, *, at_least: int, at_most: int) -> int:
    """How many tasks share so many things: as many as the session works with, if each has enough and none too much."""
    return max(1, min(things // at_least, parts_of(spark)), -(-things // at_most))


def parts_of(spark: SparkSession) -> int:
    """In how many parts the session works."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
