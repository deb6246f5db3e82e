"""Pointers without a name are killed, and dead pointers are deleted when no replay can need them."""

import asyncio
import contextlib

import pytest
from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import NameRecord, Pointer
from sandur.errors import Busy
from sandur.operations.janitors.records import POINTERS
from sandur.operations.janitors.sweep import sweep
from sandur.operations.lake import Lake
from sandur.operations.receipts import Receipts, tried_of
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import LoadedTable, table_exists
from sandur.operations.tables.drop import drop_name, unregister_table
from sandur.operations.tables.names import resolve_name
from sandur.operations.tables.register import register_table
from tests.fakes.dying_store import Died, DyingStore
from tests.operations.hooked_store import HookedStore
from tests.operations.janitor_runs import HOUR_MS, LONG_MS, Cluster
from tests.operations.requests import (
    ELSEWHERE,
    NAMESPACE,
    copy_store,
    create,
    identifier_of,
    keyed_request,
    load,
    request,
    table,
)

T, U = identifier_of("t"), identifier_of("u")
UUID = "5b6b2b4e-0000-4000-8000-000000000009"


async def drop(lake: Lake, identifier: Identifier, *, purge: bool = False) -> None:
    await drop_name(lake, identifier, kind="table", purge=purge, request=request(f"drop {identifier}"))
    await lake.background.drain()


async def orphan(cluster: Cluster, *, age_ms: int, **fields: object) -> None:
    pointer = Pointer(uuid=UUID, table_uuid=UUID, state="unbound", made_for=T)
    await cluster.server().pointer(UUID).create(replace(pointer, **fields))
    cluster.clock.advance(age_ms)


async def state_of(cluster: Cluster) -> str | None:
    found = await cluster.server().pointer(UUID).read()
    return found.value.state if found else None


@pytest.mark.parametrize("state", ["unbound", "condemned"])
async def test_an_orphan_is_killed_after_a_day_and_deleted_later(state: str) -> None:
    cluster = await Cluster.with_catalog()
    await orphan(cluster, age_ms=24 * HOUR_MS - 1, state=state)

    assert await cluster.sweep() == {}
    cluster.clock.advance(1)
    assert await cluster.sweep() == {"pointers_settled": 1}
    assert await state_of(cluster) == "killed"
    cluster.clock.advance(25 * HOUR_MS)
    assert await cluster.sweep() == {"pointers_removed": 1}
    assert await state_of(cluster) is None


async def test_a_pointer_with_a_name_is_bound_and_not_killed() -> None:
    cluster = await Cluster.with_catalog()
    name = NameRecord(state="new", uuid=UUID, kind="table", namespace_id=f"id of {NAMESPACE}")
    await cluster.server().name(T).create(name)
    await orphan(cluster, age_ms=24 * HOUR_MS)

    await cluster.sweep()

    assert await state_of(cluster) == "live"


async def test_a_pointer_of_an_undecided_name_is_kept() -> None:
    cluster = await Cluster.with_catalog(name_retention="P9D")
    name = NameRecord(state="pending", uuid=UUID, kind="table", transaction="x", attempt="y")
    await cluster.server().name(T).create(name)
    await orphan(cluster, age_ms=24 * HOUR_MS)

    await cluster.sweep()

    assert await state_of(cluster) == "condemned"


async def test_a_killed_pointer_leaves_no_receipt() -> None:
    """C5: a receipt proves a commit, and a killed creation never happened."""
    cluster = await Cluster.with_catalog()
    made = await create(cluster.server(), "t")
    head = (await cluster.server().pointer(made.table_uuid).read()).value.head  # type: ignore[union-attr] # It is there.
    assert head
    never = replace(head, metadata_location="memory://store/never")
    await orphan(cluster, age_ms=LONG_MS, state="killed", head=never)

    assert (await cluster.sweep())["pointers_removed"] == 1
    assert not await cluster.server().feature(Receipts).exists(tried_of(never))


async def test_a_dropped_pointer_is_kept_as_long_as_a_replay_may_need_it() -> None:
    cluster = await Cluster.with_catalog(idempotency_key_lifetime="PT5H")
    made = await create(cluster.server(), "t")
    await drop(cluster.server(), T)
    cluster.clock.advance(29 * HOUR_MS - 1)

    await cluster.sweep()

    assert await cluster.server().pointer(made.table_uuid).read()
    cluster.clock.advance(1)
    assert await cluster.sweep() == {"pointers_removed": 1}


async def test_the_receipt_of_the_last_head_is_written_before_its_pointer_is_deleted() -> None:
    cluster = await Cluster.with_catalog()
    made = await create(cluster.server(), "t")
    pointer = await cluster.server().pointer(made.table_uuid).read()
    assert pointer
    assert pointer.value.head
    await drop(cluster.server(), T)
    for key in await cluster.keys(cluster.server().layout.events_folder()):
        found = await cluster.store.get(key)
        assert found
        await cluster.store.delete(key, expected=found.version)
    cluster.clock.advance(LONG_MS)

    await cluster.sweep()

    assert await cluster.server().pointer(made.table_uuid).read() is None
    assert await cluster.server().feature(Receipts).exists(tried_of(pointer.value.head))


async def test_a_dropped_pointer_stays_while_its_files_wait_to_be_deleted() -> None:
    cluster = await Cluster.with_catalog(purge_delay="P9D")
    made = await create(cluster.server(), "t")
    await drop(cluster.server(), T, purge=True)
    cluster.clock.advance(LONG_MS)

    assert await cluster.sweep() == {"names_removed": 1}
    assert await cluster.server().pointer(made.table_uuid).read()


async def test_a_dropped_pointer_stays_while_its_name_is_dropped() -> None:
    """A request that reuses the name drops the pointer of that uuid again; it must not be that of a new table."""
    cluster = await Cluster.with_catalog(name_retention="P30D")
    made = await create(cluster.server(), "t")
    gone = await unregister_table(cluster.server(), T, request("unregister"))
    cluster.clock.advance(LONG_MS)

    await cluster.sweep()
    location = gone.metadata_location or ""
    await register_table(cluster.server(), ELSEWHERE, "again", location, request=request("register"))
    await create(cluster.server(), "t")

    found = await resolve_name(cluster.server(), identifier_of("again", ELSEWHERE))
    assert found
    assert (await load(cluster.server(), identifier_of("again", ELSEWHERE))).table_uuid == made.table_uuid


async def test_a_table_can_be_registered_under_its_old_uuid_after_the_sweep() -> None:
    cluster = await Cluster.with_catalog()
    made = await create(cluster.server(), "t")
    gone = await unregister_table(cluster.server(), T, request("unregister"))
    cluster.clock.advance(LONG_MS)
    await cluster.sweep()

    location = gone.metadata_location or ""
    await register_table(cluster.server(), ELSEWHERE, "again", location, request=request("register"))

    found = await resolve_name(cluster.server(), identifier_of("again", ELSEWHERE))
    assert found
    assert found.uuid == made.table_uuid


async def test_a_creator_that_writes_its_name_before_the_kill_keeps_its_table() -> None:
    """GC2, N5: the janitor has found no name; the creator writes it, reads its pointer, answers, and dies anywhere."""
    cluster = await Cluster.with_catalog()
    sent = keyed_request("create")

    async def is_orphan(server: Lake) -> bool:
        return bool(await server.store.list(server.layout.pointers_folder()))

    await cluster.kill_when(lambda server: create_table(server, NAMESPACE, table("t"), sent), is_orphan)
    cluster.clock.advance(24 * HOUR_MS)
    origin = cluster.store, cluster.clock
    (pointer_key,) = await cluster.keys(cluster.server().layout.pointers_folder())
    answers = 0
    for calls in range(1, 60):
        cluster.store, cluster.clock = copy_store(*origin)
        answered: list[LoadedTable] = []

        async def retry(dies_at: int = calls, answered: list[LoadedTable] = answered) -> None:
            server = cluster.server(DyingStore(cluster.store, dies_at=dies_at, after=True))
            with contextlib.suppress(Died, Busy):
                answered.append(await create_table(server, NAMESPACE, table("t"), sent))
            await server.background.drain()

        hooked = HookedStore(cluster.store)
        hooked.before("get", cluster.server().layout.name(T), lambda: asyncio.sleep(0))  # The janitor reads the name.
        hooked.before("put", pointer_key, retry)
        await sweep(cluster.server(hooked), POINTERS, position="", on_error=cluster.errors)

        answers += len(answered)
        assert not hooked.hooks
        assert not answered or await table_exists(cluster.server(), T), f"answered, died at {calls}, and swept away"
    assert answers
