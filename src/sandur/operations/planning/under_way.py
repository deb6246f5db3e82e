"""Plans that this process is working on: each once, however many ask, and on for a while when nobody waits."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from sandur.errors import Busy
from sandur.operations.caches import RecentBytes

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
        self._results: RecentBytes[str, T] = RecentBytes(RESULT_BYTES_MAX)
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
