"""`reconcile` on a real store: receipts that were taken away come back, to the last bit."""

import msgspec
import pytest
from pyspark.sql import SparkSession

from sandur.events.receipts import Receipt
from sandur.pipeline.jobs.compact import COMPACT
from sandur.pipeline.jobs.reconcile import RECONCILE
from tests.pipeline.world import World


def test_receipts_that_were_taken_away_come_back_to_the_last_bit(spark: SparkSession, world: World) -> None:
    world.make("orders", properties={"write.metadata.previous-versions-max": "1"})
    world.commits("orders", 4)
    world.run(spark, COMPACT)
    whole = world.receipts()
    taken = [key for key, data in whole.items() if b'"kind":"rest"' in data]
    for key in taken[:-1]:
        world.remove(key)

    looked = world.run(spark, RECONCILE, dry_run=True)
    untouched = world.receipts()
    report = world.run(spark, RECONCILE)

    assert len(taken) == 5
    assert looked.counts["restored_exactly"] == 4
    assert len(untouched) == len(whole) - 4
    assert (report.counts["written"], report.counts["restored_without_source"]) == (4, 0)
    assert world.receipts() == whole


@pytest.mark.slow
def test_a_chain_with_a_receipt_taken_out_is_noticed_and_whole_again_afterwards(
    spark: SparkSession, world: World
) -> None:
    world.make("orders")
    world.commits("orders", 3)
    whole = world.receipts()
    keys = sorted(whole, key=lambda key: msgspec.json.decode(whole[key], type=Receipt).metadata_version)
    world.remove(keys[1])

    noticed = world.run(spark, COMPACT)
    restored = world.run(spark, RECONCILE)
    after = world.run(spark, COMPACT)

    assert (noticed.counts["links_missing"], after.counts["links_missing"]) == (1, 0)
    assert "reconcile restores" in noticed.warnings[0]
    assert (restored.counts["written"], restored.counts["restored_without_source"]) == (1, 1)
    assert world.receipts().keys() >= whole.keys()


def test_without_receipts_nothing_but_the_source_is_lost(spark: SparkSession, world: World) -> None:
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
