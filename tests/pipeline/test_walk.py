"""Walks over metadata logs find missing receipts and derive their content, exactly where it is known."""

import msgspec
import pytest
from msgspec.structs import replace

from sandur.catalog.events import Source
from sandur.catalog.records import DeltaCommit, DeltaTable, Pending, Pointer, Transaction
from sandur.operations import receipts as delta_receipts
from sandur.operations.lake import Lake
from sandur.operations.receipts import DeltaReceipts, commit_key_of, receipt_of
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.register import register_table
from sandur.operations.tables.views import commit_view, create_view
from sandur.pipeline.executor_tasks.reconcile import Finding, walk_delta_table, walk_table
from sandur.pipeline.transforms.commits import SYSTEM_TABLES
from sandur.storage.contract import list_all
from tests.fakes.spy_store import SpyStore
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    NAMESPACE,
    append,
    commit,
    create,
    identifier_of,
    replace_view,
    request,
    set_property,
    set_up_catalog,
    view,
)

ADA = Source(kind="rest", principal="ada")


@pytest.fixture
async def lake() -> Lake:
    made = make_lake()
    await set_up_catalog(made)
    return made


async def commits(lake: Lake, name: str, count: int) -> None:
    for number in range(1, count + 1):
        chosen = request(f"{name} {number}")._replace(source=ADA)
        await commit_table(lake, identifier_of(name), append(number, number - 1 or None), chosen)
        await lake.background.drain()


async def receipts(lake: Lake) -> dict[str, bytes]:
    """The receipts of commits."""
    found = {}
    for listed in await list_all(lake.store, lake.layout.events_folder()):
        place = lake.layout.parse_receipt(listed.key)
        if place.family == "catalog":
            continue
        stored = await lake.store.get(listed.key)
        assert stored
        found[place.commit_key] = stored.data
    return found


async def delete_receipts(lake: Lake, *keys: str) -> None:
    for listed in await list_all(lake.store, lake.layout.events_folder()):
        if lake.layout.parse_receipt(listed.key).commit_key in keys:
            await lake.store.delete(listed.key, expected=listed.version)


async def walk(lake: Lake, uuid: str, depth_max: int = 100) -> list[Finding]:
    """Walk with empty caches, like another process."""
    fresh = make_lake(lake.store, lake.clock)
    return [finding async for finding in walk_table(fresh, uuid, depth_max=depth_max)]


async def only_pointer(lake: Lake) -> Pointer:
    (listed,) = await list_all(lake.store, lake.layout.pointers_folder())
    held = await lake.pointer(lake.layout.parse_pointer(listed.key)).read()
    assert held
    return held.value


async def test_a_whole_chain_is_present_from_head_to_first(lake: Lake) -> None:
    made = await create(lake, "t")
    await commits(lake, "t", 4)

    found = await walk(lake, made.table_uuid)

    assert [finding.status for finding in found] == ["present"] * 5
    assert {finding.commit_key for finding in found} == set(await receipts(lake))


async def test_the_receipt_of_the_head_is_derived_exactly(lake: Lake) -> None:
    made = await create(lake, "t")
    await commits(lake, "t", 2)
    before = await receipts(lake)
    head = (await walk(lake, made.table_uuid))[0]

    await delete_receipts(lake, head.commit_key)
    found = await walk(lake, made.table_uuid)

    assert [finding.status for finding in found] == ["missing", "present", "present"]
    assert found[0].is_exact
    assert found[0].receipt == before[head.commit_key]


async def test_older_receipts_are_derived_without_their_source(lake: Lake) -> None:
    made = await create(lake, "t")
    await commits(lake, "t", 4)
    before = await receipts(lake)
    keys = [finding.commit_key for finding in await walk(lake, made.table_uuid)]

    await delete_receipts(lake, *keys[1:])
    found = await walk(lake, made.table_uuid)

    assert [finding.status for finding in found] == ["present", *["missing"] * 4]
    assert [finding.commit_key for finding in found] == keys
    source, unknown = b'"source":{"kind":"rest","principal":"ada"}', b'"source":{}'
    for finding in found[1:]:
        assert not finding.is_exact
        assert finding.receipt == before[finding.commit_key].replace(source, unknown)
    derived = [msgspec.json.decode(finding.receipt) for finding in found[1:]]
    assert [(one["refs"].get("main"), one["spec_id"]) for one in derived] == [
        (one["snapshot_id"], 0) for one in derived
    ]
    assert derived[0]["refs"]


async def test_a_registered_file_has_its_own_key_and_is_found(lake: Lake) -> None:
    made = await create(lake, "t")
    await commits(lake, "t", 1)
    location = (await only_pointer(lake)).head
    assert location
    await drop_name(lake, identifier_of("t"), kind="table", request=request("drop"))
    await register_table(lake, NAMESPACE, "again", location.metadata_location, request=request("register"))
    await lake.background.drain()
    await commit_table(lake, identifier_of("again"), commit(set_property("a", "b")), request("property"))
    await lake.background.drain()
    uuid = await _uuid_of(lake, "again")

    found = await walk(lake, uuid)
    await delete_receipts(lake, found[1].commit_key)
    again = await walk(lake, uuid)

    assert uuid != made.table_uuid
    assert [finding.status for finding in found] == ["present", "present"]
    assert [finding.status for finding in again] == ["present", "missing"]
    assert again[1].commit_key == found[1].commit_key
    assert b'"operation":"register"' in again[1].receipt


async def test_a_dropped_table_is_walked_too(lake: Lake) -> None:
    made = await create(lake, "t")
    await commits(lake, "t", 1)
    await drop_name(lake, identifier_of("t"), kind="table", request=request("drop"))

    assert [finding.status for finding in await walk(lake, made.table_uuid)] == ["present", "present"]


async def test_a_committed_transaction_counts_before_it_is_finished(lake: Lake) -> None:
    made = await create(lake, "t")
    held = await lake.pointer(made.table_uuid).read()
    assert held
    assert held.value.head
    before = await receipts(lake)
    await delete_receipts(lake, *before)
    head = replace(
        held.value.head,
        metadata_location=f"{held.value.head.metadata_location}.next",
        previous_metadata_location=held.value.head.metadata_location,
        previous_commit_key=commit_key_of(held.value.head),
        source=ADA,
    )
    pending = Pending(transaction="tx", attempt="a", head=head)
    await lake.pointer(made.table_uuid).swap(replace(held.value, pending=pending), expected=held.version)
    undecided = Transaction(state="preparing", attempt="a", request_hash="", started_ms=0, attempt_ms=0)
    record = await lake.transaction("tx").create(undecided)

    while_undecided = await walk(lake, made.table_uuid)
    await lake.transaction("tx").swap(replace(undecided, state="committed"), expected=record.version)
    found = await walk(lake, made.table_uuid)

    assert [(finding.status, finding.is_exact) for finding in while_undecided] == [("missing", True)]
    assert [(finding.status, finding.is_exact) for finding in found] == [("missing", True), ("missing", True)]
    assert found[0].receipt == msgspec.json.encode(receipt_of(made.table_uuid, head))
    assert found[1].receipt == before[found[1].commit_key]


async def test_a_pointer_without_a_name_does_not_count(lake: Lake) -> None:
    made = await create(lake, "t")
    pointer = (await only_pointer(lake)).head
    orphan = Pointer(uuid="orphan", table_uuid="orphan", state="unbound", made_for=identifier_of("x"), head=pointer)
    await lake.pointer("orphan").create(orphan)

    assert await walk(lake, "orphan") == []
    assert await walk(lake, "nobody") == []
    assert len(await walk(lake, made.table_uuid)) == 1


async def test_only_the_head_of_a_view_is_walked(lake: Lake) -> None:
    await create_view(lake, NAMESPACE, view("v"), request("view"))
    await lake.background.drain()
    await commit_view(lake, identifier_of("v"), replace_view("select 2"), request("replace"))
    await lake.background.drain()

    found = await walk(lake, (await only_pointer(lake)).uuid)

    assert [finding.status for finding in found] == ["present", "not_walked"]


async def test_a_walk_is_bounded(lake: Lake) -> None:
    made = await create(lake, "t")
    await commits(lake, "t", 4)

    found = await walk(lake, made.table_uuid, depth_max=2)

    assert [finding.status for finding in found] == ["present", "present", "depth_limited"]


async def test_a_damaged_receipt_is_reported_and_not_replaced(lake: Lake) -> None:
    made = await create(lake, "t")
    await commits(lake, "t", 1)
    (first, _) = await walk(lake, made.table_uuid)
    listed = next(one for one in await list_all(lake.store, lake.layout.events_folder()) if first.commit_key in one.key)
    await lake.store.put(listed.key, b"rubbish", expected=listed.version)

    found = await walk(lake, made.table_uuid)

    assert [finding.status for finding in found] == ["damaged", "present"]


async def test_a_receipt_without_log_and_file_is_unreadable(lake: Lake) -> None:
    made = await create(lake, "t")
    await commits(lake, "t", 2)
    keys = [finding.commit_key for finding in await walk(lake, made.table_uuid)]
    await delete_receipts(lake, keys[1])
    head = (await only_pointer(lake)).head
    assert head
    assert head.previous_metadata_location
    await lake.locations.remove(head.previous_metadata_location)

    found = await walk(lake, made.table_uuid)

    assert [finding.status for finding in found] == ["present", "unreadable"]


async def _uuid_of(lake: Lake, name: str) -> str:
    held = await lake.name(identifier_of(name)).read()
    assert held
    return held.value.uuid


async def test_receipts_of_a_delta_record_are_derived_exactly(lake: Lake) -> None:
    table = DeltaTable(uuid="d", table_uuid="d", state="live", location="file:///d", created_ms=5, created_by="ada")
    first = delta_receipts.delta_receipt_of(table, delta_receipts.first_delta_commit(table))
    second = DeltaCommit(
        version=1,
        timestamp_ms=9,
        file_name="1.json",
        file_size=1,
        file_modified_ms=1,
        previous_commit_key=first.commit_key,
        source=ADA,
    )
    table = replace(table, commits=(second,), last_version=1)
    await lake.delta_table("d").create(table)
    await lake.feature(DeltaReceipts).ensure(table, second)

    found = [finding async for finding in walk_delta_table(lake, "d")]

    assert [(finding.status, finding.is_exact) for finding in found] == [("present", True), ("missing", True)]
    assert found[1].receipt == msgspec.json.encode(first)
    assert found[1].key == delta_receipts.delta_receipt_key(lake.layout, first)


async def test_a_walk_lists_nothing(lake: Lake) -> None:
    made = await create(lake, "t")
    await commits(lake, "t", 3)
    keys = [finding.commit_key for finding in await walk(lake, made.table_uuid)]
    await delete_receipts(lake, keys[0], keys[2])
    spy = SpyStore(lake.store)

    found = [one async for one in walk_table(make_lake(spy, lake.clock), made.table_uuid, depth_max=100)]

    assert [finding.status for finding in found] == ["missing", "present", "missing", "present"]
    assert spy.calls
    assert not spy.keys("list")


async def test_commits_of_the_pipeline_to_its_own_tables_are_known_as_such(lake: Lake) -> None:
    own = Source(kind="pipeline", task_id=SYSTEM_TABLES)
    made = await create(lake, "t")
    chosen = request("property")._replace(source=own)
    await commit_table(lake, identifier_of("t"), commit(set_property("a", "b")), chosen)
    await lake.background.drain()

    found = await walk(lake, made.table_uuid)
    await delete_receipts(lake, found[0].commit_key)
    again = await walk(lake, made.table_uuid)

    assert [finding.is_own for finding in found] == [True, False]
    assert [(finding.status, finding.is_own) for finding in again] == [("missing", True), ("present", False)]
