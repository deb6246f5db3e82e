"""`sandur run verify` finds with executors what `sandur verify` finds."""

import msgspec
import pytest
from pyspark.sql import SparkSession

from sandur.operations.receipts import Receipt
from sandur.pipeline.jobs.verify import VERIFY
from tests.pipeline.world import World


@pytest.mark.slow
def test_damage_of_every_join_is_found_by_executors(spark: SparkSession, world: World) -> None:
    world.make("orders")
    world.make("customers")
    world.commits("orders", 3)
    sound = world.run(spark, VERIFY)
    receipts = {key: msgspec.json.decode(data, type=Receipt) for key, data in world.receipts().items()}
    orders = [key for key, one in receipts.items() if one.metadata_version]
    middle = next(key for key in orders if receipts[key].metadata_version == 2)
    names = [listed.key for listed in world.listed(world.layout.all_names_folder())]

    world.remove(middle)
    world.remove(next(key for key in names if key.endswith("customers.json")))
    damaged = world.run(spark, VERIFY)

    assert (sound.counts["damage"], sound.counts["repairable"], sound.warnings) == (0, 0, ())
    assert sound.counts["objects"] > 10
    kinds = {warning.split(": ")[1] for warning in damaged.warnings}
    assert kinds == {"chain-hole", "record-without-name", "index-has-another-entry"}
    assert damaged.counts["damage"] == 2
