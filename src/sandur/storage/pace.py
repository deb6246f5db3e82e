"""The pace of calls to a bucket: how many run at once, how many may be retried, and second reads for slow ones.

A bucket that answers "slow down" gets fewer calls at once until it stops (additive increase, multiplicative decrease).
Retries are paid for by successes, so that a bucket that fails gets little more than one try per call. A conditional
read or an existence check that takes longer than most gets a second one beside it, and the first answer counts; a write
never does. A folder needs none of this, and has none of it.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from sandur.errors import OutcomeUnknown, Unavailable
from sandur.settings import RetrySettings
from sandur.storage.contract import (
    LIST_LIMIT_MAX,
    UNCHANGED,
    Expected,
    Listed,
    ObjectStore,
    Stored,
    Unchanged,
    Version,
)

T = TypeVar("T")

AT_ONCE_MIN: Final = 2
SLOT_SECONDS_MAX: Final = 10.0
"""How long a call waits for its turn. Then it fails, and nothing was sent."""

_DECREASE: Final = 0.5
_REST_SECONDS_MIN: Final = 0.05
_REST_SECONDS_MAX: Final = 1.0
_CALM_SECONDS: Final = 5.0
"""How long after the last throttled call no second reads are sent."""

_TIMES_KEPT: Final = 128
_TIMES_MIN: Final = 32
_SLOW: Final = 0.95
_MARGIN: Final = 1.25
"""A read is slow if it takes this many times as long as 95 % of the reads before it."""

_HEDGE_SECONDS_MIN: Final = 0.005
_HEDGES_BURST: Final = 5.0


class RetryBudget:
    """Tokens for retries: a success adds a part of one, a retry takes one. It begins full."""

    def __init__(self, *, share: float, burst: int) -> None:
        self._share = share
        self._burst = float(burst)
        self.tokens = self._burst

    def earn(self) -> None:
        self.tokens = min(self._burst, self.tokens + self._share)

    def take(self) -> bool:
        """Whether a retry may be made."""
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class CallLimit:
    """At most `limit` calls at once; further ones wait in order. The limit follows the answers of the store."""

    def __init__(self, at_once_max: int) -> None:
        self._most = float(at_once_max)
        self.limit = self._most
        self.running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.rest_seconds = 0.0
        self._decreased_seconds = -_CALM_SECONDS

    @property
    def is_free(self) -> bool:
        return self.running < self.limit and not self._waiting

    def is_calm(self, now: float) -> bool:
        return now - self._decreased_seconds >= _CALM_SECONDS

    async def begin(self) -> None:
        """Wait for a turn. Raises Unavailable if none comes in time."""
        if self.is_free:
            self.running += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(SLOT_SECONDS_MAX):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.end()  # The turn came as this call gave up: it is for the next one.
            else:
                self._waiting.remove(turn)
                self._wake()  # A turn that came meanwhile found this call at the front.
            if isinstance(error, TimeoutError):
                raise Unavailable("too many calls wait for a store that is slow: nothing was sent") from None
            raise

    def end(self) -> None:
        self.running -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self.running < self.limit:
            turn = self._waiting[0]
            if turn.done():  # Its call was cancelled. It removes itself, and wakes the next one.
                return
            self._waiting.popleft()
            self.running += 1
            turn.set_result(None)

    def increase(self) -> None:
        self.limit = min(self._most, self.limit + 1 / self.limit)
        self.rest_seconds = self.rest_seconds / 2 if self.rest_seconds > _REST_SECONDS_MIN else 0.0

    def decrease(self, *, began: float, now: float) -> bool:
        """Halve the limit, once for all calls that were sent before the last decrease.

        At the lowest limit, a throttled call keeps its turn for a while instead.
        """
        if began < self._decreased_seconds:
            return False
        self._decreased_seconds = now
        if self.limit == AT_ONCE_MIN:
            self.rest_seconds = min(max(2 * self.rest_seconds, _REST_SECONDS_MIN), _REST_SECONDS_MAX)
        self.limit = max(AT_ONCE_MIN, self.limit * _DECREASE)
        return True


class Hedges:
    """When a read is slow, and whether it may have a second one: at most `share` of all reads."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._tokens = _HEDGES_BURST if share else 0.0
        self._seconds: deque[float] = deque(maxlen=_TIMES_KEPT)
        self._reads = 0
        self.delay_seconds: float | None = None

    def observe(self, seconds: float) -> None:
        """Note how long a read took; from time to time, find out what slow is."""
        self._seconds.append(seconds)
        self._reads += 1
        self._tokens = min(_HEDGES_BURST, self._tokens + self._share)
        if self._share and self._reads % _TIMES_MIN == 0:
            ordered = sorted(self._seconds)
            self.delay_seconds = max(_HEDGE_SECONDS_MIN, ordered[int(len(ordered) * _SLOW)] * _MARGIN)

    def take(self) -> bool:
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Pace:
    """The pace of one store, with the counts for its metrics."""

    def __init__(self, settings: RetrySettings) -> None:
        self.budget = RetryBudget(share=settings.retries_share, burst=settings.retries_burst)
        self.limit = CallLimit(settings.calls_at_once_max)
        self.hedges = Hedges(settings.second_reads_share)
        self.counts: Counter[str] = Counter()


class PacedStore:
    """The inner store at its pace. It repeats nothing by itself, except that a slow read may run twice."""

    has_instant_reads = False

    def __init__(self, inner: ObjectStore, settings: RetrySettings) -> None:
        self._inner = inner
        self.pace = Pace(settings)
        self.version_now = inner.version_now

    async def get(self, key: str) -> Stored | None:
        return await self._paced(lambda: self._inner.get(key))

    async def get_if_changed(self, key: str, *, seen: Version) -> Stored | Unchanged | None:
        return await self._hedged(lambda: self._inner.get_if_changed(key, seen=seen))

    async def are_current(self, versions: Sequence[tuple[str, Version]]) -> bool:
        found = await asyncio.gather(*(self.get_if_changed(key, seen=version) for key, version in versions))
        return all(one is UNCHANGED for one in found)

    async def head(self, key: str) -> Listed | None:
        return await self._hedged(lambda: self._inner.head(key))

    async def list(self, prefix: str, *, after: str | None = None, limit: int = LIST_LIMIT_MAX) -> Sequence[Listed]:
        return await self._paced(lambda: self._inner.list(prefix, after=after, limit=limit))

    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
        return await self._paced(lambda: self._inner.put(key, data, expected=expected))

    async def delete(self, key: str, *, expected: Version) -> None:
        return await self._paced(lambda: self._inner.delete(key, expected=expected))

    async def close(self) -> None:
        await self._inner.close()

    async def _paced(self, call: Callable[[], Awaitable[T]]) -> T:
        limit, counts = self.pace.limit, self.pace.counts
        if not limit.is_free:
            counts["waited"] += 1
        await limit.begin()
        async with self._observed():
            return await call()

    @asynccontextmanager
    async def _observed(self) -> AsyncIterator[None]:
        """One call that has its turn: its answer changes the limit and the budget."""
        pace, loop = self.pace, asyncio.get_running_loop()
        began = loop.time()
        try:
            yield
        except (Unavailable, OutcomeUnknown) as error:
            if error.is_throttled:
                pace.counts["throttled"] += 1
                if pace.limit.decrease(began=began, now=loop.time()):
                    pace.counts["slowed"] += 1
                await asyncio.sleep(pace.limit.rest_seconds)
            raise
        except Exception:
            pace.budget.earn()  # Any other answer, such as a lost swap, is one of a store that works.
            raise
        else:
            pace.budget.earn()
            pace.limit.increase()
        finally:
            pace.limit.end()

    async def _hedged(self, read: Callable[[], Awaitable[T]]) -> T:
        """The first answer of a read, and of a second one if the first is slow. Both began after the request."""
        pace, loop = self.pace, asyncio.get_running_loop()
        delay = pace.hedges.delay_seconds
        began = loop.time()
        if delay is None:
            value = await self._paced(read)
            pace.hedges.observe(loop.time() - began)
            return value
        first = asyncio.create_task(self._paced(read))
        second: asyncio.Task[T] | None = None
        try:
            await asyncio.wait((first,), timeout=delay)
            if not first.done() and pace.limit.is_free and pace.limit.is_calm(loop.time()) and pace.hedges.take():
                pace.counts["second_read"] += 1
                second = asyncio.create_task(self._paced(read))
            value = await self._first_answer(first, second)
            pace.hedges.observe(loop.time() - began)
            return value
        finally:
            for task in (first, second):
                if task and not task.done():
                    task.cancel()

    async def _first_answer(self, first: "asyncio.Task[T]", second: "asyncio.Task[T] | None") -> T:
        """The answer of the read that succeeds first; the failure of the first one if both fail."""
        if second is None:
            return await first
        await asyncio.wait((first, second), return_when=asyncio.FIRST_COMPLETED)
        early, late = (first, second) if first.done() else (second, first)
        if early.exception() is None:
            if early is second:
                self.pace.counts["second_read_won"] += 1
            return early.result()
        return await late


def pace_of(store: object) -> Pace | None:
    """The pace of a store; None for one without, such as a folder. Stores that wrap a store pass it on."""
    pace: Pace | None = getattr(store, "pace", None)
    return pace
