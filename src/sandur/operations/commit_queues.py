"""Queues of the changes to one name or record in one process, with pauses for other servers."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final

from sandur.catalog.identifiers import Identifier
from sandur.clock import Clock
from sandur.operations.caches import LruCache
from sandur.operations.lake import Lake

IN_A_ROW_MAX: Final = 48
IN_A_ROW_MAX_BESIDE_OTHERS: Final = 16
OTHERS_SECONDS: Final = 5.0
"""How long a queue remembers that another server changed the same name."""

_PAUSE_IN_TURNS: Final = 3.0
"""After a lost swap, a server reads, writes aside and swaps: this many turns of a server that need not read."""

_PAUSE_SECONDS_MIN: Final = 0.002
_PAUSE_SECONDS_MAX: Final = 0.05
_QUEUES_MAX: Final = 20_000


@dataclass(frozen=True, eq=False)
class Waiting:
    """A change that waits for its turn.

    `change` is what a batch may carry out in the turn of another change (B1); None if it takes part in no batch. `turn`
    ends with True when the change has the turn, and with False when a batch has decided it.
    """

    change: object | None
    turn: "asyncio.Future[bool]"


class CommitQueue:
    """The queue of changes to one name in this process: one at a time, with pauses for other servers.

    It serves speed and fairness only; the swap decides, here as between processes. A server whose clients queue for one
    table has everything in memory, and would always win against a server that lost a swap and must read first.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[Waiting] = deque()
        self._is_taken = False
        self._in_a_row = 0
        self._others_until = 0.0
        self._seconds = 0.0
        self.batches: set[asyncio.Task[None]] = set()
        """The batches in progress. The event loop itself keeps no task alive."""

    @contextlib.asynccontextmanager
    async def turn(self, change: object | None = None) -> AsyncIterator["CommitQueue"]:
        """Wait for the turn of a change, and hold it; or until a batch has decided the change."""
        loop = asyncio.get_running_loop()
        if not await self._wait(change):
            yield self
            return
        try:
            await self._pause()
            began = loop.time()
            try:
                yield self
            finally:
                self._seconds = loop.time() - began
        finally:
            self._pass_on()

    @property
    def waiting(self) -> Sequence[Waiting]:
        """The changes that wait and may take part in a batch, oldest first."""
        return [one for one in self._waiting if one.change is not None and not one.turn.done()]

    def take_out(self, chosen: Iterable[Waiting]) -> None:
        """B1: close a batch. Its members no longer wait for a turn, but for the end of the batch."""
        for one in chosen:
            self._waiting.remove(one)

    def put_back(self, chosen: Sequence[Waiting]) -> None:
        """Give the members that a batch has not decided the next turns, in their order."""
        self._waiting.extendleft(reversed([one for one in chosen if not one.turn.done()]))
        if not self._is_taken:  # The change whose turn it was has left.
            self._is_taken = True
            self._pass_on()

    @property
    def is_contended(self) -> bool:
        """Whether another server changed the same name a moment ago."""
        return asyncio.get_running_loop().time() < self._others_until

    def note_contention(self) -> None:
        """Note that another server changed the same name."""
        self._in_a_row = 0
        self._others_until = asyncio.get_running_loop().time() + OTHERS_SECONDS

    async def _wait(self, change: object | None) -> bool:
        """Whether the change has the turn now; False if a batch has decided it."""
        if not self._is_taken:
            self._is_taken = True
            return True
        waiting = Waiting(change, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            return await waiting.turn
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            elif waiting.turn.done() and not waiting.turn.cancelled() and waiting.turn.result():
                self._pass_on()  # It got the turn in the moment in which it was cancelled.
            raise

    def _pass_on(self) -> None:
        """Give the turn to the next change that still waits."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.turn.done():
                waiting.turn.set_result(True)
                return
        self._is_taken = False

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

    def turn(
        self, identifier: Identifier | str, change: object | None = None
    ) -> AbstractAsyncContextManager[CommitQueue]:
        """Wait for the turn of a change to a name or key; the turn ends with the context.

        A batch may carry out the `change` in the turn of another one; the context is then entered without a turn.
        """
        queue = self._queues.get(identifier)
        if queue is None:
            queue = self._queues[identifier] = CommitQueue(self._clock)
        return queue.turn(change)
