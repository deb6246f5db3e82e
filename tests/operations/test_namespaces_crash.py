"""Changes of namespaces die or lose an answer at every call to the store: the retry applies them exactly once."""

import contextlib
from collections.abc import Awaitable, Callable

import pytest

from sandur.catalog.identifiers import Namespace
from sandur.errors import NotEmpty, NotFound, OutcomeUnknown
from sandur.operations.containers.namespaces import load_namespace, namespace_exists
from sandur.operations.lake import Lake
from sandur.settings import RetrySettings
from sandur.storage.memory import MemoryStore
from sandur.storage.retry import RetryingStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.lossy_store import Fate, LossyStore
from tests.operations.event_chains import check_events
from tests.operations.lakes import make_lake, visit_marks
from tests.operations.test_namespaces import A, B, children, create, drop, update

Work = Callable[[Lake], Awaitable[object]]

CALLS_MAX = 40
TARGETS = [pytest.param(A, id="first-level"), pytest.param(B, id="child")]
AFTER = [pytest.param(False, id="before"), pytest.param(True, id="after")]


class Cluster:
    """A store, a clock, and processes that start and die."""

    def __init__(self) -> None:
        self.clock = FixedClock()
        self.store = MemoryStore(clock=self.clock)

    def server(self) -> Lake:
        """A new process without caches."""
        return make_lake(self.store, self.clock)

    async def run(self, work: Work) -> object:
        """Let a process finish its work."""
        lake = self.server()
        answer = await work(lake)
        await lake.background.drain()
        return answer

    async def run_until_killed(self, work: Work, *, dies_at: int, after: bool) -> bool:
        """Kill a process at a call; whether it reached that call."""
        store = DyingStore(self.store, dies_at=dies_at, after=after)
        lake = make_lake(store, self.clock)
        with contextlib.suppress(Died):
            await work(lake)
        await lake.background.drain()
        return store.has_died

    def pass_the_timeout(self) -> None:
        self.clock.advance(self.server().settings.claim_timeout_ms + 1)

    async def listed(self, namespace: Namespace) -> bool:
        """Whether the namespace is listed after the janitor; checks that the list is correct."""
        await self.run(visit_marks)
        there = await namespace_exists(self.server(), namespace)
        shown = str(namespace) in await children(self.server(), namespace.parent)
        assert shown == there
        await check_events(self.server())
        return there


async def prepare(namespace: Namespace, *, exists: bool) -> Cluster:
    cluster = Cluster()
    if namespace.parent:
        await cluster.run(lambda lake: create(lake, A))
    if exists:
        await cluster.run(lambda lake: create(lake, namespace, {"n": "0"}, key="made"))
    return cluster


def create_it(namespace: Namespace) -> Work:
    return lambda lake: create(lake, namespace, {"n": "0"}, key="k")


def change_it(namespace: Namespace) -> Work:
    return lambda lake: update(lake, namespace, removals=["gone"], updates={"n": "1"}, key="k")


def drop_it(namespace: Namespace) -> Work:
    return lambda lake: drop(lake, namespace, key="k")


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("namespace", TARGETS)
async def test_a_retry_finishes_a_dead_creation(namespace: Namespace, *, after: bool) -> None:
    for dies_at in range(1, CALLS_MAX):
        cluster = await prepare(namespace, exists=False)
        has_died = await cluster.run_until_killed(create_it(namespace), dies_at=dies_at, after=after)
        await cluster.listed(namespace)
        cluster.pass_the_timeout()

        first = await cluster.run(create_it(namespace))
        again = await cluster.run(create_it(namespace))

        assert first == again
        assert await cluster.listed(namespace)
        if not has_died:
            return
    pytest.fail("the creation never came to its end")


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("namespace", TARGETS)
async def test_a_creation_before_a_death_is_not_repeated(namespace: Namespace, *, after: bool) -> None:
    """Another client drops the namespace, or creates and drops another one, before the retry."""
    has_died = True
    for dies_at in range(1, CALLS_MAX):
        for made_again in (False, True):
            cluster = await prepare(namespace, exists=False)
            has_died = await cluster.run_until_killed(create_it(namespace), dies_at=dies_at, after=after)
            happened = await namespace_exists(cluster.server(), namespace)
            if happened:
                await cluster.run(lambda lake: drop(lake, namespace))
            if made_again:
                await cluster.run(lambda lake: create(lake, namespace))
                await cluster.run(lambda lake: drop(lake, namespace))
            cluster.pass_the_timeout()

            await cluster.run(create_it(namespace))

            assert await cluster.listed(namespace) == (not happened)
        if not has_died:
            return
    pytest.fail("the creation never came to its end")


@pytest.mark.parametrize("after", AFTER)
async def test_a_child_of_a_dropped_parent_is_refused_or_created_with_its_parent(*, after: bool) -> None:
    for dies_at in range(1, CALLS_MAX):
        cluster = await prepare(B, exists=False)
        has_died = await cluster.run_until_killed(create_it(B), dies_at=dies_at, after=after)
        try:
            await cluster.run(lambda lake: drop(lake, A))
        except NotEmpty:
            assert await namespace_exists(cluster.server(), B)
        else:
            assert not await namespace_exists(cluster.server(), B)
            cluster.pass_the_timeout()
            try:
                await cluster.run(create_it(B))
            except NotFound:  # Its record was there when the parent was dropped. The refusal is final.
                await cluster.run(lambda lake: create(lake, A))
                with pytest.raises(NotFound, match="Namespace does not exist: a"):
                    await cluster.run(create_it(B))
                assert not await cluster.listed(B)
            else:
                assert await namespace_exists(cluster.server(), A)
                assert await cluster.listed(B)
        if not has_died:
            return
    pytest.fail("the creation never came to its end")


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("namespace", TARGETS)
async def test_an_update_that_died_is_applied_exactly_once(namespace: Namespace, *, after: bool) -> None:
    """Another client changes the same property before the retry, or recreates the namespace."""
    has_died = True
    for dies_at in range(1, CALLS_MAX):
        for foreign in ("nothing", "change", "drop"):
            cluster = await prepare(namespace, exists=True)
            has_died = await cluster.run_until_killed(change_it(namespace), dies_at=dies_at, after=after)
            happened = (await load_namespace(cluster.server(), namespace)).properties["n"] == "1"
            if foreign == "change":
                await cluster.run(lambda lake: update(lake, namespace, updates={"n": "2"}))
            if foreign == "drop":
                await cluster.run(lambda lake: drop(lake, namespace))
                await cluster.run(lambda lake: create(lake, namespace, {"n": "3"}))
            cluster.pass_the_timeout()

            first = await cluster.run(change_it(namespace))
            again = await cluster.run(change_it(namespace))

            assert first == again == (["n"], [], ["gone"])
            expected = {"nothing": "1", "change": "2", "drop": "3"}[foreign] if happened else "1"
            assert (await load_namespace(cluster.server(), namespace)).properties["n"] == expected
        if not has_died:
            return
    pytest.fail("the change never came to its end")


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("namespace", TARGETS)
async def test_a_retry_finishes_a_dead_drop_and_drops_nothing_else(namespace: Namespace, *, after: bool) -> None:
    """A namespace that was created again before the retry stays."""
    for dies_at in range(1, CALLS_MAX):
        cluster = await prepare(namespace, exists=True)
        has_died = await cluster.run_until_killed(drop_it(namespace), dies_at=dies_at, after=after)
        happened = not await cluster.listed(namespace)
        if happened:
            await cluster.run(lambda lake: create(lake, namespace, {"n": "3"}))
        cluster.pass_the_timeout()

        await cluster.run(drop_it(namespace))
        await cluster.run(drop_it(namespace))

        assert await cluster.listed(namespace) == happened
        if not has_died:
            return
    pytest.fail("the drop never came to its end")


@pytest.mark.parametrize("after", AFTER)
async def test_a_dead_drop_does_not_block_the_namespace(*, after: bool) -> None:
    for dies_at in range(1, CALLS_MAX):
        cluster = await prepare(A, exists=True)
        has_died = await cluster.run_until_killed(drop_it(A), dies_at=dies_at, after=after)
        if await namespace_exists(cluster.server(), A):
            await cluster.run(lambda lake: create(lake, B))
            await cluster.run(lambda lake: update(lake, A, updates={"x": "1"}))
            with pytest.raises(NotEmpty):
                await cluster.run(lambda lake: drop(lake, A))
            cluster.pass_the_timeout()
            with pytest.raises(NotEmpty):
                await cluster.run(drop_it(A))
            assert await cluster.listed(B)
        if not has_died:
            return
    pytest.fail("the drop never came to its end")


@pytest.mark.parametrize("after", AFTER)
async def test_a_dead_request_is_refused_again(*, after: bool) -> None:
    for dies_at in range(1, CALLS_MAX):
        cluster = await prepare(B, exists=True)
        has_died = False
        try:
            has_died = await cluster.run_until_killed(drop_it(A), dies_at=dies_at, after=after)
        except NotEmpty:
            return
        cluster.pass_the_timeout()
        for _ in range(2):
            with pytest.raises(NotEmpty):
                await cluster.run(drop_it(A))
        assert await cluster.listed(A)
        assert has_died
    pytest.fail("the refusal never came to its end")


@pytest.mark.parametrize("fate", ["applied", "dropped"])
@pytest.mark.parametrize("loses_at", range(1, 5))
async def test_a_lost_answer_is_not_a_failure(loses_at: int, fate: Fate) -> None:
    clock = FixedClock()
    inner = MemoryStore(clock=clock)
    await create(make_lake(inner, clock), A)
    lossy = RetryingStore(LossyStore(inner, loses_at=loses_at, fate=fate), clock)
    lake = make_lake(lossy, clock)

    await create(lake, B, {"x": "1"})
    await lake.background.drain()

    assert (await load_namespace(make_lake(inner, clock), B)).properties["x"] == "1"


async def test_an_unknown_outcome_is_reported_and_the_retry_resolves_it() -> None:
    clock = FixedClock()
    inner = MemoryStore(clock=clock)
    await create(make_lake(inner, clock), A)
    # The calls write the claim, the mark and the record; the outcome of the last one is unknown.
    lossy = LossyStore(inner, loses_at=3, fate="late")
    lake = make_lake(RetryingStore(lossy, clock, RetrySettings(tries_max=1)), clock)
    with pytest.raises(OutcomeUnknown):
        await create(lake, B, {"x": "1"}, key="k")

    created = await create(make_lake(inner, clock), B, {"x": "1"}, key="k")

    assert created["x"] == "1"
    assert not await lossy.deliver()
