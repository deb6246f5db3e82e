"""Commits to several tables and views at once: all or nothing, visible at one moment, recognised on a retry."""

import asyncio

import pytest
from msgspec.structs import replace

from sandur.catalog.records import Request
from sandur.errors import AlreadyExists, BadRequest, Busy, Conflict, KeyReused, NotFound
from sandur.operations.idempotency import key_hash_of
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import table_exists
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.operations.tables.views import create_view, load_view
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.storage.memory import MemoryStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.operations.invariants import check_invariants, times_applied
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    NAMESPACE,
    append,
    commit,
    content,
    create,
    create_commit,
    identifier_of,
    keyed_request,
    load,
    request,
    set_property,
    set_up_catalog,
    table,
    view,
    view_version,
)

T, U, NEW = identifier_of("t"), identifier_of("u"), identifier_of("new")
UUID = "5b6b2b4e-0000-4000-8000-00000000000a"


@pytest.fixture
async def lake() -> Lake:
    lake = make_lake()
    await set_up_catalog(lake)
    for name in ("t", "u"):
        await create(lake, name)
    return lake


def restarted(lake: Lake) -> Lake:
    return make_lake(lake.store, lake.clock)


async def snapshots(lake: Lake) -> list[int]:
    return [content(await load(restarted(lake), one))["current-snapshot-id"] for one in (T, U)]


async def test_every_server_sees_all_changes_of_a_transaction(lake: Lake) -> None:
    await commit_transaction(lake, "main", [(T, append(1)), (U, append(1))], request("both"))

    assert await snapshots(lake) == [1, 1]
    await lake.background.drain()
    assert await snapshots(lake) == [1, 1]
    assert times_applied(await check_invariants(restarted(lake)), request("both").hash) == 2


async def test_one_refused_change_refuses_the_transaction(lake: Lake) -> None:
    await commit_table(lake, U, append(7), request("foreign"))
    await lake.background.drain()

    with pytest.raises(Conflict, match="branch main"):
        await commit_transaction(lake, "main", [(T, append(1)), (U, append(1))], keyed_request("both"))
    with pytest.raises(NotFound, match=r"^Table does not exist: a\.none$"):
        await commit_transaction(lake, "main", [(T, append(1)), (identifier_of("none"), append(1))], request("none"))

    assert await snapshots(lake) == [-1, 7]
    with pytest.raises(Conflict, match="branch main"):  # The refusal is replayed.
        await commit_transaction(restarted(lake), "main", [(T, append(1)), (U, append(1))], keyed_request("both"))
    after = await commit_table(restarted(lake), T, append(1), request("free"))
    assert content(after)["current-snapshot-id"] == 1


async def test_an_empty_transaction_and_one_with_a_duplicate_table_are_invalid(lake: Lake) -> None:
    with pytest.raises(BadRequest, match="empty"):
        await commit_transaction(lake, "main", [], request("empty"))
    with pytest.raises(BadRequest, match=r"a\.t is named more than once"):
        await commit_transaction(lake, "main", [(T, append(1)), (T, append(2))], request("twice"))
    with pytest.raises(NotFound, match="Catalog does not exist: none"):
        await commit_transaction(lake, "none", [(T, append(1))], request("no catalog"))


async def test_tables_and_views_are_created_and_changed_together(lake: Lake) -> None:
    await create_view(lake, NAMESPACE, view("v"), request("view"))
    await lake.background.drain()
    replaced = commit(
        {"action": "add-view-version", "view-version": view_version("select 2", 2)},
        {"action": "set-current-view-version", "view-version-id": -1},
    )

    await commit_transaction(
        lake,
        "main",
        [(T, append(1)), (NEW, create_commit(UUID)), (identifier_of("v"), replaced)],
        request("all kinds"),
    )

    fresh = restarted(lake)
    assert (await load(fresh, NEW)).table_uuid == UUID
    assert b"select 2" in (await load_view(fresh, identifier_of("v"))).metadata
    assert await snapshots(lake) == [1, -1]
    await lake.background.drain()
    await check_invariants(restarted(lake))


async def test_a_transaction_that_creates_a_taken_name_is_refused(lake: Lake) -> None:
    await create_view(lake, NAMESPACE, view("v"), request("view"))

    with pytest.raises(Conflict, match=r"^Requirement failed: table already exists"):
        await commit_transaction(lake, "main", [(T, append(1)), (U, create_commit(UUID))], request("1"))
    with pytest.raises(AlreadyExists, match=r"^View with same name already exists: a\.v$"):
        await commit_transaction(
            lake, "main", [(T, append(1)), (identifier_of("v"), create_commit(UUID))], request("2")
        )

    assert await snapshots(lake) == [-1, -1]


@pytest.mark.parametrize("sent", [request("x"), keyed_request("x")], ids=["without a key", "keyed"])
async def test_a_repeated_transaction_is_recognized_after_its_tables_were_renamed(lake: Lake, sent: Request) -> None:
    uuids = [(await load(lake, one)).table_uuid for one in (T, U)]
    changes = [
        (T, append(1, uuid=uuids[0])),
        (U, append(1, uuid=uuids[1])),
        (NEW, create_commit(UUID)),
    ]
    await commit_transaction(lake, "main", changes, sent)
    await lake.background.drain()

    await commit_transaction(restarted(lake), "main", changes, sent)
    await rename(lake, T, identifier_of("t2"), kind="table", request=request("rename"))
    await commit_transaction(restarted(lake), "main", changes, sent)
    await drop_name(lake, NEW, kind="table", request=request("drop"))
    await commit_transaction(restarted(lake), "main", changes, sent)
    await lake.background.drain()

    assert not await table_exists(lake, NEW)
    assert times_applied(await check_invariants(restarted(lake)), key_hash_of(sent) or sent.hash) == 3
    if sent.key:
        with pytest.raises(KeyReused):
            await commit_transaction(lake, "main", changes[:1], request("another", key=sent.key))


async def _abandoned() -> tuple[MemoryStore, FixedClock]:
    """A transaction whose server died right before the commit: its pendings exist."""
    clock = FixedClock()
    store = MemoryStore(clock=clock)
    first = make_lake(store, clock)
    await set_up_catalog(first)
    for name in ("t", "u"):
        await create(first, name)
    for dies_at in range(1, 80):
        dying = make_lake(DyingStore(store, dies_at=dies_at, after=True), clock)
        changes = [(T, append(1)), (U, append(1)), (NEW, create_commit(UUID))]
        try:
            await commit_transaction(dying, "main", changes, keyed_request(f"abandoned {dies_at}"))
        except Died:
            found = await first.name(NEW).read()
            if found and found.value.state == "pending":
                return store, clock
        clock.advance(first.settings.transaction_timeout_ms + 1)
    raise AssertionError("the transaction never got to its pendings")


async def test_pending_changes_of_a_dead_transaction_are_invisible_block_commits_and_expire() -> None:
    store, clock = await _abandoned()
    server = make_lake(store, clock)

    assert content(await load(server, T))["current-snapshot-id"] == -1
    assert not await table_exists(server, NEW)
    with pytest.raises(Busy):
        await commit_table(server, T, append(5), request("commit"))
    with pytest.raises(Busy):
        await create_table(server, NAMESPACE, table("new"), request("create"))
    clock.advance(server.settings.transaction_timeout_ms + 1)
    after = await commit_table(server, T, append(5), request("commit"))
    await create_table(server, NAMESPACE, table("new"), request("create"))
    await server.background.drain()

    assert content(after)["current-snapshot-id"] == 5
    assert content(await load(make_lake(store, clock), U))["current-snapshot-id"] == -1
    await check_invariants(make_lake(store, clock))


async def test_a_drop_does_not_wait_for_a_transaction() -> None:
    store, clock = await _abandoned()
    server = make_lake(store, clock)

    await drop_name(server, T, kind="table", request=request("drop"))

    assert not await table_exists(make_lake(store, clock), T)
    assert content(await load(make_lake(store, clock), U))["current-snapshot-id"] == -1


async def test_an_acknowledged_transaction_survives_a_concurrent_bind_of_its_pointers() -> None:
    """A table that was just created is bound while the transaction on it is completed."""
    for dies_at in range(1, 40):
        clock = FixedClock()
        store = MemoryStore(clock=clock)
        server = make_lake(store, clock)
        await set_up_catalog(server)
        await create(server, "u")
        made = await create_table(server, NAMESPACE, table("t"), request("create"))
        pointer_cell = server.pointer(made.table_uuid)
        await server.background.drain()
        pointer = await pointer_cell.read()
        assert pointer
        await pointer_cell.swap(replace(pointer.value, state="unbound"), expected=pointer.version)
        dying = make_lake(DyingStore(store, dies_at=dies_at, after=True), clock)
        try:
            await commit_transaction(dying, "main", [(T, append(1)), (U, append(1))], request("both"))
            is_acknowledged = True
        except Died:
            is_acknowledged = False
        bound = await pointer_cell.read()
        assert bound
        await pointer_cell.swap(replace(bound.value, state="live"), expected=bound.version)
        await dying.background.drain()

        seen = [content(await load(make_lake(store, clock), one))["current-snapshot-id"] for one in (T, U)]
        assert seen in ([1, 1], [-1, -1])
        assert seen == [1, 1] or not is_acknowledged


async def test_the_record_of_a_transaction_is_deleted_without_a_key_and_kept_with_one(
    lake: Lake,
) -> None:
    await commit_transaction(lake, "main", [(T, append(1)), (U, append(1))], request("one"))
    await lake.background.drain()
    assert not await lake.store.list(lake.layout.transactions_folder())

    await commit_transaction(lake, "main", [(T, append(2, 1)), (U, append(2, 1))], keyed_request("two"))
    await lake.background.drain()

    record = await lake.transaction(key_hash_of(keyed_request("two")) or "").read()
    assert record
    assert record.value.state == "committed"


async def test_a_transaction_can_set_a_property_on_many_tables(lake: Lake) -> None:
    for number in range(12):
        await create(lake, f"many{number}")
    change = commit(set_property("p", "1"))

    await commit_transaction(
        lake, "main", [(identifier_of(f"many{number}"), change) for number in range(12)], request("many")
    )

    fresh = restarted(lake)
    for number in range(12):
        assert content(await load(fresh, identifier_of(f"many{number}")))["properties"]["p"] == "1"


async def test_concurrent_transactions_of_two_servers_all_succeed(lake: Lake) -> None:
    servers = [restarted(lake) for _ in range(3)]

    await asyncio.gather(
        *(
            commit_transaction(
                server,
                "main",
                [(one, commit(set_property(f"p{number}{turn}", "x"))) for one in order],
                request(f"{number} {turn}"),
            )
            for turn in range(4)
            for number, (server, order) in enumerate(zip(servers, [(T, U), (U, T), (T, U)], strict=True))
        )
    )

    for one in (T, U):
        made = content(await load(restarted(lake), one))["properties"]
        assert {f"p{number}{turn}" for turn in range(4) for number in range(3)} <= made.keys()


async def test_a_transaction_on_a_stale_memory_applies_to_what_is_there_now(lake: Lake) -> None:
    """Both servers remember the tables; the other one commits between."""
    other = restarted(lake)
    for server in (lake, other):
        for one in (T, U):
            await load(server, one)
    await commit_table(other, T, commit(set_property("by", "other")), request("other"))
    await other.background.drain()

    await commit_transaction(lake, "main", [(T, append(1)), (U, append(1))], request("both"))

    assert await snapshots(lake) == [1, 1]
    assert content(await load(restarted(lake), T))["properties"]["by"] == "other"
    await lake.background.drain()
    assert times_applied(await check_invariants(restarted(lake)), request("both").hash) == 2


async def test_no_refusal_of_a_transaction_rests_on_a_memory(lake: Lake) -> None:
    other = restarted(lake)
    for one in (T, U):
        await load(other, one)
    await commit_table(lake, T, append(1), request("first"))
    await lake.background.drain()

    await commit_transaction(other, "main", [(T, append(2, 1)), (U, append(1))], request("both"))

    assert await snapshots(lake) == [2, 1]


async def test_a_repeated_transaction_is_recognized_by_a_server_that_remembers_the_state_before(lake: Lake) -> None:
    other = restarted(lake)
    for one in (T, U):
        await load(other, one)
    both = [(one, replace(append(1), requirements=())) for one in (T, U)]
    await commit_transaction(lake, "main", both, request("both"))
    await lake.background.drain()

    await commit_transaction(other, "main", both, request("both"))

    assert await snapshots(lake) == [1, 1]
    assert times_applied(await check_invariants(restarted(lake)), request("both").hash) == 2


async def test_a_table_that_was_renamed_is_not_changed_under_its_remembered_name(lake: Lake) -> None:
    other, renamed = restarted(lake), identifier_of("renamed")
    await rename(other, T, renamed, kind="table", request=request("rename"))
    await other.background.drain()

    with pytest.raises(NotFound, match=r"^Table does not exist: a\.t$"):
        await commit_transaction(lake, "main", [(T, append(1)), (U, append(1))], request("both"))

    assert content(await load(restarted(lake), renamed))["current-snapshot-id"] == -1


async def test_a_transaction_waits_for_the_fold_of_the_one_before_instead_of_losing_to_it(lake: Lake) -> None:
    """Without a pause between them, each pointer is swapped twice per transaction, and no swap is lost."""
    spy = SpyStore(lake.store)
    server = make_lake(spy, lake.clock)
    for one in (T, U):
        await load(server, one)
    spy.reset()

    for number in (1, 2, 3):
        both = [(one, append(number, number - 1 or None)) for one in (T, U)]
        await commit_transaction(server, "main", both, request(f"both {number}"))
    await server.background.drain()

    puts = [key for key in spy.keys("put") if "/iceberg_pointers/" in key]
    assert len(puts) == 3 * 2 * 2, "per transaction and table: the pending, and its fold"
    reads = [*spy.keys("get"), *spy.keys("get_if_changed")]
    assert not [key for key in reads if "/iceberg_pointers/" in key or "transaction" in key], "all of it is known"
    assert await snapshots(lake) == [3, 3]
