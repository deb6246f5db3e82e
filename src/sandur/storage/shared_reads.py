"""Shared reads: concurrent requests that need the same object share one read, which began after each of them arrived.

The rules SR1 to SR7 are in docs/protocol.md. A read returns what was current at a moment between its begin and its end.
A request that joins arrives before the begin and answers after the end, so the moment lies within the request: the
result is as good as that of a read of its own. The same is true of every read that begins later: if it ends first, it
answers, so that a slow read does not delay the requests that joined it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

JOIN_SECONDS_MAX: Final = 0.004
"""The shortest time between the begins of two reads, while the first is in progress. It bounds what sharing adds to the
latency: reads of a fast store follow each other, and those of a slow one overlap."""


class SharedReads(Generic[T]):
    """The reads of one object by the requests of one process. `read` reads it, and returns the value to share."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._waiting: asyncio.Future[T] | None = None
        # The reads that have begun and are not answered, in the order of their begins.
        self._running: list[asyncio.Future[T]] = []
        self._began_seconds = 0.0
        self._tasks: dict[asyncio.Task[None], asyncio.Future[T]] = {}

    async def get(self) -> T:
        """What a read returns that has not begun yet; raises what the read raises."""
        # SR1: a read that has begun is not joined; one that was cancelled before, when its loop ended, never begins.
        if self._waiting is None or self._waiting.done():
            found: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            self._waiting = found
            task = asyncio.create_task(self._carry_out(found))
            self._tasks[task] = found  # asyncio itself holds a task only weakly.
            task.add_done_callback(self._ended)
        return await asyncio.shield(self._waiting)  # SR3: a request that is cancelled does not end the read.

    async def _carry_out(self, found: asyncio.Future[T]) -> None:
        """Read the object once the read before has ended, or has been in progress for a while (SR2)."""
        loop = asyncio.get_running_loop()
        if self._running and not (last := self._running[-1]).done():
            seconds = self._began_seconds + JOIN_SECONDS_MAX - loop.time()
            if seconds > 0:
                await asyncio.wait((last,), timeout=min(seconds, JOIN_SECONDS_MAX))
        self._waiting = None
        self._running.append(found)
        self._began_seconds = loop.time()
        try:
            value = await self._read()
        except asyncio.CancelledError:
            raise  # With the loop: `_ended` cancels those that joined.
        except BaseException as error:  # noqa: BLE001 - whatever it is, those that joined get it (SR4)
            if not found.done():
                found.set_exception(error)
                found.exception()  # Retrieved, so that asyncio does not report it if no request is left to receive it.
        else:
            self._answer(found, value)
        finally:
            self._running = [one for one in self._running if one is not found and not one.done()]

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task).cancel()  # No effect on a read that was answered: this task was cancelled with its loop.

    def _answer(self, found: asyncio.Future[T], value: T) -> None:
        """SR7: answer the requests of this read and of those that began before it, never of those that began later."""
        if found.done():  # A later read has answered; others that run now may have begun after both.
            return
        for one in self._running:
            if not one.done():
                one.set_result(value)
            if one is found:
                return
