"""Rounds of concurrent calls, and the queue of changes to one name in this process.

For speed and fairness only: the swap decides, here as between processes. A server whose clients queue for one table has
in memory all it needs to commit, and would always be faster than another that has lost a swap and must read first. So
it rests for a moment after some changes in a row.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Coroutine, Generator, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

from sandur.clock import Clock

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")

BEGUN_AT_ONCE_MAX: Final = 8
"""With more calls than these, others have their turn before each of them."""


async def gather_all(work: Iterable[Awaitable[T]]) -> list[T]:
    """The results in order. When calls fail, the first failure is raised, but only after all calls have ended.

    Nothing is left running behind the caller's back: a write that is still under way would be an unknown outcome.
    """
    calls = list(work)
    begin = _begun if len(calls) <= BEGUN_AT_ONCE_MAX else asyncio.ensure_future
    begun: list[_Value[T] | _Failed | asyncio.Future[T]] = []
    try:
        begun.extend(begin(call) for call in calls)  # One by one: what was begun before a failure is in the list.
        ended = [await _ended(one) for one in begun]
    except BaseException:
        await _give_up(begun, calls[len(begun) :])
        raise
    return [_value(one) for one in ended]


async def both(first: Awaitable[T], second: Awaitable[U]) -> tuple[T, U]:
    """Two reads in one round. When one fails those behind it are given up."""
    one, other = await _reads(first, second)
    return one, other


async def all_three(first: Awaitable[T], second: Awaitable[U], third: Awaitable[V]) -> tuple[T, U, V]:
    """As `both`, with three."""
    one, other, last = await _reads(first, second, third)
    return one, other, last


async def _reads(*calls: Awaitable[Any]) -> list[Any]:
    begun: list[_Value[Any] | _Failed | asyncio.Future[Any]] = []
    try:
        for call in calls:
            begun.append(_begun(call))
            if isinstance(begun[-1], _Failed):
                break
        return [_value(await _ended(one)) for one in begun]
    except BaseException:
        await _give_up(begun, calls[len(begun) :])
        raise


class _Value(Generic[T]):
    """What a call returned."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


class _Failed:
    """What a call raised, kept until the others have ended."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _begun(call: Awaitable[T]) -> "_Value[T] | _Failed | asyncio.Future[T]":
    """A call made as far as it goes without waiting, and a task for the rest of it, if there is any.

    Most of what a local store is asked is answered at once, and a task costs more than such a call. The call runs in
    the task and the context of the caller until it first waits: it must not ask which task it is in, as timeouts do.
    """
    if not isinstance(call, Coroutine):
        return asyncio.ensure_future(call)
    try:
        waits_for = call.send(None)
    except StopIteration as end:
        return _Value(end.value)
    except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - raised again, when all calls have ended
        return _Failed(error)
    return asyncio.ensure_future(_Rest(call, waits_for))


class _Rest(Coroutine[object, object, T]):
    """What is left of a call that was begun and waits for something: a task carries it on, or ends it."""

    def __init__(self, call: Coroutine[Any, Any, T], waits_for: object) -> None:
        self._call = call
        self._waits_for = waits_for
        self._is_waiting = False

    def send(self, value: object) -> object:
        if not self._is_waiting:  # The task begins: it is told what to wait for.
            self._is_waiting = True
            return self._waits_for
        return self._call.send(value)

    def throw(self, *error: Any) -> object:  # noqa: ANN401 - as the interface has it
        return self._call.throw(*error)

    def close(self) -> None:
        self._call.close()

    def __await__(self) -> Generator[object, object, T]:
        raise TypeError("the rest of a call is carried on by a task")


async def _ended(begun: "_Value[T] | _Failed | asyncio.Future[T]") -> _Value[T] | _Failed:
    if not isinstance(begun, asyncio.Future):
        return begun
    try:
        return _Value(await begun)
    except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - raised again, when all calls have ended
        return _Failed(error)


def _value(ended: _Value[T] | _Failed) -> T:
    if isinstance(ended, _Failed):
        raise ended.error
    return ended.value


async def _give_up(begun: Sequence[object], others: Sequence[Awaitable[object]]) -> None:
    """End what was begun, and see to it that nothing is said of what was not."""
    tasks = [one for one in begun if isinstance(one, asyncio.Future)]
    for task in tasks:
        task.cancel()
    for call in others:
        if isinstance(call, Coroutine):
            call.close()
    await asyncio.gather(*tasks, return_exceptions=True)


IN_A_ROW_MAX: Final = 48
IN_A_ROW_MAX_BESIDE_OTHERS: Final = 16
OTHERS_SECONDS: Final = 5.0
"""How long it is remembered that another server changed the same."""

_ROOM_IN_TURNS: Final = 3.0
"""Who lost a swap reads, writes aside and swaps: as much as this many turns of one who need not read."""

_ROOM_SECONDS_MIN: Final = 0.002
_ROOM_SECONDS_MAX: Final = 0.05


class CommitQueue:
    """Who may change something next."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()
        self._in_a_row = 0
        self._others_until = 0.0
        self._seconds = 0.0

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator["CommitQueue"]:
        loop = asyncio.get_running_loop()
        async with self._lock:
            await self._leave_room(loop.time())
            began = loop.time()
            try:
                yield self
            finally:
                self._seconds = loop.time() - began

    def note_contention(self) -> None:
        """Another server changed what was about to be changed here."""
        self._in_a_row = 0
        self._others_until = asyncio.get_running_loop().time() + OTHERS_SECONDS

    async def _leave_room(self, now: float) -> None:
        self._in_a_row += 1
        if self._in_a_row > (IN_A_ROW_MAX_BESIDE_OTHERS if now < self._others_until else IN_A_ROW_MAX):
            self._in_a_row = 1
            seconds = min(max(_ROOM_IN_TURNS * self._seconds, _ROOM_SECONDS_MIN), _ROOM_SECONDS_MAX)
            await self._clock.sleep(seconds)
