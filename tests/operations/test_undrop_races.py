"""Undrops beside drops, purges, janitors and other undrops, and undrops that were killed."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sandur.catalog.records import drop_of
from sandur.delta.requests import DeltaChange
from sandur.errors import Busy, NotFound, SandurError
from sandur.operations.containers.drop import drop_namespace
from sandur.operations.containers.namespaces import create_namespace
from sandur.operations.delta.commit import update_table
from sandur.operations.delta.tables import drop_table
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.lake import Lake
from sandur.operations.receipts import catalog_receipt_key
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.names import resolve_name, take_back
from sandur.operations.tables.rename import rename
from sandur.operations.tables.undrop import undrop
from tests.operations.delta_requests import D, commit_file, create_managed
from tests.operations.event_chains import all_events, check_events
from tests.operations.hooked_store import HookedStore
from tests.operations.invariants import check_invariants
from tests.operations.janitor_runs import Cluster
from tests.operations.requests import (
    ELSEWHERE,
    NAMESPACE,
    create,
    identifier_of,
    keyed_request,
    load,
    request,
)
from tests.operations.table_files import create_table_with_files
from tests.operations.undrops import back, drop, dropped_table, kill_before_the_name, kinds, purge, uuid_of

T, U = identifier_of("t"), identifier_of("u")


@pytest.fixture
async def cluster() -> Cluster:
    return await Cluster.with_catalog()


async def test_a_half_done_undrop_is_taken_back_by_the_next_one_or_by_a_janitor(cluster: Cluster) -> None:
    """U4, U5: dropped again, never killed."""
    server = cluster.server()
    made = await create(server, "t")
    await drop(server)
    await server.background.drain()

    await kill_before_the_name(cluster, made.table_uuid)
    with pytest.raises(Busy):
        await back(cluster.server())
    await check_events(cluster.server())
    cluster.clock.advance(600_001)

    await back(cluster.server())

    assert (await load(cluster.server(), T)).table_uuid == made.table_uuid
    assert await kinds(cluster.server(), made.table_uuid) == ["created", "dropped", "undropped"]


async def test_a_janitor_takes_back_a_half_done_undrop(cluster: Cluster) -> None:
    server = cluster.server()
    made = await create(server, "t")
    await drop(server)
    await server.background.drain()

    await kill_before_the_name(cluster, made.table_uuid)
    cluster.clock.advance(4 * DAY_MS)
    await cluster.sweep()

    found = await cluster.server().pointer(made.table_uuid).read()
    assert found is not None
    assert found.value.state == "dropped"
    assert await kinds(cluster.server(), made.table_uuid) == ["created", "dropped"]


async def test_a_retry_of_an_old_drop_does_not_end_the_next_life(cluster: Cluster) -> None:
    """E7: the claim pins the life."""
    server = cluster.server()
    made = await create(server, "t")
    sent = keyed_request("drop")

    async def is_dropped(lake: Lake) -> bool:
        found = await lake.pointer(made.table_uuid).read()
        return found is not None and found.value.state == "dropped"

    await cluster.kill_when(lambda lake: drop_name(lake, T, kind="table", request=sent), is_dropped)
    await back(cluster.server())
    cluster.clock.advance(600_001)

    await drop_name(cluster.server(), T, kind="table", request=sent)

    assert (await load(cluster.server(), T)).table_uuid == made.table_uuid
    assert await kinds(cluster.server(), made.table_uuid) == ["created", "dropped", "undropped"]


@pytest.mark.parametrize("seed", range(40))
async def test_the_invariants_hold_whatever_runs_beside_an_undrop(seed: int) -> None:
    """Another undrop, also to another name, a creation, a purge, a rename onto the name."""
    cluster = await Cluster.with_catalog(seed)
    server = cluster.server()
    await create_table_with_files(server, "t")
    await create(server, "u", properties={"another": "one"})
    uuid = await uuid_of(server)
    await drop(server, purge=seed % 2 == 0)
    await server.background.drain()
    cluster.clock.advance(2 * DAY_MS)
    beside: tuple[Callable[[Lake], Awaitable[object]], ...] = (
        lambda lake: back(lake, uuid),
        lambda lake: create(lake, "t", properties={"new": "one"}),
        purge,
        lambda lake: rename(lake, U, T, kind="table", request=request("rename")),
        lambda lake: back(lake, uuid, identifier_of("w")),
    )
    works = [beside[0], beside[seed % 5], beside[(seed // 5) % 5]]

    async def answer(work: Callable[[Lake], Awaitable[object]]) -> str:
        lake = cluster.server()
        try:
            await work(lake)
        except SandurError as error:
            return type(error).__name__
        finally:
            await lake.background.drain()
        return "ok"

    said = await asyncio.gather(*map(answer, works))

    assert set(said) <= {"ok", "AlreadyExists", "NotFound", "Busy"}
    await check_invariants(cluster.server())
    for identifier in (T, identifier_of("w")):
        found = await resolve_name(cluster.server(), identifier)
        if found and found.uuid == uuid:  # All its files are there.
            assert (await load(cluster.server(), identifier)).table_uuid
            manifests = [key for key in await cluster.keys("") if f"-{uuid}/" in key]
            assert len(manifests) > 1


async def test_a_namespace_dropped_meanwhile_refuses_it_and_nothing_is_lost(cluster: Cluster) -> None:
    server = cluster.server()
    made = await create(server, "t")
    await drop(server)
    await server.background.drain()

    await kill_before_the_name(cluster, made.table_uuid)
    await drop_namespace(cluster.server(), NAMESPACE, request("drop namespace"))
    cluster.clock.advance(600_001)

    with pytest.raises(NotFound):
        await back(cluster.server(), made.table_uuid)
    await back(cluster.server(), made.table_uuid, target=T._replace(levels=ELSEWHERE.levels))

    await check_invariants(cluster.server())


async def test_no_commit_by_id_makes_a_half_done_undrop_a_table_without_a_name(cluster: Cluster) -> None:
    """U4: what is taken back must still be unbound."""
    server = cluster.server()
    made = await create_managed(server)
    await drop_table(server, D, request=request("drop"))
    await server.background.drain()

    async def is_unbound(lake: Lake) -> bool:
        found = await lake.delta_table(made.uuid).read()
        return found is not None and found.value.state == "unbound"

    await cluster.kill_when(lambda lake: undrop(lake, D, kind="table", request=request("undrop")), is_unbound)
    change = DeltaChange(asserted_uuid=made.uuid, commit=commit_file(1, "one.json"))

    with pytest.raises(NotFound):
        await update_table(cluster.server(), None, change, request("commit"))

    assert await is_unbound(cluster.server())


async def test_who_takes_back_an_undrop_looks_at_its_name_first(cluster: Cluster) -> None:
    """U4: it died after its name was written, and every reader sees the table."""
    uuid = await dropped_table(cluster)

    async def is_named(lake: Lake) -> bool:
        name = await lake.name(T).read()
        return name is not None and name.value.state == "new"

    await cluster.kill_when(back, is_named)
    server = cluster.server()
    cell = server.pointer(uuid)
    found = await cell.read()
    assert found is not None
    assert found.value.state == "unbound"

    assert await take_back(server, cell, found) is False

    assert await uuid_of(cluster.server()) == uuid
    await check_invariants(cluster.server())


async def test_an_order_stays_while_an_undrop_is_half_done(cluster: Cluster) -> None:
    """U7 keep: once it is taken back, what was ordered is purged."""
    uuid = await dropped_table(cluster, purge=True)
    await kill_before_the_name(cluster, uuid)
    cluster.clock.advance(2 * DAY_MS)

    await purge(cluster.server())
    orders = await cluster.keys(cluster.server().layout.purge_orders_folder())
    cluster.clock.advance(2 * DAY_MS)
    for _ in range(2):
        await cluster.sweep()
        cluster.clock.advance(2 * DAY_MS)

    assert len(orders) == 1
    assert await cluster.keys(cluster.server().layout.purge_orders_folder()) == []
    assert not [key for key in await cluster.keys("") if f"-{uuid}/" in key]


async def test_a_slow_drop_keeps_its_purge_although_its_order_was_removed(cluster: Cluster) -> None:
    """U7 fence: the name is bumped first, so the drop loses and orders again."""
    await create_table_with_files(cluster.server(), "t")
    uuid = await uuid_of(cluster.server())
    store = HookedStore(cluster.store)

    async def days_pass() -> None:
        cluster.clock.advance(2 * DAY_MS)
        await purge(cluster.server())
        assert await cluster.keys(cluster.server().layout.purge_orders_folder()) == []

    store.before("put", cluster.server().layout.name(T), days_pass)
    await drop(cluster.server(store), purge=True)

    found = await cluster.server().pointer(uuid).read()
    assert found is not None
    assert await cluster.server().purge_order(found.value.table_uuid, drop_of(found.value)).read()


async def test_a_namespace_that_is_dropped_before_the_name_is_written_refuses_it(cluster: Cluster) -> None:
    """U8: it is taken back, and leaves no receipt."""
    uuid = await dropped_table(cluster)
    store = HookedStore(cluster.store)
    store.before(
        "put",
        cluster.server().layout.name(T),
        lambda: drop_namespace(cluster.server(), NAMESPACE, request("drop namespace")),
    )

    with pytest.raises(NotFound, match="Namespace does not exist"):
        await back(cluster.server(store))

    found = await cluster.server().pointer(uuid).read()
    assert found is not None
    assert found.value.state == "dropped"
    await check_events(cluster.server())


async def test_what_an_undrop_without_a_namespace_left_can_come_back_by_its_name(cluster: Cluster) -> None:
    """The simulation found that the name led nowhere after an undrop that was taken back."""
    uuid = await dropped_table(cluster)
    store = HookedStore(cluster.store)
    store.before(
        "put",
        cluster.server().layout.name(T),
        lambda: drop_namespace(cluster.server(), NAMESPACE, request("drop namespace")),
    )
    with pytest.raises(NotFound, match="Namespace does not exist"):
        await back(cluster.server(store))
    await create_namespace(cluster.server(), NAMESPACE, {}, request("namespace again"))

    assert await back(cluster.server()) == uuid
    assert await uuid_of(cluster.server()) == uuid
    await check_events(cluster.server())


async def test_a_name_that_changed_meanwhile_and_is_free_refuses_nothing(cluster: Cluster) -> None:
    """U9."""
    uuid = await dropped_table(cluster)
    store = HookedStore(cluster.store)

    async def used_and_freed() -> None:
        server = cluster.server()
        await create(server, "t", properties={"another": "one"})
        await drop(server)
        await server.background.drain()

    store.before("put", cluster.server().layout.name(T), used_and_freed)

    await back(cluster.server(store), uuid)

    assert await uuid_of(cluster.server()) == uuid
    await check_invariants(cluster.server())


async def test_an_order_counts_only_for_its_own_drop(cluster: Cluster) -> None:
    """U6: the table came back, and was dropped again without a purge."""
    uuid = await dropped_table(cluster, purge=True)
    files = [key for key in await cluster.keys("") if f"-{uuid}/" in key]
    server = cluster.server()
    await back(server)
    await drop(server)
    await server.background.drain()

    for _ in range(3):
        cluster.clock.advance(DAY_MS + 1)
        await purge(cluster.server())

    assert [key for key in await cluster.keys("") if f"-{uuid}/" in key] == files
    await back(cluster.server())
    assert await uuid_of(cluster.server()) == uuid


async def test_the_receipt_of_the_drop_exists_before_the_pointer_loses_its_event(cluster: Cluster) -> None:
    """E2 undrop: the name is gone, so only the pointer knows the drop."""
    uuid = await dropped_table(cluster)
    server = cluster.server()
    (drop_event,) = [event for event in await all_events(server) if event.kind == "dropped"]
    for key in (server.layout.name(T), catalog_receipt_key(server.layout, drop_event)):
        stored = await server.store.get(key)
        assert stored
        await server.store.delete(key, expected=stored.version)

    await back(server, uuid)

    assert await kinds(server, uuid) == ["created", "dropped", "undropped"]
