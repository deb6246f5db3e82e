"""Work that is finished behind the answer: none of it is needed for what was answered to stay true."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Final

from sandur.errors import SandurError

AT_ONCE_MAX: Final = 256

_is_behind: Final[ContextVar[bool]] = ContextVar("is_behind", default=False)
"""Whether the running task, or one that it works for, is finished behind an answer."""


class Background:
    """Runs tasks beside the answers and waits for them when the program ends.

    What fails here is repaired by whoever comes next (a retry, a successor, a janitor); `on_failure` hears of it.
    """

    def __init__(self, on_failure: Callable[[str, SandurError], None] | None = None) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._pausing: set[asyncio.Event] = set()
        self._drains = 0
        self._on_failure = on_failure

    async def run(self, what: str, work: Coroutine[Any, Any, object]) -> None:
        """Begin the work. Waits only when too much of it is under way already.

        Work that begins other work never waits: all of the rest may be waiting for what it holds.
        """
        while len(self._tasks) >= AT_ONCE_MAX and not _is_behind.get():
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(self._guarded(what, work), name=what)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def pause(self, seconds: float, awake: asyncio.Event) -> None:
        """Wait so long, or until `awake` is set; nothing pauses while somebody waits for all to end."""
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
        """Wait until nothing is under way any more, at most so long; what is left then is given up."""
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
        _is_behind.set(True)
        try:
            await work
        except SandurError as error:
            if self._on_failure:
                self._on_failure(what, error)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # Looked at, so that asyncio does not report it a second time.
