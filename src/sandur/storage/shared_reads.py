"""Shared reads: concurrent requests that need the same object share one read, which began after each of them arrived.

The rules SR1 to SR7 are in docs/protocol.md. A read returns what was current at a moment between its begin and its end.
A request that joins arrives before the begin and answers after the end, so the moment lies within the request: the
result is as good as that of a read of its own. The same is true of every read that begins later: if it ends first, it
answers, so that a slow read does not delay the requests that joined it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Final, Generic, TypeVar, cast

from sandur.storage.contract import UNCHANGED, Listed, ObjectStore, Stored, Unchanged, Version, folders_of
from sandur.storage.pace import pace_of

T = TypeVar("T")

JOIN_SECONDS_MAX: Final = 0.004
"""The shortest time between the begins of two reads, while the first is in progress. It bounds what sharing adds to the
latency: reads of a fast store follow each other, and those of a slow one overlap."""


class SharedReads(Generic[T]):
    """The reads of one object by the requests of one process. `read` reads it, and returns the value to share."""

    def __init__(self, read: Callable[[], Awaitable[T]], on_idle: Callable[[], None] | None = None) -> None:
        self._read = read
        self._on_idle = on_idle
        self._waiting: asyncio.Future[T] | None = None
        # The reads that have begun and are not answered, in the order of their begins.
        self._running: list[asyncio.Future[T]] = []
        self._began_seconds = 0.0
        self._tasks: dict[asyncio.Task[None], asyncio.Future[T]] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no read is in progress or waits."""
        return not self._running and (self._waiting is None or self._waiting.done())

    async def get_alone(self) -> T:
        """What a read returns that begins now; for the request that finds this object idle, and saves a task.

        Other requests do not join it (SR1), so it may end with its request (SR3). They wait for its end (SR2).
        """
        found: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._running.append(found)
        self._began_seconds = asyncio.get_running_loop().time()
        try:
            return await self._read()
        finally:
            found.cancel()
            self._running = [one for one in self._running if one is not found]

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
        if self._on_idle and self.is_idle:  # The requests that joined it may have left.
            self._on_idle()

    def _answer(self, found: asyncio.Future[T], value: T) -> None:
        """SR7: answer the requests of this read and of those that began before it, never of those that began later."""
        if found.done():  # A later read has answered; others that run now may have begun after both.
            return
        for one in self._running:
            if not one.done():
                one.set_result(value)
            if one is found:
                return


class SharingStore:
    """The inner store, whose concurrent reads of one object at one version are shared.

    Only what the store holds is shared; every request decides on it for itself. A queue of reads exists while one of
    them is in progress or waits, so their number is bounded by the requests of the process.
    """

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self._reads: dict[Hashable, SharedReads[Any]] = {}
        self.folders = folders_of(inner)
        self.pace = pace_of(inner)
        self.has_instant_reads = inner.has_instant_reads
        self.version_now = inner.version_now
        self.put = inner.put
        self.delete = inner.delete
        self.list = inner.list
        self.close = inner.close

    async def get(self, key: str) -> Stored | None:
        return await self._share(("get", key), lambda: self._inner.get(key))

    async def get_if_changed(self, key: str, *, seen: Version) -> Stored | Unchanged | None:
        # SR5: by the version, too, which is what "unchanged" refers to.
        return await self._share(("get", key, seen), lambda: self._inner.get_if_changed(key, seen=seen))

    async def are_current(self, versions: Sequence[tuple[str, Version]]) -> bool:
        found = await asyncio.gather(*(self.get_if_changed(key, seen=version) for key, version in versions))
        return all(one is UNCHANGED for one in found)

    async def head(self, key: str) -> Listed | None:
        return await self._share(("head", key), lambda: self._inner.head(key))

    async def _share(self, what: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        shared = self._reads.get(what)
        if shared is not None:
            return cast("T", await shared.get())  # The reads of one key return one type.
        shared = self._reads[what] = SharedReads(read, lambda: self._forget(what, shared))
        try:
            return cast("T", await shared.get_alone())
        finally:
            self._forget(what, shared)

    def _forget(self, what: Hashable, shared: SharedReads[Any] | None) -> None:
        if shared is not None and shared.is_idle and self._reads.get(what) is shared:
            del self._reads[what]
