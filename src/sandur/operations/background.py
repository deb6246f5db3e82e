"""Work that finishes after the response. The response stays true even if the work fails."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Final

from sandur.errors import SandurError

AT_ONCE_MAX: Final = 256

_is_background: Final[ContextVar[bool]] = ContextVar("is_background", default=False)
"""Whether the current task is background work, or was started by background work."""


class Background:
    """Runs tasks after responses and waits for them when the program ends.

    A retry, the next commit or a janitor repairs what fails here; `on_failure` is called with the error.
    """

    def __init__(self, on_failure: Callable[[str, SandurError], None] | None = None) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._pausing: set[asyncio.Event] = set()
        self._drains = 0
        self._on_failure = on_failure

    async def run(self, what: str, work: Coroutine[Any, Any, object]) -> None:
        """Start the work. Waits only while too many tasks are running.

        Background work that starts more work never waits: the other tasks may be waiting for what it holds.
        """
        while len(self._tasks) >= AT_ONCE_MAX and not _is_background.get():
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(self._guarded(what, work), name=what)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def pause(self, seconds: float, awake: asyncio.Event) -> None:
        """Wait for the time, or until `awake` is set. Returns at once while a drain is waiting."""
        if self._drains:
            return
        self._pausing.add(awake)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await awake.wait()
        finally:
            self._pausing.discard(awake)

    async def drain(self, *, within_seconds: float | None = None) -> None:
        """Wait until no task is running, at most for the given time; then cancel the rest."""
        loop = asyncio.get_running_loop()
        ends_at = None if within_seconds is None else loop.time() + within_seconds
        self._drains += 1
        try:
            for awake in self._pausing:
                awake.set()
            while self._tasks:
                left = None if ends_at is None else ends_at - loop.time()
                if left is not None and left <= 0:
                    break
                await asyncio.wait(self._tasks, timeout=left)
        finally:
            self._drains -= 1
        for task in tuple(self._tasks):
            task.cancel()

    async def _guarded(self, what: str, work: Coroutine[Any, Any, object]) -> None:
        _is_background.set(True)
        try:
            await work
        except SandurError as error:
            if self._on_failure:
                self._on_failure(what, error)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # Retrieve the exception, so that asyncio does not report it again.
