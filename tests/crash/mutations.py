"""Every mutation of names, tables and views as a repeatable request, with a check of its effect."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from sandur.catalog.events import Source
from sandur.catalog.index import names_scope
from sandur.catalog.records import Request
from sandur.operations.idempotency import key_hash_of
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.register import register_table
from sandur.operations.tables.rename import rename
from sandur.operations.tables.undrop import undrop
from sandur.operations.tables.views import commit_view, create_view
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.storage.contract import ObjectStore
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.event_chains import all_events, reconciled
from tests.operations.invariants import all_pointers, check_invariants, times_applied, visible_names
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    NAMESPACE,
    append,
    commit,
    copy_store,
    create,
    create_commit,
    identifier_of,
    keyed_request,
    replace_view,
    request,
    set_property,
    set_up_catalog,
    table,
    view,
)

SENDER: Final = Source(kind="rest", principal="sender")
STAGED_UUID: Final = "5b6b2b4e-0000-4000-8000-000000000001"
OTHER_UUID: Final = "5b6b2b4e-0000-4000-8000-000000000002"
SHORT_LOG: Final = {"write.metadata.previous-versions-max": "1"}
TABLE, NEIGHBOUR, VIEW, NEW, TARGET = (identifier_of(name) for name in ("t", "u", "v", "new", "target"))
DROPPED: Final = identifier_of("r")


@dataclass
class World:
    """A store, a clock, and the tables in the store."""

    store: MemoryStore
    clock: FixedClock
    uuids: dict[str, str] = field(default_factory=dict)
    registrable: str = ""

    def server(self, store: ObjectStore | None = None) -> Lake:
        """A server that has just started, with empty caches."""
        return make_lake(store or self.store, self.clock)

    def copy(self) -> "World":
        return World(*copy_store(self.store, self.clock), self.uuids, self.registrable)


async def make_world() -> World:
    """Two tables with one commit each and the shortest log, a view, and the file of a dropped table."""
    clock = FixedClock()
    world = World(MemoryStore(clock=clock), clock)
    server = world.server()
    await set_up_catalog(server)
    for name in ("t", "u", "r"):
        made = await create(server, name, properties=SHORT_LOG)
        world.uuids[name] = made.table_uuid
        clock.advance(1)
        after = await commit_table(server, identifier_of(name), append(1), request(f"first commit of {name}"))
        world.registrable = after.metadata_location or ""
    world.uuids["v"] = (await create_view(server, NAMESPACE, view("v"), request("create v"))).view_uuid
    await drop_name(server, identifier_of("r"), kind="table", request=request("drop r"))
    await server.background.drain()
    clock.advance(1_000)
    return world


Send = Callable[[World, Lake, Request], Awaitable[object]]
Times = Callable[[World, Request], Awaitable[int]]


@dataclass(frozen=True)
class Mutation:
    """A request. `is_recognized`: a retry after it was applied must get the same answer.

    `events` is the number of events that it leaves each time it is applied; a commit leaves none.
    """

    name: str
    send: Send
    times: Times
    request: Request
    is_recognized: bool
    events: int

    async def apply(self, world: World, server: Lake) -> object:
        return await self.send(world, server, self.request)

    async def count_events(self, world: World) -> int:
        """How often the events of the request say that it was applied, once everything is repaired."""
        lake = world.server()
        events = await all_events(await reconciled(lake, world.store, world.clock))
        count = sum(event.source == SENDER for event in events)
        return count // self.events if self.events and count % self.events == 0 else count

    async def applied(self, world: World) -> int:
        return await self.times(world, self.request)


async def _times_committed(world: World, sent: Request) -> int:
    return times_applied(await check_invariants(world.server()), key_hash_of(sent) or sent.hash)


async def _times_committed_together(world: World, sent: Request) -> int:
    """A transaction of two tables changes both or none."""
    times = await _times_committed(world, sent)
    assert times % 2 == 0, "half of a transaction"
    return times // 2


async def _times_created(world: World, sent: Request) -> int:
    server = world.server()
    whole = await check_invariants(server)
    made_by = key_hash_of(sent) or sent.hash
    return sum(chain.pointer.made_by == made_by for chain in whole.values())


async def _times_dropped(world: World, sent: Request) -> int:
    """By its key; a request without a key is recognized only by the missing table."""
    server = world.server()
    await check_invariants(server)
    if sent.key:
        name = await server.name(TABLE).read()
        by_name = (
            {name.value.uuid} if name and (name.value.state, name.value.by) == ("dropped", key_hash_of(sent)) else set()
        )
        pointers = await all_pointers(server)
        return len(by_name | {uuid for uuid, pointer in pointers.items() if pointer.value.by == key_hash_of(sent)})
    return int(world.uuids["t"] not in (await visible_names(server)).values())


async def _times_renamed(world: World, sent: Request) -> int:
    del sent
    server = world.server()
    await check_invariants(server)
    return int((await visible_names(server)).get(TARGET) == world.uuids["t"])


async def _times_undropped(world: World, sent: Request) -> int:
    del sent
    server = world.server()
    await check_invariants(server)
    return int(world.uuids["r"] in (await visible_names(server)).values())


async def _times_staged(world: World, sent: Request) -> int:
    del sent
    server = world.server()
    await check_invariants(server)
    return len(await server.store.list(server.layout.stages_folder()))


async def _times_registered_over(world: World, sent: Request) -> int:
    del sent
    whole = await check_invariants(world.server())
    # The file was committed once before, to the table that it was taken from.
    return sum(chain.locations.count(world.registrable) for chain in whole.values()) - 1


async def _create(world: World, server: Lake, sent: Request) -> object:
    del world
    return await create_table(server, NAMESPACE, table("new", properties=SHORT_LOG), sent)


async def _create_ahead(world: World, server: Lake, sent: Request) -> object:
    """By a server that knows catalog, namespace and list, which writes before it has read the name (N2 ahead)."""
    await server.catalog("main").read()
    await server.namespace(NAMESPACE).read()
    await server.index(names_scope(NAMESPACE)).read()
    return await _create(world, server, sent)


async def _stage(world: World, server: Lake, sent: Request) -> object:
    del world
    return await create_table(server, NAMESPACE, table("new", stage_create=True), sent)


async def _create_by_commit(world: World, server: Lake, sent: Request) -> object:
    del world
    change = create_commit(STAGED_UUID, set_property("write.metadata.previous-versions-max", "1"))
    return await commit_table(server, NEW, change, sent)


async def _append(world: World, server: Lake, sent: Request) -> object:
    return await commit_table(server, TABLE, append(2, 1, uuid=world.uuids["t"]), sent)


async def _set_property(world: World, server: Lake, sent: Request) -> object:
    """Requires nothing: only the key distinguishes a retry from another request."""
    del world
    return await commit_table(server, TABLE, commit(set_property("ours", "1")), sent)


async def _drop(world: World, server: Lake, sent: Request) -> None:
    del world
    await drop_name(server, TABLE, kind="table", purge=True, request=sent)


async def _rename(world: World, server: Lake, sent: Request) -> None:
    del world
    await rename(server, TABLE, TARGET, kind="table", request=sent)


async def _undrop(world: World, server: Lake, sent: Request) -> object:
    return await undrop(server, DROPPED, kind="table", uuid=world.uuids["r"], request=sent)


async def _register(world: World, server: Lake, sent: Request) -> object:
    return await register_table(server, NAMESPACE, "new", world.registrable, request=sent)


async def _register_over(world: World, server: Lake, sent: Request) -> object:
    return await register_table(server, NAMESPACE, "t", world.registrable, overwrite=True, request=sent)


async def _transact(world: World, server: Lake, sent: Request) -> None:
    commits = [(one, append(2, 1, uuid=world.uuids[one.name])) for one in (TABLE, NEIGHBOUR)]
    await commit_transaction(server, "main", commits, sent)


async def _transact_creating(world: World, server: Lake, sent: Request) -> None:
    commits = [(TABLE, append(2, 1, uuid=world.uuids["t"])), (NEW, create_commit(OTHER_UUID))]
    await commit_transaction(server, "main", commits, sent)


async def _create_view(world: World, server: Lake, sent: Request) -> object:
    del world
    return await create_view(server, NAMESPACE, view("new"), sent)


async def _commit_view(world: World, server: Lake, sent: Request) -> object:
    return await commit_view(server, VIEW, replace_view("select 2", uuid=world.uuids["v"]), sent)


def _both(name: str, send: Send, times: Times, *, is_natural: bool, events: int = 0) -> list[Mutation]:
    """The mutation with and without a key; `is_natural`: it is recognized without a key too."""
    keyed, plain = keyed_request(name)._replace(source=SENDER), request(name)._replace(source=SENDER)
    return [
        Mutation(f"{name}, keyed", send, times, keyed, is_recognized=True, events=events),
        Mutation(name, send, times, plain, is_recognized=is_natural, events=events),
    ]


MUTATIONS: Final = (
    *_both("create", _create, _times_created, is_natural=False, events=1),
    _both("create ahead", _create_ahead, _times_created, is_natural=False, events=1)[1],
    *_both("stage", _stage, _times_staged, is_natural=False),
    *_both("create by commit", _create_by_commit, _times_created, is_natural=True, events=1),
    *_both("append", _append, _times_committed, is_natural=True),
    _both("set property", _set_property, _times_committed, is_natural=False)[0],
    *_both("drop", _drop, _times_dropped, is_natural=False, events=1),
    *_both("rename", _rename, _times_renamed, is_natural=False, events=1),
    *_both("undrop", _undrop, _times_undropped, is_natural=False, events=1),
    *_both("register", _register, _times_created, is_natural=False, events=1),
    _both("register over", _register_over, _times_registered_over, is_natural=False)[0],
    *_both("transaction", _transact, _times_committed_together, is_natural=True),
    *_both("transaction that creates", _transact_creating, _times_committed_together, is_natural=True, events=1),
    *_both("create view", _create_view, _times_created, is_natural=False, events=1),
    _both("commit view", _commit_view, _times_committed, is_natural=False)[0],
)
