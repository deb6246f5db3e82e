"""A round of calls ends as a whole; the commit queue runs one change at a time and pauses for other servers."""

import asyncio

import pytest

from sandur.operations.commit_queues import IN_A_ROW_MAX, IN_A_ROW_MAX_BESIDE_OTHERS, CommitQueue
from sandur.storage.cell import gather_all
from tests.fakes.fixed_clock import FixedClock


class Calls:
    """Calls that end after a number of yields, and the names of those that have ended."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    async def call(self, name: str, *, yields: int = 0, fails: bool = False) -> str:
        try:
            for _ in range(yields):
                await asyncio.sleep(0)
            if fails:
                raise ValueError(name)
            return name
        finally:
            self.ended.append(name)


async def test_results_come_in_the_order_of_the_calls() -> None:
    calls = Calls()

    found = await gather_all([calls.call("a", yields=3), calls.call("b"), calls.call("c", yields=1)])

    assert list(found) == ["a", "b", "c"]
    assert calls.ended == ["b", "c", "a"]


async def test_no_calls_have_no_results() -> None:
    assert not await gather_all([])


@pytest.mark.parametrize("failing", ["a", "b"])
async def test_a_failure_is_raised_after_every_call_has_ended(failing: str) -> None:
    calls = Calls()

    with pytest.raises(ValueError, match=failing):
        await gather_all([calls.call(name, yields=3 * (name != failing), fails=name == failing) for name in "abc"])

    assert sorted(calls.ended) == ["a", "b", "c"]


async def test_the_failure_of_the_first_call_is_raised_if_several_fail() -> None:
    calls = Calls()

    with pytest.raises(ValueError, match="a"):
        await gather_all([calls.call("a", yields=3, fails=True), calls.call("b", fails=True)])


async def test_a_cancelled_round_leaves_no_call_running() -> None:
    calls = Calls()
    waiting = asyncio.create_task(gather_all([calls.call(name, yields=1_000) for name in "abc"]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    waiting.cancel()
    for _ in range(10):
        await asyncio.sleep(0)

    assert waiting.cancelled()
    assert sorted(calls.ended) == ["a", "b", "c"]


async def test_two_and_three_calls_are_made_in_the_same_round() -> None:
    calls = Calls()

    assert await gather_all((calls.call("a", yields=3), calls.call("b", yields=1))) == ("a", "b")
    assert calls.ended == ["b", "a"]
    assert await gather_all((calls.call("a"), calls.call("b", yields=1), calls.call("c"))) == ("a", "b", "c")


async def test_a_call_that_cancels_itself_ends_the_round_after_the_others() -> None:
    calls = Calls()

    async def cancelled() -> str:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await gather_all([calls.call("a", yields=5), cancelled(), calls.call("b", yields=5)])

    assert calls.ended == ["a", "b"]


async def test_a_write_completes_although_the_next_call_fails_at_once() -> None:
    written: list[str] = []

    async def write() -> None:
        await asyncio.sleep(0)
        written.append("all of it")

    async def fail() -> None:
        raise ValueError("at once")

    with pytest.raises(ValueError, match="at once"):
        await gather_all((write(), fail()))

    assert written == ["all of it"]


async def take_turns(queue: CommitQueue, times: int) -> None:
    for _ in range(times):
        async with queue.turn():
            pass


async def test_the_queue_runs_one_change_at_a_time() -> None:
    queue, inside, most = CommitQueue(FixedClock()), 0, 0

    async def hold() -> None:
        nonlocal inside, most
        async with queue.turn():
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(hold() for _ in range(5)))

    assert most == 1


async def test_a_queue_without_contention_rarely_pauses() -> None:
    clock = FixedClock()
    queue = CommitQueue(clock)

    await take_turns(queue, IN_A_ROW_MAX)
    before = len(clock.slept_seconds)
    await take_turns(queue, 1)

    assert (before, len(clock.slept_seconds)) == (0, 1)


async def test_a_queue_with_contention_pauses_sooner() -> None:
    clock = FixedClock()
    queue = CommitQueue(clock)
    async with queue.turn() as held:
        held.note_contention()

    await take_turns(queue, IN_A_ROW_MAX_BESIDE_OTHERS)
    before = len(clock.slept_seconds)
    await take_turns(queue, 1)

    assert (before, len(clock.slept_seconds)) == (0, 1)
