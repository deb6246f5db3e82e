"""The contract of every store under contention: of all writers that expect the same version, exactly one wins."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sandur.errors import SwapLost
from sandur.storage.contract import ABSENT, Expected, ObjectStore, Version
from tests.contract.conftest import SHARED_BETWEEN_PROCESSES, Address
from tests.contract.racers import RACES, Attempt, race_processes, winners_of

# SeaweedFS makes a loser wait a second for its lock, so races run in parallel lanes, each on its own object.
LANES = 20
ROUNDS = 2
RACERS = 8


def swapper(store: ObjectStore, key: str, expected: Expected, body: bytes) -> Attempt:
    return lambda: store.put(key, body, expected=expected)


def deleter(store: ObjectStore, key: str, expected: Version) -> Attempt:
    return lambda: store.delete(key, expected=expected)


async def in_lanes(race: Callable[[str, int], Awaitable[None]]) -> None:
    async def lane(number: int) -> None:
        for round_ in range(ROUNDS):
            await race(f"race/{number}/x", round_)

    await asyncio.gather(*(lane(number) for number in range(LANES)))


async def test_exactly_one_of_many_creators_wins(store: ObjectStore) -> None:
    async def race(lane: str, round_: int) -> None:
        key = f"{lane}{round_}"
        bodies = [b"%d by %d" % (round_, number) for number in range(RACERS)]

        winners = await winners_of([swapper(store, key, ABSENT, body) for body in bodies])

        assert len(winners) == 1, f"{key}: {winners} won"
        stored = await store.get(key)
        assert stored
        assert stored.data == bodies[winners[0]]

    await in_lanes(race)


async def test_exactly_one_of_many_swappers_wins(store: ObjectStore) -> None:
    async def race(key: str, round_: int) -> None:
        before = await store.get(key)
        version = before.version if before else await store.put(key, b"start", expected=ABSENT)
        bodies = [b"%d by %d" % (round_, number) for number in range(RACERS)]

        winners = await winners_of([swapper(store, key, version, body) for body in bodies])

        assert len(winners) == 1, f"{key}, round {round_}: {winners} won"
        stored = await store.get(key)
        assert stored
        assert stored.data == bodies[winners[0]]
        assert stored.version != version

    await in_lanes(race)


async def test_exactly_one_of_many_deleters_and_swappers_wins(store: ObjectStore) -> None:
    async def race(key: str, round_: int) -> None:
        before = await store.get(key)
        version = before.version if before else await store.put(key, b"start %d" % round_, expected=ABSENT)
        swappers = [swapper(store, key, version, b"%d by %d" % (round_, number)) for number in range(RACERS // 2)]
        deleters = [deleter(store, key, version)] * (RACERS // 2)

        winners = await winners_of([attempt for pair in zip(swappers, deleters, strict=True) for attempt in pair])

        assert len(winners) == 1, f"{key}, round {round_}: {winners} won"
        has_swapped = winners[0] % 2 == 0
        assert (await store.get(key) is not None) == has_swapped

    await in_lanes(race)


async def test_exactly_one_of_many_deleters_wins(store: ObjectStore) -> None:
    async def race(key: str, round_: int) -> None:
        version = await store.put(key, b"%d" % round_, expected=ABSENT)

        winners = await winners_of([deleter(store, key, version)] * RACERS)

        assert len(winners) == 1, f"{key}, round {round_}: {winners} won"
        assert await store.get(key) is None

    await in_lanes(race)


async def test_a_counter_swapped_by_many_loses_no_increment(store: ObjectStore) -> None:
    await store.put("counter", b"0 by nobody", expected=ABSENT)

    async def count(number: int) -> None:
        done = 0
        while done < 10:
            stored = await store.get("counter")
            assert stored
            body = f"{int(stored.data.split()[0]) + 1} by {number} for the {done}th time"
            try:
                await store.put("counter", body.encode(), expected=stored.version)
            except SwapLost:
                continue
            done += 1

    await asyncio.gather(*(count(number) for number in range(4)))

    stored = await store.get("counter")
    assert stored
    assert int(stored.data.split()[0]) == 40


async def test_concurrent_creations_and_deletions_in_one_folder_never_fail(store: ObjectStore) -> None:
    """On a file system the folder appears and disappears with its objects."""

    async def come_and_go(number: int) -> None:
        for round_ in range(20):
            key = f"a/b/c/{number}"
            version = await store.put(key, b"%d" % round_, expected=ABSENT)
            await store.delete(key, expected=version)

    await asyncio.gather(*(come_and_go(number) for number in range(6)))

    assert await store.list("") == []


@pytest.mark.parametrize("address", SHARED_BETWEEN_PROCESSES, indirect=True)
def test_exactly_one_of_many_processes_wins(address: Address) -> None:
    wins = race_processes(address, processes=3, rounds=ROUNDS, lanes=LANES)

    assert len(wins) == len(RACES) * ROUNDS * LANES
    assert {race: count for race, count in wins.items() if count != 1} == {}
