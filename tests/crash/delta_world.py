"""A store with a Delta table, and the invariants of Delta tables after any crash."""

from dataclasses import dataclass, field

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import DeltaTable
from sandur.operations.delta.publishing import published_location
from sandur.operations.delta.tables import stage_table
from sandur.operations.lake import Lake
from sandur.operations.tables.names import resolve_name
from sandur.storage.contract import ObjectStore
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.delta_requests import D, add, create_managed, publish
from tests.operations.event_chains import check_events
from tests.operations.lakes import make_lake
from tests.operations.requests import copy_store, identifier_of, set_up_catalog

NEW, TARGET = identifier_of("new"), identifier_of("target")
NAMES = (D, NEW, TARGET)


@dataclass
class DeltaWorld:
    """The table `d` with three commits, of which the first is published, and a stage."""

    store: MemoryStore
    clock: FixedClock
    uuids: dict[str, str] = field(default_factory=dict)
    staged_at: str = ""

    def server(self, store: ObjectStore | None = None) -> Lake:
        """A server that has just started, with empty caches."""
        return make_lake(store or self.store, self.clock)

    def copy(self) -> "DeltaWorld":
        return DeltaWorld(*copy_store(self.store, self.clock), self.uuids, self.staged_at)

    async def table(self, identifier: Identifier = D) -> DeltaTable | None:
        found = await resolve_name(self.server(), identifier)
        return found.pointer.value if found and isinstance(found.pointer.value, DeltaTable) else None


async def make_delta_world(seed: int | None = None) -> DeltaWorld:
    clock = FixedClock()
    world = DeltaWorld(MemoryStore(seed=seed, clock=clock), clock)
    server = world.server()
    await set_up_catalog(server)
    table = await create_managed(server)
    world.uuids["d"] = table.uuid
    for version in (1, 2, 3):
        await add(server, table, version)
    await publish(server, table, 1)
    stage = await stage_table(server, NEW)
    world.uuids["new"], world.staged_at = stage.uuid, stage.location
    await server.background.drain()
    clock.advance(1_000)
    return world


async def check_delta_invariants(world: DeltaWorld) -> None:
    """No version of any table is lost or repeated, and no table has two names."""
    server = world.server()
    found_uuids: list[str] = []
    for identifier in NAMES:
        table = await world.table(identifier)
        if table is None:
            continue
        found_uuids.append(table.uuid)
        tracked = [row.version for row in table.commits]
        assert tracked == list(range(table.last_version - len(tracked) + 1, table.last_version + 1))
        assert not table.last_version or tracked, "the newest commit is forgotten"
        for version in range(1, tracked[0] if tracked else 1):
            is_published = await server.locations.exists(published_location(table, version))
            assert is_published, f"version {version} is neither tracked nor published"
        assert table.published <= table.last_version
    assert len(found_uuids) == len(set(found_uuids)), "a table has two names"
    await check_events(server)
