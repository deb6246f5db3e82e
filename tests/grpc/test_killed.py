"""A server dies at any storage call of a change that came by gRPC: all of it happened or nothing, and a retry tells."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import pytest
from google.protobuf.message import Message

from sandur.storage.contract import ObjectStore
from sandur.storage.memory import MemoryStore
from sandur.v1 import catalogs_pb2, delta_pb2, tables_pb2
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.grpc.direct import Aborted, Direct, opened
from tests.grpc.stubs import body, namespace_name, table_name
from tests.operations.requests import copy_store
from tests.server.requests import add_snapshot, create_table, create_view, set_properties

KEY: Final = ("idempotency-key", "01890a5d-ac96-774b-bcce-b302099a8057")
CALLS_MAX: Final = 80
RETRIES_MAX: Final = 5
_CLAIM_MS: Final = 60_000
_PERIOD_SECONDS: Final = 4.0

Applied = Callable[[Direct], Awaitable[bool]]


class Change(NamedTuple):
    """A call, and whether its effect can be seen."""

    name: str
    method: str
    message: Callable[[dict[str, Any]], Message]
    applied: Applied


def _found(method: str, message: Message) -> Applied:
    async def applied(direct: Direct) -> bool:
        try:
            await direct.call(method, message)
        except Aborted as aborted:
            assert aborted.problem.code == "NOT_FOUND"  # noqa: PT017 - any other error is a defect
            return False
        return True

    return applied


def _table_exists(name: str) -> Applied:
    return _found("Tables.Get", tables_pb2.GetTableRequest(table=table_name(name)))


def _has_property(table: str, key: str) -> Applied:
    async def applied(direct: Direct) -> bool:
        loaded = await direct.call("Tables.Get", tables_pb2.GetTableRequest(table=table_name(table)))
        return key in json.loads(loaded.metadata)["properties"]

    return applied


async def _has_snapshot(direct: Direct) -> bool:
    loaded = await direct.call("Tables.Get", tables_pb2.GetTableRequest(table=table_name("t")))
    return len(json.loads(loaded.metadata).get("snapshots", [])) == 1


def _gone(applied: Applied) -> Applied:
    async def gone(direct: Direct) -> bool:
        return not await applied(direct)

    return gone


def _changes(*names: str) -> Any:
    changes = [{"identifier": {"namespace": ["ns"], "name": name}, **set_properties(x="y")} for name in names]
    return {"table-changes": changes}


async def _both_have_property(direct: Direct) -> bool:
    found = [await _has_property(name, "x")(direct) for name in ("t", "u")]
    assert found[0] == found[1], "half of a transaction is visible"
    return found[0]


COMMIT: Final = Change(
    "commit a snapshot",
    "Tables.Commit",
    lambda made: tables_pb2.CommitTableRequest(table=table_name("t"), body=body(add_snapshot(made))),
    _has_snapshot,
)
OTHERS: Final = (
    Change(
        "create a namespace",
        "Namespaces.Create",
        lambda _made: catalogs_pb2.CreateNamespaceRequest(name=namespace_name("new")),
        _found("Namespaces.Get", catalogs_pb2.GetNamespaceRequest(name=namespace_name("new"))),
    ),
    Change(
        "create a table",
        "Tables.Create",
        lambda _made: tables_pb2.CreateTableRequest(namespace=namespace_name("ns"), body=body(create_table("new"))),
        _table_exists("new"),
    ),
    Change(
        "rename a table",
        "Tables.Rename",
        lambda _made: tables_pb2.RenameTableRequest(source=table_name("t"), destination=table_name("new")),
        _table_exists("new"),
    ),
    Change(
        "drop a table",
        "Tables.Drop",
        lambda _made: tables_pb2.DropTableRequest(table=table_name("u")),
        _gone(_table_exists("u")),
    ),
    Change(
        "commit a transaction",
        "Tables.CommitTransaction",
        lambda _made: tables_pb2.CommitTransactionRequest(body=body(_changes("t", "u"))),
        _both_have_property,
    ),
    Change(
        "create a view",
        "Views.Create",
        lambda _made: tables_pb2.CreateViewRequest(namespace=namespace_name("ns"), body=body(create_view("new"))),
        _found("Views.Get", tables_pb2.GetViewRequest(view=table_name("new"))),
    ),
    Change(
        "stage a Delta table",
        "DeltaTables.Stage",
        lambda _made: delta_pb2.StageDeltaTableRequest(table=table_name("new")),
        # A stage is not visible under its name.
        _gone(_found("DeltaTables.Get", delta_pb2.GetDeltaTableRequest(table=table_name("new")))),
    ),
)


class _Clock(FixedClock):
    """Work that a server repeats after seconds does not happen in these tests."""

    async def sleep(self, seconds: float) -> None:
        if seconds >= _PERIOD_SECONDS:
            await asyncio.Event().wait()
        await super().sleep(seconds)


class World(NamedTuple):
    """A store with two tables, its clock, and the metadata of the first table."""

    store: MemoryStore
    clock: FixedClock
    made: dict[str, Any]

    def copy(self) -> "World":
        return World(*copy_store(self.store, self.clock), self.made)

    async def server(self, store: ObjectStore | None = None) -> Direct:
        return await opened(
            store or self.store, clock=self.clock, janitors=False, deliveries=False, claim_timeout_ms=_CLAIM_MS
        )


async def make_world() -> World:
    clock = _Clock()
    world = World(MemoryStore(clock=clock), clock, {})
    server = await world.server()
    await server.call("Namespaces.Create", catalogs_pb2.CreateNamespaceRequest(name=namespace_name("ns")))
    for name in ("t", "u"):
        sent = tables_pb2.CreateTableRequest(namespace=namespace_name("ns"), body=body(create_table(name)))
        made = await server.call("Tables.Create", sent)
        if name == "t":
            world.made.update(json.loads(made.metadata))
    await _finish(server)
    kept = world.copy()
    await server.close()
    return kept


async def _finish(server: Direct) -> None:
    """Wait for the work after an answer."""
    await server.catalog.lakes.lake("default", "default").background.drain()


class _Switched(DyingStore):
    """Counts calls only from the moment that the server has started."""

    is_on = False

    async def _around(self, call: Any, perform: Any) -> Any:
        return await super()._around(call, perform) if self.is_on else await perform()


async def _count(change: Change, origin: World) -> int:
    world = origin.copy()
    spy = SpyStore(world.store)
    server = await world.server(spy)
    spy.reset()
    await server.call(change.method, change.message(world.made), KEY)
    await _finish(server)
    count = len(spy.calls)
    await server.close()
    assert 0 < count < CALLS_MAX
    return count


async def _check(change: Change, origin: World, *, dies_at: int, after: bool) -> None:
    world = origin.copy()
    store = _Switched(world.store, dies_at=dies_at, after=after)
    dying = await world.server(store)
    store.is_on, is_answered = True, False
    try:
        await dying.call(change.method, change.message(world.made), KEY)
        is_answered = True
    except Died:
        pass
    await _finish(dying)
    store.is_on = False

    world.clock.advance(2 * _CLAIM_MS)  # The claim of the dead server is old by now.
    server = await world.server()
    before = await change.applied(server)
    assert before or not is_answered, "acknowledged and not applied"
    for _ in range(RETRIES_MAX):
        try:
            await server.call(change.method, change.message(world.made), KEY)
            break
        except Aborted as aborted:
            assert aborted.problem.code in {"RESOURCE_EXHAUSTED", "UNAVAILABLE"}, aborted  # noqa: PT017 - a retry
            world.clock.advance(_CLAIM_MS)
    assert await change.applied(server), "the retry of a killed call has no effect"
    await _finish(server)
    await server.close()
    await dying.close()


async def _check_all(change: Change) -> None:
    origin = await make_world()
    for dies_at in range(1, await _count(change, origin) + 1):
        for after in (False, True):
            await _check(change, origin, dies_at=dies_at, after=after)


async def test_a_killed_commit_is_all_or_nothing_and_its_retry_succeeds() -> None:
    await _check_all(COMMIT)


@pytest.mark.crash
@pytest.mark.parametrize("change", OTHERS, ids=lambda change: change.name)
async def test_a_killed_change_is_all_or_nothing_and_its_retry_succeeds(change: Change) -> None:
    await _check_all(change)
