"""Stages: their ids, what becomes of them, how they are counted, logged and listed, and what a lost create leaves."""

import asyncio

import pytest
from structlog.testing import capture_logs

from sandur.catalog.events import Source
from sandur.errors import AlreadyExists, Conflict
from sandur.operations.counters import STAGE_OUTCOMES, Counters
from sandur.operations.delta.tables import stage_table
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import LoadedTable
from sandur.operations.tables.stages import list_stages
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.storage.contract import list_all
from tests.operations.hooked_store import HookedStore
from tests.operations.invariants import check_invariants
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    NAMESPACE,
    append,
    at_snapshot,
    commit,
    content,
    create,
    create_commit,
    identifier_of,
    keyed_request,
    request,
    set_location,
    set_property,
    set_up_catalog,
    table,
)

T = identifier_of("t")


@pytest.fixture
async def lake() -> Lake:
    lake = make_lake()
    await set_up_catalog(lake)
    return lake


async def stage(lake: Lake, name: str = "t", *, stage_id: str = "", principal: str = "ann") -> LoadedTable:
    sent = request(f"stage {name}")._replace(source=Source(kind="rest", principal=principal))
    return await create_table(lake, NAMESPACE, table(name, stage_create=True), sent, stage_id=stage_id)


def outcomes(lake: Lake) -> dict[str, int]:
    return {count.value: count.times for count in lake.feature(Counters) if count.name == STAGE_OUTCOMES}


async def metadata_files(lake: Lake) -> list[str]:
    return [one.key for one in await list_all(lake.store, "tables/") if one.key.endswith(".metadata.json")]


async def test_the_same_stage_id_gets_the_same_stage_again(lake: Lake) -> None:
    first = await stage(lake, stage_id="tx-1")
    again = await stage(make_lake(lake.store, lake.clock), stage_id="tx-1")
    others = [await stage(lake, stage_id="tx-2"), await stage(lake, stage_id="tx-1", principal="bob")]

    assert again == first
    assert first.stage_id == "tx-1"
    assert len({first.table_uuid, *(other.table_uuid for other in others)}) == 3


async def test_of_two_concurrent_stages_with_one_id_both_get_the_stored_one(lake: Lake) -> None:
    servers = [make_lake(lake.store, lake.clock) for _ in range(2)]

    one, other = await asyncio.gather(*(stage(server, stage_id="tx-1") for server in servers))

    assert one == other
    assert len(await lake.store.list(lake.layout.stages_folder())) == 1


async def test_without_an_id_of_the_client_the_uuid_is_the_stage_id(lake: Lake) -> None:
    first, second = await stage(lake), await stage(lake)

    assert first.stage_id == first.table_uuid != second.stage_id


async def test_one_log_line_links_a_stage_and_its_commit(lake: Lake) -> None:
    staged = await stage(lake, stage_id="tx-1")
    change = create_commit(staged.table_uuid, set_location(content(staged)["location"]))

    with capture_logs() as lines:
        made = await commit_table(lake, T, change, request("create"))
        await lake.background.drain()

    (line,) = [line for line in lines if line["event"] == "stage finalized"]
    assert (line["stage_id"], line["table"], line["table_uuid"]) == ("tx-1", "a.t", staged.table_uuid)
    assert line["metadata_location"] == made.metadata_location
    assert (line["snapshots"], line["is_at_staged_location"]) == (0, True)
    assert outcomes(lake) == {"staged": 1, "finalized": 1}
    assert not await lake.store.list(lake.layout.stages_folder())


async def test_a_finalize_that_fails_is_counted_and_keeps_the_stage(lake: Lake) -> None:
    staged = await stage(lake)
    await create(lake, "t")

    with capture_logs() as lines:
        with pytest.raises(Conflict):
            await commit_table(lake, T, create_commit(staged.table_uuid), request("create"))
        await lake.background.drain()

    (line,) = [line for line in lines if line["event"] == "stage not finalized"]
    assert (line["stage_id"], line["log_level"]) == (staged.table_uuid, "warning")
    assert line["reason"] == "Conflict: Requirement failed: table already exists"
    assert outcomes(lake) == {"staged": 1, "failed": 1}
    assert len(await lake.store.list(lake.layout.stages_folder())) == 1


async def test_a_staged_table_that_a_transaction_creates_forgets_its_stage(lake: Lake) -> None:
    staged = await stage(lake)
    await create(lake, "u")
    change = create_commit(staged.table_uuid, set_location(content(staged)["location"]))
    other = commit(set_property("a", "b"))

    await commit_transaction(lake, "main", [(T, change), (identifier_of("u"), other)], request("transaction"))
    await lake.background.drain()

    assert not await lake.store.list(lake.layout.stages_folder())
    assert outcomes(lake) == {"staged": 1, "finalized": 1}


async def test_stages_of_both_formats_are_listed_page_by_page(lake: Lake) -> None:
    for name in ("b", "a"):
        await stage(lake, name, stage_id=f"tx-{name}")
    await stage_table(lake, identifier_of("d"), source=Source(kind="rest", principal="bob"))

    everything = await list_stages(lake)
    first = await list_stages(lake, page_size=2)
    second = await list_stages(lake, page_size=2, page_token=first.next_token)

    found = {(one.format, one.name, one.created_by) for one in everything.entries}
    assert found == {("iceberg", "a", "ann"), ("iceberg", "b", "ann"), ("delta", "d", "bob")}
    assert {one.stage_id for one in everything.entries if one.format == "iceberg"} == {"tx-a", "tx-b"}
    assert [*first.entries, *second.entries] == list(everything.entries)
    assert (everything.next_token, second.next_token) == (None, None)


@pytest.mark.parametrize("is_keyed", [False, True])
async def test_a_create_that_lost_its_race_deletes_its_file(lake: Lake, *, is_keyed: bool) -> None:
    store = HookedStore(lake.store)
    loser = make_lake(store, lake.clock)
    store.before("put", lake.layout.name(T), lambda: create(lake, "t"))  # Everything else is written by then.
    lost = keyed_request("lost") if is_keyed else request("lost")

    with pytest.raises(AlreadyExists):
        await create_table(loser, NAMESPACE, table("t"), lost)
    written = len(await metadata_files(lake))
    await loser.background.drain()

    assert (written, len(await metadata_files(lake))) == (2, 1)
    await check_invariants(lake)


async def test_a_finalize_that_lost_its_race_deletes_its_file(lake: Lake) -> None:
    staged = await stage(lake)
    store = HookedStore(lake.store)
    loser = make_lake(store, lake.clock)
    store.before("put", lake.layout.name(T), lambda: create(lake, "t"))

    with pytest.raises(Conflict):
        await commit_table(loser, T, create_commit(staged.table_uuid), request("finalize"))
    await loser.background.drain()

    assert len(await metadata_files(lake)) == 1
    await check_invariants(lake)


async def test_a_transaction_that_is_refused_late_deletes_the_file_of_its_create(lake: Lake) -> None:
    u = identifier_of("u")
    uuid = (await create(lake, "u")).table_uuid
    staged = await stage(lake)
    store = HookedStore(lake.store)
    loser = make_lake(store, lake.clock)
    change = commit(set_property("a", "b"), require=(at_snapshot(None),))
    # The change was decided, and the file of the create is written while this commit refuses the change.
    store.before("put", lake.layout.pointer(uuid), lambda: commit_table(lake, u, append(1), request("append")))

    with pytest.raises(Conflict):
        await commit_transaction(loser, "main", [(T, create_commit(staged.table_uuid)), (u, change)], request("both"))
    await loser.background.drain()

    assert [key for key in await metadata_files(lake) if staged.table_uuid in key] == []
    await check_invariants(lake)
