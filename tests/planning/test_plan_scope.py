"""The scope of a plan: one table, also after a rename, and no other table of the same name."""

from pathlib import Path
from typing import Any

import pytest

from sandur.errors import NotFound
from sandur.operations.lake import Lake
from sandur.operations.planning.plans import Completed
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.register import register_table
from sandur.operations.tables.rename import rename
from tests.operations.requests import NAMESPACE, commit, identifier_of, request
from tests.planning.plan_servers import (
    PLAIN,
    SMALL,
    TABLE,
    Fleet,
    cancelled,
    everything,
    fetched,
    made_table,
    numbered,
    paths,
    polled,
    request_plan,
)
from tests.planning.tables import MadeManifest, MadeTable

OTHER = identifier_of("other")


async def planned(server: Lake) -> Completed:
    result = await request_plan(server)
    assert isinstance(result, Completed)
    assert result.result.plan_tasks
    return result


async def assert_not_found(server: Lake, result: Completed, table: Any = TABLE) -> None:
    for attempt in (
        polled(server, result.plan_id, table=table),
        cancelled(server, result.plan_id, table=table),
        fetched(server, result.result.plan_tasks[0], table=table),
    ):
        with pytest.raises(NotFound):
            await attempt


def table_without_uuid(folder: Path) -> MadeTable:
    table = MadeTable(folder, [PLAIN], format_version=1, uuid=None)
    table.add_snapshot([MadeManifest(PLAIN, numbered(0, 9))])
    return table


async def test_a_table_without_a_uuid_in_its_metadata_has_its_own_plans(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    server = await fleet.serve_table(table_without_uuid(fleet.table_folder))

    result = await planned(server)

    assert sorted(await everything(server, result)) == sorted(paths(0, 9))
    assert isinstance(await polled(fleet.server(), result.plan_id), Completed)
    await cancelled(server, result.plan_id)


async def test_a_plan_stays_with_a_table_that_gets_a_uuid_meanwhile(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    server = await fleet.serve_table(table_without_uuid(fleet.table_folder))
    before = await planned(server)

    given = commit({"action": "assign-uuid", "uuid": "11111111-2222-3333-4444-555555555555"})
    await commit_table(server, TABLE, given, request("give a uuid"))
    after = await planned(server)

    for result in (before, after):
        assert sorted(await everything(server, result)) == sorted(paths(0, 9))


async def test_a_plan_follows_a_rename_of_its_table(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    server = await fleet.serve_table(made_table(fleet.table_folder, 9))
    result = await planned(server)

    await rename(server, TABLE, OTHER, kind="table", request=request("rename"))

    assert sorted(await everything(fleet.server(), result, table=OTHER)) == sorted(paths(0, 9))
    await assert_not_found(server, result)


async def test_a_plan_of_one_table_does_not_exist_under_another(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    table = made_table(fleet.table_folder, 9)
    server = await fleet.serve_table(table)
    result = await planned(server)
    # The same file: the content of the metadata cannot distinguish these two tables.
    copy = f"file://{table.write(name='copy.metadata.json')}"
    await register_table(server, NAMESPACE, "other", copy, request=request("register the other"))

    await assert_not_found(server, result, OTHER)

    assert sorted(await everything(server, result)) == sorted(paths(0, 9))


async def test_plans_of_a_dropped_table_are_gone_also_after_its_name_is_reused(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    table = made_table(fleet.table_folder, 9)
    server = await fleet.serve_table(table)
    result = await planned(server)

    await drop_name(server, TABLE, kind="table", request=request("drop"))
    await assert_not_found(server, result)
    again = f"file://{table.write(name='again.metadata.json')}"
    await register_table(server, NAMESPACE, "t", again, request=request("register again"))

    await assert_not_found(server, result)
    assert sorted(await everything(server, await planned(server))) == sorted(paths(0, 9))


async def test_a_table_is_looked_up_again_after_its_name_left_the_cache(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    server = await fleet.serve_table(made_table(fleet.table_folder, 9))
    await request_plan(server)  # Fill the cache of names.
    server._seen.clear()

    result = await planned(server)

    assert sorted(await everything(server, result)) == sorted(paths(0, 9))
