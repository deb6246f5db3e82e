"""The records of maintenance runs in the store: written once each, listed by run, settled if their run died.

The objects of a run: `plan`, then `000000-begin` and `000000-end` for each operation, and `end` as the last one.
"""

import contextlib
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
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

OBJECTS_MAX: Final = 100_000
"""The most objects of runs that a reader knows; those of the oldest runs are left out."""
RECORDS_KEPT_MAX: Final = 20_000
"""Published runs keep the records of their operations for readers while all runs have no more objects than this."""

_PLAN: Final = "plan"
_END: Final = "end"
_BEGIN_SUFFIX: Final = "-begin"
_END_SUFFIX: Final = "-end"
_AT_ONCE: Final = 32


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

        return [found for found in await gather_in_batches(numbers, one, at_once=_AT_ONCE) if found]

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
    """The runs with the names of their objects, oldest first; of more objects than are kept in mind, the newest."""
    found: deque[RunListing] = deque()
    objects = 0
    async for run, listed in _each_run(lake):
        found.append(RunListing(run, frozenset(listed)))
        objects += len(listed)
        while objects > OBJECTS_MAX and len(found) > 1:
            objects -= len(found.popleft().names)
    return list(found)


async def _each_run(lake: Lake) -> AsyncIterator[tuple[str, Mapping[str, Listed]]]:
    """Every run with its objects by their names, oldest first."""
    current, objects = "", dict[str, Listed]()
    async for page in list_pages(lake.store, lake.layout.maintenance_folder()):
        for one in page:
            run, name = lake.layout.parse_maintenance(one.key)
            if run != current and objects:
                yield current, objects
                objects = {}
            current, objects[name] = run, one
    if objects:
        yield current, objects


async def last_end(lake: Lake, runs: Sequence[RunListing]) -> RunEnd:
    """The end of the newest run that has one."""
    for run in reversed(runs):
        if run.is_over and (end := await RunRecords(lake, run.run).run_end()):
            return end
    return NO_END


async def remove_runs(lake: Lake, *, ended_before_ms: int, published: frozenset[str]) -> int:
    """Remove runs that are published and ended before that time, except the newest; returns the number of runs.

    Of other published runs, the records of operations are removed unless they are among the newest.
    """
    objects, records_from = 0, ""
    for run in reversed(await list_runs(lake)):
        if records_from and objects + len(run.names) > RECORDS_KEPT_MAX:
            break
        objects, records_from = objects + len(run.names), run.run
    removed, is_old = 0, True
    before: tuple[str, Mapping[str, Listed]] | None = None
    async for found in _each_run(lake):
        if found[0] not in published or _END not in found[1]:
            continue
        if before:  # There is a newer end, which the next run copies.
            name, listed = before
            # Runs are in the order of their ends: after the first one that is young, no other is old.
            end = await RunRecords(lake, name).run_end() if is_old else None
            is_old = end is not None and end.ended_ms < ended_before_ms
            if is_old or name < records_from:
                await _remove(lake, [one for key, one in listed.items() if key != _END])
            if is_old:  # The end goes last: a run without one would be settled again.
                await _remove(lake, [listed[_END]])
                removed += 1
        before = found
    return removed


async def _remove(lake: Lake, listed: Sequence[Listed]) -> None:
    async def one(found: Listed) -> None:
        with contextlib.suppress(SwapLost):
            await lake.store.delete(found.key, expected=found.version)

    await gather_in_batches(listed, one, at_once=_AT_ONCE)
