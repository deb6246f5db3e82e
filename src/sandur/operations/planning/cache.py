"""Caches of scan planning: decoded manifests, and plans in progress with their results."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from sandur.errors import Busy
from sandur.operations.caches import BytesLruCache

if TYPE_CHECKING:  # Every workspace has this memory, and few plan: Arrow is loaded when one does.
    from sandur.iceberg.scan.columns import ManifestColumns
    from sandur.iceberg.scan.packing import Packed
    from sandur.iceberg.scan.selection import Selected


DECODED_AT_ONCE: Final = 2
SELECTED_BYTES_MAX: Final = 32 << 20


class ManifestMemory(BytesLruCache[tuple[str, str], Any]):
    """Manifests by their location, and what plans that are being fetched selected of them."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        self.selected: BytesLruCache[tuple[str, str], Selected] = BytesLruCache(min(bytes_max, SELECTED_BYTES_MAX))
        # Decoding takes room, several times that of the manifest, and more of it at once is not faster.
        self.decoding = asyncio.Semaphore(DECODED_AT_ONCE)
        self.storing = 0
        self._under_way: dict[str, asyncio.Task[ManifestColumns]] = {}

    def entries(self, location: str) -> "Packed | ManifestColumns | None":
        """A manifest as it is remembered: packed, or as it was decoded when it is small."""
        return self.get(("entries", location))

    def remember(self, location: str, found: "Packed | ManifestColumns") -> None:
        self.put(("entries", location), found, found.size_bytes)

    def is_known(self, location: str) -> bool:
        return ("entries", location) in self or location in self._under_way

    @property
    def under_way(self) -> int:
        """How many manifests are being read."""
        return len(self._under_way)

    def reading(
        self, location: str, read: "Callable[[], Coroutine[Any, Any, ManifestColumns]]"
    ) -> "asyncio.Task[ManifestColumns]":
        """The manifest while it is being read, by whoever asked first. It is read to its end, whoever stops waiting."""
        task = self._under_way.get(location)
        if task is None:
            task = self._under_way[location] = asyncio.create_task(read(), name=f"read {location}")
            task.add_done_callback(lambda ended: self._ended(location, ended))
        return task

    def _ended(self, location: str, ended: "asyncio.Task[ManifestColumns]") -> None:
        del self._under_way[location]
        if not ended.cancelled():
            ended.exception()  # Whoever waits is told; asyncio need not be when nobody does.


T = TypeVar("T")

AT_ONCE_MAX: Final = 64
RESULT_BYTES_MAX: Final = 32 << 20
SCANS_MAX: Final = 8
"""How many scans are remembered while their tasks are fetched: each holds its deletes and a manifest or two."""


class Answered(NamedTuple):
    """What a plan comes to: tasks to read, as fields of a JSON object, and tasks to fetch."""

    fields: bytes
    plan_tasks: Sequence[str]


def size_of(answered: Answered) -> int:
    return len(answered.fields) + sum(map(len, answered.plan_tasks)) + 500


class UnderWay(Generic[T]):
    """Work by id. What it came to is kept for a while: the client that was told to ask again is going to."""

    def __init__(self, size_of: Callable[[T], int]) -> None:
        self._tasks: dict[str, asyncio.Task[T]] = {}
        self._results: BytesLruCache[str, T] = BytesLruCache(RESULT_BYTES_MAX)
        self._size_of = size_of

    async def worked_on(
        self, work_id: str, work: Callable[[], Coroutine[Any, Any, T]], *, wait_seconds: float
    ) -> T | None:
        """What the work comes to; None when it is not done within the wait, and goes on, or was given up meanwhile.

        Raises what the work raises.
        """
        kept = self._results.get(work_id)
        if kept is not None:
            return kept
        task = self._tasks.get(work_id)
        if task is None:
            if len(self._tasks) >= AT_ONCE_MAX:
                raise Busy("Too many scans are being planned: try again")
            task = self._tasks[work_id] = asyncio.create_task(work(), name=f"plan {work_id}")
            task.add_done_callback(lambda ended: self._ended(work_id, ended))
        done, _ = await asyncio.wait([task], timeout=wait_seconds)
        return task.result() if done and not task.cancelled() else None

    def _ended(self, work_id: str, ended: "asyncio.Task[T]") -> None:
        self._tasks.pop(work_id, None)
        if not ended.cancelled() and ended.exception() is None:
            self._results.put(work_id, ended.result(), self._size_of(ended.result()))

    def give_up(self, work_id: str) -> None:
        """Stop the work if it is under way here, and forget what it came to."""
        self._results.drop(work_id)
        task = self._tasks.get(work_id)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Stop everything."""
        waiting = tuple(self._tasks.values())
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
