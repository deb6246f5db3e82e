"""Records of maintenance runs: created once, listed by run, settled from the table, removed when published."""

import pytest

from sandur.catalog.maintenance.health import TableHealth
from sandur.catalog.maintenance.records import (
    NO_END,
    OperationRecord,
    OperationResult,
    PastRecord,
    RunEnd,
    RunPlan,
    ended_record,
)
from sandur.errors import Unavailable
from sandur.operations.delta.publishing import have_same_actions, publish_commits, published_location, staged_location
from sandur.operations.delta.tables import find_by_id
from sandur.operations.lake import Lake
from sandur.operations.maintenance.reports import load_operations, load_plan
from sandur.operations.maintenance.runs import RunRecords, last_end, list_runs, remove_runs
from sandur.operations.tables.commit import commit_table
from sandur.pipeline.maintenance.evidence import load_metadata, rewrites_of, roll_back
from tests.operations.delta_requests import add, create_managed
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    append,
    commit,
    content,
    create,
    identifier_of,
    request,
    set_up_catalog,
    snapshot,
)


@pytest.fixture
async def lake() -> Lake:
    made = make_lake()
    await set_up_catalog(made)
    return made


def _record(run: str, number: int) -> OperationRecord:
    return OperationRecord(
        run=run,
        number=number,
        uuid="u",
        catalog="main",
        namespace="sales",
        name="orders",
        format="iceberg",
        operation="compaction",
        started_ms=number + 1,
    )


async def test_an_end_that_was_written_first_stays(lake: Lake) -> None:
    records = RunRecords(lake, "1")
    first = ended_record(_record("1", 0), OperationResult(state="done"), now_ms=5)

    await records.end(first)
    await records.end(ended_record(_record("1", 0), OperationResult(state="failed"), now_ms=6))

    assert await records.ended([0]) == [first]


async def test_a_run_shows_what_is_open_and_the_newest_end_counts(lake: Lake) -> None:
    for run, ends in (("1", True), ("2", True), ("3", False)):
        records = RunRecords(lake, run)
        await records.write_plan(RunPlan(run=run, started_ms=1))
        await records.begin(_record(run, 0))
        if ends:
            await records.end(ended_record(_record(run, 0), OperationResult(), now_ms=2))
            await records.write_end(RunEnd(run=run, ended_ms=int(run)))

    runs = await list_runs(lake)

    assert [(run.run, run.is_over, list(run.unsettled), list(run.ended)) for run in runs] == [
        ("1", True, [], [0]),
        ("2", True, [], [0]),
        ("3", False, [0], []),
    ]
    assert (await last_end(lake, runs)).run == "2"
    assert await last_end(lake, runs[2:]) == NO_END
    shown = (await load_operations(lake)).rows
    assert [(row["run"], row["state"]) for row in shown] == [("3", "planned"), ("2", "done"), ("1", "done")]
    assert (await load_operations(lake, within="main.other")).rows == []
    assert (await load_plan(lake)).rows == []


async def test_only_old_published_runs_are_removed_and_never_the_newest(lake: Lake) -> None:
    for run in ("1", "2", "3", "4"):
        records = RunRecords(lake, run)
        await records.begin(_record(run, 0))
        await records.write_end(RunEnd(run=run, ended_ms=10 * int(run)))

    published = frozenset({"1", "3", "4"})
    removed = [await remove_runs(lake, ended_before_ms=before_ms, published=published) for before_ms in (25, 45)]

    assert removed == [1, 1]
    assert [run.run for run in await list_runs(lake)] == ["2", "4"]


async def test_pasts_survive_the_store(lake: Lake) -> None:
    past = PastRecord(uuid="u", operation="compaction", conflicts=2, conflict_ms=7)
    records = RunRecords(lake, "1")

    await records.write_end(RunEnd(run="1", ended_ms=1, pasts=(past,), spent=NO_END.spent))

    found = await last_end(lake, await list_runs(lake))
    assert (found.pasts, found.failing, found.backlog) == ((past,), 1, 0)


async def test_a_rewrite_with_other_rows_is_rolled_back_unless_a_writer_followed(lake: Lake) -> None:
    made = await create(lake, "orders")
    identifier = identifier_of("orders")
    await commit_table(lake, identifier, append(1), request("first"))
    rewritten = {**snapshot(2, 1, number=2), "summary": {"operation": "replace", "app-id": "us"}}
    added = {"action": "add-snapshot", "snapshot": rewritten}
    to_main = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 2}
    await commit_table(lake, identifier, commit(added, to_main), request("rewrite"))
    health = TableHealth(
        uuid=content(made)["table-uuid"],
        catalog=identifier.catalog,
        namespace=".".join(identifier.namespace.levels),
        name="orders",
        format="iceberg",
    )
    metadata = await load_metadata(lake, health)

    (rewrite,) = rewrites_of(frozenset({1}), metadata, "us")
    is_back = await roll_back(lake, health, rewrite, "run")
    again = await roll_back(lake, health, rewrite, "run again")

    assert rewrites_of(frozenset({1}), metadata, "others") == rewrites_of(frozenset({1, 2}), metadata, "us") == []
    assert (is_back, again) == (True, False)
    assert (await load_metadata(lake, health)).current_snapshot_id == 1


async def test_commits_whose_writer_died_are_published_and_published_files_never_change(lake: Lake) -> None:
    table = await create_managed(lake)
    for version in (1, 2):
        table = await add(lake, table, version)
        row = table.commits[-1]
        await lake.locations.create(staged_location(table, row.file_name), b"commit %d" % version)
    await lake.locations.create(published_location(table, 1), b"commit 1")

    published = await publish_commits(lake, (await find_by_id(lake, table.uuid)).value)

    assert published == 2
    assert await lake.locations.read(published_location(table, 2)) == b"commit 2"
    last = staged_location(table, table.commits[-1].file_name)
    assert await have_same_actions(lake, last, published_location(table, 2))


async def test_a_line_end_that_a_publisher_added_is_no_other_commit(lake: Lake) -> None:
    """Delta on Spark publishes the commits of other writers line by line, and ends the last line."""
    table = await create_managed(lake)
    for version in (1, 2):
        table = await add(lake, table, version)
        await lake.locations.create(staged_location(table, table.commits[-1].file_name), b"commit %d" % version)
    await lake.locations.create(published_location(table, 1), b"commit 1\n")
    await lake.locations.create(published_location(table, 2), b"commit 3")
    table = (await find_by_id(lake, table.uuid)).value

    with pytest.raises(Unavailable, match=r"2\.json exists with other actions"):
        await publish_commits(lake, table)

    first, last = (staged_location(table, row.file_name) for row in table.commits[-2:])
    assert await have_same_actions(lake, first, published_location(table, 1)) is True
    assert await have_same_actions(lake, last, published_location(table, 2)) is False
    assert await have_same_actions(lake, last, published_location(table, 3)) is None
