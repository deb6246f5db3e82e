"""A few threads for calls that would block the event loop.

The standard library's executor hands a result over through two more locks; on a disk that syncs in a quarter of a
millisecond that is a fifth of the whole write (`bench/storage.py`), so this pool has a queue and nothing else.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """At most `threads_max` threads, each started when first needed; daemons, so that they keep no process alive."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._started = 0
        self._waiting = 0  # Calls handed over and not finished; only the event loop's thread changes it.

    async def run(self, function: Callable[[], T]) -> T:
        """The result of the function, called in one of the threads; what it raises is raised here.

        When the waiting task is cancelled, the call goes on to its end and its result is dropped.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._waiting += 1
        if self._waiting > self._started and self._started < self._threads_max:
            self._started += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True).start()
        self._queue.put(lambda: _call(function, future, loop))
        try:
            return await future
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """End the threads, each after what it is doing."""
        for _ in range(self._started):
            self._queue.put(None)

    def _work(self) -> None:
        while call := self._queue.get():
            call()


def _call(function: Callable[[], T], future: "asyncio.Future[T]", loop: asyncio.AbstractEventLoop) -> None:
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001 - handed over to the task that waits
        failure = error
        _answer(loop, lambda: None if future.done() else future.set_exception(failure))
    else:
        _answer(loop, lambda: None if future.done() else future.set_result(result))


def _answer(loop: asyncio.AbstractEventLoop, answer: Callable[[], None]) -> None:
    # A loop that is closed has nobody waiting on it any more.
    if not loop.is_closed():
        loop.call_soon_threadsafe(answer)
