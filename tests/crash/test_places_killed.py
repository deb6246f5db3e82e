"""A server dies at any storage call of a request that names a place: a retry and a stranger get the right answer.

Two requests that name overlapping places, one of them interrupted at any call of the other, never both succeed.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, Literal, NamedTuple, get_args

import pytest

from sandur.catalog.records import Request
from sandur.errors import NotFound
from sandur.operations.containers.catalogs import create_catalog, load_catalog
from sandur.operations.containers.namespaces import create_namespace
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.register import register_table
from sandur.operations.tables.views import create_view
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.storage.memory import MemoryStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.lossy_store import Fate, LossyStore
from tests.fakes.spy_store import SpyStore
from tests.operations.claimed_places import (
    InterruptedStore,
    at,
    check_places,
    claimed,
    external_delta,
    living_places,
    make_volume,
    outcome,
)
from tests.operations.janitor_runs import HOUR_MS, LONG_MS, Cluster
from tests.operations.requests import (
    NAMESPACE,
    commit,
    copy_store,
    create,
    create_commit,
    identifier_of,
    keyed_request,
    request,
    set_location,
    set_property,
    table,
    view,
)
from tests.operations.table_files import create_table_with_files, current_location
from tests.operations.test_purge import DELAY_MS, drop

Death = Literal["before", "after"]
Send = Callable[[Lake, Request], Awaitable[object]]

PLACE: Final = "lake/place"
CALLS_MAX: Final = 150
UUID: Final = "5b6b2b4e-0000-4000-8000-00000000000a"
HOUSE: Final = "s3://lake/house"


class World(NamedTuple):
    """A store with a table `t`, a dropped table `gone` at a place of its own, and servers on it."""

    store: MemoryStore
    clock: FixedClock
    head: str

    def copy(self) -> "World":
        return World(*copy_store(self.store, self.clock), self.head)

    def cluster(self) -> Cluster:
        cluster = Cluster(allowed_locations=["s3://lake"])
        cluster.store, cluster.clock = self.store, self.clock
        return cluster


async def make_world() -> World:
    cluster = await Cluster.with_catalog(allowed_locations=["s3://lake"])
    server = cluster.server()
    await create(server, "t")
    gone = await create_table_with_files(server, "gone", location=at(server, f"{PLACE}/gone"))
    head = await current_location(server, gone)
    await drop(server, gone, purge=False)
    return World(cluster.store, cluster.clock, head)


async def named_create(lake: Lake, sent: Request) -> object:
    return await create_table(lake, NAMESPACE, table("n", location=at(lake, PLACE)), sent)


async def create_with_paths(lake: Lake, sent: Request) -> object:
    properties = {"write.data.path": at(lake, PLACE), "write.metadata.path": at(lake, "meta")}
    return await create_table(lake, NAMESPACE, table("n", properties=properties), sent)


async def create_by_commit(lake: Lake, sent: Request) -> object:
    return await commit_table(lake, identifier_of("n"), create_commit(UUID, set_location(at(lake, PLACE))), sent)


async def named_view(lake: Lake, sent: Request) -> object:
    return await create_view(lake, NAMESPACE, view("n", location=at(lake, PLACE)), sent)


async def move(lake: Lake, sent: Request) -> object:
    return await commit_table(lake, identifier_of("t"), commit(set_location(at(lake, PLACE))), sent)


async def add_data_path(lake: Lake, sent: Request) -> object:
    change = commit(set_property("write.data.path", at(lake, PLACE)))
    return await commit_table(lake, identifier_of("t"), change, sent)


async def transaction(lake: Lake, sent: Request) -> object:
    changes = [
        (identifier_of("t"), commit(set_property("write.data.path", at(lake, PLACE)))),
        (identifier_of("n"), create_commit(UUID, set_location(at(lake, "other")))),
    ]
    await commit_transaction(lake, "main", changes, sent)
    return None


async def volume(lake: Lake, sent: Request) -> object:
    return await make_volume(lake, PLACE, sent)


async def namespace_root(lake: Lake, sent: Request) -> object:
    child = NAMESPACE._replace(levels=("n",))
    return await create_namespace(lake, child, {"location": at(lake, PLACE)}, sent)


class Mutation(NamedTuple):
    name: str
    send: Send


MUTATIONS: Final = [
    Mutation("create at a named place", named_create),
    Mutation("create with paths", create_with_paths),
    Mutation("create by commit", create_by_commit),
    Mutation("view", named_view),
    Mutation("move by a commit", move),
    Mutation("data path by a commit", add_data_path),
    Mutation("transaction", transaction),
    Mutation("volume", volume),
]


@pytest.fixture(scope="module")
def origin() -> World:
    return asyncio.run(make_world())


async def _calls(send: Send, origin: World, sent: Request) -> int:
    world = origin.copy()
    spy = SpyStore(world.store)
    server = world.cluster().server(spy)
    await send(server, sent)
    await server.background.drain()
    assert 0 < len(spy.calls) < CALLS_MAX
    return len(spy.calls)


async def _kill(send: Send, world: World, sent: Request, *, dies_at: int, death: Death) -> bool:
    """Whether the request was answered before the server died."""
    server = world.cluster().server(DyingStore(world.store, dies_at=dies_at, after=death == "after"))
    is_answered = False
    with contextlib.suppress(Died):
        await send(server, sent)
        is_answered = True
    await server.background.drain()
    for _ in range(10):  # Calls that ran concurrently with the dead one end as well.
        await asyncio.sleep(0)
    return is_answered


async def _is_there(world: World) -> bool:
    """Whether anything that lives has the place."""
    server = world.cluster().server()
    place = at(server, PLACE)
    return place in {str(one) for places in (await living_places(server)).values() for one in places}


async def _stranger(world: World) -> str:
    """A volume below the place; it gets it exactly if nothing that lives is there."""
    server = world.cluster().server()
    answer = await outcome(make_volume(server, f"{PLACE}/below", request("stranger"), identifier_of("stranger")))
    await server.background.drain()
    return answer


async def _is_clean(world: World, where: str) -> None:
    """After the janitors, only what lives has claims."""
    cluster = world.cluster()
    for _ in range(3):
        world.clock.advance(LONG_MS)
        await cluster.sweep()
    server = cluster.server()
    living = {str(one) for places in (await living_places(server)).values() for one in places}
    assert set(await claimed(server)) <= living, where
    await check_places(server)


async def _check_retry(send: Send, origin: World, sent: Request, *, dies_at: int, death: Death) -> None:
    """The same request again, at once or once it is stale, has the place."""
    for wait_ms in (0, HOUR_MS):
        world = origin.copy()
        where = f"dies {death} call {dies_at}, waits {wait_ms}"
        is_answered = await _kill(send, world, sent, dies_at=dies_at, death=death)
        await check_places(world.cluster().server())
        if is_answered:
            assert await _is_there(world), where
        was_there = await _is_there(world)
        world.clock.advance(wait_ms)
        server = world.cluster().server()
        answer = await outcome(send(server, sent))
        await server.background.drain()
        # At once, another attempt with the key may be active. Without a key, what happened is refused.
        is_fine = answer == "ok" or (answer == "Busy" and wait_ms == 0) or (was_there and not sent.key)
        assert is_fine, f"{where}: {answer}"
        if answer == "ok":
            assert await _is_there(world), where
            assert await _stranger(world) == "Invalid", where
        await check_places(world.cluster().server())


async def _check_stranger(send: Send, origin: World, sent: Request, *, dies_at: int, death: Death) -> None:
    """A stranger that comes once the dead request is stale gets the place, unless the request happened."""
    world = origin.copy()
    where = f"dies {death} call {dies_at}"
    await _kill(send, world, sent, dies_at=dies_at, death=death)
    world.clock.advance(HOUR_MS)
    is_there = await _is_there(world)

    assert await _stranger(world) == ("Invalid" if is_there else "ok"), where
    await check_places(world.cluster().server())
    server = world.cluster().server()
    answer = await outcome(send(server, sent))
    await server.background.drain()
    # Without a key, a request that happened is refused when it is sent again.
    assert answer in ({"ok", "AlreadyExists", "Conflict"} if is_there else {"Invalid"}), where
    await check_places(world.cluster().server())
    await _is_clean(world, where)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
async def test_a_killed_request_leaves_its_place_to_its_retry_or_to_a_stranger(
    mutation: Mutation, origin: World
) -> None:
    sent = request(mutation.name)
    for dies_at in range(1, await _calls(mutation.send, origin, sent) + 1):
        for death in get_args(Death):
            await _check_stranger(mutation.send, origin, sent, dies_at=dies_at, death=death)


@pytest.mark.crash
@pytest.mark.parametrize("key", [False, True], ids=["without a key", "keyed"])
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
async def test_the_retry_of_a_killed_request_has_the_place(mutation: Mutation, origin: World, *, key: bool) -> None:
    sent = keyed_request(mutation.name) if key else request(mutation.name)
    for dies_at in range(1, await _calls(mutation.send, origin, sent) + 1):
        for death in get_args(Death):
            await _check_retry(mutation.send, origin, sent, dies_at=dies_at, death=death)


async def _make_catalog(lake: Lake, sent: Request) -> object:
    return await create_catalog(lake, "house", root=HOUSE, properties={}, request=sent)


@pytest.mark.parametrize("key", [False, True], ids=["without a key", "keyed"])
async def test_a_killed_creation_of_a_catalog_leaves_its_root_free_or_taken(origin: World, *, key: bool) -> None:
    sent = keyed_request("house") if key else request("house")
    for dies_at in range(1, await _calls(_make_catalog, origin, sent) + 1):
        for death in get_args(Death):
            world = origin.copy()
            await _kill(_make_catalog, world, sent, dies_at=dies_at, death=death)
            world.clock.advance(HOUR_MS)
            server = world.cluster().server()
            with contextlib.suppress(NotFound):
                await load_catalog(server, "house")
            exists = await outcome(load_catalog(world.cluster().server(), "house")) == "ok"

            other = create_catalog(server, "other", root=f"{HOUSE}/x", properties={}, request=request("other"))
            answer = await outcome(other)
            await server.background.drain()
            again = await outcome(_make_catalog(world.cluster().server(), sent))

            where = f"dies {death} call {dies_at}"
            assert answer == ("Invalid" if exists else "ok"), where
            assert again in ({"ok", "AlreadyExists"} if exists else {"Invalid"}), where


async def test_a_killed_creation_of_a_namespace_leaves_its_root_to_the_catalog_or_free(origin: World) -> None:
    sent = request("namespace")
    for dies_at in range(1, await _calls(namespace_root, origin, sent) + 1):
        for death in get_args(Death):
            world = origin.copy()
            await _kill(namespace_root, world, sent, dies_at=dies_at, death=death)
            world.clock.advance(HOUR_MS)
            server = world.cluster().server()

            answer = await outcome(namespace_root(server, request("again")))
            await server.background.drain()

            assert answer in {"ok", "AlreadyExists"}, f"dies {death} call {dies_at}"
            assert await outcome(make_volume(server, PLACE)) == "Invalid"
            await create_table(server, NAMESPACE._replace(levels=("n",)), table("x"), request("below"))


async def test_a_killed_purge_is_finished_by_the_next_and_then_the_place_is_free(origin: World) -> None:
    prepared = origin.copy()
    server = prepared.cluster().server()
    made = await create_table_with_files(server, "p", location=at(server, PLACE))
    await drop(server, made)
    prepared.clock.advance(DELAY_MS)
    for dies_at in range(1, CALLS_MAX * 4):
        world = prepared.copy()
        dying = DyingStore(world.store, dies_at=dies_at, after=dies_at % 2 == 0)
        with contextlib.suppress(Died):
            await world.cluster().sweep(dying)
        before = await _stranger(world)
        await world.cluster().sweep()
        left = [key for key in await world.cluster().keys("tables/") if "/lake/place/" in key]
        assert [key for key in left if "/gone/" not in key] == []
        assert await world.cluster().keys(world.cluster().server().layout.purge_orders_folder()) == []
        after = await _stranger(world) if before != "ok" else before
        assert (before in {"Busy", "ok"}, after) == (True, "ok"), f"dies at call {dies_at}: {before}, {after}"
        if not dying.has_died:
            return
    raise AssertionError("the purge has too many calls")


RACERS: Final[dict[str, Callable[[Lake, str], Awaitable[object]]]] = {
    "iceberg": lambda lake, place: create_table(lake, NAMESPACE, table("x", location=at(lake, place)), request("x")),
    "delta": lambda lake, place: external_delta(lake, place, "y"),
    "volume": lambda lake, place: make_volume(lake, place, request("z"), identifier_of("z")),
    "commit": lambda lake, place: commit_table(
        lake, identifier_of("t"), commit(set_location(at(lake, place))), request("move")
    ),
    "transaction": lambda lake, place: commit_transaction(
        lake, "main", [(identifier_of("t"), commit(set_property("write.data.path", at(lake, place))))], request("all")
    ),
}


@pytest.mark.parametrize("place", [PLACE, f"{PLACE}/below", "lake"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        *(("iceberg", "volume"), ("volume", "iceberg"), ("delta", "volume"), ("commit", "volume")),
        *(("volume", "commit"), ("transaction", "iceberg"), ("iceberg", "transaction")),
    ],
)
async def test_of_two_requests_at_overlapping_places_one_is_refused(
    origin: World, first: str, second: str, place: str
) -> None:
    """The second runs as a whole before each call of the first."""
    for number in range(1, CALLS_MAX):
        world = origin.copy()
        done: list[str] = []

        async def run_second(world: World = world, done: list[str] = done) -> None:
            server = world.cluster().server()
            done.append(await outcome(RACERS[second](server, place)))
            await server.background.drain()

        store = InterruptedStore(world.store, number, run_second)
        server = world.cluster().server(store)
        answer = await outcome(RACERS[first](server, PLACE))
        await server.background.drain()

        await check_places(world.cluster().server())
        if store.is_over:
            assert answer == "ok"
            return
        assert [answer, *done].count("ok") == 1, f"before call {number}: {answer}, {done}"
    raise AssertionError("the request has too many calls")


async def test_requests_in_parallel_never_share_a_place() -> None:
    for seed in range(40):
        cluster = await Cluster.with_catalog(seed)
        await create(cluster.server(), "t")
        servers = [cluster.server() for _ in range(4)]
        answers = await asyncio.gather(
            outcome(RACERS["iceberg"](servers[0], PLACE)),
            outcome(RACERS["volume"](servers[1], f"{PLACE}/below")),
            outcome(RACERS["commit"](servers[2], "lake")),
            outcome(RACERS["delta"](servers[3], PLACE)),
        )
        for server in servers:
            await server.background.drain()

        assert answers.count("ok") <= 1, f"seed {seed}: {answers}"
        await check_places(cluster.server())
        cluster.clock.advance(HOUR_MS)
        again = await outcome(make_volume(cluster.server(), "lake/place/below", request("n"), identifier_of("n")))
        assert again == ("Invalid" if "ok" in answers else "ok"), f"seed {seed}: {answers}"


@pytest.mark.parametrize("fate", get_args(Fate))
@pytest.mark.parametrize("mutation", [MUTATIONS[0], MUTATIONS[4], MUTATIONS[7]], ids=lambda mutation: mutation.name)
async def test_a_lost_answer_never_lets_two_share_a_place(mutation: Mutation, fate: Fate, origin: World) -> None:
    for loses_at in range(1, CALLS_MAX):
        world = origin.copy()
        store = LossyStore(world.store, loses_at=loses_at, fate=fate)
        server = world.cluster().server(store)
        answer = await outcome(mutation.send(server, request(mutation.name)))
        await server.background.drain()
        writes = store._writes
        world.clock.advance(HOUR_MS)

        stranger = await _stranger(world)
        await store.deliver()
        retried = await outcome(mutation.send(world.cluster().server(), request(mutation.name)))

        await check_places(world.cluster().server())
        where = f"write {loses_at}: {answer}, stranger {stranger}, retry {retried}"
        assert not (answer == "ok" and stranger == "ok"), where
        assert not (retried == "ok" and stranger == "ok"), where
        if writes < loses_at:
            return
    raise AssertionError("the request has too many writes")


async def test_a_registration_races_a_stranger_for_the_place_of_a_dropped_table(origin: World) -> None:
    for number in range(1, CALLS_MAX):
        world = origin.copy()
        done: list[str] = []

        async def run_second(world: World = world, done: list[str] = done) -> None:
            done.append(await outcome(make_volume(world.cluster().server(), PLACE)))

        store = InterruptedStore(world.store, number, run_second)
        server = world.cluster().server(store)
        answer = await outcome(register_table(server, NAMESPACE, "again", world.head, request=request("again")))
        await server.background.drain()

        await check_places(world.cluster().server())
        if store.is_over:
            assert answer == "ok"
            return
        assert [answer, *done].count("ok") == 1, f"before call {number}: {answer}, {done}"
    raise AssertionError("too many calls")


async def test_a_drop_races_a_creation_at_the_place(origin: World) -> None:
    prepared = origin.copy()
    await named_create(prepared.cluster().server(), request("n"))
    for number in range(1, CALLS_MAX):
        world = prepared.copy()

        async def run_second(world: World = world) -> None:
            server = world.cluster().server()
            await outcome(make_volume(server, f"{PLACE}/below"))
            await server.background.drain()

        store = InterruptedStore(world.store, number, run_second)
        server = world.cluster().server(store)
        await drop_name(server, identifier_of("n"), kind="table", request=request("drop"))
        await server.background.drain()

        await check_places(world.cluster().server())
        world.clock.advance(HOUR_MS)
        await outcome(make_volume(world.cluster().server(), f"{PLACE}/below"))
        await check_places(world.cluster().server())
        if store.is_over:
            return
    raise AssertionError("too many calls")
