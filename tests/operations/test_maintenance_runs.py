"""Records of maintenance runs: created once, listed by run, settled from the table, removed when published."""

import json
from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from sandur.catalog.maintenance.health import TableHealth
from sandur.catalog.maintenance.policies import DEFAULT
from sandur.catalog.maintenance.records import (
    NO_END,
    Measure,
    OperationRecord,
    OperationResult,
    PastRecord,
    RunEnd,
    RunPlan,
    ended_record,
)
from sandur.catalog.records import DeltaTable
from sandur.errors import NotFound, Unavailable
from sandur.iceberg.table_metadata import TableMetadata
from sandur.operations.delta.publishing import have_same_actions, publish_commits, published_location, staged_location
from sandur.operations.delta.tables import find_by_id
from sandur.operations.lake import Lake
from sandur.operations.maintenance.reports import load_operations, load_plan
from sandur.operations.maintenance.runs import RunRecords, last_end, list_runs, remove_runs
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.names import resolve_name
from sandur.operations.tables.register import register_table
from sandur.pipeline.maintenance import iceberg
from sandur.pipeline.maintenance.evidence import (
    compacted,
    compactions_of,
    load_metadata,
    rewrites_of,
    roll_back,
    rows_differ,
)
from sandur.pipeline.maintenance.iceberg import expirable_snapshots
from sandur.pipeline.maintenance.settle import settle_runs
from sandur.storage.memory import MemoryStore
from tests.fakes.spy_store import SpyStore
from tests.operations.delta_requests import add, create_managed, publish, write_staged
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    NAMESPACE,
    TIMESTAMP_MS,
    commit,
    content,
    create,
    identifier_of,
    load,
    request,
    set_up_catalog,
    snapshot,
)
from tests.unit.iceberg.tables import NOW_MS, table

ORDERS = identifier_of("orders")
TEN_ROWS = {"total-records": "10", "total-delete-files": "0"}
NINE_ROWS = {**TEN_ROWS, "total-records": "9"}


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


async def _ended_runs(lake: Lake, *runs: str) -> None:
    """Each has three objects."""
    for run in runs:
        records = RunRecords(lake, run)
        await records.begin(_record(run, 0))
        await records.end(ended_record(_record(run, 0), OperationResult(), now_ms=2))
        await records.write_end(RunEnd(run=run, ended_ms=int(run)))


async def test_of_too_many_records_the_newest_runs_are_read_and_all_are_removed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandur.operations.maintenance.runs.OBJECTS_MAX", 7)
    await _ended_runs(lake, "1", "2", "3", "4")

    before = await list_runs(lake)
    removed = await remove_runs(lake, ended_before_ms=9, published=frozenset("1234"))

    assert [run.run for run in before] == ["3", "4"]
    assert (await last_end(lake, before)).run == "4"
    assert (await load_operations(lake)).rows[-1]["run"] == "4"
    assert removed == 3
    assert [run.run for run in await list_runs(lake)] == ["4"]


async def test_a_published_run_keeps_its_end_and_while_there_is_room_its_records(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandur.operations.maintenance.runs.RECORDS_KEPT_MAX", 6)
    await _ended_runs(lake, "1", "2", "3", "4")

    removed = await remove_runs(lake, ended_before_ms=0, published=frozenset("134"))

    assert removed == 0
    assert [(run.run, len(run.names)) for run in await list_runs(lake)] == [("1", 1), ("2", 3), ("3", 3), ("4", 3)]
    assert await settle_runs(lake, await list_runs(lake), settled_by="5") == 0


async def test_the_removal_of_runs_reads_one_end_that_is_young() -> None:
    spy = SpyStore(MemoryStore())
    lake = make_lake(spy)
    for number in range(100):
        await RunRecords(lake, f"{number:03d}").write_end(RunEnd(run=f"{number:03d}", ended_ms=number))
    published = frozenset(run.run for run in await list_runs(lake))
    spy.reset()

    removed = await remove_runs(lake, ended_before_ms=10, published=published)

    assert (removed, len(spy.keys("get"))) == (10, 11)


async def test_the_newest_end_stays_below_a_run_that_has_none(lake: Lake) -> None:
    await _ended_runs(lake, "1")
    await RunRecords(lake, "2").begin(_record("2", 0))

    await remove_runs(lake, ended_before_ms=9, published=frozenset("12"))

    assert (await last_end(lake, await list_runs(lake))).run == "1"


async def test_pasts_survive_the_store(lake: Lake) -> None:
    past = PastRecord(uuid="u", operation="compaction", conflicts=2, conflict_ms=7)
    records = RunRecords(lake, "1")

    await records.write_end(RunEnd(run="1", ended_ms=1, pasts=(past,), spent=NO_END.spent))

    found = await last_end(lake, await list_runs(lake))
    assert (found.pasts, found.failing, found.backlog) == ((past,), 1, 0)


async def _rewritten(lake: Lake, *totals: Mapping[str, str] | None) -> TableHealth:
    """A table with ten rows whose snapshots after the first are rewrites; None stands for an append."""
    made = await create(lake, "orders")
    append = {"operation": "append", **TEN_ROWS}
    replaced = [{"operation": "replace", "app-id": "us", **one} if one is not None else append for one in totals]
    for number, summary in enumerate([append, *replaced], start=1):
        added = snapshot(number, number - 1 or None, number=number) | {"summary": summary}
        to_main = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number}
        change = commit({"action": "add-snapshot", "snapshot": added}, to_main)
        await commit_table(lake, ORDERS, change, request(f"commit {number}"))
    uuid, levels = content(made)["table-uuid"], ".".join(ORDERS.levels)
    return TableHealth(uuid=uuid, catalog=ORDERS.catalog, namespace=levels, name=ORDERS.name, format="iceberg")


async def _died(lake: Lake, health: TableHealth) -> RunRecords:
    """The records of a run that died after it had rewritten the table, and before it compared rows."""
    begun = replace(_record("1", 0), uuid=health.uuid, namespace=health.namespace, name="orders", state="running")
    begun = replace(begun, catalog=health.catalog, started_ms=TIMESTAMP_MS + 2)
    died = RunRecords(lake, "1")
    await died.write_plan(RunPlan(run="1", started_ms=1, application="us", operations=(begun,)))
    await died.begin(begun)
    return died


async def test_a_rewrite_with_other_rows_is_rolled_back_unless_a_writer_followed(lake: Lake) -> None:
    health = await _rewritten(lake, NINE_ROWS)
    metadata = await load_metadata(lake, health)

    made = rewrites_of(frozenset({1}), metadata, "us")
    done = await roll_back(lake, health, made, "run")
    again = await roll_back(lake, health, made, "run again")

    assert rewrites_of(frozenset({1}), metadata, "others") == rewrites_of(frozenset({1, 2}), metadata, "us") == []
    assert (done, again) == ("rolled back", "a writer has committed since: roll back by hand")
    assert (await load_metadata(lake, health)).current_snapshot_id == 1


async def test_a_rollback_keeps_what_the_main_branch_says_about_its_snapshots(lake: Lake) -> None:
    health = await _rewritten(lake, NINE_ROWS)
    kept = {"min-snapshots-to-keep": 7, "max-snapshot-age-ms": 8_000}
    main = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 2, **kept}
    await commit_table(lake, ORDERS, commit(main), request("keep"))

    done = await roll_back(lake, health, rewrites_of(frozenset({1}), await load_metadata(lake, health), "us"), "run")

    found = (await load_metadata(lake, health)).refs["main"]
    assert done == "rolled back"
    assert (found.snapshot_id, found.min_snapshots_to_keep, found.max_snapshot_age_ms) == (1, 7, 8_000)


async def test_a_table_that_was_registered_again_is_maintained_under_its_new_id(lake: Lake) -> None:
    """Its metadata keeps the id that it was created with."""
    old = await _rewritten(lake, NINE_ROWS)
    location = (await load(lake, ORDERS)).metadata_location or ""
    await drop_name(lake, ORDERS, kind="table", purge=False, request=request("drop"))
    await lake.background.drain()
    await register_table(lake, NAMESPACE, "orders", location, request=request("again"))
    found = await resolve_name(lake, ORDERS)
    assert found
    health = replace(old, uuid=found.uuid)

    metadata = await load_metadata(lake, health)
    done = await roll_back(lake, health, rewrites_of(frozenset({1}), metadata, "us"), "run")

    assert metadata.table_uuid == old.uuid != found.uuid
    assert done == "rolled back"
    with pytest.raises(NotFound, match="another table has this name now"):
        await load_metadata(lake, old)


@pytest.mark.parametrize(
    ("commits", "expected", "current"),
    [
        ((TEN_ROWS, NINE_ROWS, NINE_ROWS), "rolled back", 2),
        ((NINE_ROWS, NINE_ROWS, NINE_ROWS), "rolled back", 1),
        ((TEN_ROWS, NINE_ROWS, None, NINE_ROWS), "a writer has committed since: roll back by hand", 5),
        ((NINE_ROWS, None), "a writer has committed since: roll back by hand", 3),
    ],
)
async def test_a_rewrite_in_several_commits_is_rolled_back_to_before_the_first_that_differs(
    lake: Lake, commits: tuple[Mapping[str, str] | None, ...], expected: str, current: int
) -> None:
    health = await _rewritten(lake, *commits)
    died = await _died(lake, health)

    await settle_runs(lake, await list_runs(lake), settled_by="2")

    (ended,) = await died.ended([0])
    assert (ended.state, ended.reason.rpartition("; ")[2]) == ("failed", expected)
    assert (await load_metadata(lake, health)).current_snapshot_id == current


@pytest.mark.parametrize(
    ("totals", "counted", "expected"),
    [
        (TEN_ROWS, [], ""),
        (NINE_ROWS, [9, 10], "snapshot 1 has 10 rows, snapshot 2 has 9"),
        (NINE_ROWS, [], "snapshot 1 has 10 rows, snapshot 2 has 9"),
        (NINE_ROWS, [10, 10], ""),
        ({}, [10, 10], ""),
        ({}, [9, 10], "snapshot 1 has 10 rows, snapshot 2 has 9"),
        ({}, [], ""),
        ({**NINE_ROWS, "total-delete-files": "1"}, [], ""),
    ],
)
async def test_rows_are_compared_by_totals_and_counted_if_that_is_not_enough(
    lake: Lake, totals: Mapping[str, str], counted: list[int], expected: str
) -> None:
    (rewrite,) = rewrites_of(frozenset({1}), await load_metadata(lake, await _rewritten(lake, totals)), "us")

    found = rows_differ(rewrite, (lambda _: counted.pop()) if counted else None)

    assert found == expected


@pytest.mark.parametrize(("totals", "state", "current"), [(TEN_ROWS, "done", 2), (NINE_ROWS, "failed", 1)])
async def test_a_rewrite_whose_run_died_before_it_compared_rows_is_compared_by_the_next(
    lake: Lake, totals: Mapping[str, str], state: str, current: int
) -> None:
    health = await _rewritten(lake, totals)
    died = await _died(lake, health)

    await settle_runs(lake, await list_runs(lake), settled_by="2")

    (ended,) = await died.ended([0])
    assert ended.state == state
    assert ("rolled back" in ended.reason) == (state == "failed")
    assert (await load_metadata(lake, health)).current_snapshot_id == current


def _file(name: str, rows: int | None, deleted: int = 0) -> dict[str, object]:
    """What a commit says of a file, with the number of its rows and of those that a deletion vector deletes."""
    stats = {} if rows is None else {"stats": json.dumps({"numRecords": rows})}
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": deleted}
    return {"path": name, "size": 1, **stats, **({"deletionVector": vector} if deleted else {})}


async def _commit_files(
    lake: Lake, table: DeltaTable, version: int, run: str, removed: Sequence[object], added: Sequence[object]
) -> DeltaTable:
    actions = [{"commitInfo": {"userMetadata": run}}, *({"remove": one} for one in removed)]
    data = "\n".join(json.dumps(one) for one in (*actions, *({"add": one} for one in added)))
    await write_staged(lake, table, f"{version:020d}.one.json", data.encode())
    return await add(lake, table, version)


async def test_a_delta_compaction_is_what_its_own_commits_did_whatever_writers_did_beside_it(lake: Lake) -> None:
    table = await create_managed(lake)
    files = [_file("a", 1), _file("b", 1)]
    for version, (run, removed) in enumerate([("1", files), ("", files), ("2", [])], start=1):
        table = await _commit_files(lake, table, version, run, removed, [_file(f"c{version}", 2)])

    results = [
        compacted(
            await compactions_of(lake, table, run, upto=3, after=after), Measure(version=after), Measure(version=3)
        )
        for run, after in (("1", 0), ("1", 1), ("2", 0))
    ]

    assert [(one.state, one.files_rewritten, one.bytes_rewritten) for one in results] == [
        ("done", 2, 2),
        ("skipped", 0, 0),
        ("skipped", 0, 0),
    ]
    assert results[1].reason == "Delta found nothing to compact"


@pytest.mark.parametrize(
    ("removed", "added", "reason"),
    [
        ([_file("a", 10), _file("b", 10, 3)], [_file("c", 17)], "its run ended after 1 commits, which are complete"),
        ([_file("a", 10), _file("b", 10, 3)], [_file("c", 20)], "version 1 replaces 17 rows by 20: restore version 0"),
        ([_file("a", 10)], [_file("c", 10, 1)], "version 1 replaces 10 rows by 9: restore version 0"),
        ([_file("a", None)], [_file("c", 9)], "its run ended after 1 commits, which are complete"),
    ],
)
async def test_the_rows_of_a_delta_compaction_whose_run_died_are_compared(
    lake: Lake, removed: list[object], added: list[object], reason: str
) -> None:
    table = await create_managed(lake)
    await publish(lake, table, 0)
    await _commit_files(lake, table, 1, "1", removed, added)
    begun = replace(_record("1", 0), uuid=table.uuid, format="delta", state="running", started_ms=1)
    died = RunRecords(lake, "1")
    await died.begin(begun)

    await settle_runs(lake, await list_runs(lake), settled_by="2")

    (ended,) = await died.ended([0])
    assert (ended.state, ended.reason) == ("failed" if "restore" in reason else "done", reason)


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


_DAY_MS = 86_400_000
_LATER_MS = NOW_MS + 100 * _DAY_MS


def _with_log(*entries: tuple[int, int]) -> TableMetadata:
    """Four old snapshots, of which the third is current. An entry is a snapshot and since when it was current."""
    snapshots = [
        {"snapshot-id": number, "sequence-number": number, "timestamp-ms": NOW_MS, "manifest-list": f"s3://b/{number}"}
        for number in range(1, 5)
    ]
    log = [{"snapshot-id": number, "timestamp-ms": at_ms} for number, at_ms in entries]
    main = {"main": {"snapshot-id": 3, "type": "branch"}}
    fields = {"snapshots": snapshots, "refs": main, "current-snapshot-id": 3, "last-sequence-number": 9}
    return table(**{**fields, "snapshot-log": log})


def test_a_snapshot_that_a_rollback_replaced_within_a_day_does_not_expire() -> None:
    rolled_back = _with_log((3, NOW_MS), (4, NOW_MS + 1), (3, _LATER_MS - 60_000))

    assert expirable_snapshots(rolled_back, DEFAULT, _LATER_MS) == [1, 2]
    assert expirable_snapshots(rolled_back, DEFAULT, _LATER_MS + _DAY_MS) == [1, 2, 4]


def test_a_run_expires_a_bounded_number_of_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg, "EXPIRED_MAX", 2)

    assert expirable_snapshots(_with_log((3, NOW_MS)), DEFAULT, _LATER_MS) == [1, 2]
