"""Lakes for tests."""

import hashlib
from typing import Any

import msgspec
from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier, Kind
from sandur.catalog.records import NameRecord, Pointer, Request
from sandur.clock import Clock
from sandur.operations.janitors import leftovers
from sandur.operations.lake import Lake
from sandur.settings import Settings
from sandur.storage.contract import ABSENT, ObjectStore, list_all
from sandur.storage.layout import Layout
from sandur.storage.locations import Locations
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.patient_background import PatientBackground

OWN_ADDRESS = "memory://store"


def make_lake(store: ObjectStore | None = None, clock: Clock | None = None, **settings: Any) -> Lake:
    """A lake with empty caches, as after a restart. Beside settings, `own` is the address that its store stands for."""
    own = settings.pop("own", OWN_ADDRESS)
    acting = clock or FixedClock()
    held = store or MemoryStore(clock=acting)
    configured = msgspec.convert({"store": "memory:", **settings}, Settings)

    def no_other_store(url: str) -> ObjectStore:
        return held if url in configured.allowed_locations else MemoryStore()

    return Lake(
        store=held,
        layout=Layout(),
        clock=acting,
        settings=configured,
        locations=Locations(own, held, others=configured.allowed_locations, open_store=no_other_store),
        background=PatientBackground(),
    )


def make_request(text: str, key: str | None = None) -> Request:
    """A request that its text identifies."""
    return Request(hash=hashlib.sha256(ascii(text).encode()).hexdigest(), key=key)


async def put_name(lake: Lake, identifier: Identifier, *, kind: Kind = "table") -> NameRecord:
    """A name with a pointer but without files: enough for code that only reads names."""
    uuid = lake.clock.new_uuid()
    await lake.pointer(uuid).create(Pointer(uuid=uuid, table_uuid=uuid, state="live", kind=kind))
    cell = lake.name(identifier)
    before = await cell.read()
    name = NameRecord(state="active", uuid=uuid, kind=kind, updated_ms=lake.clock.now_ms())
    return (await cell.swap(name, expected=before.version if before else ABSENT)).value


async def remove_name(lake: Lake, identifier: Identifier) -> None:
    """Drop a name that `put_name` made."""
    cell = lake.name(identifier)
    before = await cell.read()
    if before:
        await cell.swap(replace(before.value, state="dropped"), expected=before.version)


async def visit_marks(lake: Lake) -> None:
    """Do the janitor's work for every mark of any age; young marks stay, because their operations remove them."""
    for listed in await list_all(lake.store, lake.layout.marks_folder()):
        await leftovers.visit_mark(lake, listed)
