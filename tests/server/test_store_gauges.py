"""The metrics of the whole store: sums over workspaces, the oldest of their times, and no value for what never ran."""

from typing import Final

import msgspec

from sandur.catalog.maintenance.records import PastRecord, RunEnd
from sandur.operations.backlog import JANITORS_RUN, note_success
from sandur.operations.janitors.leftovers import MARK_OVERDUE_MS
from sandur.operations.janitors.sweep import DELTA_UNPUBLISHED, RECEIPTS_OVERDUE
from sandur.operations.lake import Lake
from sandur.operations.maintenance.runs import RunRecords
from sandur.operations.published import CorePointer
from sandur.server import metric_families as families
from sandur.server.store_gauges import read_store
from sandur.storage.contract import ABSENT
from sandur.storage.layout import Layout
from tests.fakes.fixed_clock import FixedClock
from tests.operations.lakes import make_lake

HOUR_MS: Final = 3_600_000
NOTHING_WAITS: Final = {
    (families.RECEIPTS_OVERDUE, ""): 0,
    (families.DELTA_UNPUBLISHED, ""): 0,
    (families.MARKS_OVERDUE, ""): 0,
    (families.PURGES_WAITING, ""): 0,
}


class Workspaces:
    """Two workspaces on one store, and the clock of both."""

    def __init__(self) -> None:
        self.clock = FixedClock()
        self.one = make_lake(clock=self.clock)
        self.other = self.one.in_workspace(Layout(tenant="t", workspace="other"))

    @property
    def both(self) -> tuple[Lake, Lake]:
        return self.one, self.other


async def write(lake: Lake, key: str, data: bytes = b"{}") -> None:
    await lake.store.put(key, data, expected=ABSENT)


async def end_run(lake: Lake, run: str, *pasts: PastRecord, saved_bytes: int = 0) -> None:
    end = RunEnd(run=run, ended_ms=lake.clock.now_ms(), pasts=pasts, saved_bytes=saved_bytes)
    await RunRecords(lake, run).write_end(end)


async def test_of_an_empty_store_nothing_waits_and_no_time_is_claimed() -> None:
    assert await read_store(Workspaces().both) == NOTHING_WAITS


async def test_purges_and_overdue_marks_are_added_and_the_oldest_purge_is_named() -> None:
    made = Workspaces()
    oldest_ms = made.clock.now_ms()
    await write(made.other, made.other.layout.purge_order("u1", "1"))
    await write(made.other, made.other.layout.mark("tables", "1"))
    made.clock.advance(MARK_OVERDUE_MS)
    for drop in ("1", "2"):
        await write(made.one, made.one.layout.purge_order("u2", drop))
    await write(made.one, made.one.layout.mark("tables", "young"))

    found = await read_store(made.both)

    assert found[families.PURGES_WAITING, ""] == 3
    assert found[families.PURGE_OLDEST, ""] == oldest_ms / 1_000
    assert found[families.MARKS_OVERDUE, ""] == 1


async def test_what_janitors_found_is_added_and_each_work_is_as_late_as_in_the_latest_workspace() -> None:
    made = Workspaces()
    first_ms = made.clock.now_ms()
    await note_success(made.one, JANITORS_RUN, {RECEIPTS_OVERDUE: 2, DELTA_UNPUBLISHED: 5})
    await note_success(made.one, "sync")
    made.clock.advance(HOUR_MS)
    await note_success(made.other, JANITORS_RUN, {RECEIPTS_OVERDUE: 1, DELTA_UNPUBLISHED: 0})

    found = await read_store(made.both)

    assert found == {
        **NOTHING_WAITS,
        (families.RECEIPTS_OVERDUE, ""): 3,
        (families.DELTA_UNPUBLISHED, ""): 5,
        (families.LAST_SUCCESS, JANITORS_RUN): first_ms / 1_000,
        (families.LAST_SUCCESS, "sync"): first_ms / 1_000,
    }


async def test_system_tables_are_as_old_as_those_of_the_oldest_workspace_that_has_some() -> None:
    made = Workspaces()
    third = made.one.in_workspace(Layout(tenant="t", workspace="without"))
    for lake, published_ms in ((made.one, 7_000), (made.other, 5_000)):
        pointer = CorePointer(sequence=1, manifest="m", published_ms=published_ms)
        await write(lake, lake.layout.core_manifest(), msgspec.json.encode(pointer))

    found = await read_store([*made.both, third])

    assert found[families.PUBLISHED, ""] == 5


async def test_of_maintenance_the_last_runs_are_added_and_the_newest_end_is_named() -> None:
    made = Workspaces()
    due = PastRecord(uuid="u", operation="compaction", due_since_ms=1)
    failing = PastRecord(uuid="u", operation="snapshots", due_since_ms=1, conflicts=2)
    done = PastRecord(uuid="v", operation="compaction", done_ms=1)
    await end_run(made.one, "1", due, due, due, saved_bytes=10)
    made.clock.advance(HOUR_MS)
    await end_run(made.one, "2", due, failing, done, saved_bytes=70)
    await write(made.one, made.one.layout.maintenance("3", "plan"))  # This run did not end.
    made.clock.advance(HOUR_MS)
    await end_run(made.other, "1", due, saved_bytes=5)

    found = await read_store(made.both)

    assert found == {
        **NOTHING_WAITS,
        (families.MAINTENANCE_BACKLOG, ""): 3,
        (families.MAINTENANCE_FAILING, ""): 1,
        (families.MAINTENANCE_SAVED, ""): 75,
        (families.MAINTENANCE_LAST_RUN, ""): made.clock.now_ms() // 1_000,
    }
