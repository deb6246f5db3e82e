"""Retries: which calls are repeated, and which outcomes stay unknown (rule G2)."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from sandur.errors import OutcomeUnknown, SandurError, SwapLost, Unavailable
from sandur.settings import RetrySettings
from sandur.storage.contract import ABSENT, Expected, ObjectStore, Stored, Version
from sandur.storage.memory import MemoryStore
from sandur.storage.retry import RetryingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.lossy_store import Fate, LossyStore
from tests.fakes.spy_store import SpyStore
from tests.fakes.wrapping_store import Call, WrappingStore

T = TypeVar("T")
KEY = "a/cell"
MINE = b"mine"
TRIES_MAX = 4


class RefusingStore(WrappingStore):
    """Raises the given errors, one per call, and then passes calls on."""

    def __init__(self, inner: ObjectStore, *errors: SandurError | None, only: str = "") -> None:
        super().__init__(inner)
        self._errors = list(errors)
        self._only = only

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        if self._errors and (not self._only or call.name == self._only) and (error := self._errors.pop(0)):
            raise error
        return await perform()


def retrying(inner: ObjectStore, clock: FixedClock | None = None) -> RetryingStore:
    return RetryingStore(inner, clock or FixedClock(), RetrySettings(tries_max=TRIES_MAX))


async def stored(store: ObjectStore, expected: Expected = ABSENT, data: bytes = b"before") -> Version:
    return await store.put(KEY, data, expected=expected)


@pytest.mark.parametrize("is_there", [False, True])
async def test_a_write_whose_answer_was_lost_succeeds_if_the_object_has_its_bytes(*, is_there: bool) -> None:
    memory = MemoryStore()
    expected: Expected = await stored(memory) if is_there else ABSENT
    spy = SpyStore(LossyStore(memory, loses_at=1, fate="applied"))

    version = await retrying(spy).put(KEY, MINE, expected=expected)

    assert await memory.get(KEY) == Stored(MINE, version)
    assert [call.name for call in spy.calls] == ["put", "get"]


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("fate", ["dropped", "late"])
async def test_a_write_that_was_not_applied_is_repeated_unchanged(fate: Fate, *, is_there: bool) -> None:
    memory = MemoryStore()
    expected: Expected = await stored(memory) if is_there else ABSENT
    lossy = LossyStore(memory, loses_at=1, fate=fate)

    version = await retrying(lossy).put(KEY, MINE, expected=expected)

    assert await memory.get(KEY) == Stored(MINE, version)
    assert await lossy.deliver() is False, "the late one lost against its own repetition"
    assert await memory.get(KEY) == Stored(MINE, version)


async def test_a_write_that_is_applied_between_the_check_and_the_retry_is_found() -> None:
    memory = MemoryStore()
    lossy = LossyStore(memory, loses_at=1, fate="late")

    class DeliversBeforeTheSecondPut(WrappingStore):
        puts = 0

        async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
            self.puts += call.name == "put"
            if self.puts == 2:
                await lossy.deliver()
            return await perform()

    version = await retrying(DeliversBeforeTheSecondPut(lossy)).put(KEY, MINE, expected=ABSENT)

    assert await memory.get(KEY) == Stored(MINE, version)


async def test_a_write_with_a_lost_answer_that_was_overtaken_is_not_definitely_lost() -> None:
    memory = MemoryStore()
    before = await stored(memory)

    class OvertakesBeforeTheCheck(WrappingStore):
        async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
            if call.name == "get" and (found := await memory.get(KEY)):
                await memory.put(KEY, b"another's", expected=found.version)
            return await perform()

    store = retrying(OvertakesBeforeTheCheck(LossyStore(memory, loses_at=1, fate="applied")))
    with pytest.raises(SwapLost) as caught:
        await store.put(KEY, MINE, expected=before)

    assert not caught.value.is_definite


async def test_a_swap_lost_at_once_is_definitely_lost_and_not_repeated() -> None:
    memory = MemoryStore()
    await stored(memory)
    spy = SpyStore(memory)

    with pytest.raises(SwapLost) as caught:
        await retrying(spy).put(KEY, MINE, expected=ABSENT)

    assert caught.value.is_definite
    assert [call.name for call in spy.calls] == ["put"]


async def test_a_write_that_never_gets_an_answer_stays_unknown() -> None:
    unknown = [OutcomeUnknown("?")] * TRIES_MAX
    clock = FixedClock()

    with pytest.raises(OutcomeUnknown, match="may still land"):
        await retrying(RefusingStore(MemoryStore(), *unknown, only="put"), clock).put(KEY, MINE, expected=ABSENT)

    assert len(clock.slept_seconds) == TRIES_MAX


async def test_an_unknown_write_followed_by_definite_failures_stays_unknown() -> None:
    errors: list[SandurError] = [OutcomeUnknown("?"), *([Unavailable("!")] * TRIES_MAX)]

    with pytest.raises(OutcomeUnknown):
        await retrying(RefusingStore(MemoryStore(), *errors, only="put")).put(KEY, MINE, expected=ABSENT)


async def test_an_unknown_write_that_cannot_be_looked_up_stays_unknown() -> None:
    inner = RefusingStore(MemoryStore(), OutcomeUnknown("?"), *([Unavailable("!")] * TRIES_MAX))

    with pytest.raises(OutcomeUnknown, match="none to the read"):
        await retrying(inner).put(KEY, MINE, expected=ABSENT)


async def test_a_definite_failure_is_repeated_and_then_reported_as_definite() -> None:
    memory = MemoryStore()
    twice = RefusingStore(memory, Unavailable("!"), Unavailable("!"))
    always = RefusingStore(memory, *([Unavailable("!")] * 100))

    version = await retrying(twice).put(KEY, MINE, expected=ABSENT)

    assert await memory.get(KEY) == Stored(MINE, version)
    with pytest.raises(Unavailable, match="nothing was written"):
        await retrying(always).put(KEY, MINE, expected=version)


async def test_reads_are_repeated_a_bounded_number_of_times() -> None:
    memory = MemoryStore()
    version = await stored(memory)

    def failing(times: int) -> RetryingStore:
        return retrying(RefusingStore(memory, *([Unavailable("!")] * times)))

    assert await failing(TRIES_MAX - 1).get(KEY) == Stored(b"before", version)
    assert len(await failing(1).list("a/")) == 1
    assert await failing(1).head(KEY)
    assert await failing(1).get_if_changed(KEY, seen=Version("other"))
    with pytest.raises(Unavailable):
        await failing(TRIES_MAX).get(KEY)


async def test_pauses_grow_up_to_a_limit_and_have_jitter() -> None:
    clocks = [FixedClock(seed=seed) for seed in (1, 2)]
    settings = RetrySettings(tries_max=8, first_wait_ms=50, wait_max_ms=400)
    for clock in clocks:
        store = RetryingStore(RefusingStore(MemoryStore(), *([Unavailable("!")] * 100)), clock, settings)
        with pytest.raises(Unavailable):
            await store.get(KEY)

    first, second = (clock.slept_seconds for clock in clocks)
    longest = [0.05, 0.1, 0.2, 0.4, 0.4, 0.4, 0.4]
    assert all(limit / 2 <= wait <= limit for wait, limit in zip(first, longest, strict=True))
    assert first != second


@pytest.mark.parametrize("fate", ["applied", "dropped", "late"])
async def test_a_delete_whose_answer_was_lost_ends_with_the_object_gone(fate: Fate) -> None:
    memory = MemoryStore()
    version = await stored(memory)

    await retrying(LossyStore(memory, loses_at=1, fate=fate)).delete(KEY, expected=version)

    assert await memory.get(KEY) is None


async def test_a_delete_with_a_lost_answer_of_a_changed_object_is_not_definitely_lost() -> None:
    memory = MemoryStore()
    version = await stored(memory)

    class RecreatesBeforeTheCheck(WrappingStore):
        async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
            if call.name == "get":
                await stored(memory, data=b"again")
            return await perform()

    with pytest.raises(SwapLost) as caught:
        await retrying(RecreatesBeforeTheCheck(LossyStore(memory, loses_at=1, fate="applied"))).delete(
            KEY, expected=version
        )

    assert not caught.value.is_definite
    assert await memory.get(KEY)
