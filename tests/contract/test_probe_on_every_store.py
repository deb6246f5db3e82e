"""The boot probe passes on every store that passes the conformance suite."""

from sandur.clock import SystemClock
from sandur.storage.contract import ObjectStore
from sandur.storage.probe import verify_store


async def test_every_store_is_proven_fit_and_left_clean(store: ObjectStore) -> None:
    assert await verify_store(store, SystemClock())

    assert await store.list("") == []
