"""Workspaces for tests."""

from typing import Any

import msgspec

from sandur.clock import Clock
from sandur.operations.workspace import Workspace
from sandur.settings import Settings
from sandur.storage.layout import Layout
from sandur.storage.locations import Locations
from sandur.storage.memory import MemoryStore
from sandur.storage.object_store import ObjectStore
from tests.fakes.fixed_clock import FixedClock

OWN_ADDRESS = "memory://store"


def make_workspace(store: ObjectStore | None = None, clock: Clock | None = None, **settings: Any) -> Workspace:
    """A workspace of its own: nothing is remembered from another one over the same store, as after a restart."""
    acting = clock or FixedClock()
    held = store or MemoryStore(clock=acting)
    told = msgspec.convert({"store": "memory:", **settings}, Settings)

    def no_other_store(url: str) -> ObjectStore:
        return held if url in told.allowed_locations else MemoryStore()

    return Workspace(
        store=held,
        layout=Layout(),
        clock=acting,
        settings=told,
        locations=Locations(OWN_ADDRESS, held, others=told.allowed_locations, open_store=no_other_store),
    )
