"""Lineage events are kept until the retention has passed and the pipeline has published them."""

import msgspec

from sandur.catalog.lineage.events import LineageRecord
from sandur.operations.feed import LINEAGE_BATCHES, LINEAGE_FEED, Feed
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.lineage.ingest import write_batch
from sandur.operations.published import CoreManifest, CorePointer, Dataset
from sandur.storage.contract import ABSENT
from tests.operations.janitor_runs import Cluster


async def test_only_published_events_are_removed_after_the_retention() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    layout, store = server.layout, server.store

    async def keep(number: int) -> None:
        await write_batch(server, [LineageRecord(id=f"{number:064x}", received_ms=1, event=msgspec.Raw(b"{}"))])

    await keep(1)
    upto = (await Feed(server, LINEAGE_BATCHES).advance()).sequence
    published = await cluster.keys(layout.lineage_folder())
    await keep(2)
    cluster.clock.advance(31 * DAY_MS)
    unpublished = await cluster.sweep()
    manifest = CoreManifest(datasets={"lineage": Dataset(sequence=1, watermark={LINEAGE_FEED: upto})})
    key = layout.core_snapshot("a", "manifest.json")
    await store.put(key, msgspec.json.encode(manifest), expected=ABSENT)
    pointer = CorePointer(sequence=1, manifest=key, published_ms=1)
    await store.put(layout.core_manifest(), msgspec.json.encode(pointer), expected=ABSENT)

    after = await cluster.sweep()

    assert "lineage_removed" not in unpublished
    assert after["lineage_removed"] == 1
    assert not set(published) & set(await cluster.keys(layout.lineage_folder()))
    assert len(await cluster.keys(layout.lineage_folder())) == 1
    assert cluster.errors == []
