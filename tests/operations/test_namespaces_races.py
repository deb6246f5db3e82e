"""Namespaces under many interleavings: the answers agree with the final state."""

import asyncio
from collections.abc import Awaitable

import pytest

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.errors import NotFound, SandurError
from sandur.operations.containers.namespaces import load_namespace, namespace_exists
from sandur.operations.index.lists import list_names
from sandur.operations.lake import Lake
from sandur.operations.tables.create import create_table
from sandur.operations.tables.drop import drop_name
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.yielding_store import YieldingStore
from tests.operations.lakes import make_lake, make_request
from tests.operations.requests import table
from tests.operations.test_namespaces import A, B, C, children, create, drop, update

SEEDS = range(60)


class InterleavedCluster:
    """Separate processes over one store that interleaves them."""

    def __init__(self, seed: int) -> None:
        self.clock = FixedClock(seed=seed)
        self._inner = MemoryStore(clock=self.clock)
        self._store = YieldingStore(self._inner, seed=seed)
        self._racers: list[Lake] = []

    def quiet(self) -> Lake:
        """A process that runs alone."""
        return make_lake(self._inner, self.clock)

    def racer(self) -> Lake:
        self._racers.append(make_lake(self._store, self.clock))
        return self._racers[-1]

    async def race(self, *work: Awaitable[object]) -> list[str]:
        """The result of each: `ok`, or the name of its error."""
        ended = await asyncio.gather(*(_outcome(one) for one in work))
        for racer in self._racers:
            await racer.background.drain()
        return ended

    async def check_lists(self) -> None:
        """The index is correct without the janitor."""
        for namespace in (A, B, C):
            if namespace.parent is None or await namespace_exists(self.quiet(), namespace.parent):
                shown = str(namespace) in await children(self.quiet(), namespace.parent)
                assert shown == await namespace_exists(self.quiet(), namespace)


async def _outcome(work: Awaitable[object]) -> str:
    try:
        await work
    except SandurError as error:
        return type(error).__name__
    return "ok"


async def exists(cluster: InterleavedCluster, namespace: Namespace) -> bool:
    return await namespace_exists(cluster.quiet(), namespace)


@pytest.mark.parametrize("seed", SEEDS)
async def test_either_a_child_is_created_or_its_parent_dropped(seed: int) -> None:
    cluster = InterleavedCluster(seed)
    await create(cluster.quiet(), A)

    created, dropped = await cluster.race(create(cluster.racer(), B), drop(cluster.racer(), A))

    assert (created, dropped) in {("ok", "NotEmpty"), ("NotFound", "ok")}
    assert await exists(cluster, B) == (created == "ok")
    assert await exists(cluster, A) == (dropped != "ok")
    await cluster.check_lists()


@pytest.mark.parametrize("seed", SEEDS)
async def test_grandchildren_children_and_drops_of_both_agree(seed: int) -> None:
    cluster = InterleavedCluster(seed)
    for namespace in (A, B):
        await create(cluster.quiet(), namespace)

    created, inner, outer = await cluster.race(
        create(cluster.racer(), C), drop(cluster.racer(), B), drop(cluster.racer(), A)
    )

    assert created in {"ok", "NotFound"}
    assert inner in {"ok", "NotEmpty"}
    assert outer in {"ok", "NotEmpty", "Busy"}
    assert await exists(cluster, C) == (created == "ok")
    assert await exists(cluster, B) == (inner != "ok")
    assert await exists(cluster, A) == (outer != "ok")
    assert not (created == "ok" and inner == "ok")
    assert not (inner != "ok" and outer == "ok")
    await cluster.check_lists()


@pytest.mark.parametrize("namespace", [A, B])
@pytest.mark.parametrize("seed", SEEDS)
async def test_exactly_one_of_several_creations_wins(seed: int, namespace: Namespace) -> None:
    cluster = InterleavedCluster(seed)
    if namespace.parent:
        await create(cluster.quiet(), A)

    ended = await cluster.race(*(create(cluster.racer(), namespace, {"by": str(by)}) for by in range(3)))

    assert sorted(ended) == ["AlreadyExists", "AlreadyExists", "ok"]
    assert (await load_namespace(cluster.quiet(), namespace)).properties["by"] == str(ended.index("ok"))
    await cluster.check_lists()


@pytest.mark.parametrize("seed", SEEDS)
async def test_creations_and_drops_of_a_child_alternate(seed: int) -> None:
    cluster = InterleavedCluster(seed)
    await create(cluster.quiet(), A)

    ended = await cluster.race(
        create(cluster.racer(), B), drop(cluster.racer(), B), create(cluster.racer(), B), drop(cluster.racer(), B)
    )

    creations, drops = [ended[0], ended[2]].count("ok"), [ended[1], ended[3]].count("ok")
    assert set(ended) <= {"ok", "AlreadyExists", "NotFound"}
    assert creations - drops == int(await exists(cluster, B))
    await cluster.check_lists()


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_recreated_parent_has_no_old_children(seed: int) -> None:
    cluster = InterleavedCluster(seed)
    await create(cluster.quiet(), A)

    async def drop_and_make_again() -> None:
        lake = cluster.racer()
        await drop(lake, A)
        await create(lake, A)

    created, made_again = await cluster.race(create(cluster.racer(), B), drop_and_make_again())

    assert (created, made_again) in {("ok", "NotEmpty"), ("NotFound", "ok"), ("ok", "ok")}
    assert await exists(cluster, B) == (created == "ok")
    await cluster.check_lists()


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_stalled_attempt_never_restores_a_dropped_namespace(seed: int) -> None:
    """Two attempts with one key, the second takes over at once; another client drops the namespace."""
    cluster = InterleavedCluster(seed)
    await create(cluster.quiet(), A)
    impatient = {"claim_timeout_ms": 1}

    async def drop_if_present() -> None:
        lake = cluster.racer()
        for _ in range(20):
            cluster.clock.advance(2)
            try:
                await drop(lake, B)
            except NotFound:
                continue
            return

    racers = [make_lake(cluster._store, cluster.clock, **impatient) for _ in range(2)]
    *created, dropped = await cluster.race(*(create(racer, B, key="k") for racer in racers), drop_if_present())
    for racer in racers:
        await racer.background.drain()
    was_there = await exists(cluster, B)
    cluster.clock.advance(10)
    retried = await _outcome(create(make_lake(cluster._inner, cluster.clock, **impatient), B, key="k"))

    assert set(created) <= {"ok", "Busy"}
    assert dropped == "ok"
    assert retried == "ok"
    if "ok" in created:
        assert await exists(cluster, B) == was_there


@pytest.mark.parametrize("seed", SEEDS)
async def test_concurrent_updates_are_all_applied(seed: int) -> None:
    cluster = InterleavedCluster(seed)
    await create(cluster.quiet(), A)

    ended = await cluster.race(*(update(cluster.racer(), A, updates={str(by): "1"}, key=str(by)) for by in range(3)))

    assert ended == ["ok"] * 3
    properties = (await load_namespace(cluster.quiet(), A)).properties
    assert {"0", "1", "2"} <= properties.keys()


@pytest.mark.parametrize("seed", SEEDS)
async def test_an_update_and_a_drop_agree(seed: int) -> None:
    cluster = InterleavedCluster(seed)
    await create(cluster.quiet(), A)

    updated, dropped = await cluster.race(
        update(cluster.racer(), A, updates={"x": "1"}, key="u"), drop(cluster.racer(), A, key="d")
    )

    assert updated in {"ok", "NotFound"}
    assert dropped == "ok"
    assert not await exists(cluster, A)
    await cluster.check_lists()


@pytest.mark.parametrize("seed", SEEDS)
async def test_either_a_table_is_created_or_its_namespace_dropped(seed: int) -> None:
    cluster = InterleavedCluster(seed)
    await create(cluster.quiet(), A)

    created, dropped = await cluster.race(
        create_table(cluster.racer(), A, table("t"), make_request("t", "k")), drop(cluster.racer(), A, key="d")
    )

    assert (created, dropped) in {("ok", "NotEmpty"), ("NotFound", "ok")}
    assert await exists(cluster, A) == (created == "ok")
    if created == "ok":
        page = await list_names(cluster.quiet(), A, kind="table", page_token=None, page_size=None)
        assert [identifier.name for identifier in page.entries] == ["t"]


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_concurrent_drop_of_table_and_namespace_leaves_an_empty_namespace_or_none(seed: int) -> None:
    cluster = InterleavedCluster(seed)
    await create(cluster.quiet(), A)
    await create_table(cluster.quiet(), A, table("t"), make_request("t"))

    gone, dropped = await cluster.race(
        drop_name(cluster.racer(), Identifier(*A, "t"), kind="table", purge=False, request=make_request("drop t", "k")),
        drop(cluster.racer(), A, key="d"),
    )

    assert gone == "ok"
    assert dropped in {"ok", "NotEmpty"}
    assert await exists(cluster, A) == (dropped != "ok")
    if dropped != "ok":
        await drop(cluster.quiet(), A)
