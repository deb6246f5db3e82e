"""Plans: complete or as tasks, immediate or submitted, on any server, for their principal only."""

import asyncio
from pathlib import Path
from typing import Any

import fastavro
import pytest

from sandur.errors import BadRequest, Invalid, NotFound
from sandur.iceberg.scan.manifests import ManifestFile
from sandur.operations.planning.cache import PlanningCache
from sandur.operations.planning.plan_tasks import PLAN_TASKS_MAX, Run, encode_task, entries_per_task, group_runs
from sandur.operations.planning.plans import Cancelled, Completed, Failed, Submitted
from sandur.operations.tables.register import register_table
from sandur.storage.contract import Stored
from sandur.storage.local import LocalStore
from tests.fakes.spy_store import SpyStore
from tests.fakes.wrapping_store import WrappingStore
from tests.operations.requests import NAMESPACE, request
from tests.planning.plan_servers import (
    PLAIN,
    SMALL,
    Fleet,
    cancelled,
    everything,
    fetched,
    finished,
    made_table,
    numbered,
    paths,
    polled,
    request_by,
    request_plan,
)
from tests.planning.planners import tasks_in
from tests.planning.tables import MadeManifest


async def test_a_small_plan_is_in_the_answer_and_leaves_no_tasks(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    server = await fleet.serve_table(made_table(fleet.table_folder, 3, 2))

    result = await request_plan(server)

    assert isinstance(result, Completed)
    assert [task.path for task in tasks_in(result.result.fields)] == paths(0, 5)
    assert not result.result.plan_tasks


async def test_a_large_plan_has_tasks_that_contain_every_file_once(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    server = await fleet.serve_table(made_table(fleet.table_folder, 10, 1, 1, 7))

    result = await request_plan(server)

    assert isinstance(result, Completed)
    assert not tasks_in(result.result.fields)
    assert sorted(await everything(server, result)) == sorted(paths(0, 19))
    sizes = [len(await fetched(server, token)) for token in result.result.plan_tasks]
    assert max(sizes) <= 4
    assert len(sizes) <= 7


async def test_a_selective_filter_on_a_large_table_is_in_the_answer(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    server = await fleet.serve_table(made_table(fleet.table_folder, 50, 50))

    result = await request_plan(server, filter={"type": "eq", "term": "id", "value": 70})

    assert list(await everything(server, result)) == paths(70, 71)


async def test_tasks_without_a_match_are_not_returned(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    server = await fleet.serve_table(made_table(fleet.table_folder, 40))

    result = await request_plan(server, filter={"type": "lt", "term": "id", "value": 9})

    assert isinstance(result, Completed)
    assert len(result.result.plan_tasks) == 3
    assert sorted(await everything(server, result)) == sorted(paths(0, 9))


async def test_manifests_without_a_match_are_in_no_task(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    server = await fleet.serve_table(made_table(fleet.table_folder, 8, 40))

    result = await request_plan(server, filter={"type": "gt-eq", "term": "id", "value": 8})

    assert isinstance(result, Completed)
    assert len(result.result.plan_tasks) == 10
    assert sorted(await everything(server, result)) == sorted(paths(8, 48))


async def test_a_task_can_be_fetched_again_and_from_another_server(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    server = await fleet.serve_table(made_table(fleet.table_folder, 9))
    result = await request_plan(server)
    assert isinstance(result, Completed)
    token = result.result.plan_tasks[0]

    first = await fetched(server, token)

    assert await fetched(server, token) == first
    assert await fetched(fleet.server(), token) == first


async def test_a_plan_keeps_its_snapshot_after_later_commits(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    table = made_table(fleet.table_folder, 9)
    server = await fleet.serve_table(table)
    result = await request_plan(server)
    assert isinstance(result, Completed)

    table.add_snapshot([MadeManifest(PLAIN, numbered(100, 3))])
    location = f"file://{table.write(name='v2.metadata.json')}"
    await register_table(server, NAMESPACE, "t", location, overwrite=True, request=request("again"))

    assert sorted(await everything(fleet.server(), result)) == sorted(paths(0, 9))


async def test_a_slow_plan_is_submitted_and_completed_when_it_is_fetched(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, plan_wait="PT0S")
    server = await fleet.serve_table(made_table(fleet.table_folder, 4))

    result = await request_plan(server)

    assert isinstance(result, Submitted)
    assert list(await everything(server, await finished(server, result))) == paths(0, 4)


async def test_a_submitted_plan_outlives_the_server_that_accepted_it(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, plan_wait="PT0S")
    server = await fleet.serve_table(made_table(fleet.table_folder, 4))
    result = await request_plan(server)
    assert isinstance(result, Submitted)
    await server.feature(PlanningCache).plans.close()

    other = fleet.server()

    assert list(await everything(other, await finished(other, result))) == paths(0, 4)


async def test_a_plan_is_cancelled_on_every_server_and_its_tasks_are_gone(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    server = await fleet.serve_table(made_table(fleet.table_folder, 9))
    result = await request_plan(server)
    assert isinstance(result, Completed)

    await cancelled(fleet.server(), result.plan_id)
    await cancelled(server, result.plan_id)

    assert await polled(server, result.plan_id) == Cancelled(result.plan_id)
    with pytest.raises(NotFound) as caught:
        await fetched(server, result.result.plan_tasks[0])
    assert caught.value.subject == "plan task"


class StuckStore(WrappingStore):
    """Never returns a manifest."""

    async def get(self, key: str) -> Stored | None:
        if "/m1-" in key:
            await asyncio.Event().wait()
        return await super().get(key)


async def test_cancelling_a_submitted_plan_stops_the_work_on_it(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, store=StuckStore(LocalStore(tmp_path, fsync="never")), plan_wait="PT0S")
    server = await fleet.serve_table(made_table(fleet.table_folder, 4))
    result = await request_plan(server)
    assert isinstance(result, Submitted)
    (work,) = server.feature(PlanningCache).plans._tasks.values()

    await cancelled(server, result.plan_id)

    await asyncio.wait([work])
    assert work.cancelled()
    assert await polled(server, result.plan_id) == Cancelled(result.plan_id)


async def test_a_plan_belongs_to_the_principal_that_requested_it(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    server = await fleet.serve_table(made_table(fleet.table_folder, 9))
    result = await request_plan(server)
    assert isinstance(result, Completed)

    for attempt in (
        polled(server, result.plan_id, "bob"),
        cancelled(server, result.plan_id, "bob"),
        fetched(server, result.result.plan_tasks[0], "bob"),
    ):
        with pytest.raises(NotFound):
            await attempt

    assert isinstance(await polled(server, result.plan_id), Completed)


@pytest.mark.parametrize(
    ("settings", "seconds"), [({}, 600), ({"plan_ttl": "PT2H"}, 7_200), ({"plan_ttl": "PT1S"}, 60)], ids=str
)
async def test_an_expired_plan_is_gone(tmp_path: Path, settings: dict[str, Any], seconds: int) -> None:
    fleet = Fleet(tmp_path, **SMALL, **settings)
    server = await fleet.serve_table(made_table(fleet.table_folder, 9))
    result = await request_plan(server)
    assert isinstance(result, Completed)

    fleet.clock.advance((seconds - 1) * 1_000)
    assert isinstance(await polled(server, result.plan_id), Completed)
    assert await fetched(server, result.result.plan_tasks[0])
    fleet.clock.advance(1_000)

    with pytest.raises(NotFound) as caught:
        await polled(server, result.plan_id)
    assert caught.value.subject == "plan"
    with pytest.raises(NotFound):
        await fetched(server, result.result.plan_tasks[0])


async def test_a_repeated_request_with_the_same_key_is_the_same_plan(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    server = await fleet.serve_table(made_table(fleet.table_folder, 2))

    first = await request_plan(server, by=request_by(key="k"))
    again = await request_plan(fleet.server(), by=request_by(key="k"))
    other = await request_plan(server, by=request_by(key="another"))

    assert first.plan_id == again.plan_id != other.plan_id


async def test_a_repeated_request_gets_the_snapshot_of_the_first_one(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    table = made_table(fleet.table_folder, 9)
    server = await fleet.serve_table(table)
    await request_plan(server, by=request_by(key="k"))
    table.add_snapshot([MadeManifest(PLAIN, numbered(100, 9))])
    location = f"file://{table.write(name='v2.metadata.json')}"
    await register_table(server, NAMESPACE, "t", location, overwrite=True, request=request("again"))

    again = await request_plan(fleet.server(), by=request_by(key="k"))

    assert sorted(await everything(server, again)) == sorted(paths(0, 9))
    fleet.clock.advance(11 * 60_000)  # The plan has expired or was cancelled, so the next request makes a new plan.
    later = await request_plan(server, by=request_by(key="k"))
    assert isinstance(later, Completed)
    await cancelled(server, later.plan_id)
    later = await request_plan(server, by=request_by(key="k"))
    assert sorted(await everything(server, later)) == sorted(paths(100, 109))


@pytest.mark.parametrize("token", ["", "x", "e30", "é", "WzEsInAiLDEsW11d", "A" * 100_000])
async def test_an_unknown_task_does_not_exist(tmp_path: Path, token: str) -> None:
    fleet = Fleet(tmp_path)
    server = await fleet.serve_table(made_table(fleet.table_folder, 2))

    with pytest.raises(NotFound) as caught:
        await fetched(server, token)

    assert caught.value.subject == "plan task"


async def test_a_forged_task_returns_nothing_outside_its_plan(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    server = await fleet.serve_table(made_table(fleet.table_folder, 40))
    result = await request_plan(server, filter={"type": "lt", "term": "id", "value": 9})
    assert isinstance(result, Completed)

    all_of_it = await fetched(server, encode_task(result.plan_id, 1, [Run(0, 0, 40)]))

    assert [task.path for task in all_of_it] == paths(0, 9)
    assert await fetched(server, encode_task(result.plan_id, 1, [Run(7, 0, 4)])) == []
    with pytest.raises(NotFound):
        await fetched(server, encode_task(result.plan_id, 2, [Run(0, 0, 4)]))


@pytest.mark.parametrize(
    ("files", "size", "tasks"),
    [(1_000, 128, 8), (100_000, 400, 250), (1_000_000, 4_000, 250), (200_000_000, 20_000, 10_000)],
)
def test_the_number_of_tasks_is_bounded_for_tables_of_any_size(files: int, size: int, tasks: int) -> None:
    manifests = [
        ManifestFile(manifest_path=str(number), added_files_count=files // 10, existing_files_count=0)
        for number in range(10)
    ]

    found = entries_per_task(files, 128)
    groups = group_runs(enumerate(manifests), entries_per_task=found, matched={})

    assert found == size
    assert len(groups) <= max(tasks, 10) <= PLAN_TASKS_MAX
    runs = sorted(run for group in groups for run in group)
    for place in range(10):
        (first, *following) = [run for run in runs if run.place == place]
        assert first.start == 0
        assert [run.start for run in following] == [run.stop for run in [first, *following][:-1]]
        assert [first, *following][-1].stop > files


async def test_a_manifest_outside_the_allowed_locations_fails_only_its_own_tasks(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    table = made_table(fleet.table_folder, 8, 8)
    listed = fleet.table_folder / "metadata" / "snap-1.avro"
    with listed.open("rb") as file:
        reader = fastavro.reader(file)
        records: list[Any] = list(reader)
        schema = reader.writer_schema
    records[1]["manifest_path"] = "file:///elsewhere/m.avro"
    with listed.open("wb") as file:
        fastavro.writer(file, schema, records)
    server = await fleet.serve_table(table)

    result = await request_plan(server)

    assert isinstance(result, Completed)
    *allowed, _, last = result.result.plan_tasks
    assert [task.path for token in allowed for task in await fetched(server, token)] == paths(0, 8)
    with pytest.raises(BadRequest):
        await fetched(server, last)


async def test_a_missing_or_broken_manifest_fails_the_plan_and_not_the_server(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    server = await fleet.serve_table(made_table(fleet.table_folder, 2, 2))
    manifest = fleet.table_folder / "metadata" / "m1-1.avro"
    manifest.write_bytes(b"Obj\x01 not really")

    broken = await request_plan(server)
    manifest.unlink()
    gone = await request_plan(fleet.server())

    assert isinstance(broken, Failed)
    assert "m1-1.avro: cannot be read" in str(broken.error)
    assert isinstance(gone, Failed)
    assert "m1-1.avro" in str(gone.error)


async def test_a_snapshot_cannot_refer_to_files_of_the_catalog(tmp_path: Path) -> None:
    """A file that says so cannot be registered, and is not followed if it was registered before that was checked."""
    fleet = Fleet(tmp_path)
    table = made_table(fleet.table_folder, 2)
    server = await fleet.serve_table(table)
    assert isinstance(await request_plan(server), Completed)
    hidden = tmp_path / "tenant=default" / "workspace=default" / "_catalog" / "secret.avro"
    hidden.write_bytes((fleet.table_folder / "metadata" / "snap-1.avro").read_bytes())
    table.snapshots[0]["manifest-list"] = f"file://{hidden}"
    file = f"file://{table.write()}"

    result = await request_plan(fleet.server())
    with pytest.raises(Invalid, match="it is in the store of the catalog"):
        await register_table(server, NAMESPACE, "other", file, overwrite=False, request=request("other"))

    assert isinstance(result, Failed)
    assert "catalog's own folder" in str(result.error)


@pytest.mark.parametrize(
    "said",
    [
        {"snapshot_id": 99},
        {"snapshot_id": 1, "start_snapshot_id": 1, "end_snapshot_id": 1},
        {"start_snapshot_id": 1},
        {"end_snapshot_id": 1},
        {"filter": None},
        {"filter": {"type": "eq", "term": "nothing", "value": 1}},
        {"filter": {"type": "eq", "term": "ID", "value": 1}},
        {"select": ["nothing"]},
        {"stats_fields": ["nothing"]},
        {"min_rows_requested": -1},
    ],
    ids=str,
)
async def test_an_invalid_plan_request_is_refused(tmp_path: Path, said: dict[str, Any]) -> None:
    fleet = Fleet(tmp_path)
    server = await fleet.serve_table(made_table(fleet.table_folder, 2))

    with pytest.raises(BadRequest):
        await request_plan(server, **said)


async def test_the_plan_of_a_table_without_a_snapshot_is_empty(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    table = made_table(fleet.table_folder, 2)
    table.snapshots.clear()
    server = await fleet.serve_table(table)

    result = await request_plan(server, filter={"type": "eq", "term": "ID", "value": 1}, case_sensitive=False)

    assert list(await everything(server, result)) == []
    assert list(await everything(server, await polled(server, result.plan_id))) == []


async def test_a_scan_ends_when_the_requested_rows_are_found(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    server = await fleet.serve_table(made_table(fleet.table_folder, 3, 3, 3))

    some = await request_plan(server, min_rows_requested=4)
    filtered = await request_plan(server, min_rows_requested=4, filter={"type": "gt-eq", "term": "id", "value": 0})

    assert list(await everything(server, some)) == paths(0, 6)
    assert list(await everything(server, filtered)) == paths(0, 9)


async def test_a_warm_plan_is_two_rounds_and_reads_no_manifest(tmp_path: Path) -> None:
    spy = SpyStore(LocalStore(tmp_path, fsync="never"))
    fleet = Fleet(tmp_path, store=spy)
    server = await fleet.serve_table(made_table(fleet.table_folder, 3, 2))
    await request_plan(server)
    spy.reset()

    await request_plan(server)

    assert spy.rounds == 2
    assert not [key for key in spy.keys("get") if key.endswith(".avro")]
