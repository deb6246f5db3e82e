"""Turns: one at a time, and room for other servers after some in a row."""

import asyncio

from sandur.operations.concurrency import IN_A_ROW_MAX, IN_A_ROW_MAX_BESIDE_OTHERS, CommitQueue
from tests.fakes.fixed_clock import FixedClock


async def taken(turn: CommitQueue, times: int) -> None:
    for _ in range(times):
        async with turn.taken():
            pass


async def test_a_turn_is_held_by_one_at_a_time() -> None:
    turn, inside, most = CommitQueue(FixedClock()), 0, 0

    async def hold() -> None:
        nonlocal inside, most
        async with turn.taken():
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(hold() for _ in range(5)))

    assert most == 1


async def test_who_is_alone_rests_seldom() -> None:
    clock = FixedClock()
    turn = CommitQueue(clock)

    await taken(turn, IN_A_ROW_MAX)
    before = len(clock.slept_seconds)
    await taken(turn, 1)

    assert (before, len(clock.slept_seconds)) == (0, 1)


async def test_who_met_another_server_leaves_room_for_it_sooner() -> None:
    clock = FixedClock()
    turn = CommitQueue(clock)
    async with turn.taken() as held:
        held.note_contention()

    await taken(turn, IN_A_ROW_MAX_BESIDE_OTHERS)
    before = len(clock.slept_seconds)
    await taken(turn, 1)

    assert (before, len(clock.slept_seconds)) == (0, 1)
