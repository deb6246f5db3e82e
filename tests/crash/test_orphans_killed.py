"""Runs that remove orphans, or what Delta's VACUUM would remove, die or lose answers at any call.

Nothing needed is lost, and the next runs finish.
"""

import contextlib
import os
from pathlib import Path
from typing import Literal

import pytest

from sandur.errors import SandurError
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.maintenance.iceberg_files import IcebergFiles
from sandur.operations.maintenance.orphans import OrphanRemoval
from sandur.storage.local import LocalStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.lossy_store import Fate, LossyStore
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
    missing_files,
    no_fence,
    removal,
    with_orphan,
)
from tests.operations.requests import copy_store, set_up_catalog
from tests.operations.table_files import TableWithFiles, create_table_with_files, files_below
from tests.operations.test_vacuum import Vacuumed, added, removed

CALLS_MAX = 500

Step = Literal["condemn", "delete"]


async def before_step(step: Step) -> tuple[Cluster, TableWithFiles]:
    cluster, table = await with_orphan()
    if step == "delete":
        await condemn(cluster, table)
        cluster.clock.advance(DAY_MS)
    return cluster, table


def copy_of(origin: Cluster) -> Cluster:
    cluster = Cluster()
    cluster.store, cluster.clock = copy_store(origin.store, origin.clock)
    return cluster


def age_files(folder: Path, *, written_s: float) -> None:
    for file in folder.rglob("*.parquet"):
        os.utime(file, (written_s, written_s))


async def finish(cluster: Cluster, table: TableWithFiles) -> None:
    """Two more runs, each a day later, as whole runs are: delete first, then condemn."""
    for run in ("third", "fourth"):
        cluster.clock.advance(DAY_MS)
        work = removal(cluster, run)
        await work.delete(table.uuid, table.identifier, POLICY)
        await work.condemn(table.uuid, table.identifier, POLICY)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", ["condemn", "delete"])
async def test_a_killed_run_loses_nothing_and_is_finished_by_the_next(step: Step, *, after: bool) -> None:
    origin, table = await before_step(step)
    kept = [one for one in await files_below(origin.server(), table) if one != ORPHAN]

    for number in range(1, CALLS_MAX):
        cluster = copy_of(origin)
        store = DyingStore(cluster.store, dies_at=number, after=after)
        work = removal(cluster, "second", store)
        with contextlib.suppress(Died):
            await (work.condemn if step == "condemn" else work.delete)(table.uuid, table.identifier, POLICY)
        assert await missing_files(cluster.server(), table) == [], number

        await finish(cluster, table)

        assert await files_below(cluster.server(), table) == kept, number
        assert await condemned(cluster, table) == [], number
        if not store.has_died:
            return
    pytest.fail("the run never ends")


@pytest.mark.parametrize("fate", ["applied", "dropped", "late"])
async def test_a_lost_answer_loses_nothing(fate: Fate) -> None:
    origin, table = await before_step("delete")
    kept = [one for one in await files_below(origin.server(), table) if one != ORPHAN]

    for number in range(1, 8):
        cluster = copy_of(origin)
        store = LossyStore(cluster.store, loses_at=number, fate=fate)
        with contextlib.suppress(SandurError):
            await delete(cluster, table, store=store)
        await store.deliver()
        assert await missing_files(cluster.server(), table) == [], number

        await finish(cluster, table)

        assert await files_below(cluster.server(), table) == kept, number


async def vacuumed_before(step: Step) -> Vacuumed:
    """A Delta table with a live file, one that was removed long ago, and one that no commit named."""
    made = await Vacuumed.managed(added("live"))
    await made.write("live", "old", "never")
    await made.commit(1, removed("old", made.cluster.clock.now_ms()))
    made.cluster.clock.advance(8 * DAY_MS)
    if step == "delete":
        await made.condemn()
        made.cluster.clock.advance(DAY_MS)
    return made


async def finish_vacuum(made: Vacuumed) -> None:
    for run in ("third", "fourth"):
        made.cluster.clock.advance(DAY_MS)
        await made.delete(run)
        await made.condemn(run)


async def data_files(made: Vacuumed) -> list[str]:
    return [file for file in await made.files() if not file.startswith("_delta_log/")]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", ["condemn", "delete"])
async def test_a_killed_vacuum_loses_nothing_and_is_finished_by_the_next(step: Step, *, after: bool) -> None:
    origin = await vacuumed_before(step)

    for number in range(1, CALLS_MAX):
        made = origin.copy()
        store = DyingStore(made.cluster.store, dies_at=number, after=after)
        with contextlib.suppress(Died):
            await (made.condemn if step == "condemn" else made.delete)("second", store)
        assert "live" in await data_files(made), number

        await finish_vacuum(made)

        assert await data_files(made) == ["live"], number
        if not store.has_died:
            return
    pytest.fail("the run never ends")


@pytest.mark.parametrize("fate", ["applied", "dropped", "late"])
async def test_a_lost_answer_of_a_vacuum_loses_nothing(fate: Fate) -> None:
    origin = await vacuumed_before("delete")

    for number in range(1, 8):
        made = origin.copy()
        store = LossyStore(made.cluster.store, loses_at=number, fate=fate)
        with contextlib.suppress(SandurError):
            await made.delete(store=store)
        await store.deliver()
        assert "live" in await data_files(made), number

        await finish_vacuum(made)

        assert await data_files(made) == ["live"], number


async def test_orphans_in_a_folder_are_found_under_every_spelling_of_the_location(tmp_path: Path) -> None:
    """Spark writes `file:/…` into metadata, the catalog `file:///…`: both are the same files."""
    clock = FixedClock()
    lake = make_lake(LocalStore(tmp_path), clock, own=f"file://{tmp_path}")
    await set_up_catalog(lake)
    table = await create_table_with_files(lake, snapshots=3)
    other_form = TableWithFiles(table.identifier, table.uuid, table.location.replace("file:///", "file:/"))
    assert other_form.location.startswith("file:/")
    await lake.locations.create(table.at(ORPHAN), b"x")
    clock.time_ms = max(one.modified_ms for one in await lake.store.list(""))
    age_files(tmp_path, written_s=(clock.now_ms() - AGE_MS) / 1_000)

    files = IcebergFiles(lake)
    found = await OrphanRemoval(lake, "first", no_fence, files).condemn(table.uuid, table.identifier, POLICY)
    clock.advance(DAY_MS)
    done = await OrphanRemoval(lake, "second", no_fence, files).delete(table.uuid, table.identifier, POLICY)

    assert (found.files, done.files) == (1, 1)
    assert await missing_files(lake, table) == []
    assert not await lake.locations.exists(other_form.at(ORPHAN))


async def test_the_orphan_is_there_before_any_run() -> None:
    cluster, table = await before_step("condemn")

    assert await has_orphan(cluster, table)
