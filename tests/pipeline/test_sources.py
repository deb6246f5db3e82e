"""The data sources in batches, and as a stream that fills a table exactly once."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition

from sandur.errors import Trimmed
from sandur.operations.feed import Feed
from sandur.operations.feed_readers import FeedReaders, trim_feed
from sandur.operations.receipts import receipt_of_key
from sandur.operations.tables.drop import drop_name
from sandur.pipeline.blocking_lake import lake_options
from sandur.pipeline.sources.events import FeedStreamReader
from sandur.pipeline.sources.metadata import SandurMetadata
from tests.pipeline.killed_stream import follow
from tests.pipeline.test_collect_garbage import age
from tests.pipeline.world import World, identifier_of

ROOT = Path(__file__).parents[2]


def test_sources_read_the_current_records(spark: SparkSession, world: World) -> None:
    made = world.make("orders")
    world.commits("orders", 2)
    dropped = world.make("forgotten")
    world.wait(drop_name(world.lake, identifier_of("forgotten"), kind="table", request=world.request()))
    world.settle()
    source_options = lake_options(world.settings)

    def read(source: str, **options: str) -> list[dict[str, object]]:
        frame = spark.read.format(source).options(**source_options).options(**options).load()
        return [row.asDict() for row in frame.collect()]

    events = read("sandur_events")
    names = read("sandur_names")
    pointers = {row["uuid"]: row for row in read("sandur_pointers")}
    snapshots = read("sandur_metadata", part="columns", table="main.sales.orders")
    files = read("sandur_files", prefix=world.layout.events_folder())

    assert len([row for row in events if row["object_type"] is None]) == 4
    assert sorted(str(row["change"]) for row in events if row["name"] == "forgotten") == ["created", "dropped"]
    assert {row["problem"] for row in events} == {None}
    shown = [row for row in names if row["is_shown"]]
    assert [(row["name"], row["metadata_version"]) for row in shown] == [("orders", 2)]
    assert {(uuid, row["name"], row["state"]) for uuid, row in pointers.items()} == {
        (made.table_uuid, "orders", "live"),
        (dropped.table_uuid, "forgotten", "dropped"),
    }
    of_head = ("metadata_location", "commit_key", "metadata_version", "committed_at")
    assert [pointers[made.table_uuid][name] for name in of_head] == [shown[0][name] for name in of_head]
    assert pointers[made.table_uuid]["commit_key"] in {row["commit_key"] for row in events}
    assert [row["path"] for row in snapshots] == ["x"]
    assert {row["key"] for row in files} == {row["key"] for row in events}


def test_the_stream_fills_a_table_exactly_once_despite_restarts(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.make("orders")
    world.commits("orders", 3)
    source_options = {**lake_options(world.settings), "reader": "tests"}
    late_key = min(world.receipts())
    late = world.receipts()[late_key]
    world.remove(late_key)

    follow(spark, source_options, tmp_path)
    world.put(late_key, late)
    world.commits("orders", 1)
    follow(spark, source_options, tmp_path)
    follow(spark, source_options, tmp_path)

    check_exactly_once(spark, world, tmp_path)
    newest = world.wait(Feed(world.lake).catch_up()).sequence
    assert [(reader.name, reader.position) for reader in world.wait(FeedReaders(world.lake).read_all())] == [
        ("tests", newest)
    ]


def check_exactly_once(spark: SparkSession, world: World, folder: Path) -> None:
    """Check that the table of the stream has every commit once."""
    rows = spark.read.parquet(str(folder / "table")).collect()
    keys = [world.layout.parse_receipt(key).commit_key for key in world.all_receipts()]
    assert sorted(row.commit_key for row in rows) == sorted(keys)
    assert sorted(row.position for row in rows) == list(range(len(keys)))


def deduplicated(rows: DataFrame) -> DataFrame:
    """The recipe of the docs for every commit exactly once."""
    return rows.where("problem IS NULL").dropDuplicates(["commit_key"])


@pytest.mark.slow
def test_a_repeated_receipt_is_in_the_table_once_if_the_stream_drops_duplicates(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.make("orders")
    world.commits("orders", 3)
    source_options = lake_options(world.settings)
    receipts = world.all_receipts()
    known, gone, bad, *_ = sorted(world.receipts())
    feed = Feed(world.lake)
    world.wait(feed.advance())
    world.remove(gone)
    world.damage(bad)
    streams = {"once": deduplicated, "plain": lambda rows: rows}

    for name, through in streams.items():
        follow(spark, source_options, tmp_path / name, through)
    world.put(gone, receipts[gone])
    world.remove(bad)
    world.put(bad, receipts[bad])
    for _ in range(2):
        world.wait(feed.append_again([receipt_of_key(world.layout, key) for key in (known, gone, bad)]))
        for name, through in streams.items():
            follow(spark, source_options, tmp_path / name, through)

    once, plain = (
        sorted(row.commit_key or "" for row in spark.read.parquet(str(tmp_path / name / "table")).collect())
        for name in streams
    )
    keys = {key: world.layout.parse_receipt(key).commit_key for key in receipts}
    assert once == sorted(keys.values())
    assert plain == sorted([*keys.values(), "", *(keys[key] for key in (known, known, gone, bad))])


@pytest.mark.crash
@pytest.mark.timeout(600)
def test_a_stream_that_is_killed_during_a_batch_continues_with_it(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.make("orders")
    world.commits("orders", 3)
    late_key = min(world.receipts())
    late = world.receipts()[late_key]
    world.remove(late_key)
    planned = len(world.all_receipts())
    source_options = lake_options(world.settings)
    command = [sys.executable, "-m", "tests.pipeline.killed_stream", world.settings.store, str(tmp_path)]

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    offsets, commits = (list((tmp_path / "checkpoint" / name).glob("[0-9]*")) for name in ("offsets", "commits"))
    world.put(late_key, late)
    world.commits("orders", 1)
    follow(spark, source_options, tmp_path)  # Finishes the planned batch; new receipts are in the next one.
    replayed = spark.read.parquet(str(tmp_path / "table")).count()
    follow(spark, source_options, tmp_path)

    assert "it is killed now" in ended.stdout, ended.stderr
    assert "it ended" not in ended.stdout
    assert (len(offsets), len(commits), replayed) == (1, 0, planned)
    check_exactly_once(spark, world, tmp_path)


def test_a_batch_that_is_planned_again_is_the_same_batch(world: World) -> None:
    world.make("orders")
    reader = FeedStreamReader(lake_options(world.settings))
    start, end = reader.initialOffset(), reader.latestOffset()
    planned = len(world.all_receipts())
    world.commits("orders", 2)
    later = FeedStreamReader(lake_options(world.settings))

    def rows(of: FeedStreamReader) -> list[object]:
        batches = [batch for part in of.partitions(start, end) for batch in of.read(InputPartition(part.value))]
        return [row for batch in batches for row in batch.to_pylist()]

    assert (start, end) == ({"sequence": 0}, {"sequence": 1})
    assert later.latestOffset() == {"sequence": 2}
    assert rows(later) == rows(reader)
    assert len(rows(reader)) == planned
    assert not reader.partitions(end, end)
    reader.stop()
    later.stop()


def test_a_registered_stream_is_waited_for_and_another_one_is_told_to_start_again(world: World) -> None:
    world.make("orders")
    options = lake_options(world.settings)
    kept, other = FeedStreamReader({**options, "reader": "kept"}), FeedStreamReader(options)
    start, end = kept.initialOffset(), kept.latestOffset()
    kept.partitions(start, end)
    for key in world.all_receipts():
        world.remove(key)
    age(world, days=91, part="/feed/")

    waited = world.wait(trim_feed(world.lake))
    kept.commit(end)
    trimmed = world.wait(trim_feed(world.lake))

    assert (waited.trimmed, waited.slowest, trimmed.trimmed) == (0, "kept", 1)
    with pytest.raises(Trimmed, match="new checkpoint"):
        other.partitions(start, end)
    assert other.initialOffset() == end
    kept.stop()
    other.stop()


@pytest.mark.parametrize(("part", "names"), [("tables", {"orders", "hidden"}), ("columns", {"orders"})])
def test_a_table_with_an_unreadable_pointer_has_a_row_with_its_problem(
    world: World, part: str, names: set[str]
) -> None:
    world.make("orders")
    world.damage(world.layout.pointer(world.make("hidden").table_uuid))
    source = SandurMetadata({**lake_options(world.settings), "part": part})

    batches = [batch for some in source.partitions() for batch in source.read(InputPartition(some.value))]
    rows = {row["name"]: row.get("problem") for batch in batches for row in batch.to_pylist()}

    assert rows.keys() == names
    assert rows["orders"] is None
    assert all(problem for name, problem in rows.items() if name == "hidden")


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        ("sandur_events", {"after": "x", "upto": "1"}, "option after"),
        ("sandur_files", {"prefix": "no-folder"}, "option prefix"),
        ("sandur_metadata", {"part": "secrets"}, "option part"),
        ("sandur_dataset", {"dataset": "x"}, "option dataset"),
    ],
)
def test_an_invalid_option_is_named(
    spark: SparkSession, world: World, source: str, options: dict[str, str], said: str
) -> None:
    source_options = lake_options(world.settings)

    with pytest.raises(Exception, match=said):
        spark.read.format(source).options(**source_options).options(**options).load().collect()


def test_a_store_in_memory_is_refused(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="needs a folder or a bucket"):
        spark.read.format("sandur_files").option("store", "memory:").load().collect()
