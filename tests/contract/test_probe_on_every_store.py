"""The boot probe passes on every store that passes the conformance suite."""

from sandur.clock import SystemClock
from sandur.storage.contract import ObjectStore
from sandur.storage.probe import verify_store


async def test_the_probe_passes_on_every_store_and_leaves_no_objects(store: ObjectStore) -> None:
    assert await verify_store(store, SystemClock())

    assert await store.list("") == []
