"""A server dies at any storage call of a RESTORE: it happens once or not at all, and a retry says so."""

import asyncio
import contextlib
import json
from typing import Literal, NamedTuple, get_args

import pytest

from sandur.delta.create_plan import TableDefinition
from sandur.delta.requests import DeltaChange
from sandur.errors import Conflict
from sandur.operations.delta.commit import update_table
from sandur.operations.delta.create import create_external_at, create_managed
from sandur.operations.delta.publishing import published_location
from sandur.operations.delta.restore import restore_table
from sandur.operations.delta.tables import load_delta_table
from sandur.operations.delta.versions import newest_version, read_logs
from sandur.operations.lake import Lake
from sandur.storage.contract import ObjectStore
from sandur.storage.memory import MemoryStore
from tests.crash.aftermaths import OK, answer
from tests.crash.straggling_store import StragglingStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.operations.delta_requests import D, commit_file, write_staged
from tests.operations.lakes import make_lake
from tests.operations.requests import copy_store, request, set_up_catalog

Death = Literal["before", "after", "alone"]
RETRIES_MAX = 5
NEWEST = 3


class World(NamedTuple):
    store: MemoryStore
    clock: FixedClock

    def server(self, store: ObjectStore | None = None) -> Lake:
        return make_lake(store or self.store, self.clock)

    def copy(self) -> "World":
        return World(*copy_store(self.store, self.clock))


def actions(version: int) -> bytes:
    """Version 1 adds `one`, version 2 adds `two`, and version 3 removes `one`."""
    name = "one" if version in {1, 3} else "two"
    known = {"path": f"{name}.parquet", "partitionValues": {}, "size": 1, "dataChange": True}
    action = {"remove": known} if version == NEWEST else {"add": {**known, "modificationTime": 1}}
    info = {"timestamp": version, "inCommitTimestamp": version, "operation": "WRITE"}
    return b"\n".join(json.dumps(one).encode() for one in ({"commitInfo": info}, action))


@pytest.fixture(scope="module", params=["managed", "external"])
def origin(request: pytest.FixtureRequest) -> World:
    return asyncio.run(make_world(is_managed=request.param == "managed"))


async def make_world(*, is_managed: bool) -> World:
    clock = FixedClock()
    world = World(MemoryStore(clock=clock), clock)
    server = world.server()
    await set_up_catalog(server)
    definition = TableDefinition([{"name": "id", "type": "long", "nullable": True, "metadata": {}}])
    if is_managed:
        await create_managed(server, D, definition, request=request("create"))
    else:
        at = f"{server.locations.own}/tables/default/default/main/external"
        await create_external_at(server, D, at, definition, request=request("create"))
    table = await load_delta_table(server, D)
    for name in ("one", "two"):
        await server.locations.create(f"{table.location}/{name}.parquet", b"rows")
    for version in range(1, NEWEST + 1):
        if not is_managed:
            await server.locations.create(published_location(table, version), actions(version))
            continue
        sent = commit_file(version)
        await write_staged(server, table, sent.file_name, actions(version))
        await update_table(server, D, DeltaChange(asserted_uuid=table.uuid, commit=sent), request(f"{version}"))
    await server.background.drain()
    clock.advance(1_000)
    return world


async def send(server: Lake) -> object:
    return await restore_table(server, D, 1, expected=NEWEST, request=request("restore", key="a key"))


async def live_files(world: World) -> tuple[int, set[str]]:
    """The newest version, and the files that a reader of the whole log sees."""
    server = world.server()
    table = await load_delta_table(server, D)
    newest = await newest_version(server, table)
    logs = await read_logs(server, table, list(range(newest + 1)))
    files: set[str] = set()
    for version in range(newest + 1):
        files = (files - {one.path for one in logs[version].removed}) | {one.path for one in logs[version].added}
    return newest, files


async def calls_of(origin: World) -> int:
    world = origin.copy()
    spy = SpyStore(world.store)
    server = world.server(spy)
    await send(server)
    await server.background.drain()
    return len(spy.calls)


@pytest.mark.parametrize("death", get_args(Death))
async def test_a_killed_restore_happens_once_or_not_at_all(origin: World, death: Death) -> None:
    for dies_at in range(1, await calls_of(origin) + 1):
        world = origin.copy()
        store: ObjectStore = DyingStore(world.store, dies_at=dies_at, after=death == "after")
        if death == "alone":
            store = StragglingStore(world.store, loses_at=dies_at)
        server = world.server(store)
        is_answered = False
        with contextlib.suppress(Died):
            await send(server)
            is_answered = True
        await server.background.drain()
        for _ in range(10):  # Calls that ran concurrently with the dead one end as well.
            await asyncio.sleep(0)
        found = await live_files(world)
        assert found in {True: [(4, {"one.parquet"})]}.get(is_answered, [(3, {"two.parquet"}), (4, {"one.parquet"})]), (
            f"at call {dies_at}"
        )

        said = ""
        for _ in range(RETRIES_MAX):
            said = await answer(send(world.server()))
            if said == OK:
                break
            world.clock.advance(3_600_000)

        assert (said, await live_files(world)) == (OK, (4, {"one.parquet"})), f"at call {dies_at}"


async def test_of_two_restores_at_once_one_wins(origin: World) -> None:
    world = origin.copy()

    async def other(number: int) -> object:
        sent = request(f"restore {number}", key=f"key {number}")
        return await restore_table(world.server(), D, 1, expected=NEWEST, request=sent)

    found = await asyncio.gather(*(other(number) for number in range(2)), return_exceptions=True)

    assert sorted(isinstance(one, Conflict) for one in found) == [False, True]
    assert await live_files(world) == (4, {"one.parquet"})
