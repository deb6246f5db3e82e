"""What bounds a removal of orphans: the time of the store, the number of files, and its reads."""

import pytest

from sandur.catalog.maintenance import orphans as decisions
from sandur.catalog.maintenance.policies import Orphans
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.maintenance import orphans as removals
from sandur.operations.maintenance.iceberg_files import IcebergFiles
from sandur.operations.maintenance.orphans import OrphanRemoval
from sandur.operations.tables.create import create_table
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.operations.delta_requests import create_managed
from tests.operations.janitor_runs import Cluster
from tests.operations.lakes import make_lake
from tests.operations.orphan_runs import (
    AGE_MS,
    ORPHAN,
    POLICY,
    condemn,
    condemned,
    delete,
    has_orphan,
    no_fence,
    removal,
    with_orphan,
)
from tests.operations.requests import (
    NAMESPACE,
    identifier_of,
    request,
)
from tests.operations.requests import (
    table as new_table,
)
from tests.operations.table_files import (
    TableWithFiles,
    files_below,
)


async def test_a_driver_whose_clock_is_ahead_condemns_and_deletes_by_the_time_of_the_store() -> None:
    cluster, table = await with_orphan()
    await cluster.server().locations.create(table.at("data/young.parquet"), b"x")
    ahead = FixedClock(cluster.clock.now_ms() + 40 * DAY_MS)

    def run(name: str) -> OrphanRemoval:
        lake = make_lake(cluster.store, ahead)
        return OrphanRemoval(lake, name, no_fence, IcebergFiles(lake))

    await run("first").condemn(table.uuid, table.identifier, POLICY)
    early = await run("second").delete(table.uuid, table.identifier, POLICY)
    found = await condemned(cluster, table)
    for clock in (cluster.clock, ahead):
        clock.advance(DAY_MS)
    late = await run("third").delete(table.uuid, table.identifier, POLICY)

    assert (found, early.files, late.files) == ([ORPHAN], 0, 1)


async def test_a_driver_whose_clock_is_ahead_deletes_no_sooner_what_another_one_condemned() -> None:
    cluster, table = await with_orphan()
    await condemn(cluster, table)
    lake = make_lake(cluster.store, FixedClock(cluster.clock.now_ms() + 40 * DAY_MS))

    done = await OrphanRemoval(lake, "second", no_fence, IcebergFiles(lake)).delete(
        table.uuid, table.identifier, POLICY
    )

    assert done.files == 0
    assert await has_orphan(cluster, table)


async def test_a_driver_whose_clock_is_behind_condemns_less() -> None:
    cluster, table = await with_orphan()
    lake = make_lake(cluster.store, FixedClock(cluster.clock.now_ms() - 2 * DAY_MS))

    found = await OrphanRemoval(lake, "first", no_fence, IcebergFiles(lake)).condemn(
        table.uuid, table.identifier, POLICY
    )

    assert (found.files, found.kept["younger than the minimum age"] > 0) == (0, True)


async def test_a_run_asks_for_the_time_of_the_store_once() -> None:
    cluster, table = await with_orphan()
    spy = SpyStore(cluster.store)
    run = removal(cluster, "first", spy)

    for _ in range(3):
        await run.condemn(table.uuid, table.identifier, POLICY)

    assert len([key for key in spy.keys("put") if key.startswith("_probe/")]) == 1
    assert await cluster.keys("_probe/") == []


async def test_a_run_reads_open_stages_once_and_together() -> None:
    cluster, table = await with_orphan()
    for number in range(40):
        await create_managed(cluster.server(), identifier_of(f"d{number}"))
        staged = new_table(f"s{number}", stage_create=True)
        await create_table(cluster.server(), NAMESPACE, staged, request(f"stage {number}"))
    spy = SpyStore(cluster.store)
    server = cluster.server(spy)
    files = IcebergFiles(server)

    costs = []
    for _ in range(2):
        spy.reset()
        assert await files.sharing(table.uuid, table.location) == ""
        costs.append((len([key for key in spy.keys("get") if "_staged/" in key]), spy.rounds))

    assert [reads for reads, _ in costs] == [80, 0]
    assert all(rounds < 40 for _, rounds in costs), costs


async def with_two_condemned() -> tuple[Cluster, TableWithFiles]:
    cluster, table = await with_orphan()
    await cluster.server().locations.create(table.at("data/orphan-2.parquet"), b"x")
    cluster.clock.advance(AGE_MS)
    await condemn(cluster, table)
    cluster.clock.advance(DAY_MS)
    return cluster, table


async def test_a_run_says_how_many_files_it_left(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, table = await with_two_condemned()
    monkeypatch.setattr(removals, "DELETES_MAX", 1)

    first = await delete(cluster, table)
    second = await delete(cluster, table)

    assert (first.files, first.left) == (1, 1)
    assert (second.files, second.left) == (1, 0)


async def test_a_table_with_more_orphans_than_a_run_takes_is_clean_after_some_days(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, table = await with_orphan()
    before = await files_below(cluster.server(), table)
    for number in range(4):
        await cluster.server().locations.create(table.at(f"data/orphan-{number}.parquet"), b"x")
    cluster.clock.advance(AGE_MS)
    monkeypatch.setattr(decisions, "CONDEMNED_MAX", 2)
    monkeypatch.setattr(removals, "DELETES_MAX", 2)

    steps = []
    for day in range(5):
        done = await delete(cluster, table, run=f"{day}")
        found = await removal(cluster, f"{day}").condemn(table.uuid, table.identifier, Orphans(share_max=1.0))
        steps.append((done.files, found.files, found.left))
        cluster.clock.advance(DAY_MS)

    assert steps == [(0, 2, 3), (2, 2, 1), (2, 1, 0), (1, 0, 0), (0, 0, 0)]
    assert await files_below(cluster.server(), table) == [one for one in before if one != ORPHAN]


@pytest.mark.parametrize(("room", "deleted"), [(0, 0), (1, 1), (2, 2)])
async def test_files_that_the_list_of_swept_files_has_no_room_for_stay_and_the_run_says_so(
    room: int, deleted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, table = await with_two_condemned()
    monkeypatch.setattr(decisions, "SWEPT_MAX", room)

    done = await delete(cluster, table)

    limit = "at most 100,000 files of a table are deleted in 90 days"
    assert (done.files, done.left) == (deleted, 2 - deleted)
    assert done.refusal == ("" if room else limit)
    assert done.kept == ({f"left for a later run: {limit}": 1} if room == 1 else {})
