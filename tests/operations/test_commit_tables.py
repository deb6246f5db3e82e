"""Commits of tables: results, refusals, and retries."""

import gzip
import json

import pytest

from sandur.errors import Conflict, Invalid, KeyReused, NotFound
from sandur.operations.counters import COMMITS, Counters
from sandur.operations.idempotency import key_hash_of
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.documents import LoadedTable
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.operations.transactions.coordinator import commit_transaction
from tests.operations.invariants import check_invariants, times_applied
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    append,
    at_snapshot,
    commit,
    content,
    create,
    identifier_of,
    keyed_request,
    load,
    request,
    same_uuid,
    set_property,
    set_up_catalog,
    snapshot,
)

T = identifier_of("t")


@pytest.fixture
async def lake() -> Lake:
    lake = make_lake()
    await set_up_catalog(lake)
    return lake


def restarted(lake: Lake) -> Lake:
    return make_lake(lake.store, lake.clock)


async def committed(lake: Lake, label: str, *updates: dict[str, object]) -> LoadedTable:
    after = await commit_table(lake, T, commit(*updates), request(label))
    await lake.background.drain()
    return after


async def test_every_server_loads_the_state_after_a_commit(lake: Lake) -> None:
    made = await create(lake, "t")

    after = await commit_table(lake, T, append(1, uuid=made.table_uuid), request("commit"))

    assert content(after)["current-snapshot-id"] == 1
    assert [entry["metadata-file"] for entry in content(after)["metadata-log"]] == [made.metadata_location]
    assert "/metadata/00001-" in (after.metadata_location or "")
    assert await load(restarted(lake), T) == after
    assert await load(lake, T) == after


async def test_a_failed_requirement_is_a_conflict_and_changes_nothing(lake: Lake) -> None:
    await create(lake, "t")
    after = await commit_table(lake, T, append(1), request("first"))

    with pytest.raises(Conflict, match="branch main"):
        await commit_table(lake, T, append(2), request("second"))
    with pytest.raises(Conflict, match="UUID"):
        await commit_table(lake, T, commit(set_property("p", "1"), require=(same_uuid("x"),)), request("third"))

    assert await load(restarted(lake), T) == after


async def test_a_commit_is_never_refused_from_a_stale_cache(lake: Lake) -> None:
    """G4: another server made the requirement true; the server with the stale cache reads before it refuses."""
    await create(lake, "t")
    await load(lake, T)
    other = restarted(lake)
    await commit_table(other, T, append(1), request("first"))
    await other.background.drain()

    after = await commit_table(lake, T, append(2, 1), request("second"))

    assert content(after)["current-snapshot-id"] == 2


async def test_a_commit_that_changes_nothing_writes_nothing(lake: Lake) -> None:
    made = await create(lake, "t")

    after = await commit_table(lake, T, commit(require=(at_snapshot(None),)), request("nothing"))

    assert after == made


async def test_a_repeated_commit_without_a_key_is_recognized_by_its_snapshot(lake: Lake) -> None:
    await create(lake, "t")
    await commit_table(lake, T, append(1), request("commit"))
    await committed(lake, "foreign", set_property("p", "1"))

    after = await commit_table(restarted(lake), T, append(1), request("commit"))

    assert after == await load(lake, T)
    assert times_applied(await check_invariants(restarted(lake)), request("commit").hash) == 1


async def test_a_repeated_commit_without_a_key_is_recognized_by_its_hash_if_its_requirement_fails(
    lake: Lake,
) -> None:
    await create(lake, "t", properties={"p": "0"})
    schema = {"type": "struct", "fields": [{"id": 1, "name": "y", "type": "long", "required": False}]}
    change = commit(
        {"action": "add-schema", "schema": schema, "last-column-id": 1},
        {"action": "set-current-schema", "schema-id": -1},
        require=({"type": "assert-current-schema-id", "current-schema-id": 0},),
    )
    first = await commit_table(lake, T, change, request("evolve"))

    assert await commit_table(restarted(lake), T, change, request("evolve")) == first
    with pytest.raises(Conflict, match="current schema"):
        await commit_table(restarted(lake), T, change, request("somebody else"))


async def test_the_same_snapshot_id_with_other_content_is_not_a_replay(lake: Lake) -> None:
    await create(lake, "t")
    await commit_table(lake, T, append(1), request("commit"))

    with pytest.raises((Conflict, Invalid)):
        await commit_table(lake, T, append(1, number=7), request("another"))


async def test_a_keyed_commit_gets_the_same_answer_after_later_commits(lake: Lake) -> None:
    await create(lake, "t", properties={"write.metadata.previous-versions-max": "1"})
    first = await commit_table(lake, T, commit(set_property("p", "1")), keyed_request("commit"))
    await lake.background.drain()
    for number in range(4):
        await committed(lake, f"foreign {number}", set_property("p", "2"))

    assert await commit_table(restarted(lake), T, commit(set_property("p", "1")), keyed_request("commit")) == first
    assert content(await load(lake, T))["properties"]["p"] == "2"


async def test_a_keyed_refusal_is_repeated_with_the_same_message(lake: Lake) -> None:
    await create(lake, "t")
    await commit_table(lake, T, append(1), request("first"))
    with pytest.raises(Conflict) as first:
        await commit_table(lake, T, append(2), keyed_request("second"))
    await committed(lake, "back", {"action": "remove-snapshot-ref", "ref-name": "main"})

    with pytest.raises(Conflict) as replayed:
        await commit_table(restarted(lake), T, append(2), keyed_request("second"))

    assert str(replayed.value) == str(first.value)
    with pytest.raises(KeyReused):
        await commit_table(lake, T, append(3), request("third", key=keyed_request("second").key))


async def test_a_replay_finds_its_table_by_uuid_after_a_rename_a_drop_and_reuse_of_the_name(
    lake: Lake,
) -> None:
    made = await create(lake, "t")
    change = append(1, uuid=made.table_uuid)
    first = await commit_table(lake, T, change, keyed_request("commit"))
    await lake.background.drain()
    sent = [keyed_request("commit"), request("unkeyed")]

    await rename(lake, T, identifier_of("u"), kind="table", request=request("rename"))
    assert [await commit_table(restarted(lake), T, change, one) for one in sent] == [first, first]
    await drop_name(lake, identifier_of("u"), kind="table", request=request("drop"))
    assert [await commit_table(restarted(lake), T, change, one) for one in sent] == [first, first]
    await create(lake, "t")
    assert [await commit_table(restarted(lake), T, change, one) for one in sent] == [first, first]

    with pytest.raises(Conflict, match="Requirement failed"):
        await commit_table(lake, T, append(9, 1, uuid=made.table_uuid), keyed_request("another"))


async def test_a_keyed_commit_to_a_dropped_table_is_not_found_on_every_retry(lake: Lake) -> None:
    made = await create(lake, "t")
    await drop_name(lake, T, kind="table", request=request("drop"))

    for _ in range(2):
        with pytest.raises(NotFound, match=r"^Table does not exist: a\.t$"):
            await commit_table(restarted(lake), T, append(1, uuid=made.table_uuid), keyed_request("commit"))


async def test_a_server_with_a_cached_name_commits_to_the_table_that_has_the_name_now(lake: Lake) -> None:
    await create(lake, "t")
    await load(lake, T)
    other = restarted(lake)
    await drop_name(other, T, kind="table", request=request("drop"))
    newer = await create(other, "t", properties={"newer": "1"})

    for sent in (request("commit"), keyed_request("commit")):
        after = await commit_table(lake, T, commit(set_property("p", "1")), sent)
        await lake.background.drain()
        assert after.table_uuid == newer.table_uuid

    assert times_applied(await check_invariants(restarted(lake)), key_hash_of(keyed_request("commit")) or "") == 1


async def test_metadata_is_stored_compressed_and_returned_plain_if_the_property_is_set(lake: Lake) -> None:
    made = await create(lake, "t", properties={"write.metadata.compression-codec": "gzip"})
    after = await committed(lake, "commit", set_property("p", "1"))

    for loaded in (made, after):
        location = loaded.metadata_location or ""
        assert location.endswith(".gz.metadata.json")
        stored = await lake.locations.read(location)
        assert stored is not None
        assert json.loads(gzip.decompress(stored)) == content(loaded)
    assert content(await load(restarted(lake), T)) == content(after)


async def test_files_that_leave_the_log_are_deleted_if_the_property_is_set(lake: Lake) -> None:
    properties = {
        "write.metadata.previous-versions-max": "1",
        "write.metadata.delete-after-commit.enabled": "true",
    }
    made = await create(lake, "t", properties=properties)
    first = await commit_table(lake, T, commit(set_property("p", "1")), keyed_request("first"))
    await lake.background.drain()
    second = await committed(lake, "second", set_property("p", "2"))
    assert [await lake.locations.exists(one.metadata_location or "") for one in (made, first, second)] == [
        False,
        True,
        True,
    ]
    third = await committed(lake, "third", set_property("p", "3"))

    replayed = await commit_table(restarted(lake), T, commit(set_property("p", "1")), keyed_request("first"))

    assert not await lake.locations.exists(first.metadata_location or "")
    assert replayed == third, "a commit that was made is never answered with a file that is missing"
    await check_invariants(restarted(lake), files_may_be_gone=True)


async def test_commits_are_counted_by_the_operation_of_their_snapshot(lake: Lake) -> None:
    await create(lake, "t")
    await commit_table(lake, T, append(1), request("append"))
    await commit_table(lake, T, commit(set_property("a", "b")), request("property"))
    updates: list[dict[str, object]] = [
        {"action": "add-snapshot", "snapshot": {**snapshot(2, 1), "summary": {"operation": "x" * 99}}},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 2},
    ]
    await commit_table(lake, T, commit(*updates), request("odd"))
    await commit_transaction(lake, "main", [(T, commit(set_property("c", "d")))], request("transaction"))

    found = {count.value: count.times for count in lake.feature(Counters) if count.name == COMMITS}
    assert found == {"append": 1, "metadata": 1, "other": 1, "transaction": 1}
