"""The data sources as anybody uses them: in batches, and as a stream that ends up in a table exactly once."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

from sandur.pipeline.sources.events import FeedStreamReader
from sandur.pipeline.sources.options import source_options
from tests.pipeline.world import World


def test_sources_say_what_there_is(spark: SparkSession, world: World) -> None:
    world.make("orders")
    world.commits("orders", 2)
    told = source_options(world.settings, world.layout)

    def read(source: str, **options: str) -> list[dict[str, object]]:
        frame = spark.read.format(source).options(**told).options(**options).load()
        return [row.asDict() for row in frame.collect()]

    events = read("sandur_events")
    names = read("sandur_names")
    snapshots = read("sandur_metadata", part="columns", table="main.sales.orders")
    files = read("sandur_files", prefix=world.layout.events_folder())

    assert len(events) == len(files) == 3
    assert {row["problem"] for row in events} == {None}
    assert [(row["name"], row["is_shown"], row["metadata_version"]) for row in names] == [("orders", True, 2)]
    assert [row["path"] for row in snapshots] == ["x"]
    assert {row["key"] for row in files} == {row["key"] for row in events}


def test_the_stream_ends_up_in_a_table_exactly_once_through_restarts(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.make("orders")
    world.commits("orders", 3)
    told = source_options(world.settings, world.layout)
    late_key = min(world.receipts())
    late = world.receipts()[late_key]
    world.remove(late_key)

    def follow() -> None:
        feed = spark.readStream.format("sandur_events").options(**told).load()
        writer = feed.select("commit_key", "position", "metadata_location").writeStream.format("parquet")
        query = (
            writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "table"))
        )
        query.awaitTermination()

    follow()
    world.put(late_key, late)
    world.commits("orders", 1)
    follow()
    follow()

    rows = spark.read.parquet(str(tmp_path / "table")).collect()
    keys = [world.layout.read_receipt(key).commit_key for key in world.receipts()]
    assert sorted(row.commit_key for row in rows) == sorted(keys)
    assert sorted(row.position for row in rows) == list(range(5))


def test_a_batch_of_the_stream_that_is_planned_again_is_the_same_batch(world: World) -> None:
    world.make("orders")
    reader = FeedStreamReader(source_options(world.settings, world.layout))
    start, end = reader.initialOffset(), reader.latestOffset()
    world.commits("orders", 2)
    later = FeedStreamReader(source_options(world.settings, world.layout))

    def rows(of: FeedStreamReader) -> list[object]:
        batches = [batch for part in of.partitions(start, end) for batch in of.read(InputPartition(part.value))]
        return [row for batch in batches for row in batch.to_pylist()]

    assert (start, end) == ({"sequence": 0}, {"sequence": 1})
    assert later.latestOffset() == {"sequence": 2}
    assert rows(later) == rows(reader)
    assert len(rows(reader)) == 1
    assert not reader.partitions(end, end)
    reader.stop()
    later.stop()


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        ("sandur_events", {"after": "x", "upto": "1"}, "option after"),
        ("sandur_files", {"prefix": "no-folder"}, "option prefix"),
        ("sandur_metadata", {"part": "secrets"}, "option part"),
        ("sandur_dataset", {"dataset": "x"}, "option dataset"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(
    spark: SparkSession, world: World, source: str, options: dict[str, str], said: str
) -> None:
    told = source_options(world.settings, world.layout)

    with pytest.raises(Exception, match=said):
        spark.read.format(source).options(**told).options(**options).load().collect()


def test_a_store_in_memory_is_refused(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="needs a folder or a bucket"):
        spark.read.format("sandur_files").option("store", "memory:").load().collect()
