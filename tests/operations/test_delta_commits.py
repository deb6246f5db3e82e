"""Commits of Delta tables: the next version, replays, and which commits may be forgotten."""

import msgspec
import pytest
from msgspec.structs import replace

from sandur.catalog.index import names_scope
from sandur.delta.properties import Domains, RowTracking
from sandur.delta.requests import Comment, DeltaChange
from sandur.errors import Conflict, Exhausted, Invalid, NotFound, OutcomeUnknown, VersionTaken
from sandur.operations.delta.commit import update_table
from sandur.operations.delta.publishing import unpublished_commits
from sandur.operations.delta.tables import drop_table, load_delta_table, rename_table
from sandur.operations.index.lists import read_page
from sandur.operations.index.truth import read_entries
from sandur.operations.lake import Lake
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.operations.delta_requests import (
    D,
    add,
    add_change,
    commit_file,
    create_managed,
    names_in,
    publish,
    write_staged,
)
from tests.operations.lakes import make_lake
from tests.operations.requests import NAMESPACE, identifier_of, request, set_up_catalog


@pytest.fixture
async def lake() -> Lake:
    made = make_lake()
    await set_up_catalog(made)
    return made


async def versions(lake: Lake) -> list[int]:
    return [row.version for row in unpublished_commits(lake, await load_delta_table(lake, D))]


async def test_commits_are_listed_newest_first_up_to_the_latest_version(lake: Lake) -> None:
    table = await create_managed(lake)

    for version in (1, 2, 3):
        after = await add(lake, table, version)
        assert after.last_version == version

    assert await versions(lake) == [3, 2, 1]


async def test_only_the_next_version_is_accepted(lake: Lake) -> None:
    table = await create_managed(lake)

    with pytest.raises(Invalid, match="latest version is 0"):
        await add(lake, table, 2)
    await add(lake, table, 1)
    with pytest.raises(Invalid, match="latest version is 1"):
        await add(lake, table, 3)
    assert await versions(lake) == [1]


async def test_a_repeated_commit_of_the_same_file_succeeds_and_changes_nothing(lake: Lake) -> None:
    table = await create_managed(lake)
    await add(lake, table, 1)
    await add(lake, table, 2)

    replay = DeltaChange(asserted_uuid=table.uuid, commit=commit_file(1), comment=Comment("not applied"))
    after = await update_table(lake, D, replay, request("replay"))

    assert (after.last_version, after.comment) == (2, None)


async def test_another_file_for_a_taken_version_is_a_conflict(lake: Lake) -> None:
    table = await create_managed(lake)
    await add(lake, table, 1, "a.json")

    with pytest.raises(VersionTaken):
        await add(lake, table, 1, "b.json")


async def test_reported_commits_that_exist_are_forgotten_except_the_newest(lake: Lake) -> None:
    table = await create_managed(lake)
    for version in (1, 2):
        await add(lake, table, version)
        await publish(lake, table, version)

    await add(lake, table, 3, published=2)
    assert await versions(lake) == [3]
    await add(lake, table, 4)

    record = await load_delta_table(make_lake(lake.store), D)
    assert [row.version for row in record.commits] == [3, 4]
    assert record.published == 2


async def test_reported_commits_that_do_not_exist_are_kept(lake: Lake) -> None:
    table = await create_managed(lake)
    for version in (1, 2, 3):
        await add(lake, table, version)
    await publish(lake, table, 1)
    await publish(lake, table, 3)

    await add(lake, table, 4, published=3)
    await add(lake, table, 5, published=3)

    assert await versions(lake) == [5, 4, 3, 2]


async def test_a_report_without_a_commit_marks_the_newest_version_and_keeps_it(lake: Lake) -> None:
    table = await create_managed(lake)
    await add(lake, table, 1)
    await publish(lake, table, 1)

    after = await update_table(lake, D, DeltaChange(asserted_uuid=table.uuid, published=1), request("report"))

    assert await versions(lake) == []
    assert [row.version for row in after.commits] == [1]
    assert (await add(lake, table, 1)).last_version == 1  # A replay is still recognized.
    assert (await add(lake, table, 2)).last_version == 2


async def test_a_false_report_changes_nothing(lake: Lake) -> None:
    table = await create_managed(lake)
    await add(lake, table, 1)

    await update_table(lake, D, DeltaChange(asserted_uuid=table.uuid, published=1), request("report"))

    assert await versions(lake) == [1]


async def test_a_report_beyond_the_latest_version_or_before_the_first_commit_is_refused(lake: Lake) -> None:
    table = await create_managed(lake)

    with pytest.raises(Invalid, match="no commits yet"):
        await update_table(lake, D, DeltaChange(asserted_uuid=table.uuid, published=0), request("report"))
    assert (await add(lake, table, 1, published=0)).last_version == 1
    with pytest.raises(Invalid, match="latest version is 1"):
        await add(lake, table, 2, published=2)


async def test_the_number_of_unpublished_commits_is_bounded(lake: Lake) -> None:
    table = await create_managed(lake)
    for version in range(1, 11):
        await add(lake, table, version)

    with pytest.raises(Exhausted):
        await add(lake, table, 11)
    with pytest.raises(Exhausted):
        await add(lake, table, 11, published=1)  # Reported, but the file does not exist.
    await publish(lake, table, 1)
    assert (await add(lake, table, 11, published=1)).last_version == 11
    assert await versions(lake) == list(range(11, 1, -1))


async def test_the_bound_on_unpublished_commits_is_a_setting() -> None:
    lake = make_lake(delta_unpublished_max=2)
    await set_up_catalog(lake)
    table = await create_managed(lake)
    await add(lake, table, 1)
    await add(lake, table, 2)

    with pytest.raises(Exhausted):
        await add(lake, table, 3)


async def test_a_forgotten_commit_is_recognized_by_its_bytes(lake: Lake) -> None:
    table = await create_managed(lake)
    for version in (1, 2, 3):
        await add(lake, table, version)
        await publish(lake, table, version, b"version %d" % version)
    await update_table(lake, D, DeltaChange(asserted_uuid=table.uuid, published=3), request("report"))
    await write_staged(lake, table, "same.json", b"version 1")
    await write_staged(lake, table, "other.json", b"another 1")

    assert (await add(lake, table, 1, "same.json")).last_version == 3
    with pytest.raises(VersionTaken):
        await add(lake, table, 1, "other.json")
    with pytest.raises(OutcomeUnknown):
        await add(lake, table, 1, "missing.json")


async def test_the_asserted_uuid_must_be_the_uuid_of_the_table(lake: Lake) -> None:
    table = await create_managed(lake)
    other = await create_managed(lake, identifier_of("e"))

    with pytest.raises(Conflict, match="assert-table-uuid"):
        await update_table(lake, D, add_change(other, 1), request("c"))
    with pytest.raises(Conflict, match="assert-table-uuid"):
        await update_table(lake, D, add_change(replace(table, uuid="no such"), 1), request("c"))


async def test_a_data_commit_keeps_the_etag_and_a_metadata_change_replaces_it(lake: Lake) -> None:
    table = await create_managed(lake)

    data = await add(lake, table, 1)
    tracking = DeltaChange(
        asserted_uuid=table.uuid,
        commit=commit_file(2),
        domains=Domains(row_tracking=RowTracking(7)),
    )
    with pytest.raises(Invalid, match="rowTracking"):
        await update_table(lake, D, tracking, request("c"))
    changed = await update_table(
        lake, D, DeltaChange(asserted_uuid=table.uuid, comment=Comment("c")), request("comment")
    )

    assert (data.etag, data.changed_ms) == (table.etag, table.changed_ms)
    assert changed.etag != data.etag
    assert changed.comment == "c"


async def test_a_stale_etag_is_a_conflict_unless_the_commit_is_a_replay(lake: Lake) -> None:
    table = await create_managed(lake)
    await add(lake, table, 1)
    await update_table(lake, D, DeltaChange(asserted_uuid=table.uuid, comment=Comment("c")), request("comment"))
    stale = add_change(table, 2)._replace(asserted_etag=table.etag)

    with pytest.raises(Conflict, match="assert-etag"):
        await update_table(lake, D, stale, request("c"))
    replay = add_change(table, 1)._replace(asserted_etag=table.etag)
    assert (await update_table(lake, D, replay, request("c"))).last_version == 1


async def test_a_commit_and_its_metadata_change_are_applied_together(lake: Lake) -> None:
    table = await create_managed(lake)
    fields: list[dict[str, object]] = [
        {"name": name, "type": "string", "nullable": True, "metadata": {}} for name in ("a", "b")
    ]
    change = DeltaChange(
        asserted_uuid=table.uuid,
        commit=commit_file(1),
        columns={"type": "struct", "fields": fields},
        partition_columns=("b",),
        set_properties={"k": "v"},
    )

    after = await update_table(lake, D, change, request("c"))

    assert names_in(after.columns) == ["a", "b"]
    assert after.properties["k"] == "v"
    assert after.properties["delta.lastUpdateVersion"] == "1"
    assert after.last_version == 1


async def test_a_managed_table_keeps_its_required_properties(lake: Lake) -> None:
    table = await create_managed(lake)
    loses = DeltaChange(asserted_uuid=table.uuid, removed_properties=("io.unitycatalog.tableId",))

    with pytest.raises(Invalid, match="tableId"):
        await update_table(lake, D, loses, request("c"))


async def test_a_commit_by_id_reaches_a_renamed_table(lake: Lake) -> None:
    table = await create_managed(lake)
    await add(lake, table, 1)
    await rename_table(make_lake(lake.store), D, "e", request=request("rename"))

    assert (await update_table(lake, None, add_change(table, 2), request("c"))).last_version == 2
    assert (await add(lake, table, 3, identifier=identifier_of("e"))).last_version == 3


async def test_a_commit_to_a_dropped_table_is_not_found(lake: Lake) -> None:
    table = await create_managed(lake)
    await add(lake, table, 1)
    await drop_table(make_lake(lake.store), D, request=request("drop"))

    with pytest.raises(NotFound):
        await add(lake, table, 2)
    with pytest.raises(NotFound):
        await update_table(lake, None, add_change(table, 2), request("c"))


async def test_receipts_of_commits_form_a_chain(lake: Lake) -> None:
    table = await create_managed(lake)
    for version in (1, 2):
        await add(lake, table, version)
    await lake.background.drain()

    listed = [one for one in await lake.store.list(lake.layout.events_folder()) if "/delta/" in one.key]
    receipts = [msgspec.json.decode(stored.data) for entry in listed if (stored := await lake.store.get(entry.key))]
    by_version = {receipt["version"]: receipt for receipt in receipts}

    assert sorted(by_version) == [0, 1, 2]
    assert by_version[0]["previous_commit_key"] is None
    for version in (1, 2):
        assert by_version[version]["previous_commit_key"] == by_version[version - 1]["commit_key"]
        assert by_version[version]["table_uuid"] == table.uuid


class TestRounds:
    """The budget: a commit to a cached table costs one round, to any other table two."""

    async def test_a_commit_is_one_round_warm_and_two_cold(self) -> None:
        clock = FixedClock()
        spy = SpyStore(MemoryStore(clock=clock))
        warm = make_lake(spy, clock)
        await set_up_catalog(warm)
        table = await create_managed(warm)
        await add(warm, table, 1)
        await warm.background.drain()
        await publish(warm, table, 1)

        spy.reset()
        await add(warm, table, 2)
        assert spy.rounds == 1
        await warm.background.drain()
        spy.reset()
        await add(warm, table, 3, published=1)
        assert spy.rounds == 1
        await warm.background.drain()
        spy.reset()
        await add(make_lake(spy, clock), table, 4)
        assert spy.rounds == 2

    async def test_a_load_is_one_round_warm_and_two_cold(self) -> None:
        clock = FixedClock()
        spy = SpyStore(MemoryStore(clock=clock))
        warm = make_lake(spy, clock)
        await set_up_catalog(warm)
        await create_managed(warm)
        await warm.background.drain()
        await load_delta_table(warm, D)

        spy.reset()
        await load_delta_table(warm, D)
        assert spy.rounds == 1
        spy.reset()
        await load_delta_table(make_lake(spy, clock), D)
        assert spy.rounds == 2


async def test_a_commit_with_logical_names_is_refused_on_a_table_with_column_mapping(lake: Lake) -> None:
    """L6: readers would look for the physical names and find NULL."""
    table = await create_managed(lake)
    mapping = {"delta.columnMapping.physicalName": "col-1", "delta.columnMapping.id": 1}
    fields = [{"name": "id", "type": "long", "nullable": True, "metadata": mapping}]
    mapped = DeltaChange(
        asserted_uuid=table.uuid,
        set_properties={"delta.columnMapping.mode": "name"},
        columns={"type": "struct", "fields": fields},
    )
    await update_table(lake, D, mapped, request("map"))
    add_file = b'{"add":{"path":"a.parquet","partitionValues":{},"stats":"{\\"nullCount\\":{\\"%s\\":0}}"}}\n'
    await write_staged(lake, table, "logical.json", add_file % b"id")
    await write_staged(lake, table, "physical.json", add_file % b"col-1")

    for _ in range(2):  # The second one is decided on remembered state first.
        with pytest.raises(Invalid, match="column mapping"):
            await add(lake, table, 1, "logical.json")
    assert await versions(lake) == []
    await add(lake, table, 1, "physical.json")
    await add(lake, table, 2, "not written.json")  # What cannot be read is not judged.

    assert await versions(lake) == [2, 1]


@pytest.mark.parametrize("is_renamed", [False, True])
async def test_a_commit_by_uuid_that_changes_metadata_is_listed_under_the_name_of_now(
    lake: Lake, *, is_renamed: bool
) -> None:
    """The older commit API names no table. The first name of the table is reused."""
    table, scope = await create_managed(lake), names_scope(NAMESPACE)
    if is_renamed:
        await rename_table(lake, D, "moved", request=request("rename"))
        await create_managed(lake)
    await lake.background.drain()

    await update_table(lake, None, add_change(table, 1)._replace(comment=Comment("new")), request("commit"))
    await lake.background.drain()

    reader = make_lake(lake.store)
    entries = {entry.name: entry for entry in (await read_page(reader, scope, last=None, wanted=None)).entries}
    assert b'"comment":"new"' in bytes(entries["moved" if is_renamed else "d"].info)
    assert entries == await read_entries(reader, scope, list(entries))
    assert not await lake.store.list(lake.layout.marks_folder())
