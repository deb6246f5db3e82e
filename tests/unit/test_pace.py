"""The pace of a bucket in virtual time: limits, the retry budget, second reads; a storm of retries never happens."""

import asyncio
import random  # noqa: TID251 - seeded, so that a run can be repeated
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from sandur.errors import OutcomeUnknown, SandurError, Unavailable
from sandur.settings import RetrySettings, Settings
from sandur.storage.contract import ABSENT, ObjectStore, Version
from sandur.storage.locations import connect
from sandur.storage.memory import MemoryStore
from sandur.storage.pace import AT_ONCE_MIN, SLOT_SECONDS_MAX, CallLimit, PacedStore, pace_of
from sandur.storage.retry import RetryingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.simulation.bucket import SimulatedClock
from tests.simulation.loop import SimulatedLoop

T = TypeVar("T")

LATENCY_SECONDS = 0.02


def in_virtual_time(work: Callable[[SimulatedLoop], Coroutine[Any, Any, T]]) -> T:
    loop = SimulatedLoop(1)
    try:
        return loop.run_until_complete(work(loop))
    finally:
        loop.close()


class ThrottlingStore(WrappingStore):
    """Serves `per_second` calls in each second and throttles the rest; every third throttled write is applied."""

    def __init__(self, inner: ObjectStore, per_second: float) -> None:
        super().__init__(inner)
        self.per_second = per_second
        self.calls: list[tuple[float, Call]] = []
        self.served = 0
        self.throttled = 0
        self._second = -1
        self._left = 0.0

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        now = asyncio.get_running_loop().time()
        self.calls.append((now, call))
        await asyncio.sleep(LATENCY_SECONDS)
        if int(now) != self._second:
            self._second, self._left = int(now), self.per_second
        self._left -= 1
        if self._left < 0:
            self.throttled += 1
            if not call.is_write:
                raise Unavailable(f"object {call.key}: SlowDown", is_throttled=True)
            if self.throttled % 3 == 0:
                await perform()
            raise OutcomeUnknown(f"object {call.key}: SlowDown", is_throttled=True)
        self.served += 1
        return await perform()


async def _outcome(call: Awaitable[object]) -> str:
    try:
        await call
    except SandurError as error:
        return type(error).__name__
    return "ok"


def stack(loop: SimulatedLoop, inner: ObjectStore, **settings: Any) -> RetryingStore:
    configured = RetrySettings(**settings)
    return RetryingStore(PacedStore(inner, configured), SimulatedClock(loop, "clock"), configured)


@pytest.mark.parametrize("per_second", [5, 50, 400])
def test_a_bucket_that_throttles_gets_few_more_calls_than_it_serves(per_second: int) -> None:
    """100 clients want about 2,500 calls per second, all the time. Second reads add nothing to that."""
    seconds = 20

    async def run(loop: SimulatedLoop) -> tuple[ThrottlingStore, Counter[str], Counter[str]]:
        memory = MemoryStore()
        bucket = ThrottlingStore(memory, per_second)
        store = stack(loop, bucket)
        outcomes: Counter[str] = Counter()

        async def client(number: int) -> None:
            count = 0
            while loop.time() < seconds:
                count += 1
                key = f"a/{number}-{count}"
                outcomes[await _outcome(store.put(key, b"x" + key.encode(), expected=ABSENT))] += 1
                outcomes[await _outcome(store.get(key))] += 1
                outcomes[await _outcome(store.get_if_changed(key, seen=Version("other")))] += 1
                outcomes[await _outcome(store.head(key))] += 1
                await asyncio.sleep(0.02)

        await asyncio.gather(*map(client, range(100)))
        assert store.pace is not None
        return bucket, outcomes, store.pace.counts

    bucket, outcomes, counts = in_virtual_time(run)

    assert bucket.served > 0.7 * per_second * seconds, "the bucket is used"
    assert len(bucket.calls) < 3 * bucket.served + 1_000, (len(bucket.calls), bucket.served, outcomes)
    assert set(outcomes) <= {"ok", "Unavailable", "OutcomeUnknown"}, outcomes
    assert counts["second_read"] <= 5, "none while the bucket throttles"
    assert outcomes["ok"] > 0.3 * bucket.served


def test_an_unknown_write_is_looked_up_before_it_is_repeated() -> None:
    async def run(loop: SimulatedLoop) -> ThrottlingStore:
        bucket = ThrottlingStore(MemoryStore(), 20)
        store = stack(loop, bucket)
        puts = (_outcome(store.put(f"a/{number}", b"%d" % number, expected=ABSENT)) for number in range(60))
        await asyncio.gather(*puts)
        return bucket

    bucket = in_virtual_time(run)

    by_key: dict[str, list[str]] = {}
    for _, call in bucket.calls:
        by_key.setdefault(call.key, []).append(call.name)
    assert any(len(names) > 2 for names in by_key.values()), "some were repeated"
    for names in by_key.values():
        assert "put,put" not in ",".join(names), names


def test_the_limit_halves_once_for_calls_sent_together_and_grows_again() -> None:
    limit = CallLimit(64)

    assert limit.decrease(began=1.0, now=1.1)
    assert not limit.decrease(began=1.0, now=1.2), "sent before the last decrease"
    assert limit.limit == 32
    for at in range(2, 20):
        limit.decrease(began=float(at), now=float(at))
    assert limit.limit == AT_ONCE_MIN
    for _ in range(10_000):
        limit.increase()
    assert limit.limit == 64


def test_a_call_without_a_turn_fails_for_sure_and_a_cancelled_one_leaves_no_trace() -> None:
    async def run(loop: SimulatedLoop) -> None:
        limit = CallLimit(1)
        await limit.begin()
        waiting = [asyncio.create_task(limit.begin()) for _ in range(3)]
        await asyncio.sleep(1)
        waiting[0].cancel()
        await asyncio.sleep(0.001)
        limit.end()
        await waiting[1]
        began = loop.time()
        with pytest.raises(Unavailable, match="nothing was sent"):
            await waiting[2]
        assert loop.time() - began <= SLOT_SECONDS_MAX
        limit.end()
        assert limit.running == 0
        assert limit.is_free

    in_virtual_time(run)


@pytest.mark.parametrize("is_cancelled_first", [False, True])
def test_a_turn_that_comes_as_its_call_is_cancelled_is_passed_on(*, is_cancelled_first: bool) -> None:
    async def run(_loop: SimulatedLoop) -> None:
        limit = CallLimit(1)
        await limit.begin()
        first, second = (asyncio.create_task(limit.begin()) for _ in range(2))
        await asyncio.sleep(0.001)
        if is_cancelled_first:
            first.cancel()
        limit.end()
        first.cancel()
        await second
        limit.end()
        assert limit.is_free

    in_virtual_time(run)


class SlowSometimes(WrappingStore):
    """A read takes 20 ms, one in thirty takes two seconds."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._chance = random.Random(7)
        self.counts: Counter[str] = Counter()

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        self.counts[call.name] += 1
        answer = await perform()
        await asyncio.sleep(2.0 if self._chance.random() < 1 / 30 else LATENCY_SECONDS)
        return answer


@pytest.mark.parametrize("kind", ["get_if_changed", "head"])
@pytest.mark.parametrize("share", [0.0, 0.05])
def test_slow_conditional_reads_get_a_second_one_and_nothing_else_does(share: float, kind: str) -> None:
    """A load waits for two conditional reads and for the existence of its file: all three may be slow."""

    async def run(loop: SimulatedLoop) -> tuple[SlowSometimes, RetryingStore, list[float], float]:
        slow = SlowSometimes(MemoryStore())
        store = stack(loop, slow, second_reads_share=share)
        version = await store.put("a/b", b"x", expected=ABSENT)
        seconds = []
        for _ in range(2_000):
            began = loop.time()
            await (store.head("a/b") if kind == "head" else store.get_if_changed("a/b", seen=version))
            seconds.append(loop.time() - began)
        began = loop.time()
        for number in range(300):
            await store.put(f"a/c{number}", b"x", expected=ABSENT)
            await store.get(f"a/c{number}")
        return slow, store, seconds, loop.time() - began

    slow, store, seconds, _ = in_virtual_time(run)

    slow_share = sum(one > 1 for one in seconds) / len(seconds)
    extra = slow.counts[kind] - 2_000
    assert slow.counts["put"] == 301
    assert slow.counts["get"] == 300
    assert store.pace is not None
    assert extra == store.pace.counts["second_read"]
    if share:
        assert 0 < extra <= 0.05 * 2_000 + 5
        assert slow_share < 0.01
    else:
        assert extra == 0
        assert slow_share > 0.02


def test_a_second_read_answers_if_the_first_one_fails_late() -> None:
    class FailsLate(SlowSometimes):
        async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
            self.counts[call.name] += 1
            if self.counts[call.name] == 101:
                await asyncio.sleep(0.1)
                raise Unavailable("late")
            await asyncio.sleep(LATENCY_SECONDS if self.counts[call.name] < 101 else 1.0)
            return await perform()

    async def run(loop: SimulatedLoop) -> object:
        paced = PacedStore(FailsLate(MemoryStore()), RetrySettings())
        assert loop.time() == 0
        for _ in range(100):
            await paced.get_if_changed("a/b", seen=Version("none"))
        return await paced.get_if_changed("a/b", seen=Version("none")), paced.pace.counts["second_read"]

    assert in_virtual_time(run) == (None, 1)


def test_a_folder_has_no_pace(tmp_path: Any) -> None:
    assert pace_of(connect(Settings(store=str(tmp_path)), FixedClock())) is None
    assert pace_of(connect(Settings(store="s3://bucket"), FixedClock())) is not None
