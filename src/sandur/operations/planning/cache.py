"""The caches of scan planning, one set per lake: manifests, selected files, open scans and running plans."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sandur.errors import Busy
from sandur.operations.caches import BytesLruCache, LruCache
from sandur.operations.lake import Lake
from sandur.settings import Settings, seconds_of

if TYPE_CHECKING:  # The module of scans imports this one; the others need numpy and pyarrow.
    from sandur.iceberg.scan.columns import ManifestColumns
    from sandur.iceberg.scan.selection import Selected
    from sandur.operations.planning.scan import ScanRunner

DECODED_AT_ONCE: Final = 2
SELECTED_BYTES_MAX: Final = 32 << 20
RESULT_BYTES_MAX: Final = 32 << 20
PLANS_AT_ONCE_MAX: Final = 64
SCANS_MAX: Final = 8
"""Scans that stay open while their tasks are fetched. Each holds its delete files and a manifest or two."""


PLANS_FOLDER: Final = "plans"
PLAN_TTL_MS_MIN: Final = 60_000


def plan_ttl_ms(settings: Settings) -> int:
    """The lifetime of a plan: long enough for a client to fetch the next task."""
    return max(PLAN_TTL_MS_MIN, seconds_of(settings.plan_ttl) * 1_000)


class PlanningCache:
    """Everything that scan planning caches for one lake."""

    def __init__(self, lake: Lake) -> None:
        bytes_max = lake.settings.plan_cache_bytes_max
        self.manifests = ManifestCache(bytes_max)
        # The files that a plan selected, by plan id and manifest.
        self.selected: BytesLruCache[tuple[str, str], Selected] = BytesLruCache(min(bytes_max, SELECTED_BYTES_MAX))
        self.scans: LruCache[str, ScanRunner] = LruCache(SCANS_MAX)
        self.plans = RunningPlans()
        lake.on_close(self.plans.close)


class ManifestCache(BytesLruCache[tuple[str, str], Any]):
    """Manifest lists and manifests by location, and the manifests that are being read."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        # Decoding takes several times the memory of the manifest, and more threads do not make it faster.
        self.decoding = asyncio.Semaphore(DECODED_AT_ONCE)
        self.is_warm = False
        self.reads: dict[str, asyncio.Task[ManifestColumns]] = {}

    def read(
        self, location: str, read: "Callable[[], Coroutine[Any, Any, ManifestColumns]]"
    ) -> "asyncio.Task[ManifestColumns]":
        """The task that reads a manifest. Concurrent callers share it, and it continues if they stop waiting."""
        task = self.reads.get(location)
        if task is None:
            task = self.reads[location] = asyncio.create_task(read(), name=f"read {location}")
            task.add_done_callback(lambda ended: self._ended(location, ended))
        return task

    def _ended(self, location: str, ended: "asyncio.Task[ManifestColumns]") -> None:
        del self.reads[location]
        if not ended.cancelled():
            ended.exception()  # Retrieved, so that asyncio does not report it when no caller waits.


class PlanResult(NamedTuple):
    """The result of a plan: file scan tasks, as fields of a JSON object, and tokens of plan tasks to fetch."""

    fields: bytes
    plan_tasks: Sequence[str]

    @property
    def size_bytes(self) -> int:
        return len(self.fields) + sum(map(len, self.plan_tasks)) + 500


class RunningPlans:
    """Plans that this process works on, by work id.

    Concurrent callers share the work. It continues when no caller waits, and its result is kept for the next call.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[PlanResult]] = {}
        self._results: BytesLruCache[str, PlanResult] = BytesLruCache(RESULT_BYTES_MAX)

    async def run(
        self, work_id: str, work: Callable[[], Coroutine[Any, Any, PlanResult]], *, wait_seconds: float
    ) -> PlanResult | None:
        """The result of the work; None if it takes longer than the wait and continues, or if it is cancelled.

        Raises what the work raises. Raises Busy if too many plans are running.
        """
        kept = self._results.get(work_id)
        if kept is not None:
            return kept
        task = self._tasks.get(work_id)
        if task is None:
            if len(self._tasks) >= PLANS_AT_ONCE_MAX:
                raise Busy("Too many scans are being planned: try again")
            task = self._tasks[work_id] = asyncio.create_task(work(), name=f"plan {work_id}")
            task.add_done_callback(lambda ended: self._ended(work_id, ended))
        done, _ = await asyncio.wait([task], timeout=wait_seconds)
        return task.result() if done and not task.cancelled() else None

    def _ended(self, work_id: str, ended: "asyncio.Task[PlanResult]") -> None:
        self._tasks.pop(work_id, None)
        if not ended.cancelled() and ended.exception() is None:
            self._results.put(work_id, ended.result(), ended.result().size_bytes)

    @property
    def bytes(self) -> int:
        """The size of the results that are kept."""
        return self._results.bytes

    def cancel(self, work_id: str) -> None:
        """Stop the work if it runs here, and drop its result."""
        self._results.drop(work_id)
        task = self._tasks.get(work_id)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Stop all work."""
        running = tuple(self._tasks.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
