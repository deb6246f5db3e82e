"""`reconcile` on a real store restores deleted receipts exactly."""

import msgspec
import pytest
from pyspark.sql import SparkSession

from sandur.operations.feed import Feed
from sandur.operations.receipts import Receipt, receipt_of_key
from sandur.pipeline.jobs.compact import COMPACT
from sandur.pipeline.jobs.reconcile import RECONCILE
from tests.pipeline.world import World


def test_deleted_receipts_are_restored_exactly(spark: SparkSession, world: World) -> None:
    world.make("orders", properties={"write.metadata.previous-versions-max": "1"})
    world.commits("orders", 4)
    before = world.receipts()
    world.make("customers")
    (passed,) = world.receipts().keys() - before.keys()
    lost = world.receipts()[passed]
    world.wait(Feed(world.lake).advance())
    world.remove(passed)
    world.run(spark, COMPACT)
    whole = {**world.receipts(), passed: lost}
    for key in sorted(before)[:-1]:
        world.remove(key)

    looked = world.run(spark, RECONCILE, dry_run=True)
    untouched = world.receipts()
    report = world.run(spark, RECONCILE)

    assert len(before) == 5
    assert looked.counts["receipts_missing"]
    assert (looked.counts["restored_exactly"], looked.counts["read_again"]) == (5, 1)
    assert len(untouched) == len(whole) - 5
    assert (report.counts["written"], report.counts["restored_without_source"]) == (5, 0)
    assert report.counts["read_again"] == 1
    assert world.receipts() == whole
    assert repeated_receipts(world) == [receipt_of_key(world.layout, passed)]


def repeated_receipts(world: World) -> list[str]:
    """The receipts with a second position."""
    feed = Feed(world.lake)
    entries = [world.wait(feed.receipts_of(n)) for n in range(1, world.wait(feed.catch_up()).sequence + 1)]
    return [receipt for entry in entries if entry.is_again for receipt in entry.receipts]


@pytest.mark.slow
def test_a_chain_with_a_missing_receipt_is_reported_and_restored(spark: SparkSession, world: World) -> None:
    world.make("orders")
    world.commits("orders", 3)
    whole = world.receipts()
    keys = sorted(whole, key=lambda key: msgspec.json.decode(whole[key], type=Receipt).metadata_version)
    world.wait(Feed(world.lake).advance())
    world.remove(keys[1])

    noticed = world.run(spark, COMPACT)
    restored = world.run(spark, RECONCILE)
    after = world.run(spark, COMPACT)
    again = world.run(spark, RECONCILE)

    assert (noticed.counts["links_missing"], after.counts["links_missing"]) == (1, 0)
    assert "reconcile restores" in noticed.warnings[0]
    assert (restored.counts["written"], restored.counts["restored_without_source"]) == (1, 1)
    assert (restored.counts["read_again"], after.counts["commits"], again.counts["read_again"]) == (1, 1, 0)
    assert world.receipts().keys() >= whole.keys()


@pytest.mark.slow
def test_a_repaired_receipt_gets_another_position(spark: SparkSession, world: World) -> None:
    world.make("orders")
    world.commits("orders", 1)
    key, data = max(world.receipts().items(), key=lambda item: msgspec.json.decode(item[1])["metadata_version"])
    world.damage(key)
    quarantined = world.run(spark, COMPACT)

    damaged = world.run(spark, RECONCILE)
    world.remove(key)
    restored = world.run(spark, RECONCILE)
    after = world.run(spark, COMPACT)

    assert (quarantined.counts["quarantined"], quarantined.counts["commits"]) == (1, 1)
    assert (damaged.counts["receipts_damaged"], damaged.counts["read_again"]) == (1, 0)
    assert (restored.counts["written"], restored.counts["read_again"], after.counts["commits"]) == (1, 1, 1)
    assert world.receipts()[key] == data


def test_without_receipts_only_the_source_is_lost(spark: SparkSession, world: World) -> None:
    world.make("orders")
    world.commits("orders", 2)
    whole = world.receipts()
    for key in whole:
        world.remove(key)

    report = world.run(spark, RECONCILE)

    restored = world.receipts()
    assert restored.keys() == whole.keys()
    assert (report.counts["restored_exactly"], report.counts["restored_without_source"]) == (1, 2)
    source = b'"source":{"kind":"rest","principal":"ada","client":"tests"}'
    assert sorted(data.replace(source, b'"source":{}') for data in whole.values()) == sorted(
        data.replace(source, b'"source":{}') for data in restored.values()
    )
