"""The metrics about the whole store: what waits in it, and when its janitors and jobs last succeeded."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sandur.catalog.maintenance.records import RunEnd
from sandur.operations.backlog import Backlog, read_backlog
from sandur.operations.janitors.sweep import DELTA_UNPUBLISHED as UNPUBLISHED
from sandur.operations.janitors.sweep import RECEIPTS_OVERDUE as OVERDUE
from sandur.operations.lake import Lake
from sandur.operations.maintenance.runs import last_end, list_runs
from sandur.server.metric_families import (
    DELTA_UNPUBLISHED,
    LAST_SUCCESS,
    MAINTENANCE_BACKLOG,
    MAINTENANCE_FAILING,
    MAINTENANCE_LAST_RUN,
    MAINTENANCE_SAVED,
    MARKS_OVERDUE,
    PUBLISHED,
    PURGE_OLDEST,
    PURGES_WAITING,
    RECEIPTS_OVERDUE,
    Family,
)

Gauges = Mapping[tuple[Family, str], float]
"""The values by family and label; the label is empty if the family has none."""


async def read_store(lakes: Iterable[Lake]) -> Gauges:
    """The numbers of all workspaces together: sums, and of times the oldest."""
    backlogs: list[Backlog] = []
    ends: list[RunEnd] = []
    for lake in tuple(lakes):
        backlogs.append(await read_backlog(lake))
        ends.append(await last_end(lake, await list_runs(lake)))
    return dict((*_backlog(backlogs), *_maintenance([end for end in ends if end.ended_ms])))


def _backlog(backlogs: Sequence[Backlog]) -> Iterator[tuple[tuple[Family, str], float]]:
    found: Counter[str] = Counter()
    last_success_ms: dict[str, int] = {}
    for one in backlogs:
        found.update(one.found)
        for work, ended_ms in one.last_success_ms.items():
            last_success_ms[work] = min(ended_ms, last_success_ms.get(work, ended_ms))
    yield (RECEIPTS_OVERDUE, ""), found[OVERDUE]
    yield (DELTA_UNPUBLISHED, ""), found[UNPUBLISHED]
    yield (MARKS_OVERDUE, ""), sum(one.marks_overdue for one in backlogs)
    yield (PURGES_WAITING, ""), sum(one.purges_waiting for one in backlogs)
    for work, ended_ms in sorted(last_success_ms.items()):
        yield (LAST_SUCCESS, work), ended_ms / 1_000
    if oldest := [one.purge_oldest_ms for one in backlogs if one.purge_oldest_ms]:
        yield (PURGE_OLDEST, ""), min(oldest) / 1_000
    if published := [one.published_ms for one in backlogs if one.published_ms]:
        yield (PUBLISHED, ""), min(published) / 1_000


def _maintenance(ends: Sequence[RunEnd]) -> Iterator[tuple[tuple[Family, str], float]]:
    """What the last maintenance runs left; nothing without a run."""
    if ends:
        yield (MAINTENANCE_BACKLOG, ""), sum(end.backlog for end in ends)
        yield (MAINTENANCE_FAILING, ""), sum(end.failing for end in ends)
        yield (MAINTENANCE_SAVED, ""), sum(end.saved_bytes for end in ends)
        yield (MAINTENANCE_LAST_RUN, ""), max(end.ended_ms for end in ends) // 1_000
