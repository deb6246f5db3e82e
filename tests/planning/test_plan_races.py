"""Plans during concurrent changes: cancellation, expired snapshots, deleted files, and equal requests."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from sandur.errors import BadRequest, NotFound, SwapLost
from sandur.operations.lake import Lake
from sandur.operations.planning.cache import PlanningCache
from sandur.operations.planning.plans import Cancelled, Completed, Failed, Submitted
from sandur.operations.tables.register import register_table
from sandur.storage.contract import Expected, Version
from sandur.storage.layout import Layout
from sandur.storage.local import LocalStore
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.operations.requests import NAMESPACE, request
from tests.planning.plan_servers import (
    PLAIN,
    SMALL,
    Fleet,
    cancelled,
    everything,
    fetched,
    made_table,
    numbered,
    paths,
    polled,
    request_by,
    request_plan,
)
from tests.planning.tables import MadeManifest, MadeTable

T = TypeVar("T")


class StuckStore(WrappingStore):
    """Never returns a manifest, and runs a hook before a plan is swapped."""

    async def before_a_swap(self) -> None:
        """The hook; tests replace it."""

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        if "/m1-" in call.key:
            await asyncio.Event().wait()
        if call.name == "put" and b'"cancelled"' in call.data:
            await self.before_a_swap()
        return await perform()


async def stuck_plan(folder: Path) -> tuple[StuckStore, Fleet, Lake, Submitted]:
    store = StuckStore(LocalStore(folder, fsync="never"))
    fleet = Fleet(folder, store=store, plan_wait="PT0S")
    server = await fleet.serve_table(made_table(fleet.table_folder, 4))
    result = await request_plan(server)
    assert isinstance(result, Submitted)
    return store, fleet, server, result


async def test_a_fetch_during_a_cancellation_does_not_restart_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _, server, result = await stuck_plan(tmp_path)
    seen: list[object] = []

    async def fetch_again() -> None:
        seen.append(await polled(server, result.plan_id))

    monkeypatch.setattr(store, "before_a_swap", fetch_again)
    await cancelled(server, result.plan_id)

    assert seen == [result]
    await asyncio.wait(server.feature(PlanningCache).plans._tasks.values())
    assert not server.feature(PlanningCache).plans._tasks
    assert await polled(server, result.plan_id) == Cancelled(result.plan_id)


async def test_a_plan_cancelled_on_another_server_stops_here(tmp_path: Path) -> None:
    _, fleet, server, result = await stuck_plan(tmp_path)
    (work,) = server.feature(PlanningCache).plans._tasks.values()

    await cancelled(fleet.server(), result.plan_id)
    assert await polled(server, result.plan_id) == Cancelled(result.plan_id)
    await cancelled(server, result.plan_id)

    await asyncio.wait([work])
    assert work.cancelled()


async def test_concurrent_cancellations_all_succeed(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    server = await fleet.serve_table(made_table(fleet.table_folder, 9))
    result = await request_plan(server)

    await asyncio.gather(*(cancelled(fleet.server(), result.plan_id) for _ in range(6)))

    assert await polled(server, result.plan_id) == Cancelled(result.plan_id)


async def test_concurrent_plans_with_one_key_each_get_every_file_once(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    server = await fleet.serve_table(made_table(fleet.table_folder, 9))

    results = await asyncio.gather(*(request_plan(fleet.server(), by=request_by(key="k")) for _ in range(6)))

    assert len({result.plan_id for result in results}) == 1
    for result in results:
        assert sorted(await everything(server, result)) == sorted(paths(0, 9))


class SweepingStore(WrappingStore):
    """Deletes a plan as soon as a create finds that it exists."""

    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
        try:
            return await super().put(key, data, expected=expected)
        except SwapLost:
            found = await self.get(key)
            if "/plans/" in key and found is not None:
                await self.delete(key, expected=found.version)
            raise


async def test_a_plan_deleted_during_a_repeated_request_is_created_again(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, store=SweepingStore(LocalStore(tmp_path, fsync="never")), **SMALL)
    server = await fleet.serve_table(made_table(fleet.table_folder, 9))
    await request_plan(server, by=request_by(key="k"))
    fleet.clock.advance(11 * 60_000)

    again = await request_plan(server, by=request_by(key="k"))

    assert sorted(await everything(fleet.server(), again)) == sorted(paths(0, 9))


async def test_a_key_belongs_to_its_principal_and_its_request(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    server = await fleet.serve_table(made_table(fleet.table_folder, 2))

    by_ann, by_bob = (
        await request_plan(server, by=request_by(key="k")),
        await request_plan(server, by=request_by("bob", key="k")),
    )

    assert by_ann.plan_id != by_bob.plan_id
    with pytest.raises(NotFound):
        await polled(server, by_ann.plan_id, "bob")


async def moved_on(server: Lake, table: MadeTable) -> None:
    """Add a snapshot to the table and expire the one before it."""
    table.add_snapshot([MadeManifest(PLAIN, numbered(100, 3))])
    del table.snapshots[0]
    location = f"file://{table.write(name='v2.metadata.json')}"
    await register_table(server, NAMESPACE, "t", location, overwrite=True, request=request("again"))


async def test_a_plan_whose_snapshot_expired_works_while_its_files_exist(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    table = made_table(fleet.table_folder, 9)
    server = await fleet.serve_table(table)
    result = await request_plan(server)

    await moved_on(server, table)

    assert sorted(await everything(fleet.server(), result)) == sorted(paths(0, 9))


@pytest.mark.parametrize(
    "gone", [["v1.metadata.json"], ["snap-1.avro"], ["m1-0.avro"], ["v1.metadata.json", "snap-1.avro", "m1-0.avro"]]
)
async def test_a_plan_whose_files_are_gone_fails_and_names_them(tmp_path: Path, gone: list[str]) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    table = made_table(fleet.table_folder, 9)
    server = await fleet.serve_table(table)
    result = await request_plan(server)
    assert isinstance(result, Completed)
    await moved_on(server, table)

    for name in gone:
        (fleet.table_folder / "metadata" / name).unlink()
    other = fleet.server()

    failed = await polled(other, result.plan_id)
    assert isinstance(failed, Failed)
    with pytest.raises((BadRequest, NotFound)) as caught:
        await fetched(other, result.result.plan_tasks[0])
    assert str(caught.value) == str(failed.error)
    assert gone[0] in str(failed.error) or "snapshot with ID 1" in str(failed.error)


async def test_a_plan_of_the_current_snapshot_needs_no_old_metadata_file(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    table = made_table(fleet.table_folder, 9)
    server = await fleet.serve_table(table)
    result = await request_plan(server)
    location = f"file://{table.write(name='v2.metadata.json')}"
    await register_table(server, NAMESPACE, "t", location, overwrite=True, request=request("again"))

    (fleet.table_folder / "metadata" / "v1.metadata.json").unlink()

    assert sorted(await everything(fleet.server(), result)) == sorted(paths(0, 9))


async def test_servers_with_other_settings_answer_for_each_others_plans(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    server = await fleet.serve_table(made_table(fleet.table_folder, 9, 3))
    generous = fleet.server(plan_inline_files_max=1_000, plan_task_files=1_000)

    behind_tasks = await request_plan(server)
    inline = await polled(generous, behind_tasks.plan_id)

    assert isinstance(behind_tasks, Completed)
    assert isinstance(inline, Completed)
    assert not inline.result.plan_tasks
    assert sorted(await everything(generous, behind_tasks)) == sorted(paths(0, 12))
    assert sorted(await everything(generous, inline)) == sorted(paths(0, 12))


async def test_a_plan_of_another_workspace_on_the_same_store_does_not_exist(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    server = await fleet.serve_table(made_table(fleet.table_folder, 9))
    its_own = made_table(tmp_path / "tables/default/another/main/a/t", 9)
    neighbour = await fleet.serve_table(its_own, Layout(workspace="another"))
    result = await request_plan(server)
    assert isinstance(result, Completed)

    for attempt in (
        polled(neighbour, result.plan_id),
        cancelled(neighbour, result.plan_id),
        fetched(neighbour, result.result.plan_tasks[0]),
    ):
        with pytest.raises(NotFound, match="plan"):
            await attempt

    assert sorted(await everything(server, result)) == sorted(paths(0, 9))
    assert sorted(await everything(neighbour, await request_plan(neighbour))) == sorted(paths(0, 9))
