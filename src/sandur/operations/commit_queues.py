"""Queues of the changes to one name or record in one process, with pauses for other servers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Final

from sandur.catalog.identifiers import Identifier
from sandur.clock import Clock
from sandur.operations.lake import Lake, LruCache

IN_A_ROW_MAX: Final = 48
IN_A_ROW_MAX_BESIDE_OTHERS: Final = 16
OTHERS_SECONDS: Final = 5.0
"""How long a queue remembers that another server changed the same name."""

_PAUSE_IN_TURNS: Final = 3.0
"""After a lost swap, a server reads, writes aside and swaps: this many turns of a server that need not read."""

_PAUSE_SECONDS_MIN: Final = 0.002
_PAUSE_SECONDS_MAX: Final = 0.05
_QUEUES_MAX: Final = 20_000


class CommitQueue:
    """The queue of changes to one name in this process: one at a time, with pauses for other servers.

    It serves speed and fairness only; the swap decides, here as between processes. A server whose clients queue for one
    table has everything in memory, and would always win against a server that lost a swap and must read first.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()
        self._in_a_row = 0
        self._others_until = 0.0
        self._seconds = 0.0

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator["CommitQueue"]:
        """Wait for the turn of a change, and hold it."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            await self._pause()
            began = loop.time()
            try:
                yield self
            finally:
                self._seconds = loop.time() - began

    @property
    def is_contended(self) -> bool:
        """Whether another server changed the same name a moment ago."""
        return asyncio.get_running_loop().time() < self._others_until

    def note_contention(self) -> None:
        """Note that another server changed the same name."""
        self._in_a_row = 0
        self._others_until = asyncio.get_running_loop().time() + OTHERS_SECONDS

    async def _pause(self) -> None:
        self._in_a_row += 1
        if self._in_a_row > (IN_A_ROW_MAX_BESIDE_OTHERS if self.is_contended else IN_A_ROW_MAX):
            self._in_a_row = 1
            seconds = min(max(_PAUSE_IN_TURNS * self._seconds, _PAUSE_SECONDS_MIN), _PAUSE_SECONDS_MAX)
            await self._clock.sleep(seconds)


class CommitQueues:
    """The commit queues of one lake, by name or key. A change that waits in its queue does not lose its swap."""

    def __init__(self, lake: Lake) -> None:
        self._clock = lake.clock
        self._queues: LruCache[Identifier | str, CommitQueue] = LruCache(_QUEUES_MAX)

    def turn(self, identifier: Identifier | str) -> AbstractAsyncContextManager[CommitQueue]:
        """Wait for the turn of a change to a name or key; the turn ends with the context."""
        queue = self._queues.get(identifier)
        if queue is None:
            queue = self._queues[identifier] = CommitQueue(self._clock)
        return queue.turn()
