"""Shared reads: concurrent requests that need the same object share one read, which began after each of them arrived.

The rules SR1 to SR5 are in docs/protocol.md. A read returns what was current at a moment between its begin and its end.
A request that joins arrives before the begin and answers after the end, so the moment lies within the request: the
result is as good as that of a read of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

JOIN_SECONDS_MAX: Final = 0.004
"""The longest time that a read waits for an earlier one to end, which bounds what sharing adds to the latency.

Reads of a slow store overlap, and those of a fast one follow each other."""


class SharedReads(Generic[T]):
    """The reads of one object by the requests of one process. `read` reads it, and returns the value to share."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._waiting: asyncio.Task[T] | None = None
        self._running: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """What a read returns that has not begun yet; raises what the read raises."""
        # SR1: a read that has begun is not joined; one that was cancelled before, when its loop ended, never begins.
        if self._waiting is None or self._waiting.done():
            self._waiting = asyncio.create_task(self._begin(self._running))
            self._waiting.add_done_callback(_retrieve)
        return await asyncio.shield(self._waiting)  # SR3: a request that is cancelled does not end the read.

    async def _begin(self, earlier: asyncio.Task[T] | None) -> T:
        """Read the object once the earlier read has ended, or has taken long (SR2)."""
        if earlier and not earlier.done():
            await asyncio.wait((earlier,), timeout=JOIN_SECONDS_MAX)
        self._running, self._waiting = self._waiting, None
        return await self._read()


def _retrieve(task: asyncio.Task[T]) -> None:
    """Retrieve an error that no request is left to receive, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()
