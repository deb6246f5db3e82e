"""The records of maintenance runs in the store: written once each, listed by run, settled if their run died.

The objects of a run: `plan`, then `000000-begin` and `000000-end` for each operation, and `end` as the last one.
"""

import contextlib
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from sandur.catalog.maintenance.records import (
    NO_END,
    OperationRecord,
    RunEnd,
    RunPlan,
)
from sandur.errors import SwapLost, Unavailable
from sandur.operations.lake import Lake
from sandur.splicing import NOT_JSON
from sandur.storage.cell import gather_in_batches
from sandur.storage.contract import ABSENT, Listed, list_pages

T = TypeVar("T")

RUNS_MAX: Final = 100_000
"""The most objects of runs that are listed; old runs are removed once they are published."""

_PLAN: Final = "plan"
_END: Final = "end"
_BEGIN_SUFFIX: Final = "-begin"
_END_SUFFIX: Final = "-end"
_READS_AT_ONCE: Final = 32


class RunListing(NamedTuple):
    """A run and the names of its objects."""

    run: str
    names: frozenset[str]

    @property
    def is_over(self) -> bool:
        return _END in self.names

    @property
    def unsettled(self) -> Sequence[int]:
        """The numbers of the operations that began and did not end."""
        begun = {int(name.removesuffix(_BEGIN_SUFFIX)) for name in self.names if name.endswith(_BEGIN_SUFFIX)}
        return sorted(begun - set(self.ended))

    @property
    def ended(self) -> Sequence[int]:
        return sorted(int(name.removesuffix(_END_SUFFIX)) for name in self.names if name.endswith(_END_SUFFIX))


class RunRecords:
    """The objects of one run. An object that exists stays as it is: the first writer wins."""

    def __init__(self, lake: Lake, run: str) -> None:
        self._lake = lake
        self.run = run

    async def write_plan(self, plan: RunPlan) -> None:
        await self._create(_PLAN, plan)

    async def begin(self, record: OperationRecord) -> None:
        await self._create(f"{record.number:06d}{_BEGIN_SUFFIX}", record)

    async def end(self, record: OperationRecord) -> None:
        await self._create(f"{record.number:06d}{_END_SUFFIX}", record)

    async def write_end(self, end: RunEnd) -> None:
        await self._create(_END, end)

    async def plan(self) -> RunPlan | None:
        return await self._read(_PLAN, RunPlan)

    async def run_end(self) -> RunEnd | None:
        return await self._read(_END, RunEnd)

    async def begun(self, number: int) -> OperationRecord | None:
        return await self._read(f"{number:06d}{_BEGIN_SUFFIX}", OperationRecord)

    async def ended(self, numbers: Sequence[int]) -> Sequence[OperationRecord]:
        """The ends of these operations."""

        async def one(number: int) -> OperationRecord | None:
            return await self._read(f"{number:06d}{_END_SUFFIX}", OperationRecord)

        return [found for found in await gather_in_batches(numbers, one, at_once=_READS_AT_ONCE) if found]

    async def _create(self, name: str, value: msgspec.Struct) -> None:
        key = self._lake.layout.maintenance(self.run, name)
        with contextlib.suppress(SwapLost):
            await self._lake.store.put(key, msgspec.json.encode(value), expected=ABSENT)

    async def _read(self, name: str, kind: type[T]) -> T | None:
        key = self._lake.layout.maintenance(self.run, name)
        found = await self._lake.store.get(key)
        try:
            return msgspec.json.decode(found.data, type=kind) if found else None
        except NOT_JSON as error:
            raise Unavailable(f"record {key} of a maintenance run is damaged: {error}") from error


async def list_runs(lake: Lake) -> Sequence[RunListing]:
    """All runs with the names of their objects, oldest first."""
    found: dict[str, set[str]] = {}
    for one in await _objects(lake):
        run, name = lake.layout.parse_maintenance(one.key)
        found.setdefault(run, set()).add(name)
    return [RunListing(run, frozenset(names)) for run, names in sorted(found.items())]


async def _objects(lake: Lake) -> Sequence[Listed]:
    listed: list[Listed] = []
    async for page in list_pages(lake.store, lake.layout.maintenance_folder()):
        listed += page
        if len(listed) >= RUNS_MAX:
            raise Unavailable(
                f"more than {RUNS_MAX} records of maintenance runs: run the pipeline, which removes old ones"
            )
    return listed


async def last_end(lake: Lake, runs: Sequence[RunListing]) -> RunEnd:
    """The end of the newest run that has one."""
    for run in reversed(runs):
        if run.is_over and (end := await RunRecords(lake, run.run).run_end()):
            return end
    return NO_END


async def remove_runs(lake: Lake, *, ended_before_ms: int, published: frozenset[str]) -> int:
    """Remove runs that are published and ended before that time, except the newest; returns the number of runs."""
    runs = await list_runs(lake)
    removed = 0
    for run in runs[:-1]:
        end = await RunRecords(lake, run.run).run_end() if run.run in published else None
        if end is None or end.ended_ms >= ended_before_ms:
            continue
        # The end goes last: a run without one would be settled again.
        for name in sorted(run.names, key=lambda name: name == _END):
            await _remove(lake, lake.layout.maintenance(run.run, name))
        removed += 1
    return removed


async def _remove(lake: Lake, key: str) -> None:
    if listed := await lake.store.head(key):
        with contextlib.suppress(SwapLost):
            await lake.store.delete(key, expected=listed.version)
