"""A server dies at any storage call of any mutation: the next request finds all of it or nothing."""

import asyncio
import contextlib
from typing import Literal, get_args

import pytest

from sandur.storage.contract import ObjectStore
from tests.crash.aftermaths import (
    AFTERMATHS,
    OK,
    Aftermath,
    at_once,
    definite_answer,
    names_taken,
    recreated,
    time_passed,
)
from tests.crash.mutations import MUTATIONS, Mutation, World, make_world
from tests.crash.straggling_store import StragglingStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.spy_store import SpyStore

Death = Literal["before", "after", "alone"]
"""Before or after the call takes effect, or before, while the calls made beside it do."""

_CALLS_MAX = 80


@pytest.fixture(scope="module")
def origin() -> World:
    return asyncio.run(make_world())


async def _count_calls(mutation: Mutation, origin: World) -> int:
    """The number of storage calls of the mutation, with its background work."""
    world = origin.copy()
    spy = SpyStore(world.store)
    server = world.server(spy)
    await mutation.apply(world, server)
    await server.background.drain()
    assert 0 < len(spy.calls) < _CALLS_MAX
    return len(spy.calls)


async def _kill(mutation: Mutation, origin: World, *, dies_at: int, death: Death) -> tuple[World, bool]:
    """The state after the crash, and whether the crash came after the answer."""
    world = origin.copy()
    store: ObjectStore
    if death == "alone":
        store = StragglingStore(world.store, loses_at=dies_at)
    else:
        store = DyingStore(world.store, dies_at=dies_at, after=death == "after")
    server = world.server(store)
    is_answered = False
    with contextlib.suppress(Died):
        await mutation.apply(world, server)
        is_answered = True
    await server.background.drain()
    for _ in range(10):  # Calls that ran concurrently with the dead one end as well.
        await asyncio.sleep(0)
    return world, is_answered


async def _check_death(mutation: Mutation, aftermath: Aftermath, origin: World, *, dies_at: int, death: Death) -> None:
    world, is_answered = await _kill(mutation, origin, dies_at=dies_at, death=death)
    before = await mutation.applied(world)
    assert before <= 1
    assert before == 1 or not is_answered, "acknowledged and not applied"
    await aftermath(world)

    if aftermath is names_taken:
        assert await mutation.applied(world) == before, "what had happened was undone by others"
    said = await definite_answer(mutation, world)
    times = await mutation.applied(world)
    if aftermath in {at_once, time_passed}:
        assert await mutation.count_events(world) == (times if mutation.events else 0), (
            f"answered {said}, applied {times} times"
        )

    if mutation.is_recognized:
        assert times <= 1, f"applied {times} times"
        assert said == OK or (before, times) == (0, 0), f"answered {said}, applied {before}, then {times} times"
        assert said != OK or before or times, "answered ok for nothing"
        assert await definite_answer(mutation, world) == said, "a replay answers otherwise"
        assert await mutation.applied(world) == times


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
@pytest.mark.parametrize("aftermath", AFTERMATHS[:3], ids=lambda aftermath: aftermath.__name__)
async def test_a_killed_mutation_is_all_or_nothing_and_a_retry_reports_which(
    mutation: Mutation, aftermath: Aftermath, origin: World
) -> None:
    for dies_at in range(1, await _count_calls(mutation, origin) + 1):
        for death in get_args(Death):
            await _check_death(mutation, aftermath, origin, dies_at=dies_at, death=death)


# A commit without a uuid refers to the table that has the name now. If the table was recreated since, it is another
# commit, because keys belong to a table. Engines assert the uuid.
_LATER = [
    pytest.param(mutation, aftermath, id=f"{mutation.name}-{aftermath.__name__}")
    for mutation in MUTATIONS
    for aftermath in AFTERMATHS[3:]
    if (mutation.name, aftermath) != ("set property, keyed", recreated)
]


@pytest.mark.crash
@pytest.mark.parametrize(("mutation", "aftermath"), _LATER)
async def test_the_retry_of_a_killed_mutation_gets_the_right_answer_after_requests_of_others(
    mutation: Mutation, aftermath: Aftermath, origin: World
) -> None:
    for dies_at in range(1, await _count_calls(mutation, origin) + 1):
        for death in get_args(Death):
            await _check_death(mutation, aftermath, origin, dies_at=dies_at, death=death)
