"""Garbage collection in a server: bounded, resumed, off by setting, and nothing that anything needs is deleted."""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from sandur.catalog.records import Head, Pointer
from sandur.operations.counters import JANITOR_OBJECTS
from sandur.operations.feed import Feed
from sandur.operations.feed_readers import FeedReaders
from sandur.operations.janitors.garbage import PASS_INTERVAL_MS, collect_garbage
from sandur.operations.janitors.schedule import Janitors, Run, run_janitors
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.drop import drop_name
from sandur.storage.contract import ABSENT
from sandur.storage.layout import Layout
from sandur.storage.local import LocalStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.claimed_places import forget_claims, older_volume
from tests.operations.event_chains import all_events
from tests.operations.invariants import check_invariants
from tests.operations.janitor_runs import LONG_MS, Cluster
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    commit,
    content,
    create,
    create_commit,
    identifier_of,
    load,
    request,
    set_property,
    set_up_catalog,
)

T: Final = identifier_of("t")
UUID: Final = "5b6b2b4e-0000-4000-8000-00000000000b"
RETENTION_MS: Final = 90 * DAY_MS
READER_RETENTION_MS: Final = 30 * DAY_MS


async def _cluster(*names: str, orphans: int = 0, **settings: object) -> Cluster:
    """A store with tables of one commit each, and the files of attempts that died."""
    cluster = await Cluster.with_catalog(None, **settings)
    for name in names or ("t",):
        server = cluster.server()
        await create(server, name)
        await commit_table(server, identifier_of(name), commit(set_property("p", "1")), request(name))
        await server.background.drain()
        for number in range(orphans):
            await _put_orphan(server, name, number)
    return cluster


async def _put_orphan(lake: Lake, name: str, number: int) -> str:
    loaded = await load(lake, identifier_of(name))
    folder = (loaded.metadata_location or "").rpartition("/")[0]
    location = f"{folder}/00002-{number:032x}-{'0' * 12}.metadata.json"
    await lake.locations.create(location, loaded.metadata)
    return location


async def _files(cluster: Cluster) -> list[str]:
    return [key for key in await cluster.keys("tables/") if key.endswith(".metadata.json")]


async def _run(cluster: Cluster, positions: Mapping[str, str] | None = None) -> Run:
    server = cluster.server()
    run = await run_janitors(server, positions or {}, on_error=cluster.errors)
    await server.background.drain()
    return run


def _collected(run: Run) -> dict[str, int]:
    """What the run did about garbage, without what it kept."""
    return {
        outcome.removeprefix("garbage_"): times
        for outcome, times in run.counts.items()
        if outcome.startswith("garbage_") and times and not outcome.endswith("_kept")
    }


async def _check_tables(cluster: Cluster, *names: str) -> None:
    """Every table has its head, the files in its log and its commit."""
    server = cluster.server()
    for name in names:
        loaded = content(await load(server, identifier_of(name)))
        assert loaded["properties"]["p"] == "1"
        for entry in loaded["metadata-log"]:
            assert await server.locations.exists(entry["metadata-file"])
    await check_invariants(server, files_may_be_gone=True)


async def test_the_files_of_dead_attempts_go_after_a_day_and_all_others_stay() -> None:
    cluster = await _cluster("t", "u")
    needed = await _files(cluster)
    for number in range(3):
        await _put_orphan(cluster.server(), "t", number)

    young = await _run(cluster)
    cluster.clock.advance(DAY_MS)
    old = await _run(cluster, young.positions)

    assert _collected(young) == {}
    assert _collected(old) == {"metadata_files_removed": 3}
    assert await _files(cluster) == needed
    await _check_tables(cluster, "t", "u")
    assert cluster.errors == []


async def test_the_file_of_a_killed_creation_goes_before_its_pointer() -> None:
    cluster = await _cluster()
    server = cluster.server()
    location = await _put_orphan(server, "t", 7)
    head = Head(metadata_location=location, last_updated_ms=cluster.clock.now_ms())
    await server.pointer(UUID).create(Pointer(uuid=UUID, table_uuid=UUID, state="killed", head=head))
    cluster.clock.advance(LONG_MS)

    run = await _run(cluster)

    assert _collected(run) == {"killed_creates_removed": 1}
    assert run.counts["pointers_removed"] == 1
    assert not await server.locations.exists(location)


async def test_the_file_of_a_creation_that_died_before_its_pointer_goes() -> None:
    cluster = await _cluster()
    needed = await _files(cluster)
    for dies_at in range(1, 12):
        store = DyingStore(cluster.store, dies_at=dies_at, after=True)
        with contextlib.suppress(Died):
            await commit_table(cluster.server(store), identifier_of("u"), create_commit(UUID), request("create"))
        if len(await _files(cluster)) > len(needed):
            break
    if found := await cluster.server().pointer(UUID).read():
        await cluster.server().pointer(UUID).empty(expected=found.version)
    cluster.clock.advance(DAY_MS)

    run = await _run(cluster)

    assert _collected(run) == {"died_creates_removed": 1}
    assert await _files(cluster) == needed


async def test_the_files_of_a_dropped_table_stay() -> None:
    cluster = await _cluster()
    files = await _files(cluster)
    server = cluster.server()
    await drop_name(server, T, kind="table", purge=False, request=request("drop"))
    await server.background.drain()

    for _ in range(60):
        cluster.clock.advance(LONG_MS)
        await _run(cluster)

    assert await _files(cluster) == files


async def test_old_receipts_go_when_no_pipeline_needs_them() -> None:
    cluster = await _cluster()
    receipts = await cluster.keys(Layout().events_folder())
    cluster.clock.advance(RETENTION_MS - DAY_MS)
    early = await _run(cluster)
    cluster.clock.advance(DAY_MS)

    late = await _run(cluster)

    assert len([key for key in receipts if "/iceberg/" in key]) == 2
    assert _collected(early) == {}
    assert _collected(late) == {"committed_receipts_removed": 2}
    await commit_table(cluster.server(), T, commit(set_property("q", "2")), request("later"))
    assert content(await load(cluster.server(), T))["properties"].items() >= {"p": "1", "q": "2"}.items()


async def test_receipts_and_the_feed_stay_where_a_pipeline_publishes() -> None:
    cluster = await _cluster()
    receipts = await cluster.keys(Layout().events_folder())
    feed = await _read_feed(cluster)
    await cluster.store.put(Layout().core_manifest(), b"{}", expected=ABSENT)
    cluster.clock.advance(2 * RETENTION_MS)

    assert _collected(await _run(cluster)) == {}
    assert await cluster.keys(Layout().events_folder()) == receipts
    assert await cluster.keys(Layout().operational_folder("feed")) == feed


async def _read_feed(cluster: Cluster) -> list[str]:
    """Give every receipt a position, as a request for events does; the keys of the feed."""
    await Feed(cluster.server()).advance()
    return await cluster.keys(Layout().operational_folder("feed"))


async def _commit(cluster: Cluster, key: str) -> None:
    server = cluster.server()
    await commit_table(server, T, commit(set_property(key, "1")), request(key))
    await server.background.drain()


async def test_receipts_go_after_somebody_has_read_the_feed() -> None:
    cluster = await _cluster()
    await _read_feed(cluster)
    cluster.clock.advance(RETENTION_MS)

    assert _collected(await _run(cluster))["committed_receipts_removed"] == 2


async def test_receipts_wait_for_the_slowest_registered_reader() -> None:
    cluster = await _cluster()
    await _read_feed(cluster)
    await _commit(cluster, "later")
    await _read_feed(cluster)
    await _commit(cluster, "without-a-position")
    for _ in range(4):  # The readers are there all the time.
        cluster.clock.advance(RETENTION_MS // 4)
        await FeedReaders(cluster.server()).register("slow", after=1)
        await FeedReaders(cluster.server()).register("quick", after=2)

    waiting = await _run(cluster)
    await FeedReaders(cluster.server()).report("slow", 2)
    cluster.clock.advance(PASS_INTERVAL_MS)
    read = await _run(cluster)

    assert _collected(waiting)["committed_receipts_removed"] == 2
    assert _collected(read)["committed_receipts_removed"] == 1
    names = await cluster.keys(Layout().events_folder())
    assert len([key for key in names if "/iceberg/" in key]) == 1


async def test_a_reader_that_is_gone_stops_the_removal_of_receipts_for_its_retention_only() -> None:
    cluster = await _cluster()
    await _read_feed(cluster)
    cluster.clock.advance(RETENTION_MS)
    await FeedReaders(cluster.server()).register("gone", after=0)

    waiting = await _run(cluster)
    cluster.clock.advance(READER_RETENTION_MS)
    late = await _run(cluster)

    assert _collected(waiting) == {}
    assert _collected(late)["committed_receipts_removed"] == 2
    assert _collected(late)["feed_readers_forgotten"] == 1


async def test_entries_of_the_feed_go_with_their_receipts() -> None:
    cluster = await _cluster()
    await _read_feed(cluster)
    for number in range(5):
        await _commit(cluster, f"p{number}")
    await _read_feed(cluster)
    cluster.clock.advance(RETENTION_MS)

    run = await _run(cluster)

    assert _collected(run) == {"committed_receipts_removed": 7, "feed_entries_removed": 2}
    assert (await Feed(cluster.server()).advance()).sequence == 3  # What still exists was carried.


async def test_events_of_the_catalog_stay() -> None:
    cluster = await _cluster()
    events = await all_events(cluster.server())
    cluster.clock.advance(2 * RETENTION_MS)

    await _run(cluster)

    assert events
    assert await all_events(cluster.server()) == events


@pytest.mark.parametrize("objects_max", [3, 4, 5, 8])
async def test_a_run_deletes_a_bounded_number_and_the_next_ones_continue(objects_max: int) -> None:
    names = ("t", "u", "v")
    cluster = await _cluster(*names, orphans=6, janitor_objects_max=objects_max)
    cluster.clock.advance(DAY_MS)
    positions: Mapping[str, str] = {}
    removed: list[int] = []
    soon: list[bool] = []

    for _ in range(20):
        run = await _run(cluster, positions)
        positions = run.positions
        removed.append(_collected(run).get("metadata_files_removed", 0))
        soon.append(run.has_more)

    assert sum(removed) == 18
    assert max(removed) == objects_max
    assert all(soon[: removed.index(0) - 1])
    assert not soon[-1]
    assert len(await _files(cluster)) == 6
    await _check_tables(cluster, *names)


async def test_a_pass_is_repeated_only_after_its_interval() -> None:
    cluster = await _cluster()
    cluster.clock.advance(DAY_MS)
    first = await _run(cluster)
    await _put_orphan(cluster.server(), "t", 1)
    cluster.clock.advance(PASS_INTERVAL_MS - 1)
    waiting = await _run(cluster, first.positions)
    cluster.clock.advance(1 + DAY_MS)

    due = await _run(cluster, waiting.positions)

    assert not [outcome for outcome in waiting.counts if outcome.startswith("garbage_")]
    assert _collected(due) == {"metadata_files_removed": 1}


async def test_a_pass_that_is_killed_at_any_point_is_finished_by_another_server() -> None:
    cluster = await _cluster("t", "u", orphans=2, janitor_objects_max=3)
    await _put_orphan(cluster.server(), "t", 7)
    cluster.clock.advance(DAY_MS)
    positions: Mapping[str, str] = {}
    dies_at, is_over = 0, False

    while not is_over:
        dies_at += 1
        dying = DyingStore(cluster.store, dies_at=dies_at, after=dies_at % 2 == 0)
        server = cluster.server(dying)
        with contextlib.suppress(Died):
            swept = await collect_garbage(server, position=positions.get("garbage", ""), on_error=cluster.errors)
            positions = {"garbage": swept.position}
            is_over = "due_ms" in swept.position
        await server.background.drain()
        await _check_tables(cluster, "t", "u")

    assert dies_at > 10
    assert len(await _files(cluster)) == 4
    assert cluster.errors == []


async def test_a_damaged_position_starts_a_new_pass() -> None:
    cluster = await _cluster(orphans=1)
    cluster.clock.advance(DAY_MS)

    assert _collected(await _run(cluster, {"garbage": "nonsense"})) == {"metadata_files_removed": 1}


async def test_it_can_be_disabled() -> None:
    cluster = await _cluster(orphans=2, janitor_garbage=False)
    files = await _files(cluster)
    cluster.clock.advance(2 * RETENTION_MS)

    assert _collected(await _run(cluster)) == {}
    assert await _files(cluster) == files


async def test_a_store_with_too_many_tables_is_left_to_the_pipeline() -> None:
    cluster = await _cluster("t", "u", "v", orphans=1, janitor_objects_max=2)
    files = await _files(cluster)
    cluster.clock.advance(DAY_MS)

    run = await _run(cluster)

    assert _collected(run) == {"skipped": 1}
    assert await _files(cluster) == files
    assert ["left to the job collect-garbage" in error for error in cluster.errors] == [True]


async def test_while_a_pointer_cannot_be_read_no_metadata_file_is_deleted() -> None:
    cluster = await _cluster(orphans=1)
    files = await _files(cluster)
    damaged = Layout().pointer(UUID)
    await cluster.store.put(damaged, b"nonsense", expected=ABSENT)
    cluster.clock.advance(2 * RETENTION_MS)

    run = await _run(cluster)

    assert _collected(run) == {"skipped": 1, "committed_receipts_removed": 2}
    assert await _files(cluster) == files
    assert damaged in "".join(cluster.errors)


async def test_nothing_is_deleted_before_all_places_have_claims() -> None:
    cluster = await _cluster(orphans=1)
    await forget_claims(cluster)
    cluster.clock.advance(DAY_MS)

    swept = await collect_garbage(cluster.server(), position="", on_error=cluster.errors)

    assert swept == ({}, "")


async def test_a_folder_in_which_another_workspace_has_a_place_keeps_its_files() -> None:
    """Only a store from before location claims can have that."""
    cluster = await _cluster("t", "u", orphans=1)
    server = cluster.server()
    other = Lake(
        store=cluster.store,
        layout=Layout("other", "w"),
        clock=cluster.clock,
        settings=server.settings,
        locations=server.locations,
    )
    head = (await load(server, T)).metadata_location or ""
    await older_volume(other, head.rpartition("/metadata/")[0])
    await forget_claims(cluster)
    for lake in (server, other, server):
        await run_janitors(lake, {}, on_error=cluster.errors)
    cluster.clock.advance(DAY_MS)

    run = await _run(cluster)

    assert _collected(run) == {"metadata_files_removed": 1}
    assert len([name for name in await _files(cluster) if "/t-" in name]) == 3


async def test_one_unreadable_folder_does_not_stop_the_others() -> None:
    cluster = await _cluster("t", "u", orphans=1)
    server = cluster.server()
    head = (await load(server, T)).metadata_location or ""
    await server.locations.remove(head)
    cluster.clock.advance(DAY_MS)

    run = await _run(cluster)

    assert _collected(run) == {"metadata_files_removed": 1, "metadata_files_failed": 1}
    assert len(cluster.errors) == 1


async def test_a_server_on_a_folder_collects_counts_and_reports(tmp_path: Path) -> None:
    ahead = FixedClock(seed=1)
    store = LocalStore(str(tmp_path), fsync="never")
    lake = make_lake(store, ahead)
    await set_up_catalog(lake)
    await create(lake, "t")
    await lake.background.drain()
    orphan = await _put_orphan(lake, "t", 1)
    newest_ms = max(listed.modified_ms for listed in await store.list(""))
    ahead.advance(max(0, newest_ms - ahead.now_ms()) + DAY_MS)
    reports: list[Mapping[str, int]] = []

    def open_lake(_: Layout) -> Lake:
        return make_lake(store, ahead)

    def fail(_: Layout, what: str, error: Exception) -> None:
        pytest.fail(f"{what}: {error}")

    servers = [
        Janitors(
            lake.settings, ahead, store, open_lake, on_run=lambda _, counts: reports.append(counts), on_failure=fail
        )
        for _ in range(2)
    ]

    await asyncio.gather(*(server.run_everywhere() for server in servers))

    removed = "garbage_metadata_files_removed"
    assert sum(server.counters.times(JANITOR_OBJECTS, removed) for server in servers) == 1
    assert [counts[removed] for counts in reports] == [1]
    assert not await lake.locations.exists(orphan)
    assert await load(make_lake(store, ahead), T)
    await store.close()
