"""Calls of one round: all of them end, whatever becomes of the others."""

import asyncio

import pytest

from sandur.operations.concurrency import BEGUN_AT_ONCE_MAX, all_three, both, gather_all


class Calls:
    """Calls that end in the order of their delays, and what has ended so far."""

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

    assert found == ["a", "b", "c"]
    assert calls.ended == ["b", "c", "a"]


async def test_no_calls_have_no_results() -> None:
    assert await gather_all([]) == []


@pytest.mark.parametrize("failing", ["a", "b"])
async def test_a_failure_is_raised_after_every_call_has_ended(failing: str) -> None:
    calls = Calls()

    with pytest.raises(ValueError, match=failing):
        await gather_all([calls.call(name, yields=3 * (name != failing), fails=name == failing) for name in "abc"])

    assert sorted(calls.ended) == ["a", "b", "c"]


async def test_of_several_failures_the_first_call_s_is_raised() -> None:
    calls = Calls()

    with pytest.raises(ValueError, match="a"):
        await gather_all([calls.call("a", yields=3, fails=True), calls.call("b", fails=True)])


async def test_who_is_cancelled_leaves_no_call_running() -> None:
    calls = Calls()
    waiting = asyncio.create_task(gather_all([calls.call(name, yields=1_000) for name in "abc"]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    waiting.cancel()
    for _ in range(10):
        await asyncio.sleep(0)

    assert waiting.cancelled()
    assert sorted(calls.ended) == ["a", "b", "c"]


async def test_both_are_made_in_the_same_round() -> None:
    calls = Calls()

    assert await both(calls.call("a", yields=3), calls.call("b", yields=1)) == ("a", "b")
    assert calls.ended == ["b", "a"]


@pytest.mark.parametrize("failing", ["a", "b"])
async def test_the_failure_of_either_is_raised_with_nothing_left_running(failing: str) -> None:
    calls = Calls()

    with pytest.raises(ValueError, match=failing):
        await both(*(calls.call(name, yields=3, fails=name == failing) for name in "ab"))

    assert sorted(calls.ended) == ["a", "b"]


async def test_calls_that_never_wait_need_no_task() -> None:
    calls = Calls()
    before = len(asyncio.all_tasks())

    async def counted() -> int:
        return len(asyncio.all_tasks())

    assert await gather_all([counted(), counted()]) == [before, before]
    assert await both(counted(), counted()) == (before, before)
    assert await all_three(calls.call("a"), calls.call("b", yields=1), calls.call("c")) == ("a", "b", "c")


async def test_many_calls_let_others_have_their_turn() -> None:
    order: list[str] = []

    async def call() -> None:
        order.append("call")

    other = asyncio.create_task(_noted(order))
    await gather_all([call() for _ in range(BEGUN_AT_ONCE_MAX + 1)])
    await other

    assert order[0] == "other"


async def _noted(order: list[str]) -> None:
    order.append("other")


async def test_what_a_call_waits_for_reaches_it_value_or_failure() -> None:
    loop = asyncio.get_running_loop()
    good, bad = loop.create_future(), loop.create_future()
    loop.call_soon(good.set_result, "good")
    loop.call_soon(bad.set_exception, ValueError("bad"))

    async def caught() -> str:
        try:
            await bad
        except ValueError as error:
            await asyncio.sleep(0)
            return str(error)
        return "nothing"

    async def got() -> str:
        return str(await good)

    assert await gather_all([caught(), got()]) == ["bad", "good"]


async def test_a_call_that_was_not_begun_when_the_first_failed_is_given_up() -> None:
    calls = Calls()

    with pytest.raises(ValueError, match="a"):
        await all_three(calls.call("b"), calls.call("a", fails=True), calls.call("c"))

    assert calls.ended == ["b", "a"]


async def test_a_call_that_was_begun_is_ended_when_another_is_cancelled_at_once() -> None:
    calls = Calls()

    async def cancelled() -> str:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await gather_all([calls.call("a", yields=5), cancelled(), calls.call("b", yields=5)])

    assert calls.ended == ["a"]


async def test_a_call_that_was_begun_goes_to_its_end_although_the_next_fails_at_once() -> None:
    written: list[str] = []

    async def write() -> None:
        await asyncio.sleep(0)
        written.append("all of it")

    async def fail() -> None:
        raise ValueError("at once")

    with pytest.raises(ValueError, match="at once"):
        await both(write(), fail())

    assert written == ["all of it"]
