"""The schedule of the janitors: one server at a time, in every lake, a bounded part per run."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import pytest

from sandur.catalog.records import Stage
from sandur.errors import SandurError, Unavailable
from sandur.operations.backlog import note_success, read_backlog
from sandur.operations.counters import JANITOR_OBJECTS, JANITOR_RUNS
from sandur.operations.janitors.lease import LEASE_MS, Lease
from sandur.operations.janitors.leftovers import MARK_OVERDUE_MS, STAGES
from sandur.operations.janitors.schedule import Janitors, run_janitors
from sandur.operations.janitors.sweep import list_layouts, sweep
from sandur.operations.lake import Lake
from sandur.settings import Settings
from sandur.storage.contract import ABSENT, ObjectStore
from sandur.storage.layout import Layout
from sandur.storage.local import LocalStore
from sandur.storage.locations import Locations
from sandur.storage.memory import MemoryStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.operations.janitor_runs import HOUR_MS, Cluster
from tests.operations.lakes import make_lake
from tests.operations.requests import identifier_of

T = TypeVar("T")

INTERVAL_MS = 900_000


async def stage(lake: Lake, number: int) -> None:
    """An expired stage, which its janitor deletes at once."""
    identifier = identifier_of(f"t{number:04d}")
    record = Stage(table_uuid="u", identifier=identifier, location="memory://store/x", created_ms=0, expires_ms=0)
    await lake.stage(identifier, "u").create(record)


class JanitorProcesses:
    """A store with several lakes, and processes with janitors."""

    def __init__(self, store: ObjectStore | None = None, **settings: object) -> None:
        self.clock = FixedClock()
        self.store = store or MemoryStore(clock=self.clock)
        self.settings = Settings(store="memory:", stage_ttl="PT0S", **settings)  # type: ignore[arg-type] # By name.
        self.ran: list[tuple[Layout, Mapping[str, int]]] = []
        self.failed: list[tuple[Layout, str, Exception]] = []

    def lake(self, layout: Layout) -> Lake:
        locations = Locations("memory://store", self.store, open_store=lambda _: self.store)
        return Lake(store=self.store, layout=layout, clock=self.clock, settings=self.settings, locations=locations)

    def janitors(self) -> Janitors:
        return Janitors(
            self.settings,
            self.clock,
            self.store,
            self.lake,
            on_run=lambda layout, counts: self.ran.append((layout, counts)),
            on_failure=lambda layout, what, error: self.failed.append((layout, what, error)),
        )


async def test_a_run_reports_and_counts_its_work() -> None:
    processes = JanitorProcesses()
    await stage(processes.lake(Layout()), 1)
    janitors = processes.janitors()

    run = await janitors.run_once(processes.lake(Layout()))

    assert run is not None
    assert run.counts["stages_removed"] == 1
    assert processes.ran == [(Layout(), run.counts)]
    assert janitors.counters.times(JANITOR_OBJECTS, "stages_removed") == 1
    assert janitors.counters.times(JANITOR_RUNS, "done") == 1


async def test_a_run_leaves_when_it_succeeded_and_what_it_found() -> None:
    processes = JanitorProcesses()
    lake, now_ms = processes.lake(Layout()), processes.clock.now_ms()
    await lake.store.put(lake.layout.mark("scope", "1"), b"{}", expected=ABSENT)
    await lake.store.put(lake.layout.purge_order("u", "1"), b"{}", expected=ABSENT)
    processes.clock.advance(MARK_OVERDUE_MS)
    before = await read_backlog(lake)

    await processes.janitors().run_once(lake)
    await note_success(lake, "sync")

    after = await read_backlog(lake)
    assert (before.marks_overdue, before.purges_waiting, before.purge_oldest_ms) == (1, 1, now_ms)
    assert (before.last_success_ms, before.published_ms) == ({}, 0)
    assert set(after.last_success_ms) == {"janitors", "sync"}
    assert after.found == {"receipts_overdue": 0, "delta_unpublished": 0}


async def test_one_of_many_servers_runs_per_interval() -> None:
    processes = JanitorProcesses()
    servers = [processes.janitors() for _ in range(5)]

    runs = await asyncio.gather(*(server.run_once(processes.lake(Layout())) for server in servers))

    assert sum(run is not None for run in runs) == 1
    processes.clock.advance(INTERVAL_MS - 1)
    assert await servers[0].run_once(processes.lake(Layout())) is None
    processes.clock.advance(1)
    assert await servers[0].run_once(processes.lake(Layout())) is not None


async def test_another_server_takes_over_after_a_death() -> None:
    processes = JanitorProcesses()
    await stage(processes.lake(Layout()), 1)
    alive, processes.store = processes.store, DyingStore(processes.store, dies_at=4, after=True)
    with pytest.raises(Died):
        await processes.janitors().run_once(processes.lake(Layout()))
    processes.store = alive

    assert await processes.janitors().run_once(processes.lake(Layout())) is None
    processes.clock.advance(LEASE_MS)
    run = await processes.janitors().run_once(processes.lake(Layout()))

    assert run is not None
    assert await alive.list(Layout().stages_folder()) == []


async def test_a_server_stops_when_another_has_taken_its_lease() -> None:
    processes = JanitorProcesses()
    slow, fast = Lease(processes.lake(Layout())), Lease(processes.lake(Layout()))
    assert await slow.take()
    assert not await fast.take()
    processes.clock.advance(LEASE_MS)
    assert await fast.take()

    assert not await slow.keep({"names": "late"})
    assert await fast.keep({"names": "x"})
    await slow.release({}, due_ms=0)
    processes.clock.advance(LEASE_MS - 1)
    assert not await slow.take()


async def test_a_run_that_lost_its_lease_stops() -> None:
    processes = JanitorProcesses()
    lake = processes.lake(Layout())

    async def lost(reached: Mapping[str, str]) -> bool:
        return "stages" not in reached

    await stage(lake, 1)
    mark = Layout().mark("scope", "operation")
    await processes.store.put(mark, b"", expected=ABSENT)
    processes.clock.advance(2 * HOUR_MS)

    run = await run_janitors(lake, {}, on_error=lambda *_: None, keep=lost)

    assert run.counts == {"stages_removed": 1}
    assert await processes.store.head(mark)


async def test_a_sweep_is_bounded_and_the_next_one_continues() -> None:
    processes = JanitorProcesses(janitor_objects_max=10)
    lake = processes.lake(Layout())
    for number in range(25):
        await stage(lake, number)

    first = await sweep(lake, STAGES, position="", on_error=lambda *_: None)
    second = await sweep(lake, STAGES, position=first.position, on_error=lambda *_: None)
    third = await sweep(lake, STAGES, position=second.position, on_error=lambda *_: None)

    assert [swept.counts["removed"] for swept in (first, second, third)] == [10, 10, 5]
    assert [bool(swept.position) for swept in (first, second, third)] == [True, True, False]


async def test_the_next_server_continues_where_a_sweep_stopped() -> None:
    """Needed objects at the front do not keep the janitors from the rest."""
    processes = JanitorProcesses(janitor_objects_max=10)
    lake = processes.lake(Layout())
    for number in range(30):
        await stage(lake, number)
    for number in range(20):
        cell = lake.stage(identifier_of(f"t{number:04d}"), "u")
        found = await cell.read()
        assert found
        later = Stage(
            table_uuid="u",
            identifier=identifier_of("t"),
            location="x",
            created_ms=0,
            expires_ms=processes.clock.now_ms() * 2,
        )
        await cell.swap(later, expected=found.version)
    removed = []
    for _ in range(4):
        run = await processes.janitors().run_once(lake)
        assert run is not None
        removed.append(run.counts.get("stages_removed", 0))
        processes.clock.advance(INTERVAL_MS)

    assert removed == [0, 0, 10, 0]


async def test_more_than_a_thousand_objects_are_swept_page_by_page() -> None:
    processes = JanitorProcesses()
    lake = processes.lake(Layout())
    for number in range(1_234):
        await stage(lake, number)

    swept = await sweep(lake, STAGES, position="", on_error=lambda *_: None)

    assert swept.counts == {"removed": 1_234}
    assert swept.position == ""


async def test_the_next_run_starts_soon_when_there_is_more_to_do() -> None:
    processes = JanitorProcesses(janitor_objects_max=10)
    lake = processes.lake(Layout())
    for number in range(25):
        await stage(lake, number)
    janitors = processes.janitors()

    assert await janitors.run_everywhere()
    processes.clock.advance(5_000)
    assert await janitors.run_everywhere()
    processes.clock.advance(5_000)
    assert await janitors.run_everywhere()
    processes.clock.advance(5_000)
    assert not await janitors.run_everywhere()
    assert await processes.store.list(Layout().stages_folder()) == []


async def many_lakes(store: ObjectStore) -> list[Layout]:
    layouts = [
        Layout(tenant, lake)
        for tenant in ("a", "a-b", "a/b", "default", "ä" * 90, "z0")
        for lake in ("0", "default", "w", "w-1", "w0", "w=")
    ]
    for layout in layouts:
        for name in ("x", "y"):
            await store.put(layout.catalog(name), b"{}", expected=ABSENT)
    for key in ("_probe/x", "tables/a/b/c", "tenanz", "tenant", "tenants/x/y", "tenant=q/other=w/x", "zzz"):
        await store.put(key, b"x", expected=ABSENT)
    return layouts


async def test_every_lake_is_found_by_one_listing() -> None:
    store = MemoryStore()
    layouts = await many_lakes(store)

    found = [layout async for layout in list_layouts(store, Settings())]

    assert sorted(found) == sorted(layouts)


async def test_every_lake_in_a_folder_is_found(tmp_path: object) -> None:
    store = LocalStore(str(tmp_path), fsync="never")
    layouts = await many_lakes(store)

    found = [layout async for layout in list_layouts(store, Settings())]
    await store.close()

    assert sorted(found) == sorted(layouts)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Settings(tenant="a", workspace="w"), [Layout("a", "w")]),
        (Settings(tenant="a", workspace="new"), [Layout("a", "new")]),
        (Settings(tenant="a"), [Layout("a", name) for name in ("0", "default", "w", "w-1", "w0", "w=")]),
    ],
)
async def test_a_server_sweeps_only_where_it_serves(settings: Settings, expected: list[Layout]) -> None:
    store = MemoryStore()
    await many_lakes(store)

    found = [layout async for layout in list_layouts(store, settings)]

    assert sorted(found) == sorted(expected)


async def test_a_failing_lake_does_not_stop_the_others() -> None:
    processes = JanitorProcesses()
    bad, good = Layout("a", "bad"), Layout("b", "good")
    for layout in (bad, good):
        await stage(processes.lake(layout), 1)
    turn = bad.operational("janitors", "turn")
    await processes.store.put(turn, b"nonsense", expected=ABSENT)
    janitors = processes.janitors()

    await janitors.run_everywhere()

    assert [layout for layout, _ in processes.ran] == [good]
    assert [layout for layout, *_ in processes.failed] == [bad]
    assert isinstance(processes.failed[0][2], SandurError)
    assert janitors.counters.times(JANITOR_RUNS, "failed") == 1


async def test_a_sweep_of_one_tenant_does_not_touch_another() -> None:
    processes = JanitorProcesses()
    one, two = Layout("one", "w"), Layout("two", "w")
    await stage(processes.lake(one), 1)
    before = await processes.store.list("")

    await processes.janitors().run_once(processes.lake(two))

    assert [listed.key for listed in before] == [listed.key for listed in await processes.store.list(one.root)]


class _SteppedClock(FixedClock):
    """A clock whose sleeps end when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.requested: list[float] = []
        self.woken = asyncio.Semaphore(0)

    async def sleep(self, seconds: float) -> None:
        self.requested.append(seconds)
        await self.woken.acquire()
        self.advance(round(seconds * 1_000))


async def test_the_janitors_run_at_intervals_until_they_are_stopped() -> None:
    processes = JanitorProcesses()
    processes.clock = _SteppedClock()
    await stage(processes.lake(Layout()), 1)
    janitors = processes.janitors()
    janitors.start()
    janitors.start()
    for _ in range(6):
        processes.clock.woken.release()
        for _ in range(400):
            await asyncio.sleep(0)

    await janitors.stop()
    sleeps = len(processes.clock.requested)
    processes.clock.woken.release()
    await asyncio.sleep(0)

    assert len(processes.ran) >= 1
    assert len(processes.clock.requested) == sleeps == 7
    assert len(set(processes.clock.requested)) == sleeps
    assert all(INTERVAL_MS / 8_000 <= seconds <= INTERVAL_MS * 3 / 8_000 for seconds in processes.clock.requested)
    await janitors.stop()


class _UnavailableStore(WrappingStore):
    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        if call.name == "list":
            raise Unavailable("the store is down")
        return await perform()


async def test_the_janitors_survive_a_store_that_cannot_be_listed() -> None:
    processes = JanitorProcesses()
    clock = processes.clock = _SteppedClock()

    processes.store = _UnavailableStore(processes.store)
    janitors = processes.janitors()
    janitors.start()
    for _ in range(3):
        clock.woken.release()
        for _ in range(50):
            await asyncio.sleep(0)
    await janitors.stop()

    assert len(processes.failed) == 3


async def test_the_janitors_can_be_disabled() -> None:
    processes = JanitorProcesses(janitors=False)
    processes.clock = _SteppedClock()
    janitors = processes.janitors()

    janitors.start()
    await asyncio.sleep(0)
    await janitors.stop()

    assert processes.clock.requested == []


async def test_a_run_leaves_the_caches_of_requests_alone() -> None:
    cluster = await Cluster.with_catalog()
    server = make_lake(cluster.store, cluster.clock)
    await server.catalog("main").read()
    before = dict(server._seen)
    cluster.clock.advance(HOUR_MS)

    await cluster.sweep()

    assert dict(server._seen) == before
