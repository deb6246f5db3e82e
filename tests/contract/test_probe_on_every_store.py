"""The boot probe passes on every store that passes the conformance suite."""

from sandur.clock import SystemClock
from sandur.storage.object_store import ObjectStore
from sandur.storage.probe import prove


async def test_every_store_is_proven_fit_and_left_clean(store: ObjectStore) -> None:
    assert await prove(store, SystemClock())

    assert await store.list("") == []
