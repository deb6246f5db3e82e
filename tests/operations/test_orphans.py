"""Orphans are removed in two runs, and no file that anybody needs is ever deleted (O1–O7)."""

import asyncio
import contextlib
import json

import pytest
from msgspec.structs import replace

from sandur.catalog.maintenance.policies import Orphans
from sandur.errors import Conflict, Invalid, SandurError
from sandur.operations.backups.restored import Restored, note_restore
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.lake import Lake
from sandur.operations.maintenance.iceberg_files import IcebergFiles
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.register import register_table
from sandur.operations.tables.views import create_view
from sandur.operations.transactions.coordinator import commit_transaction
from tests.fakes.yielding_store import YieldingStore
from tests.operations.claimed_places import migrate
from tests.operations.delta_requests import create_managed
from tests.operations.janitor_runs import Cluster
from tests.operations.orphan_runs import (
    AGE_MS,
    ORPHAN,
    POLICY,
    InterruptedStore,
    after_the_wait,
    commit_staged,
    condemn,
    condemned,
    delete,
    has_orphan,
    missing_files,
    no_fence,
    removal,
    stage_snapshot,
    with_orphan,
)
from tests.operations.requests import (
    NAMESPACE,
    commit,
    content,
    copy_store,
    create,
    identifier_of,
    keyed_request,
    load,
    request,
    snapshot,
    view,
)
from tests.operations.requests import (
    table as new_table,
)
from tests.operations.table_files import (
    TableWithFiles,
    add_snapshot,
    create_table_with_files,
    current_location,
    files_below,
    manifest,
    manifest_list,
    older_copy,
    set_properties,
)


async def test_an_orphan_is_noted_by_one_run_and_deleted_by_a_later_one() -> None:
    cluster, table = await with_orphan()
    before = await files_below(cluster.server(), table)

    found = await condemn(cluster, table)

    assert (found.files, found.bytes) == (1, 6)
    assert await files_below(cluster.server(), table) == before
    assert await condemned(cluster, table) == [ORPHAN]
    cluster.clock.advance(DAY_MS)
    done = await delete(cluster, table)
    assert (done.files, done.bytes, done.refusal) == (1, 6, "")
    assert await files_below(cluster.server(), table) == [one for one in before if one != ORPHAN]
    assert await condemned(cluster, table) == []
    assert await missing_files(cluster.server(), table) == []


async def test_nothing_is_deleted_before_the_wait_or_by_the_run_that_found_it() -> None:
    cluster, table = await with_orphan()
    await condemn(cluster, table)

    cluster.clock.advance(DAY_MS - 1)
    await delete(cluster, table)
    cluster.clock.advance(1)
    await delete(cluster, table, run="first")

    assert await has_orphan(cluster, table)
    await delete(cluster, table)
    assert not await has_orphan(cluster, table)


async def test_a_young_file_is_not_an_orphan() -> None:
    cluster, table = await with_orphan()
    await cluster.server().locations.create(table.at("data/young.parquet"), b"x")
    cluster.clock.advance(3 * DAY_MS - 1)

    found = await condemn(cluster, table)

    assert await condemned(cluster, table) == [ORPHAN]
    assert found.kept["younger than the minimum age"] == 1


async def test_a_file_that_may_be_of_a_commit_after_the_backup_that_was_restored_is_not_condemned() -> None:
    cluster, table = await with_orphan()
    ended_ms = cluster.clock.now_ms()
    await note_restore(cluster.store, Restored("one", cut_ms=ended_ms - AGE_MS, ended_ms=ended_ms))
    cluster.clock.advance(30 * DAY_MS)

    found = await condemn(cluster, table)
    assert (found.files, found.kept["possibly of a commit after the backup that was restored"]) == (0, 1)
    cluster.clock.advance(60 * DAY_MS)
    assert (await condemn(cluster, table)).files == 1


async def test_a_file_that_was_written_again_under_the_same_name_stays() -> None:
    cluster, table = await with_orphan()
    await condemn(cluster, table)
    server = cluster.server()
    await server.locations.remove(table.at(ORPHAN))
    await server.locations.create(table.at(ORPHAN), b"another file")
    cluster.clock.advance(DAY_MS)

    done = await delete(cluster, table)

    assert await has_orphan(cluster, table)
    assert done.kept == {"gone or written again": 1}
    await stage_snapshot(cluster.server(), table, 4, table.at(ORPHAN))
    await commit_staged(cluster.server(), table, 4)  # It is another file: no reason to refuse it.


async def test_a_writer_that_is_slower_than_the_age_keeps_its_file() -> None:
    cluster, table = await with_orphan()
    await stage_snapshot(cluster.server(), table, 4, table.at(ORPHAN))
    cluster.clock.advance(AGE_MS)
    await condemn(cluster, table)

    await commit_staged(cluster.server(), table, 4)

    cluster.clock.advance(DAY_MS)
    done = await delete(cluster, table)
    assert done.files == 0
    assert await missing_files(cluster.server(), table) == []
    assert await condemned(cluster, table) == []


@pytest.mark.parametrize("is_warm", [True, False])
async def test_a_commit_of_a_file_that_was_deleted_is_refused(*, is_warm: bool) -> None:
    cluster, table = await with_orphan()
    writer = cluster.server()
    await load(writer, table.identifier)
    await stage_snapshot(writer, table, 4, table.at(ORPHAN))
    await after_the_wait(cluster, table)

    with pytest.raises(Invalid, match=r"orphan\.parquet was written long before this commit, and was deleted"):
        await commit_staged(writer if is_warm else cluster.server(), table, 4)

    assert await missing_files(cluster.server(), table) == []
    await stage_snapshot(writer, table, 4, table.at("data/1-a.parquet"), name="again")
    await commit_staged(writer, table, 4, name="again")


async def test_a_manifest_of_a_slow_writer_is_compared_too() -> None:
    cluster, table = await with_orphan()
    await stage_snapshot(cluster.server(), table, 4, table.at("data/1-a.parquet"))
    cluster.clock.advance(AGE_MS)
    await after_the_wait(cluster, table)

    with pytest.raises(Invalid, match="Invalid snapshot"):
        await commit_staged(cluster.server(), table, 4)

    assert await missing_files(cluster.server(), table) == []


async def test_a_slow_commit_at_any_moment_of_the_deletion_keeps_its_file_or_is_refused() -> None:
    """The commit happens before every single call of the deleting run in turn."""
    origin, table = await with_orphan()
    await stage_snapshot(origin.server(), table, 4, table.at(ORPHAN))
    await condemn(origin, table)
    origin.clock.advance(DAY_MS)
    outcomes = set()

    for number in range(1, 1_000):
        cluster = Cluster()
        cluster.store, cluster.clock = copy_store(origin.store, origin.clock)
        writer = cluster.server()
        await load(writer, table.identifier)

        async def happens(writer: Lake = writer) -> None:
            try:
                await commit_staged(writer, table, 4)
                outcomes.add("committed")
            except Invalid:
                outcomes.add("refused")

        store = InterruptedStore(cluster.store, number, happens)
        await delete(cluster, table, store=store)
        assert await missing_files(cluster.server(), table) == [], number
        if store.calls < number:
            break
    else:
        pytest.fail("the deletion never ends")
    assert outcomes == {"committed", "refused"}
    assert number > 20


async def test_the_file_of_a_pending_transaction_stays() -> None:
    """The transaction dies when its change is pending on the pointer; it may still be committed."""
    cluster, table = await with_orphan()
    await create(cluster.server(), "other")
    await stage_snapshot(cluster.server(), table, 4, table.at(ORPHAN))
    fields = {**snapshot(4, 3), "manifest-list": table.at("metadata/snap-slow.avro")}
    del fields["manifests"]
    changes = [
        (table.identifier, commit({"action": "add-snapshot", "snapshot": fields})),
        (identifier_of("other"), commit({"action": "set-properties", "updates": {"a": "b"}})),
    ]

    async def is_pending(server: Lake) -> bool:
        pointer = await server.pointer(table.uuid).read()
        return bool(pointer and pointer.value.pending)

    await condemn(cluster, table)
    await cluster.kill_when(
        lambda server: commit_transaction(server, "main", changes, keyed_request("both")), is_pending
    )
    cluster.clock.advance(DAY_MS)

    await delete(cluster, table)

    assert await has_orphan(cluster, table)
    assert await missing_files(cluster.server(), table) == []


async def test_a_transaction_that_adds_a_deleted_file_is_refused() -> None:
    cluster, table = await with_orphan()
    await stage_snapshot(cluster.server(), table, 4, table.at(ORPHAN))
    await after_the_wait(cluster, table)
    fields = {**snapshot(4, 3), "manifest-list": table.at("metadata/snap-slow.avro")}
    del fields["manifests"]
    changes = [(table.identifier, commit({"action": "add-snapshot", "snapshot": fields}))]

    with pytest.raises(Invalid, match="was deleted as an orphan"):
        await commit_transaction(cluster.server(), "main", changes, request("both"))


@pytest.mark.parametrize("kind", ["branch", "tag"])
async def test_files_that_only_a_branch_or_a_tag_needs_stay(kind: str) -> None:
    cluster, table = await with_orphan()
    await stage_snapshot(cluster.server(), table, 4, table.at(ORPHAN))
    fields = {**snapshot(4, 3), "manifest-list": table.at("metadata/snap-slow.avro")}
    del fields["manifests"]
    change = commit(
        {"action": "add-snapshot", "snapshot": fields},
        {"action": "set-snapshot-ref", "ref-name": "kept", "type": kind, "snapshot-id": 4},
    )
    await commit_table(cluster.server(), table.identifier, change, request("branch"))
    cluster.clock.advance(AGE_MS)

    found = await condemn(cluster, table)

    assert (found.files, found.refusal) == (0, "")


async def test_a_table_that_was_registered_twice_is_left_alone() -> None:
    cluster, table = await with_orphan()
    await older_copy(cluster.server(), "t", "copy")
    await migrate(cluster)

    found = await condemn(cluster, table)

    assert "it was registered twice" in found.refusal
    assert await condemned(cluster, table) == []


async def test_a_table_that_is_registered_again_knows_what_was_deleted_from_it() -> None:
    cluster, table = await with_orphan()
    server = cluster.server()
    await stage_snapshot(server, table, 4, table.at(ORPHAN))
    await after_the_wait(cluster, table)
    location = await current_location(server, table)
    await drop_name(server, table.identifier, kind="table", purge=False, request=request("drop"))
    await server.background.drain()

    await register_table(cluster.server(), NAMESPACE, "again", location, request=request("again"))

    again = TableWithFiles(identifier_of("again"), table.uuid, table.location)
    with pytest.raises(Invalid, match="was deleted as an orphan"):
        await commit_staged(cluster.server(), again, 4)


async def test_a_head_that_is_replaced_by_a_registration_is_compared() -> None:
    cluster, table = await with_orphan()
    server = cluster.server()
    await stage_snapshot(server, table, 4, table.at(ORPHAN))
    await after_the_wait(cluster, table)
    fields = content(await load(server, table.identifier))
    added = {**snapshot(4, 3), "manifest-list": table.at("metadata/snap-slow.avro")}
    del added["manifests"]
    fields["snapshots"].append(added)
    fields["last-sequence-number"] = 4
    location = table.at("metadata/00099-forged.metadata.json")
    await server.locations.create(location, json.dumps(fields).encode())

    with pytest.raises(Invalid, match="was deleted as an orphan"):
        await register_table(server, NAMESPACE, "t", location, overwrite=True, request=request("replace"))


async def test_a_file_that_another_table_refers_to_stays() -> None:
    cluster, table = await with_orphan()
    server = cluster.server()
    other = await create_table_with_files(server, "other", snapshots=1)
    await server.locations.create(other.at("metadata/foreign.avro"), manifest(table.at(ORPHAN)))
    listed = manifest_list(other.at("metadata/m1.avro"), other.at("metadata/foreign.avro"))
    await server.locations.create(other.at("metadata/snap-2.avro"), listed)
    await add_snapshot(server, other, 2, other.at("metadata/snap-2.avro"))

    found = await condemn(cluster, table)
    server = cluster.server()
    shared = await IcebergFiles(server).sharing(table.uuid, table.location)
    unshared = await IcebergFiles(server).sharing(other.uuid, other.location)

    assert (found.files, found.kept["referred to"] > 0) == (0, True)
    assert (shared, unshared) == (f"table {other.uuid} refers to files of it", "")


async def test_a_table_with_a_shallow_clone_in_delta_is_left_alone() -> None:
    cluster, table = await with_orphan()
    server = cluster.server()
    clone = await create_managed(server)
    first = json.dumps({"add": {"path": table.at(ORPHAN)}}).encode()
    await server.locations.create(f"{clone.location}/_delta_log/{0:020d}.json", first)

    found = await condemn(cluster, table)

    assert found.refusal == f"table {clone.uuid} names files of it, as a shallow clone does"


async def test_a_stage_that_was_made_after_the_first_table_of_a_run_counts() -> None:
    cluster, table = await with_orphan()
    files = IcebergFiles(cluster.server())
    server = cluster.server()
    before = await files.sharing(table.uuid, table.location)
    await create_table(server, NAMESPACE, new_table("staged", stage_create=True), request("stage"))
    stage = (await server.store.list(server.layout.stages_folder()))[0]
    cell = server.stage(*server.layout.parse_stage(stage.key))
    found = await cell.read()
    assert found

    elsewhere = await files.sharing(table.uuid, table.location)
    inside = await cell.swap(replace(found.value, location=f"{table.location}/staged"), expected=found.version)
    within = await files.sharing(table.uuid, table.location)
    await cell.empty(expected=inside.version)
    after = await files.sharing(table.uuid, table.location)

    refusal = "a staged table has a place in, around or at its location"
    assert (before, elsewhere, within, after) == ("", "", refusal, "")


async def test_a_file_that_another_table_takes_over_before_the_deletion_stays() -> None:
    cluster, table = await with_orphan()
    server = cluster.server()
    other = await create_table_with_files(server, "other", snapshots=1)
    run = removal(cluster, "second")
    await condemn(cluster, table)
    await run.condemn(table.uuid, table.identifier, POLICY)  # The references of all tables are remembered.
    await server.locations.create(other.at("metadata/foreign.avro"), manifest(table.at(ORPHAN)))
    listed = manifest_list(other.at("metadata/m1.avro"), other.at("metadata/foreign.avro"))
    await server.locations.create(other.at("metadata/snap-2.avro"), listed)
    await add_snapshot(server, other, 2, other.at("metadata/snap-2.avro"))
    cluster.clock.advance(DAY_MS)

    done = await run.delete(table.uuid, table.identifier, POLICY)

    assert (done.files, done.refusal) == (0, "")
    assert await has_orphan(cluster, table)


async def test_a_table_with_another_table_in_its_location_is_left_alone() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    table = await create_table_with_files(server, location=f"{server.area}/main/outer")
    await server.locations.create(table.at(ORPHAN), b"x")
    inner = await create_table_with_files(server, "inner")
    pointer = await server.pointer(inner.uuid).read()
    assert pointer
    nested = f"{table.location}/inner"
    await server.pointer(inner.uuid).swap(replace(pointer.value, places=(nested,)), expected=pointer.version)
    cluster.clock.advance(AGE_MS)

    found = await condemn(cluster, table)

    assert found.refusal == f"table {inner.uuid} has a place in, around or at its location"


async def test_a_neighbour_whose_name_begins_alike_keeps_its_files() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    table = await create_table_with_files(server, "t1", location=f"{server.area}/main/t1")
    neighbour = await create_table_with_files(server, "t10", location=f"{server.area}/main/t10")
    for one in (table, neighbour):
        await server.locations.create(one.at(ORPHAN), b"x")
    cluster.clock.advance(AGE_MS)

    await after_the_wait(cluster, table)

    assert not await has_orphan(cluster, table)
    assert await has_orphan(cluster, neighbour)


async def test_a_table_around_a_stage_is_left_alone() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    staged = await create_table(server, NAMESPACE, new_table("staged", stage_create=True), request("stage"))
    place = content(staged)["location"]
    table = await create_table_with_files(server)
    await server.locations.create(table.at(ORPHAN), b"x")
    stage = (await server.store.list(server.layout.stages_folder()))[0]
    identifier, uuid = server.layout.parse_stage(stage.key)
    cell = server.stage(identifier, uuid)
    found = await cell.read()
    assert found
    await cell.swap(replace(found.value, location=f"{table.location}/staged"), expected=found.version)
    cluster.clock.advance(AGE_MS)

    refused = await condemn(cluster, table)

    assert place
    assert refused.refusal == "a staged table has a place in, around or at its location"


@pytest.mark.parametrize("properties", [{"gc.enabled": "false"}, {"encryption.key-id": "k"}])
async def test_a_table_that_forbids_it_is_left_alone_by_both_runs(properties: dict[str, str]) -> None:
    cluster, table = await with_orphan()
    await condemn(cluster, table)
    await set_properties(cluster.server(), table, **properties)
    cluster.clock.advance(DAY_MS)

    refused = await condemn(cluster, table)
    done = await delete(cluster, table)

    assert refused.refusal
    assert done.refusal == refused.refusal
    assert await has_orphan(cluster, table)


async def test_a_view_is_left_alone() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    made = await create_view(server, NAMESPACE, view("v"), request("v"))
    await server.background.drain()
    one = TableWithFiles(identifier_of("v"), made.view_uuid, "")

    assert (await condemn(cluster, one)).refusal == "it is a view"


@pytest.mark.parametrize("damage", ["missing", "damaged"])
@pytest.mark.parametrize("whose", ["own", "other"])
async def test_nothing_is_deleted_while_a_manifest_cannot_be_read(damage: str, whose: str) -> None:
    cluster, table = await with_orphan()
    server = cluster.server()
    other = await create_table_with_files(server, "other", snapshots=1)
    await condemn(cluster, table)
    broken = (table if whose == "own" else other).at("metadata/m1.avro")
    await server.locations.remove(broken)
    if damage == "damaged":
        await server.locations.create(broken, b"not a manifest")
    cluster.clock.advance(DAY_MS)

    refused = await condemn(cluster, table)
    done = await delete(cluster, table)

    assert "unknown" in refused.refusal
    assert "unknown" in done.refusal
    assert await has_orphan(cluster, table)


async def test_a_dropped_table_is_left_alone() -> None:
    cluster, table = await with_orphan()
    await condemn(cluster, table)
    server = cluster.server()
    await drop_name(server, table.identifier, kind="table", purge=False, request=request("drop"))
    await server.background.drain()
    cluster.clock.advance(DAY_MS)

    done = await delete(cluster, table)

    assert "does not exist" in done.refusal
    assert await has_orphan(cluster, table)


async def test_nothing_is_condemned_if_most_files_look_like_orphans() -> None:
    cluster, table = await with_orphan()
    for number in range(30):
        await cluster.server().locations.create(table.at(f"data/more-{number}.parquet"), b"x")
    cluster.clock.advance(AGE_MS)

    refused = await condemn(cluster, table)
    allowed = await removal(cluster, "first").condemn(table.uuid, table.identifier, Orphans(share_max=0.9))

    assert "look like orphans, more than 30%" in refused.refusal
    assert allowed.files == 31


async def test_a_run_that_lost_its_turn_deletes_nothing() -> None:
    cluster, table = await with_orphan()
    await condemn(cluster, table)
    cluster.clock.advance(DAY_MS)
    turns = iter([True])

    async def fence() -> None:
        if not next(turns, False):
            raise Conflict("another run has the turn")

    with pytest.raises(Conflict):
        await removal(cluster, "second", fence=fence).delete(table.uuid, table.identifier, POLICY)

    assert await has_orphan(cluster, table)
    assert (await delete(cluster, table)).files == 1


@pytest.mark.parametrize("seed", range(20))
async def test_two_runs_and_a_slow_writer_at_the_same_time_lose_nothing(seed: int) -> None:
    cluster, table = await with_orphan()
    await stage_snapshot(cluster.server(), table, 4, table.at(ORPHAN))
    await condemn(cluster, table)
    cluster.clock.advance(DAY_MS)

    async def write() -> None:
        with contextlib.suppress(SandurError):
            await commit_staged(cluster.server(YieldingStore(cluster.store, seed=seed + 100)), table, 4)

    runs = [
        OrphanRun(cluster, table, run, YieldingStore(cluster.store, seed=seed + number)).go()
        for number, run in enumerate(("second", "third"))
    ]
    await asyncio.gather(write(), *runs)

    assert await missing_files(cluster.server(), table) == []


class OrphanRun:
    """A whole run: it deletes what is due, and condemns what it finds."""

    def __init__(self, cluster: Cluster, table: TableWithFiles, run: str, store: YieldingStore) -> None:
        self._removal = removal(cluster, run, store, no_fence)
        self._table = table

    async def go(self) -> None:
        await self._removal.delete(self._table.uuid, self._table.identifier, POLICY)
        await self._removal.condemn(self._table.uuid, self._table.identifier, POLICY)


async def test_a_table_that_was_never_cleaned_reads_no_list() -> None:
    cluster, table = await with_orphan()
    pointer = await cluster.server().pointer(table.uuid).read()
    assert pointer

    assert pointer.value.swept == ""
    assert await cluster.keys(cluster.server().layout.swept_folder()) == []


async def test_janitors_remove_the_lists_of_tables_that_are_gone() -> None:
    cluster, table = await with_orphan()
    server = cluster.server()
    await after_the_wait(cluster, table)
    await server.locations.create(table.at(ORPHAN), b"x")
    cluster.clock.advance(AGE_MS)
    await condemn(cluster, table)
    folders = (server.layout.condemned_folder(), server.layout.swept_folder())
    cluster.clock.advance(2 * DAY_MS)
    await cluster.sweep()
    assert [len(await cluster.keys(folder)) for folder in folders] == [1, 1]

    await drop_name(server, table.identifier, kind="table", purge=False, request=request("drop"))
    await server.background.drain()
    for _ in range(5):
        cluster.clock.advance(30 * DAY_MS)
        await cluster.sweep()

    assert [await cluster.keys(folder) for folder in folders] == [[], []]
