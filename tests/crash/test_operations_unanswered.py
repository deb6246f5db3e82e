"""The answer to any write of any mutation is lost: an unknown outcome is neither success nor refusal (G2)."""

import asyncio
from typing import Literal, get_args

import pytest

from sandur.storage.contract import ObjectStore
from sandur.storage.retry import RetryingStore
from tests.crash.aftermaths import OK, UNDECIDED, answer, definite_answer
from tests.crash.mutations import MUTATIONS, Mutation, World, make_world
from tests.fakes.lossy_store import Fate, LossyStore
from tests.fakes.spy_store import SpyStore

Delivery = Literal["before the retry", "after the retry"]


@pytest.fixture(scope="module")
def origin() -> World:
    return asyncio.run(make_world())


async def _count_writes(mutation: Mutation, origin: World) -> int:
    world = origin.copy()
    spy = SpyStore(world.store)
    server = world.server(spy)
    await mutation.apply(world, server)
    await server.background.drain()
    return sum(call.is_write for call in spy.calls)


async def _check_lost_answer(
    mutation: Mutation, origin: World, *, loses_at: int, fate: Fate, delivery: Delivery, is_retrying: bool
) -> None:
    world = origin.copy()
    lossy = LossyStore(world.store, loses_at=loses_at, fate=fate)
    store: ObjectStore = RetryingStore(lossy, world.clock) if is_retrying else lossy
    server = world.server(store)

    said = await answer(mutation.apply(world, server))
    await server.background.drain()
    if delivery == "before the retry":
        await lossy.deliver()
    before = await mutation.applied(world)

    assert said == OK or (said in UNDECIDED and not is_retrying), f"nothing refuses it, but the answer is {said}"
    assert before == 1 or said != OK, "acknowledged and not applied"
    final = await definite_answer(mutation, world)
    await lossy.deliver()
    assert await mutation.applied(world) == 1 or (not mutation.is_recognized and final == OK)
    assert final == OK or not mutation.is_recognized


async def _check_all(mutation: Mutation, origin: World, *, is_retrying: bool) -> None:
    for loses_at in range(1, await _count_writes(mutation, origin) + 1):
        for fate in get_args(Fate):
            for delivery in get_args(Delivery) if fate == "late" else ("before the retry",):
                await _check_lost_answer(
                    mutation, origin, loses_at=loses_at, fate=fate, delivery=delivery, is_retrying=is_retrying
                )


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
async def test_a_lost_answer_is_resolved_by_reading_again(mutation: Mutation, origin: World) -> None:
    await _check_all(mutation, origin, is_retrying=True)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
async def test_a_lost_answer_stays_unknown_until_the_retry_finds_the_outcome(mutation: Mutation, origin: World) -> None:
    await _check_all(mutation, origin, is_retrying=False)
