"""Metadata files of lost attempts, of dead creations and of old versions are deleted; all others stay."""

import asyncio
import contextlib
import gzip
from typing import Final

import pytest
from msgspec.structs import replace

from sandur.catalog.records import AttemptedFile, Claim, Head, Pointer
from sandur.errors import NotFound, SwapLost, Unavailable
from sandur.operations.janitors import metadata
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import table_exists
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.views import commit_view, create_view
from sandur.operations.transactions.coordinator import commit_transaction
from tests.crash.gated_store import GatedStore, writes_to
from tests.fakes.dying_store import Died, DyingStore
from tests.operations.collection import collect, folders, metadata_files
from tests.operations.janitor_runs import LONG_MS, Cluster
from tests.operations.requests import (
    NAMESPACE,
    commit,
    content,
    create,
    create_commit,
    identifier_of,
    keyed_request,
    load,
    replace_view,
    request,
    set_property,
    table,
    view,
)
from tests.operations.table_files import older_copy

T, U = identifier_of("t"), identifier_of("u")
UUID: Final = "5b6b2b4e-0000-4000-8000-00000000000b"
HASH: Final = "0123456789abcdef" * 2


async def _cluster() -> Cluster:
    cluster = await Cluster.with_catalog()
    await create(cluster.server(), "t")
    return cluster


async def _commit(cluster: Cluster, name: str, label: str, *updates: dict[str, object]) -> None:
    server = cluster.server()
    await commit_table(server, identifier_of(name), commit(*(updates or (set_property(label, "1"),))), request(label))
    await server.background.drain()


async def _head(lake: Lake, name: str = "t") -> str:
    return (await load(lake, identifier_of(name))).metadata_location or ""


async def _body(lake: Lake) -> bytes:
    return (await load(lake, T)).metadata


async def _put_orphan(lake: Lake, name: str, version: int, nonce: str = "0" * 12) -> str:
    """The file of an attempt that died before its swap."""
    location = f"{(await _head(lake, name)).rpartition('/')[0]}/{version:05d}-{HASH}-{nonce}.metadata.json"
    body = (await load(lake, identifier_of(name))).metadata
    await lake.locations.create(location, body)
    return location


async def test_the_file_of_a_dead_attempt_is_deleted_after_a_day() -> None:
    cluster = await _cluster()
    orphan = await _put_orphan(cluster.server(), "t", 1)
    cluster.clock.advance(DAY_MS - 1)

    young = await collect(cluster.server())
    cluster.clock.advance(1)
    old = await collect(cluster.server())

    assert young == []
    assert old == [orphan.rpartition("/")[2]]
    assert not await cluster.server().locations.exists(orphan)
    assert await collect(cluster.server()) == []


async def test_a_file_that_explodes_is_not_read_and_nothing_is_deleted() -> None:
    cluster = await _cluster()
    lake = cluster.server()
    bomb = (await _put_orphan(lake, "t", 1)).replace("-000000000000.", "-000000000001.gz.")
    await lake.locations.create(bomb, gzip.compress(await _body(lake) + b" " * (80 << 20)))
    cluster.clock.advance(DAY_MS)

    with pytest.raises(Unavailable, match=r"is not a metadata file: .* larger than [0-9]+ bytes when uncompressed"):
        await collect(cluster.server())

    assert await cluster.server().locations.exists(bomb)


async def test_the_head_and_the_files_in_its_log_stay() -> None:
    cluster = await _cluster()
    for number in range(3):
        await _commit(cluster, "t", f"p{number}")
    before = await metadata_files(cluster.server(), "t")
    cluster.clock.advance(LONG_MS)

    assert await collect(cluster.server()) == []
    assert await metadata_files(cluster.server(), "t") == before
    assert len(before) == 4


async def test_a_file_outside_of_the_log_stays_as_long_as_its_receipt() -> None:
    cluster = await _cluster()
    await _commit(cluster, "t", "short", set_property("write.metadata.previous-versions-max", "1"))
    for number in range(3):
        await _commit(cluster, "t", f"p{number}")
    files = await metadata_files(cluster.server(), "t")
    cluster.clock.advance(89 * DAY_MS)

    kept = await collect(cluster.server())
    cluster.clock.advance(DAY_MS)
    gone = await collect(cluster.server())

    assert kept == []
    assert gone == files[:3]
    assert content(await load(cluster.server(), T))["properties"]["p2"] == "1"


async def test_a_table_that_deletes_old_files_loses_them_after_a_day() -> None:
    """A commit deletes the files that it removes from the log; older ones are left to the janitor."""
    cluster = await _cluster()
    await _commit(cluster, "t", "short", set_property("write.metadata.previous-versions-max", "1"))
    await _commit(cluster, "t", "p0")
    await _commit(cluster, "t", "wish", set_property("write.metadata.delete-after-commit.enabled", "true"))
    cluster.clock.advance(DAY_MS)

    gone = await collect(cluster.server())

    assert [name[:5] for name in gone] == ["00000"]
    assert [name[:5] for name in await metadata_files(cluster.server(), "t")] == ["00002", "00003"]


async def test_a_table_with_gc_disabled_keeps_every_file() -> None:
    cluster = await _cluster()
    await _commit(cluster, "t", "no", set_property("gc.enabled", "false"))
    orphan = await _put_orphan(cluster.server(), "t", 7)
    cluster.clock.advance(100 * DAY_MS)

    assert await collect(cluster.server()) == []
    assert await cluster.server().locations.exists(orphan)


async def test_files_with_other_names_are_kept() -> None:
    cluster = await _cluster()
    folder = (await _head(cluster.server())).rpartition("/")[0]
    names = [
        "v9.metadata.json",
        f"00009-{UUID}.metadata.json",
        "snap-1.avro",
        f"old/00009-{HASH}-{'0' * 12}.metadata.json",
    ]
    for name in names:
        await cluster.server().locations.create(f"{folder}/{name}", b"{}")
    cluster.clock.advance(100 * DAY_MS)

    assert await collect(cluster.server()) == []


async def test_the_file_of_a_request_in_progress_stays() -> None:
    cluster = await _cluster()
    server = cluster.server()
    orphan = await _put_orphan(server, "t", 1)
    uuid = (await load(server, T)).table_uuid
    claim = Claim(
        state="open",
        request_hash="x",
        operation="commit",
        owner="y",
        started_ms=0,
        uuid=uuid,
        locations=(AttemptedFile(orphan, 0),),
    )
    held = await server.commit_claim(uuid, "ab" * 32).create(claim)
    cluster.clock.advance(LONG_MS)

    assert await collect(cluster.server()) == []

    await server.commit_claim(uuid, "ab" * 32).swap(replace(held.value, state="done"), expected=held.version)
    assert await collect(cluster.server()) == [orphan.rpartition("/")[2]]


async def test_the_pending_file_of_a_transaction_stays() -> None:
    cluster = await _cluster()
    await create(cluster.server(), "u")
    gate = GatedStore(cluster.store, holds=writes_to("iceberg_transactions", b'"committed"'))
    changes = [(identifier_of(name), commit(set_property("p", "1"))) for name in ("t", "u")]
    server = cluster.server(gate)
    running = asyncio.create_task(commit_transaction(server, "main", changes, request("transaction")))
    await gate.is_held.wait()
    cluster.clock.advance(LONG_MS)

    gone = await collect(cluster.server())
    gate.release()
    await running
    await server.background.drain()

    assert gone == []
    for identifier in (T, U):
        assert content(await load(cluster.server(), identifier))["properties"]["p"] == "1"


async def test_a_committer_that_stalled_for_days_loses_its_swap_and_not_its_file() -> None:
    """V8: the pointer is bumped before the file is deleted, so that the swap of its writer is lost."""
    cluster = await _cluster()
    gate = GatedStore(cluster.store, holds=lambda call: call.name == "put" and "/iceberg_pointers/" in call.key)
    server = cluster.server(gate)
    running = asyncio.create_task(commit_table(server, T, commit(set_property("p", "1")), request("commit")))
    await gate.is_held.wait()
    cluster.clock.advance(LONG_MS)

    gone = await collect(cluster.server())
    gate.release()
    await running
    await server.background.drain()

    assert len(gone) == 1
    assert content(await load(cluster.server(), T))["properties"]["p"] == "1"
    assert gone[0] not in await metadata_files(cluster.server(), "t")


async def test_a_pointer_that_changes_meanwhile_keeps_all_files_until_the_next_run() -> None:
    cluster = await _cluster()
    server = cluster.server()
    orphan = await _put_orphan(server, "t", 1)
    cluster.clock.advance(LONG_MS)
    ((_, folder),) = (await folders(server)).items()
    garbage = await metadata.garbage_in_folder(cluster.server(), *folder)
    await _commit(cluster, "t", "p")

    with pytest.raises(SwapLost):
        await metadata.remove_garbage(cluster.server(), garbage)
    still_there = await server.locations.exists(orphan)

    assert still_there
    # The head has reached the version of the file, so no bump is needed.
    again = await metadata.garbage_in_folder(cluster.server(), *folder)
    assert (len(again.files), again.bumps) == (1, ())


async def test_two_names_of_one_table_keep_the_files_of_both() -> None:
    cluster = await _cluster()
    server = cluster.server()
    await older_copy(server, "t", "u")
    for name in ("t", "u", "u"):
        await _commit(cluster, name, f"{name} {cluster.clock.new_id()}")
    orphan = await _put_orphan(server, "t", 2)
    cluster.clock.advance(LONG_MS)
    ((_, folder),) = (await folders(server)).items()

    garbage = await metadata.garbage_in_folder(cluster.server(), *folder)
    gone = await collect(cluster.server())

    assert len(folder.uuids) == 2
    # One of the two has reached version 2, the other has not.
    assert [bump.value.head.metadata_version for bump in garbage.bumps if bump.value.head] == [1]
    assert gone == [orphan.rpartition("/")[2]]
    for name in ("t", "u"):
        assert await table_exists(cluster.server(), identifier_of(name))


async def test_nothing_is_deleted_while_the_current_file_cannot_be_read() -> None:
    cluster = await _cluster()
    server = cluster.server()
    orphan = await _put_orphan(server, "t", 1)
    await server.locations.remove(await _head(server))
    cluster.clock.advance(LONG_MS)

    with pytest.raises(NotFound):
        await collect(cluster.server())
    assert await server.locations.exists(orphan)


async def test_a_dropped_table_keeps_every_file() -> None:
    """The files may be registered again, here or elsewhere; only a purge deletes them."""
    cluster = await _cluster()
    server = cluster.server()
    orphan = await _put_orphan(server, "t", 1)
    ((_, folder),) = (await folders(server)).items()
    await drop_name(server, T, kind="table", purge=False, request=request("drop"))
    cluster.clock.advance(LONG_MS)

    assert await collect(cluster.server()) == []
    late = await metadata.garbage_in_folder(cluster.server(), *folder)
    assert (late.files, late.reason) == ((), "a table in this folder was dropped, or is not created yet")
    assert await server.locations.exists(orphan)


async def test_views_are_collected_too() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    await create_view(server, NAMESPACE, view("v"), request("view"))
    for number in range(3):
        await commit_view(server, identifier_of("v"), replace_view(f"select {number}"), request(f"replace {number}"))
        await server.background.drain()
    folder = (await metadata_folder(server, "v")).rstrip("/")
    orphan = f"00004-{HASH}-{'0' * 12}.metadata.json"
    await server.locations.create(f"{folder}/{orphan}", b"{}")
    cluster.clock.advance(LONG_MS)

    assert await collect(cluster.server()) == [orphan]
    cluster.clock.advance(90 * DAY_MS)
    gone = await collect(cluster.server())
    assert [name[:5] for name in gone] == ["00000", "00001"]


async def metadata_folder(lake: Lake, name: str) -> str:
    found = await lake.name(identifier_of(name)).read()
    assert found is not None
    return found.value.metadata_location.rpartition("/")[0]


async def test_the_file_of_a_killed_creation_is_deleted() -> None:
    cluster = await _cluster()
    server = cluster.server()
    location = await _put_orphan(server, "t", 0)
    head = Head(metadata_location=location, last_updated_ms=cluster.clock.now_ms())
    pointer = Pointer(uuid=UUID, table_uuid=UUID, state="killed", head=head)
    held = await server.pointer(UUID).create(pointer)
    registered = await server.pointer(UUID).swap(
        replace(pointer, head=replace(head, registration="r")), expected=held.version
    )
    cluster.clock.advance(DAY_MS)

    others = await metadata.garbage_of_killed(cluster.server(), registered)
    garbage = await metadata.garbage_of_killed(cluster.server(), held)
    gone = await metadata.remove_garbage(cluster.server(), garbage)

    assert others.files == ()
    assert (gone, await server.locations.exists(location)) == (1, False)


async def _live(lake: Lake, name: str = "t") -> Pointer:
    found = await lake.name(identifier_of(name)).read()
    assert found is not None
    pointer = await lake.pointer(found.value.uuid).read()
    assert pointer is not None
    return pointer.value


async def _died_before_its_pointer(cluster: Cluster) -> str:
    """The file of a creation that has no pointer yet."""
    files: list[str] = []
    for dies_at in range(1, 12):
        store = DyingStore(cluster.store, dies_at=dies_at, after=True)
        with contextlib.suppress(Died):
            await commit_table(cluster.server(store), U, create_commit(UUID), request("create"))
        files = [key for key in await cluster.keys("tables/") if UUID in key]
        if files:
            break
    found = await cluster.server().pointer(UUID).read()
    if found:
        await cluster.server().pointer(UUID).empty(expected=found.version)
    return f"memory://store/{files[0]}"


async def test_the_file_of_a_creation_without_a_pointer_is_deleted_and_the_creation_fails() -> None:
    cluster = await _cluster()
    location = await _died_before_its_pointer(cluster)
    cluster.clock.advance(DAY_MS)

    garbage = await metadata.garbage_without_owner(cluster.server(), location)
    gone = await metadata.remove_garbage(cluster.server(), garbage)
    killed = await cluster.server().pointer(UUID).read()

    assert gone == 1
    assert killed is not None
    assert killed.value.state == "killed"
    # A retry with that uuid continues with a new one.
    await commit_table(cluster.server(), U, create_commit(UUID), request("create"))
    assert await table_exists(cluster.server(), U)


async def test_a_creator_whose_pointer_comes_first_keeps_its_file() -> None:
    cluster = await _cluster()
    location = await _died_before_its_pointer(cluster)
    cluster.clock.advance(DAY_MS)
    garbage = await metadata.garbage_without_owner(cluster.server(), location)
    await cluster.server().pointer(UUID).create(Pointer(uuid=UUID, table_uuid=UUID, state="unbound", made_for=U))

    with pytest.raises(SwapLost):
        await metadata.remove_garbage(cluster.server(), garbage)

    assert await cluster.server().locations.exists(location)
    assert (await metadata.garbage_without_owner(cluster.server(), location)).files == ()


async def test_the_file_of_a_table_dropped_long_ago_stays() -> None:
    cluster = await _cluster()
    server = cluster.server()
    location = await _head(server)
    pointer = await _live(server)
    await drop_name(server, T, kind="table", purge=False, request=request("drop"))
    await server.background.drain()
    for _ in range(3):
        cluster.clock.advance(LONG_MS)
        await cluster.sweep()
    is_forgotten = await cluster.server().pointer(pointer.uuid).read() is None

    assert is_forgotten
    assert (await metadata.garbage_without_owner(cluster.server(), location)).reason == "the file was committed"
    cluster.clock.advance(90 * DAY_MS)
    late = await metadata.garbage_without_owner(cluster.server(), location)
    assert (late.files, late.reason) == ((), "the file is too old: its receipt may be deleted")


async def test_a_swept_creation_with_a_key_can_be_repeated() -> None:
    cluster = await _cluster()
    with contextlib.suppress(Died):
        await create_table(
            cluster.server(DyingStore(cluster.store, dies_at=5, after=True)), NAMESPACE, table("u"), keyed_request("u")
        )
    cluster.clock.advance(LONG_MS)
    for key in [key for key in await cluster.keys("tables/") if "/u-" in key]:
        garbage = await metadata.garbage_without_owner(cluster.server(), f"memory://store/{key}")
        with contextlib.suppress(SwapLost):
            await metadata.remove_garbage(cluster.server(), garbage)

    await create_table(cluster.server(), NAMESPACE, table("u"), keyed_request("u"))

    assert (await load(cluster.server(), U)).metadata_location


@pytest.mark.parametrize("after", [False, True])
async def test_the_next_collection_finishes_after_a_death_at_any_call(*, after: bool) -> None:
    dies_at, has_died = 0, True
    while has_died:
        dies_at += 1
        cluster = await _cluster()
        await _commit(cluster, "t", "p")
        for version in (1, 2, 5):
            await _put_orphan(cluster.server(), "t", version)
        cluster.clock.advance(LONG_MS)
        dying = DyingStore(cluster.store, dies_at=dies_at, after=after)
        with contextlib.suppress(Died):
            await collect(cluster.server(dying))
        has_died = dying.has_died

        assert content(await load(cluster.server(), T))["properties"]["p"] == "1", f"died at {dies_at}"
        await collect(cluster.server())
        assert len(await metadata_files(cluster.server(), "t")) == 2, f"died at {dies_at}"
    assert dies_at > 10
