"""Races for one object: tasks, and processes with tasks, that all start at the same moment."""

import asyncio
import multiprocessing
from collections import Counter
from collections.abc import Awaitable, Callable
from multiprocessing.synchronize import Barrier
from typing import TYPE_CHECKING, Final

from sandur.errors import SwapLost
from sandur.storage.contract import ABSENT, Expected, ObjectStore, Version
from tests.contract.conftest import Address

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

Attempt = Callable[[], Awaitable[object]]

RACES: Final = ("create", "swap", "delete or swap")
_SECONDS_MAX: Final = 120


async def winners_of(attempts: list[Attempt]) -> list[int]:
    """Start all attempts together; returns the numbers of those that did not lose. Any other failure is raised."""
    barrier = asyncio.Barrier(len(attempts))

    async def run(attempt: Attempt) -> bool:
        await barrier.wait()
        try:
            await attempt()
        except SwapLost:
            return False
        return True

    won = await asyncio.gather(*(run(attempt) for attempt in attempts))
    return [number for number, has_won in enumerate(won) if has_won]


def race_processes(address: Address, *, processes: int, rounds: int, lanes: int) -> Counter[str]:
    """The number of winners of each race; each process races with two tasks in every lane."""
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(processes)
    results: Queue[list[str]] = spawn.Queue()
    racers = [
        spawn.Process(target=_race, args=(address, barrier, results, number, rounds, lanes), daemon=True)
        for number in range(processes)
    ]
    for racer in racers:
        racer.start()
    wins = Counter(
        {_name(kind, lane, round_): 0 for kind in RACES for lane in range(lanes) for round_ in range(rounds)}
    )
    for _ in racers:
        wins.update(results.get(timeout=_SECONDS_MAX))
    for racer in racers:
        racer.join(_SECONDS_MAX)
    results.close()
    results.join_thread()
    return wins


def _race(
    address: Address, barrier: Barrier, results: "Queue[list[str]]", number: int, rounds: int, lanes: int
) -> None:
    results.put(asyncio.run(_rounds(address, barrier, number, rounds, lanes)))


async def _rounds(address: Address, barrier: Barrier, number: int, rounds: int, lanes: int) -> list[str]:
    """The races that this process won. It blocks its loop while it waits, because it has no other work."""
    store = address.open()
    won: list[str] = []
    for round_ in range(rounds):
        for kind in RACES:
            barrier.wait(_SECONDS_MAX)
            keys = [f"races/{lane}/{round_}" for lane in range(lanes)]
            versions = [await _version(store, key) for key in keys]
            barrier.wait(_SECONDS_MAX)
            attempts = [
                _attempts(store, *what, kind, f"{number} {round_}") for what in zip(keys, versions, strict=True)
            ]
            winners = await asyncio.gather(*(winners_of(pair) for pair in attempts))
            won += [_name(kind, lane, round_) for lane in range(lanes) for _ in winners[lane]]
    await store.close()
    return won


def _name(kind: str, lane: int, round_: int) -> str:
    return f"{kind}, lane {lane}, round {round_}"


def _attempts(store: ObjectStore, key: str, expected: Expected, kind: str, racer: str) -> list[Attempt]:
    """The work of the two tasks of one process in one lane."""
    first = _writer(store, key, expected, f"first of {racer} {kind}")
    if kind == "delete or swap" and expected is not ABSENT:
        return [first, _deleter(store, key, expected)]
    return [first, _writer(store, key, expected, f"second of {racer} {kind}")]


def _writer(store: ObjectStore, key: str, expected: Expected, body: str) -> Attempt:
    return lambda: store.put(key, body.encode(), expected=expected)


def _deleter(store: ObjectStore, key: str, version: Version) -> Attempt:
    return lambda: store.delete(key, expected=version)


async def _version(store: ObjectStore, key: str) -> Expected:
    stored = await store.get(key)
    return stored.version if stored else ABSENT
