"""Credentials and changes of their table at the same time: a credential is for the places of the table it came with."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, NamedTuple

import pytest

from sandur.catalog.identifiers import Identifier
from sandur.errors import NotFound
from sandur.operations.credentials.table_access import (
    EVERY_ACCESS,
    Delegated,
    access_to_created,
    load_access,
    load_with_access,
)
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_by_commit, create_table
from sandur.operations.tables.documents import LoadedTable
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.fakes.sts import FakeSts, fake_sts
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    NAMESPACE,
    append,
    commit,
    content,
    create,
    create_commit,
    identifier_of,
    keyed_request,
    load,
    request,
    set_location,
    set_up_catalog,
    table,
)

T: Final = identifier_of("t")
U: Final = identifier_of("u")
OWN: Final = "s3://bucket/lake"


class World(NamedTuple):
    lake: Lake
    sts: FakeSts
    spy: SpyStore

    @property
    def clock(self) -> FixedClock:
        assert isinstance(self.sts.clock, FixedClock)
        return self.sts.clock

    def another_server(self) -> Lake:
        """A server on the same store, with caches of its own."""
        return lake_on(self.spy, self.sts)

    async def load(self, identifier: Identifier = T) -> tuple[LoadedTable, Delegated]:
        loaded, delegated = await load_with_access(self.lake, identifier, EVERY_ACCESS)
        assert isinstance(loaded, LoadedTable)
        return loaded, delegated


def lake_on(store: SpyStore, sts: FakeSts) -> Lake:
    s3 = {"access": "vend", "role_arn": "arn:aws:iam::role/R", "endpoint": sts.url}
    keys = {"access_key_id": "own", "secret_access_key": "own-secret"}
    return make_lake(store, sts.clock, own=OWN, s3={**s3, **keys})


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with fake_sts(FixedClock()) as sts:
        spy = SpyStore(MemoryStore(clock=sts.clock))
        lake = lake_on(spy, sts)
        await set_up_catalog(lake)
        await create(lake, "t")
        yield World(lake, sts, spy)


def locations_of(delegated: Delegated) -> tuple[str, ...]:
    assert delegated.access
    return delegated.access.scope.locations


def policy_places(form: dict[str, str]) -> list[str]:
    resources = json.loads(form["Policy"])["Statement"][0]["Resource"]
    return [f"s3://{resource.removeprefix('arn:aws:s3:::').removesuffix('/*')}" for resource in resources]


async def drop_t(lake: Lake) -> None:
    await drop_name(lake, T, kind="table", purge=False, request=request("drop"))
    await lake.background.drain()


async def recreate_t(lake: Lake) -> None:
    await drop_t(lake)
    await create_table(lake, NAMESPACE, table("t"), request("create again"))
    await lake.background.drain()


async def rename_t(lake: Lake) -> None:
    await rename(lake, T, U, kind="table", request=request("rename"))
    await lake.background.drain()


async def move_t(lake: Lake) -> None:
    await commit_table(lake, T, commit(set_location(f"{lake.area}/main/moved")), request("move"))
    await lake.background.drain()


CHANGES: Final[dict[str, Callable[[Lake], Coroutine[Any, Any, None]]]] = {
    "drop": drop_t,
    "recreate": recreate_t,
    "rename": rename_t,
    "move": move_t,
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_credential_that_is_issued_during_a_change_is_for_the_table_it_came_with(
    world: World, change: str
) -> None:
    before = content(await load(world.lake, T))["location"]
    world.sts.may_answer.clear()
    loading = asyncio.create_task(world.load())
    asked = asyncio.create_task(world.sts.is_asked.wait())
    await asyncio.wait([loading, asked], return_when=asyncio.FIRST_COMPLETED)
    assert asked.done()

    await CHANGES[change](world.another_server())
    world.sts.may_answer.set()
    loaded, delegated = await loading

    assert content(loaded)["location"] == before
    assert locations_of(delegated) == (before,)
    assert policy_places(world.sts.forms[0]) == [before]


async def test_a_table_that_is_created_again_shares_no_credential_with_the_old_one(world: World) -> None:
    _, old = await world.load()
    await recreate_t(world.another_server())

    loaded, new = await world.load()

    assert locations_of(new) == (content(loaded)["location"],)
    assert not set(locations_of(new)) & set(locations_of(old))
    assert len(world.sts.forms) == 2


async def test_a_dropped_table_gets_no_credentials(world: World) -> None:
    await world.load()
    await drop_t(world.another_server())

    with pytest.raises(NotFound):
        await load_access(world.lake, T)
    assert len(world.sts.forms) == 1


async def test_a_renamed_table_keeps_its_places_and_its_old_name_gets_nothing(world: World) -> None:
    _, before = await world.load()
    await rename_t(world.another_server())

    _, after = await world.load(U)

    assert locations_of(after) == locations_of(before)
    with pytest.raises(NotFound):
        await load_access(world.lake, T)


async def test_the_old_name_of_a_renamed_table_gives_access_to_its_new_table_only(world: World) -> None:
    _, renamed = await world.load()
    await rename_t(world.another_server())
    await create_table(world.lake, NAMESPACE, table("t"), request("create again"))

    _, new = await world.load()

    assert not set(locations_of(new)) & set(locations_of(renamed))


async def test_a_relocated_table_has_access_to_its_old_places_too(world: World) -> None:
    home = content(await load(world.lake, T))["location"]
    uuid = content(await load(world.lake, T))["table-uuid"]
    await commit_table(world.lake, T, append(1, uuid=uuid), request("append"))
    for place in ("one", "two"):
        moved = commit(set_location(f"{world.lake.area}/main/{place}"))
        await commit_table(world.another_server(), T, moved, request(place))

    _, delegated = await world.load()

    area = f"{world.lake.area}/main"
    assert sorted(locations_of(delegated)) == sorted([home, f"{area}/one", f"{area}/two"])


async def test_a_credential_never_outlives_what_its_lifetime(world: World) -> None:
    _, delegated = await world.load()
    issued_ms = world.clock.now_ms()
    await drop_t(world.another_server())
    assert delegated.access
    assert delegated.access.credential

    lifetime_ms = delegated.access.profile.lifetime_seconds * 1_000
    assert delegated.access.credential.expires_ms <= issued_ms + lifetime_ms


async def test_a_stage_gives_access_to_its_places_until_it_is_gone(world: World) -> None:
    body = table("staged", stage_create=True)
    staged = await create_table(world.lake, NAMESPACE, body, keyed_request("stage"))
    identifier = identifier_of("staged")
    given = await access_to_created(world.lake, identifier, staged, EVERY_ACCESS)
    assert locations_of(given) == (content(staged)["location"],)

    world.clock.advance(73 * 3_600_000)
    expired = await access_to_created(world.lake, identifier, staged, EVERY_ACCESS)

    assert expired.access is None


async def test_the_stage_of_another_table_under_the_name_gives_nothing(world: World) -> None:
    staged = await create_table(world.lake, NAMESPACE, table("v", stage_create=True), request("stage"))
    other = create_commit("0e6e3f5c-0000-4000-8000-000000000001")
    await create_by_commit(world.lake, identifier_of("v"), other, request("other"))

    given = await access_to_created(world.lake, identifier_of("v"), staged, EVERY_ACCESS)

    assert given.access is None


async def test_access_from_the_cache_costs_no_storage_round(world: World) -> None:
    await world.load()
    await load(world.lake, T)

    world.spy.reset()
    await load(world.lake, T)
    plain = (world.spy.rounds, list(world.spy.calls))
    world.spy.reset()
    await world.load()

    assert plain[0] == 1
    assert (world.spy.rounds, world.spy.calls) == plain
    assert len(world.sts.forms) == 1
