"""The schedule of the janitors: in every server and every lake, one server at a time, a bounded part per run."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from sandur.clock import Clock
from sandur.operations.backlog import JANITORS_RUN, note_success
from sandur.operations.counters import JANITOR_OBJECTS, JANITOR_RUNS, STAGE_OUTCOMES, Counters
from sandur.operations.janitors import events, garbage, grants, leftovers, locations, purge, records
from sandur.operations.janitors.lease import Lease
from sandur.operations.janitors.sweep import RECEIPTS_OVERDUE, OnError, Swept, findings, list_layouts, sweep
from sandur.operations.lake import Lake
from sandur.settings import Settings, seconds_of
from sandur.storage.contract import ObjectStore
from sandur.storage.layout import Layout

CHECKS_PER_INTERVAL: Final = 4
SOON_SECONDS: Final = 5

# A janitor runs after those that it depends on: transactions, then names, then pointers, then claims. Location claims
# go before the records of their owners.
JANITORS: Final = (
    leftovers.STAGES,
    leftovers.TRANSACTIONS,
    events.HEADS,
    events.DELTA_COMMITS,
    *events.OF_EVENTS,
    records.NAMES,
    locations.CLAIMS,
    records.NAMESPACES,
    records.POINTERS,
    records.DELTA_STAGES,
    records.DELTA_TABLES,
    records.CATALOGS,
    records.SECURABLES,
    records.MODEL_VERSIONS,
    records.USERS,
    leftovers.COMMIT_CLAIMS,
    leftovers.CLAIMS,
    leftovers.MARKS,
    leftovers.SEGMENTS,
    grants.SECURITY_SEGMENTS,
    leftovers.PLANS,
    leftovers.REPORTS,
    leftovers.AUDIT,
    leftovers.DELIVERIES,
    leftovers.LINEAGE,
    leftovers.CONDEMNED,
    leftovers.SWEPT,
    leftovers.MAINTENANCE_REQUESTS,
)
PURGE: Final = "purge"
GARBAGE: Final = "garbage"

Counts = Mapping[str, int]
"""How many objects, by `{janitor}_{outcome}`."""


class Run(NamedTuple):
    """The counts of a run, the position of each janitor, and whether the next run should start soon."""

    counts: Counts
    positions: Mapping[str, str]
    has_more: bool


async def run_janitors(
    lake: Lake,
    positions: Mapping[str, str],
    *,
    on_error: OnError,
    keep: Callable[[Mapping[str, str]], Awaitable[bool]] | None = None,
) -> Run:
    """Run every janitor once, from its last position. `keep` is called after each; the run ends if it returns False."""
    counts: Counter[str] = Counter()
    reached: dict[str, str] = dict(positions)
    has_more = False
    steps: dict[str, Callable[..., Awaitable[Swept]]] = {
        GARBAGE: partial(garbage.collect_garbage, lake),  # The file of a killed creation goes before its pointer.
        **{janitor.name: partial(sweep, lake, janitor) for janitor in JANITORS},
        locations.MIGRATE: partial(locations.migrate_locations, lake),
        PURGE: partial(purge.run_purge_queue, lake),
    }
    for name, step in steps.items():
        swept = await step(position=positions.get(name, ""), on_error=on_error)
        counts.update({f"{name}_{outcome}": times for outcome, times in swept.counts.items()})
        reached[name] = swept.position
        # At the limit of deletions, and not only of visits.
        removed = sum(times for outcome, times in swept.counts.items() if outcome.endswith(("removed", "migrated")))
        has_more |= 2 * removed >= lake.settings.janitor_objects_max
        if keep and not await keep(reached):
            break
    return Run(counts, {name: position for name, position in reached.items() if position}, has_more)


@dataclass
class Janitors:
    """The janitors of one process.

    Each run has its own lake: a walk through all records would evict what requests use from the caches.
    `on_run` receives the counts of a run, `on_failure` an error and where it happened.
    """

    settings: Settings
    clock: Clock
    store: ObjectStore
    open_lake: Callable[[Layout], Lake]
    on_run: Callable[[Layout, Counts], None]
    on_failure: Callable[[Layout, str, Exception], None]
    counters: Counters = field(default_factory=Counters)
    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the runs in the background, unless the settings disable janitors on this server."""
        if self.settings.janitors and self._task is None:
            self._task = asyncio.create_task(self._run_forever(), name="janitors")

    async def stop(self) -> None:
        """Stop at once. An interrupted run is like a crash: the next run continues."""
        task, self._task = self._task, None
        if task:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def run_everywhere(self) -> bool:
        """Run the janitors of every lake where a run is due; whether the next run should start soon."""
        has_more = False
        async for layout in list_layouts(self.store, self.settings):
            try:
                run = await self.run_once(self.open_lake(layout))
            except Exception as error:  # noqa: BLE001 - one lake must not stop the janitors of the others
                self.counters.add(JANITOR_RUNS, "failed")
                self.on_failure(layout, "janitors", error)
            else:
                has_more |= run is not None and run.has_more
        return has_more

    async def _run_forever(self) -> None:
        has_more = False
        check_seconds = seconds_of(self.settings.janitor_interval) / CHECKS_PER_INTERVAL
        while True:
            # A random part of the interval, so that servers that were started together spread out.
            pause_seconds = SOON_SECONDS if has_more else check_seconds * (0.5 + self.clock.chance())
            await self.clock.sleep(pause_seconds)
            try:
                has_more = await self.run_everywhere()
            except Exception as error:  # noqa: BLE001 - the store could not be listed; the next check tries again
                self.counters.add(JANITOR_RUNS, "failed")
                self.on_failure(Layout(), "workspaces", error)

    async def run_once(self, lake: Lake) -> Run | None:
        """Run the janitors of one lake; None if no run is due, or another server runs them."""
        lease = Lease(lake)
        if not await lease.take():
            self.counters.add(JANITOR_RUNS, "not_due")
            return None
        on_error = partial(self.on_failure, lake.layout)
        run = await run_janitors(lake, lease.positions, on_error=on_error, keep=lease.keep)
        pause_seconds = SOON_SECONDS if run.has_more else seconds_of(self.settings.janitor_interval)
        await lease.release(run.positions, due_ms=self.clock.now_ms() + pause_seconds * 1_000)
        writers = (events.HEADS, events.DELTA_COMMITS, *events.OF_EVENTS)
        overdue = sum(run.counts.get(f"{one.name}_settled", 0) for one in writers)
        await note_success(lake, JANITORS_RUN, {**lake.feature(findings), RECEIPTS_OVERDUE: overdue})
        self.counters.add(JANITOR_RUNS, "done")
        for outcome, times in run.counts.items():
            self.counters.add(JANITOR_OBJECTS, outcome, times=times)
        if cleaned := run.counts.get("stages_removed"):
            self.counters.add(STAGE_OUTCOMES, "cleaned", times=cleaned)
        self.on_run(lake.layout, run.counts)
        return run
