"""The simulated object store, and the link of each server to it: latency, lost and late messages, throttling.

A call is a message to the store, an effect there, and a message back. Each message can be late or lost by itself, so a
write may take effect long after its caller gave up, or after its caller died.
"""

import asyncio
import contextvars
import hashlib
import random  # noqa: TID251 - seeded, so that a run can be repeated
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from sandur.clock import uuid_v7
from sandur.errors import OutcomeUnknown, SandurError, Unavailable
from sandur.storage.memory import MemoryStore
from tests.fakes.dying_store import Died
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.simulation.loop import SimulatedLoop, context_of

T = TypeVar("T")

BEGIN_MS: Final = 1_767_225_600_000
CALL_SECONDS_MAX: Final = 10.0
LATE_SECONDS_MAX: Final = 45.0
"""The longest way of a message. A write that is sent takes effect within this time, or never."""

_MEDIAN_SECONDS: Final = 0.015
_DEVIATION: Final = 0.6

Direction = Literal["both", "requests", "answers"]


class SimulatedClock:
    """The clock of one process: virtual time with an offset, and its own randomness."""

    def __init__(self, loop: SimulatedLoop, seed: str, *, skew_ms: int = 0) -> None:
        self._loop = loop
        self._chance = random.Random(seed)
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return BEGIN_MS + int(self._loop.time() * 1_000) + self.skew_ms

    def new_id(self) -> str:
        return uuid_v7(self.now_ms(), self._chance.getrandbits(74))

    def new_uuid(self) -> str:
        digits = f"{self._chance.getrandbits(128):032x}"
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"

    def chance(self) -> float:
        return self._chance.random()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _InstantStore(MemoryStore):
    """A store in memory whose calls never yield."""

    async def _yield(self) -> None:
        return


@dataclass
class Weather:
    """The state of the network and the store. Fractions are of messages or calls."""

    lost_answers: float = 0.0
    lost_requests: float = 0.0
    late: float = 0.0
    throttled: float = 0.0
    storm: float = 0.0
    """The fraction that is throttled in addition, until `storm_until`."""
    storm_until: float = 0.0
    is_calm: bool = False


@dataclass
class Bucket:
    """The one store of all servers. `trace` is a hash of everything that happened in it, in order."""

    loop: SimulatedLoop
    seed: int
    weather: Weather
    calls: int = 0
    throttled: int = 0
    lost: int = 0

    def __post_init__(self) -> None:
        self.memory = _InstantStore(clock=SimulatedClock(self.loop, f"{self.seed} store"))
        self.context = context_of("store")
        self.chance = random.Random(f"{self.seed} bucket")
        self._trace = hashlib.sha256()

    def note(self, *what: object) -> None:
        """Add to the trace."""
        self._trace.update(repr((round(self.loop.time(), 6), *what)).encode())

    @property
    def trace(self) -> str:
        return self._trace.hexdigest()[:16]

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        self.loop.call_later(seconds, work, context=self.context)

    def way_seconds(self) -> float:
        """How long one message is on its way."""
        if not self.weather.is_calm and self.chance.random() < self.weather.late:
            return self.chance.random() * LATE_SECONDS_MAX
        return min(self.chance.lognormvariate(0, _DEVIATION) * _MEDIAN_SECONDS / 2, 1.0)

    def loses(self, fraction: float) -> bool:
        return not self.weather.is_calm and self.chance.random() < fraction

    def throttles(self) -> bool:
        weather = self.weather
        fraction = weather.throttled + (weather.storm if self.loop.time() < weather.storm_until else 0.0)
        return self.loses(fraction)


CALLS: Final[contextvars.ContextVar[list[int] | None]] = contextvars.ContextVar("calls", default=None)
"""The number of store calls of the request that the current task belongs to, also after its answer."""


@dataclass
class Link(WrappingStore):
    """The store as one process reaches it. A dead process reaches nothing."""

    bucket: Bucket
    process: str
    is_dead: bool = False
    cut_until: float = 0.0
    cut: Direction = "both"
    has_instant_reads: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        super().__init__(self.bucket.memory)

    def partition(self, direction: Direction, seconds: float) -> None:
        self.cut, self.cut_until = direction, self.bucket.loop.time() + seconds

    def _is_cut(self, direction: Direction) -> bool:
        is_cut = self.bucket.loop.time() < self.cut_until and self.cut in {direction, "both"}
        return is_cut and not self.bucket.weather.is_calm

    async def close(self) -> None:
        """The store outlives every server."""

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        bucket = self.bucket
        if self.is_dead:
            raise Died(self.process)
        bucket.calls += 1
        if (calls := CALLS.get()) is not None:
            calls[0] += 1
        answer: asyncio.Future[T] = bucket.loop.create_future()
        bucket.later(bucket.way_seconds(), lambda: self._arrive(call, perform, answer))
        try:
            async with asyncio.timeout(CALL_SECONDS_MAX):
                return await answer
        except TimeoutError:
            bucket.lost += 1
            raise self._failure(call, "no answer in time") from None
        except ConnectionError as error:
            raise self._failure(call, str(error)) from None

    def _failure(self, call: Call, reason: str) -> SandurError:
        text = f"object {call.key}: {reason} to {call.name}"
        return OutcomeUnknown(text) if call.is_write else Unavailable(text)

    def _arrive(self, call: Call, perform: Callable[[], Awaitable[T]], answer: "asyncio.Future[T]") -> None:
        bucket = self.bucket
        if self._is_cut("requests") or bucket.loses(bucket.weather.lost_requests):
            return
        if bucket.throttles():
            bucket.throttled += 1
            # A store may refuse a write for sure, or so that its client cannot tell.
            is_definite = not call.is_write or bucket.chance.random() < 0.5
            slow_down = (Unavailable if is_definite else OutcomeUnknown)(
                f"object {call.key}: SlowDown", is_throttled=True
            )
            self._send_back(answer, None, slow_down)
            return
        value, failure = _run_now(perform())
        bucket.note(self.process, call.name, call.key, type(failure).__name__, hashlib.md5(call.data).digest())  # noqa: S324 - no secret
        self._send_back(answer, value, failure)

    def _send_back(self, answer: "asyncio.Future[T]", value: T | None, failure: Exception | None) -> None:
        bucket = self.bucket
        if bucket.loses(bucket.weather.lost_answers):
            bucket.lost += 1
            value, failure = None, ConnectionError("the connection broke")

        def deliver() -> None:
            if answer.done() or self._is_cut("answers"):
                return
            if failure:
                answer.set_exception(failure)
            else:
                answer.set_result(value)  # type: ignore[arg-type]  # T may be None, and without a failure it is a T

        bucket.later(bucket.way_seconds(), deliver)


def _run_now(work: Awaitable[T]) -> tuple[T | None, Exception | None]:
    """What a call of a store that never yields returns or raises."""
    running = work
    assert isinstance(running, Coroutine)
    step: Coroutine[Any, Any, T] = running
    try:
        step.send(None)
    except StopIteration as done:
        return done.value, None
    except SandurError as error:
        return None, error
    raise AssertionError("the store yielded")
