"""Shared reads: who joins which read, a read that fails, a request that leaves, and histories beside a writer."""

import asyncio
import random  # noqa: TID251 - seeded
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from proof.linearizable import is_linearizable
from sandur.errors import Unavailable
from sandur.storage import shared_reads
from sandur.storage.contract import ABSENT, UNCHANGED, Stored
from sandur.storage.memory import MemoryStore
from sandur.storage.shared_reads import SharedReads, SharingStore
from tests.fakes.spy_store import SpyStore
from tests.fakes.yielding_store import YieldingStore

SEEDS: Final = range(60)


class Slow:
    """A value whose reads wait until the test lets them go. A read returns what was current when it was let go."""

    def __init__(self) -> None:
        self.value = 0
        self.begun: list[asyncio.Future[None]] = []
        self._more = asyncio.Event()

    async def read(self) -> int:
        gate = asyncio.get_running_loop().create_future()
        self.begun.append(gate)
        self._more.set()
        await gate
        return self.value

    async def until_begun(self, count: int) -> None:
        while len(self.begun) < count:
            self._more.clear()
            await self._more.wait()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read waits for the earlier one, however long it takes."""
    monkeypatch.setattr(shared_reads, "JOIN_SECONDS_MAX", 3_600.0)


async def test_requests_that_arrive_before_a_read_begins_share_it() -> None:
    slow = Slow()
    shared = SharedReads(slow.read)

    requests = [asyncio.create_task(shared.get()) for _ in range(5)]
    await slow.until_begun(1)
    slow.begun[0].set_result(None)

    assert await asyncio.gather(*requests) == [0] * 5
    assert len(slow.begun) == 1


async def test_a_request_never_joins_a_read_that_has_begun_and_one_further_read_serves_all_that_wait() -> None:
    slow = Slow()
    shared = SharedReads(slow.read)
    first = asyncio.create_task(shared.get())
    await slow.until_begun(1)
    later = [asyncio.create_task(shared.get()) for _ in range(4)]
    await asyncio.sleep(0)

    slow.begun[0].set_result(None)
    assert await first == 0
    slow.value = 1
    await slow.until_begun(2)
    slow.begun[1].set_result(None)

    assert await asyncio.gather(*later) == [1] * 4
    assert len(slow.begun) == 2


async def test_a_read_begins_beside_one_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_reads, "JOIN_SECONDS_MAX", 0.0)
    slow = Slow()
    shared = SharedReads(slow.read)
    first = asyncio.create_task(shared.get())
    await slow.until_begun(1)

    second = asyncio.create_task(shared.get())
    await slow.until_begun(2)
    slow.begun[1].set_result(None)

    assert await second == 0
    slow.begun[0].set_result(None)
    assert await first == 0


async def _two_reads_beside_each_other(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> "tuple[asyncio.Task[int], asyncio.Task[int]]":
    monkeypatch.setattr(shared_reads, "JOIN_SECONDS_MAX", 0.0)
    shared = SharedReads(slow.read)
    first = asyncio.create_task(shared.get())
    await slow.until_begun(1)
    second = asyncio.create_task(shared.get())
    await slow.until_begun(2)
    return first, second


async def test_a_read_that_overtakes_a_slow_one_answers_its_requests_too(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    first, second = await _two_reads_beside_each_other(slow, monkeypatch)

    slow.value = 7
    slow.begun[1].set_result(None)
    async with asyncio.timeout(30):
        found = [*await asyncio.gather(first, second)]
    slow.value = 8
    slow.begun[0].set_result(None)  # Its answer comes late, and is dropped.

    assert found == [7, 7]


async def test_a_read_never_answers_the_requests_of_one_that_began_later(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    first, second = await _two_reads_beside_each_other(slow, monkeypatch)

    slow.begun[0].set_result(None)
    assert await first == 0
    for _ in range(10):
        await asyncio.sleep(0)
    assert not second.done()
    slow.value = 7
    slow.begun[1].set_result(None)

    assert await second == 7


async def test_a_read_that_was_overtaken_answers_no_request_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_reads, "JOIN_SECONDS_MAX", 0.0)
    slow = Slow()
    shared = SharedReads(slow.read)
    requests = []
    for count in (1, 2, 3):
        requests.append(asyncio.create_task(shared.get()))
        await slow.until_begun(count)

    slow.begun[1].set_result(None)
    async with asyncio.timeout(30):
        await asyncio.gather(*requests[:2])
    slow.begun[0].set_result(None)  # Its value may be from before the third request.
    for _ in range(10):
        await asyncio.sleep(0)
    assert not requests[2].done()
    slow.value = 7
    slow.begun[2].set_result(None)

    assert await requests[2] == 7


@pytest.mark.parametrize("failing", [0, 1])
async def test_a_read_that_fails_fails_only_for_those_that_joined_it(
    failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow()
    requests = await _two_reads_beside_each_other(slow, monkeypatch)

    slow.begun[failing].set_exception(Unavailable("the store is gone"))
    with pytest.raises(Unavailable):
        await requests[failing]
    assert not requests[1 - failing].done()
    slow.begun[1 - failing].set_result(None)

    assert await requests[1 - failing] == 0


async def test_a_request_waits_for_the_read_before_no_longer_than_the_bound_from_its_begin() -> None:
    slow, loop = Slow(), asyncio.get_running_loop()
    shared = SharedReads(slow.read)
    first = asyncio.create_task(shared.get())
    await slow.until_begun(1)
    shared._began_seconds = loop.time() - shared_reads.JOIN_SECONDS_MAX  # The read takes longer than the bound.

    second = asyncio.create_task(shared.get())
    await slow.until_begun(2)
    slow.begun[1].set_result(None)

    async with asyncio.timeout(30):
        assert [*await asyncio.gather(first, second)] == [0, 0]


async def test_a_request_that_leaves_does_not_end_the_read_not_even_the_first_one() -> None:
    slow = Slow()
    shared = SharedReads(slow.read)
    first, second = asyncio.create_task(shared.get()), asyncio.create_task(shared.get())
    await slow.until_begun(1)

    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    slow.begun[0].set_result(None)

    assert await second == 0


async def test_a_failed_read_fails_for_all_that_joined_it_and_the_next_request_reads_again() -> None:
    slow = Slow()
    shared = SharedReads(slow.read)
    requests = [asyncio.create_task(shared.get()) for _ in range(3)]
    await slow.until_begun(1)

    slow.begun[0].set_exception(Unavailable("the store is gone"))
    found = await asyncio.gather(*requests, return_exceptions=True)
    again = asyncio.create_task(shared.get())
    await slow.until_begun(2)
    slow.begun[1].set_result(None)

    assert all(isinstance(one, Unavailable) for one in found)
    assert await again == 0


def test_a_loop_that_ended_in_the_middle_leaves_nothing_that_others_wait_for() -> None:
    slow = Slow()
    shared = SharedReads(slow.read)

    async def leave() -> None:
        asyncio.create_task(shared.get())  # noqa: RUF006 - the loop ends before it
        await asyncio.sleep(0)

    async def read() -> int:
        request = asyncio.create_task(shared.get())
        await slow.until_begun(1)
        slow.begun[-1].set_result(None)
        return await request

    asyncio.run(leave())
    slow.begun.clear()

    assert asyncio.run(read()) == 0


class History:
    """Requests in the order of real time, for the checker of the models."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, ...]] = []
        self.masks: list[int | None] = []
        self.results: list[str | None] = []

    async def run(self, request: tuple[str, ...], act: Callable[[], Awaitable[str]]) -> None:
        place = len(self.requests)
        self.requests.append(request)
        self.masks.append(sum(1 << other for other, answer in enumerate(self.results) if answer is not None))
        self.results.append(None)
        self.results[place] = await act()

    def is_correct(self) -> bool:
        def answer(world: str, request: tuple[str, ...]) -> tuple[str, str]:
            return ("ok", request[1]) if request[0] == "write" else (world, world)

        return is_linearizable(
            self.requests,
            tuple(self.masks),
            tuple(self.results),
            specification=answer,
            start="0",
            unsure=(None,),
            views=(),
        )


async def _steps(chance: random.Random, most: int = 4) -> None:
    for _ in range(chance.randrange(most)):
        await asyncio.sleep(0)


async def _history(seed: int, *, joins_running: bool = False) -> History:
    """Readers that share reads beside a writer elsewhere, each at a random speed."""
    chance, history, stored = random.Random(seed), History(), ["0"]

    async def read() -> str:
        await _steps(chance)
        found = stored[0]
        await _steps(chance)
        return found

    shared = SharedReads(read)

    async def get() -> str:
        if joins_running and shared._running and not shared._running[-1].done():  # Breaks SR1 on purpose.
            return await asyncio.shield(shared._running[-1])
        return await shared.get()

    async def reader() -> None:
        for _ in range(3):
            await _steps(chance)
            await history.run(("read",), get)

    async def writer() -> None:
        for number in range(1, 4):

            async def write(value: str = str(number)) -> str:
                await _steps(chance)
                stored[0] = value
                await _steps(chance)
                return "ok"

            await history.run(("write", str(number)), write)

    await asyncio.gather(reader(), reader(), reader(), writer())
    return history


@pytest.mark.parametrize("pause_seconds", [0.0, 3_600.0])
async def test_histories_of_shared_reads_beside_a_writer_are_linearizable(
    pause_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_reads, "JOIN_SECONDS_MAX", pause_seconds)

    wrong = [seed for seed in SEEDS if not (await _history(seed)).is_correct()]

    assert wrong == []


async def test_the_check_of_histories_notices_a_request_that_joins_a_read_in_progress() -> None:
    assert not all([(await _history(seed, joins_running=True)).is_correct() for seed in SEEDS])


async def test_concurrent_reads_of_one_object_cost_two_calls_and_those_of_others_their_own() -> None:
    kept = MemoryStore()
    version = await kept.put("hot", b"1", expected=ABSENT)
    other = await kept.put("other", b"1", expected=ABSENT)
    spy = SpyStore(kept)
    store = SharingStore(spy)

    found = await asyncio.gather(
        *(store.get_if_changed("hot", seen=version) for _ in range(20)),
        *(store.head("hot") for _ in range(20)),
        store.get_if_changed("other", seen=other),
    )

    assert [found[0], found[-1]] == [UNCHANGED, UNCHANGED]
    assert (len(spy.keys("get_if_changed")), len(spy.keys("head"))) == (3, 2)
    assert not store._reads


async def test_unchanged_refers_to_the_version_that_its_request_sent() -> None:
    """SR5: requests with different memories share nothing."""
    kept = MemoryStore()
    old = await kept.put("key", b"1", expected=ABSENT)
    new = await kept.put("key", b"2", expected=old)
    store = SharingStore(YieldingStore(kept, seed=1))

    found = await asyncio.gather(*(store.get_if_changed("key", seen=seen) for seen in (old, new) * 4))

    assert [one if one is UNCHANGED else one and one.data for one in found] == [b"2", UNCHANGED] * 4
    assert await store.are_current([("key", new)])
    assert not await store.are_current([("key", new), ("key", old)])


async def test_a_request_that_reads_alone_and_leaves_does_not_disturb_the_ones_behind_it() -> None:
    kept = MemoryStore()
    await kept.put("key", b"1", expected=ABSENT)
    store = SharingStore(YieldingStore(kept, seed=2, yields_max=20))
    requests = [asyncio.create_task(store.get("key")) for _ in range(3)]
    await asyncio.sleep(0)

    requests[0].cancel()
    found = await asyncio.gather(*requests, return_exceptions=True)

    assert isinstance(found[0], asyncio.CancelledError)
    assert [one.data for one in found[1:] if isinstance(one, Stored)] == [b"1", b"1"]
    assert not store._reads


async def _store_history(seed: int) -> History:
    """Readers that remember versions, and share the reads of a store that yields, beside a writer elsewhere."""
    chance, history, kept = random.Random(seed), History(), MemoryStore()
    first = await kept.put("key", b"0", expected=ABSENT)
    # A slow read can begin before a write and end after the next one.
    shared = SharingStore(YieldingStore(kept, seed=seed, yields_max=12))
    elsewhere = YieldingStore(kept, seed=seed + 1, yields_max=2)

    async def reader() -> None:
        seen = Stored(b"0", first)

        async def get() -> str:
            nonlocal seen
            found = await shared.get_if_changed("key", seen=seen.version)
            seen = found if isinstance(found, Stored) else seen
            return seen.data.decode()

        for _ in range(3):
            await _steps(chance, 16)
            await history.run(("read",), get)

    async def writer() -> None:
        version = first
        for number in range(1, 4):

            async def write(value: str = str(number)) -> str:
                nonlocal version
                version = await elsewhere.put("key", value.encode(), expected=version)
                return "ok"

            await _steps(chance, 16)
            await history.run(("write", str(number)), write)

    await asyncio.gather(reader(), reader(), reader(), writer())
    return history


@pytest.mark.parametrize("pause_seconds", [0.0, 3_600.0])
async def test_histories_on_a_store_that_shares_reads_are_linearizable(
    pause_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_reads, "JOIN_SECONDS_MAX", pause_seconds)

    wrong = [seed for seed in SEEDS if not (await _store_history(seed)).is_correct()]

    assert wrong == []
