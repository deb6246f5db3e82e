"""What waits in the background of a workspace, and when its janitors and jobs last succeeded: for metrics."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from sandur.catalog.record_versions import Record
from sandur.operations.janitors.leftovers import MARK_OVERDUE_MS
from sandur.operations.lake import Lake
from sandur.operations.published import CorePointer
from sandur.storage.cell import Cell, gather_all

JANITORS_RUN: Final = "janitors"
_LISTED_MAX: Final = 1_000


class LastRuns(Record, frozen=True, kw_only=True):
    """When the janitors and each job last succeeded, and what the last janitor run found."""

    ended_ms: dict[str, int] = msgspec.field(default_factory=dict)
    found: dict[str, int] = msgspec.field(default_factory=dict)


class Backlog(NamedTuple):
    """The backlog of one workspace; a time is 0 if there is none."""

    marks_overdue: int
    purges_waiting: int
    purge_oldest_ms: int
    published_ms: int
    last_success_ms: Mapping[str, int]
    found: Mapping[str, int]


async def note_success(lake: Lake, work: str, found: Mapping[str, int] | None = None) -> None:
    """Record that the janitors or a job succeeded now."""

    def decide(before: LastRuns | None) -> LastRuns:
        runs = before or LastRuns()
        ended_ms = {**runs.ended_ms, work: lake.clock.now_ms()}
        return replace(runs, ended_ms=ended_ms, found=dict(found) if found is not None else runs.found)

    await _cell(lake).update(decide, is_idempotent=True)


async def read_backlog(lake: Lake) -> Backlog:
    """Four reads at the same time; each list is bounded."""
    published = Cell(lake.store, lake.layout.core_manifest(), CorePointer, lake.clock)
    runs, core, marks, purges = await gather_all(
        (
            _cell(lake).read(),
            published.read(),
            lake.store.list(lake.layout.marks_folder(), limit=_LISTED_MAX),
            lake.store.list(lake.layout.purge_orders_folder(), limit=_LISTED_MAX),
        )
    )
    overdue_ms = lake.clock.now_ms() - MARK_OVERDUE_MS
    return Backlog(
        marks_overdue=sum(one.modified_ms <= overdue_ms for one in marks),
        purges_waiting=len(purges),
        purge_oldest_ms=min((one.modified_ms for one in purges), default=0),
        published_ms=core.value.published_ms if core else 0,
        last_success_ms=runs.value.ended_ms if runs else {},
        found=runs.value.found if runs else {},
    )


def _cell(lake: Lake) -> Cell[LastRuns]:
    return lake.uncached(lake.layout.operational("runs", "last"), LastRuns)
