"""Calls of one round: all of them end, whatever becomes of the others."""

import asyncio

import pytest

from sandur.operations.together import both, together


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

    found = await together([calls.call("a", yields=3), calls.call("b"), calls.call("c", yields=1)])

    assert found == ["a", "b", "c"]
    assert calls.ended == ["b", "c", "a"]


async def test_no_calls_have_no_results() -> None:
    assert await together([]) == []


@pytest.mark.parametrize("failing", ["a", "b"])
async def test_a_failure_is_raised_after_every_call_has_ended(failing: str) -> None:
    calls = Calls()

    with pytest.raises(ValueError, match=failing):
        await together([calls.call(name, yields=3 * (name != failing), fails=name == failing) for name in "abc"])

    assert sorted(calls.ended) == ["a", "b", "c"]


async def test_of_several_failures_the_first_call_s_is_raised() -> None:
    calls = Calls()

    with pytest.raises(ValueError, match="a"):
        await together([calls.call("a", yields=3, fails=True), calls.call("b", fails=True)])


async def test_who_is_cancelled_leaves_no_call_running() -> None:
    calls = Calls()
    waiting = asyncio.create_task(together([calls.call(name, yields=1_000) for name in "abc"]))
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
