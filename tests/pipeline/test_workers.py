"""The Python workers that Spark forks for tasks."""

import importlib
import sys
import zipimport
from collections.abc import Iterable, Iterator
from unittest import mock

import pyarrow as pa
from pyspark.sql import SparkSession


def archives_read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The number of archives that a worker imports from, and that a task reads again."""
    archives = sum(isinstance(finder, zipimport.zipimporter) for finder in sys.path_importer_cache.values())
    with mock.patch.object(zipimport, "_read_directory", wraps=zipimport._read_directory) as read:  # type: ignore[attr-defined]
        importlib.invalidate_caches()
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"archives": [archives], "read": [read.call_count]})


def test_spark_archives_are_not_read_again_for_every_task(spark: SparkSession) -> None:
    found = spark.range(1).mapInArrow(archives_read, "archives long, read long").collect()

    assert found[0].archives > 0
    assert sum(row.read for row in found) == 0
