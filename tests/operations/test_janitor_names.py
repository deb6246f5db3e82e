"""Dead names are deleted after a day, when their pointers and claims are settled."""

import pytest
from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.records import NameRecord
from sandur.operations.containers.drop import drop_namespace
from sandur.operations.containers.namespaces import create_namespace
from sandur.operations.idempotency import key_hash_of
from sandur.operations.lake import Lake
from sandur.operations.tables.documents import table_exists
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from tests.operations.hooked_store import HookedStore
from tests.operations.janitor_runs import HOUR_MS, LONG_MS, Cluster
from tests.operations.requests import (
    ELSEWHERE,
    NAMESPACE,
    create,
    identifier_of,
    keyed_request,
    load,
    request,
)

T, U = identifier_of("t"), identifier_of("u")


async def drop(lake: Lake, identifier: Identifier, *, purge: bool = False) -> None:
    await drop_name(lake, identifier, kind="table", purge=purge, request=request(f"drop {identifier}"))
    await lake.background.drain()


async def move(lake: Lake, source: Identifier, target: Identifier) -> None:
    await rename(lake, source, target, kind="table", request=request(f"rename {source}"))
    await lake.background.drain()


async def test_a_dropped_name_is_deleted_after_a_day() -> None:
    cluster = await Cluster.with_catalog()
    await create(cluster.server(), "t")
    await drop(cluster.server(), T)
    cluster.clock.advance(24 * HOUR_MS - 1)

    assert await cluster.sweep() == {}
    cluster.clock.advance(1)
    assert await cluster.sweep() == {"names_removed": 1}
    assert await cluster.server().name(T).read() is None


async def test_a_drop_is_finished_before_the_name_is_deleted() -> None:
    cluster = await Cluster.with_catalog()
    made = await create(cluster.server(), "t")
    cell = cluster.server().name(T)
    name = await cell.read()
    assert name
    dropped = NameRecord(state="dropped", uuid=made.table_uuid, kind="table", by="somebody")
    await cell.swap(dropped, expected=name.version)  # The server dies before D4.
    cluster.clock.advance(24 * HOUR_MS)

    await cluster.sweep()

    pointer = await cluster.server().pointer(made.table_uuid).read()
    assert await cluster.server().name(T).read() is None
    assert pointer
    assert (pointer.value.state, pointer.value.by) == ("dropped", "somebody")


async def test_a_moved_name_is_deleted_after_the_new_one_is_active_and_its_claim_done() -> None:
    """R6, R9: the server dies right after the swap that is the rename."""
    cluster = await Cluster.with_catalog()
    made = await create(cluster.server(), "t")
    sent = keyed_request("rename")

    async def is_between(server: Lake) -> bool:
        old, new = await server.name(T).read(), await server.name(U).read()
        return bool(old and new and (old.value.state, new.value.state) == ("moved", "moving"))

    await cluster.kill_when(lambda server: rename(server, T, U, kind="table", request=sent), is_between)
    cluster.clock.advance(25 * HOUR_MS)

    await cluster.sweep()

    new = await cluster.server().name(U).read()
    claim = await cluster.server().claim("rename", key_hash_of(sent) or "").read()
    assert await cluster.server().name(T).read() is None
    assert new
    assert (new.value.state, new.value.uuid) == ("active", made.table_uuid)
    assert claim is None or claim.value.state == "done"
    assert await table_exists(cluster.server(), U)


@pytest.mark.parametrize("state", ["new", "pending", "moving"])
async def test_an_unconfirmed_name_is_free_after_a_day_and_deleted_after_two(state: str) -> None:
    cluster = await Cluster.with_catalog()
    made = await create(cluster.server(), "t")
    fields = {
        "new": {"namespace_id": "one that is gone", "uuid": "x"},
        "pending": {"transaction": "none", "attempt": "none", "uuid": "x"},
        "moving": {"other": T, "other_version": "long gone", "rename_id": "r", "uuid": made.table_uuid},
    }[state]
    await cluster.server().name(U).create(NameRecord(state=state, kind="table", **fields))  # type: ignore[arg-type] # By name.
    cluster.clock.advance(25 * HOUR_MS)

    await cluster.sweep()

    freed = await cluster.server().name(U).read()
    assert freed
    assert freed.value.state == "free"
    cluster.clock.advance(25 * HOUR_MS)
    await cluster.sweep()
    assert await cluster.server().name(U).read() is None
    assert (await load(cluster.server(), T)).table_uuid == made.table_uuid


async def test_the_janitor_confirms_a_table_whose_creator_died_after_writing_the_name() -> None:
    cluster = await Cluster.with_catalog()
    made = await create(cluster.server(), "t")
    cell = cluster.server().name(T)
    name = await cell.read()
    assert name
    await cell.swap(replace(name.value, state="new", namespace_id=f"id of {NAMESPACE}"), expected=name.version)
    cluster.clock.advance(LONG_MS)

    assert await cluster.sweep() == {"names_settled": 1}
    confirmed = await cell.read()
    assert confirmed
    assert confirmed.value.state == "active"
    assert (await load(cluster.server(), T)).table_uuid == made.table_uuid


async def test_active_names_stay() -> None:
    cluster = await Cluster.with_catalog()
    await create(cluster.server(), "t")
    await create(cluster.server(), "u", ELSEWHERE)
    await move(cluster.server(), T, identifier_of("w"))
    cluster.clock.advance(80 * 24 * HOUR_MS)  # Less than the retention of receipts.

    assert await cluster.sweep() == {"names_removed": 1}
    assert await table_exists(cluster.server(), identifier_of("w"))
    assert await table_exists(cluster.server(), identifier_of("u", ELSEWHERE))


async def test_the_retention_is_a_setting() -> None:
    cluster = await Cluster.with_catalog(name_retention="PT2H")
    await create(cluster.server(), "t")
    await drop(cluster.server(), T)
    cluster.clock.advance(2 * HOUR_MS)

    assert await cluster.sweep() == {"names_removed": 1}


async def test_a_dropped_namespace_is_deleted_after_a_day_and_can_be_created_again() -> None:
    cluster = await Cluster.with_catalog()
    namespace = Namespace("main", ("gone",))
    await create_namespace(cluster.server(), namespace, {}, request("make"))
    server = cluster.server()
    await drop_namespace(server, namespace, request("drop"))
    await server.background.drain()
    cluster.clock.advance(25 * HOUR_MS)

    swept = await cluster.sweep()

    assert swept["namespaces_removed"] == 1
    assert await cluster.server().namespace(namespace).read() is None
    await create_namespace(cluster.server(), namespace, {}, request("make again"))


async def test_the_claim_of_a_drop_is_done_before_the_record_is_deleted() -> None:
    """G6: the record is the only proof that a drop by a dead server happened."""
    cluster = await Cluster.with_catalog()
    namespace = Namespace("main", ("gone",))
    await create_namespace(cluster.server(), namespace, {}, request("make"))
    sent = keyed_request("drop")

    async def is_dropped(server: Lake) -> bool:
        found = await server.namespace(namespace).read()
        return found is not None and found.value.state == "dropped"

    await cluster.kill_when(lambda server: drop_namespace(server, namespace, sent), is_dropped)
    cluster.clock.advance(24 * HOUR_MS)
    await cluster.sweep()

    assert await cluster.server().namespace(namespace).read() is None
    await drop_namespace(cluster.server(), namespace, sent)


async def test_a_name_that_is_reused_at_this_moment_is_not_deleted() -> None:
    cluster = await Cluster.with_catalog()
    await create(cluster.server(), "t")
    await drop(cluster.server(), T)
    cluster.clock.advance(24 * HOUR_MS)
    hooked = HookedStore(cluster.store)
    key = cluster.server().layout.name(T)
    hooked.before("delete", key, lambda: create(cluster.server(), "t"))

    await cluster.sweep(hooked)

    assert not hooked.hooks
    assert await table_exists(cluster.server(), T)
