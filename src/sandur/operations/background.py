"""Work that goes on after an answer, such as receipts and the end of claims."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, Final

from sandur.operations.incidents import LOGGED, Incidents

AT_ONCE_MAX: Final = 256

_is_background: Final[ContextVar[bool]] = ContextVar("is_background", default=False)
"""Whether the current task is background work, or was started by background work."""


class Background:
    """Runs tasks after responses and waits for them when the program ends.

    A retry, the next commit or a janitor repairs what fails here. `incidents` receives every failure.
    """

    def __init__(self, incidents: Incidents = LOGGED) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._pausing: set[asyncio.Event] = set()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._drains = 0
        self._incidents = incidents

    async def run(self, what: str, work: Coroutine[Any, Any, object]) -> None:
        """Start the work. Waits only while too many tasks are running. `what` is one of a bounded set of texts.

        Background work that starts more work never waits: the other tasks may be waiting for what it holds.
        """
        turn: asyncio.Future[None] | None = None
        try:
            while self._is_full and not _is_background.get():
                turn = asyncio.get_running_loop().create_future()
                self._waiting.append(turn)
                await turn
        except asyncio.CancelledError:
            work.close()  # It never starts.
            if turn is not None and turn.done() and not turn.cancelled():
                self._wake()
            raise
        task = asyncio.create_task(self._guarded(what, work), name=what)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    @property
    def _is_full(self) -> bool:
        # Work that pauses waits for requests, which may wait for a place here: it takes none.
        return len(self._tasks) - len(self._pausing) >= AT_ONCE_MAX

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._wake()

    def _wake(self) -> None:
        """Let one request go on: to wake all of them costs the square of their number."""
        while self._waiting and not self._is_full:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    async def pause(self, seconds: float, awake: asyncio.Event) -> None:
        """Wait for the time, or until `awake` is set. Returns at once while a drain is waiting."""
        if self._drains:
            return
        self._pausing.add(awake)
        self._wake()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await awake.wait()
        finally:
            self._pausing.discard(awake)

    async def drain(self, *, within_seconds: float | None = None) -> None:
        """Wait until no task is running, at most for the given time; then cancel the rest."""
        self._drains += 1
        try:
            for awake in self._pausing:
                awake.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_seconds):
                    while self._tasks:
                        await asyncio.wait(self._tasks)
        finally:
            self._drains -= 1
        for task in tuple(self._tasks):
            task.cancel()

    async def _guarded(self, what: str, work: Coroutine[Any, Any, object]) -> None:
        _is_background.set(True)
        try:
            await work
        except Exception as error:  # noqa: BLE001 - a mistake in the program is reported too, with its trace
            self._incidents.work_failed(what, error)
