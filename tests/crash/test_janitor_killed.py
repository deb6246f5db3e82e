"""Janitors die at any call to the store: the next run finishes, with the same result as without a death."""

import asyncio
import contextlib
from collections.abc import Mapping

import pytest

from sandur.catalog.identifiers import Identifier
from sandur.operations.idempotency import key_hash_of
from sandur.operations.janitors.schedule import run_janitors
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.operations.transactions.coordinator import commit_transaction
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.spy_store import SpyStore
from tests.operations.event_chains import check_events, reconcile
from tests.operations.invariants import visible_names
from tests.operations.janitor_runs import HOUR_MS, Cluster, ReportedErrors
from tests.operations.requests import (
    NAMESPACE,
    commit,
    content,
    copy_store,
    create,
    create_commit,
    identifier_of,
    keyed_request,
    load,
    set_property,
    table,
)
from tests.operations.table_files import create_table_with_files

UUID = "5b6b2b4e-0000-4000-8000-000000000009"
STAGED_MS = 73 * HOUR_MS


async def _garbage() -> Cluster:
    """A store with every kind of garbage that finished and killed requests leave behind."""
    cluster = await Cluster.with_catalog()
    await reconcile(cluster.server())  # The containers are adopted once, before anything dies.
    for name in ("kept", "changed", "old", "dropped"):
        await create(cluster.server(), name)
    await create_table_with_files(cluster.server(), "neighbour")
    await create_table_with_files(cluster.server(), "purged")
    await create_table(cluster.server(), NAMESPACE, table("staged", stage_create=True), keyed_request("stage"))
    await _dead_create(cluster)
    await _dead_rename(cluster)
    await _dead_transaction(cluster)
    server = cluster.server()
    await commit_table(server, identifier_of("kept"), commit(set_property("a", "b")), keyed_request("commit"))
    await drop_name(server, identifier_of("purged"), kind="table", purge=True, request=keyed_request("purge"))
    await server.background.drain()
    await _dead_drop(cluster)
    cluster.clock.advance(STAGED_MS)
    return cluster


async def _dead_create(cluster: Cluster) -> None:
    async def is_orphan(server: Lake) -> bool:
        pointers = await server.store.list(server.layout.pointers_folder())
        return len(pointers) > before

    before = len(await cluster.keys(cluster.server().layout.pointers_folder()))
    await cluster.kill_when(
        lambda server: create_table(server, NAMESPACE, table("orphan"), keyed_request("orphan")), is_orphan
    )


async def _dead_rename(cluster: Cluster) -> None:
    async def is_moved(server: Lake) -> bool:
        old = await server.name(identifier_of("old")).read()
        return old is not None and old.value.state == "moved"

    sent = keyed_request("rename")
    await cluster.kill_when(
        lambda server: rename(server, identifier_of("old"), identifier_of("new"), kind="table", request=sent), is_moved
    )


async def _dead_transaction(cluster: Cluster) -> None:
    async def is_committed(server: Lake) -> bool:
        record = await server.transaction(key_hash_of(keyed_request("both")) or "").read()
        return record is not None and record.value.state == "committed"

    changes = [
        (identifier_of("changed"), commit(set_property("by", "both"))),
        (identifier_of("made"), create_commit(UUID)),
    ]
    await cluster.kill_when(
        lambda server: commit_transaction(server, "main", changes, keyed_request("both")), is_committed
    )


async def _dead_drop(cluster: Cluster) -> None:
    async def is_dropped(server: Lake) -> bool:
        name = await server.name(identifier_of("dropped")).read()
        return name is not None and name.value.state == "dropped"

    sent = keyed_request("drop")
    await cluster.kill_when(
        lambda server: drop_name(server, identifier_of("dropped"), kind="table", purge=True, request=sent), is_dropped
    )


@pytest.fixture(scope="module")
def garbage() -> Cluster:
    return asyncio.run(_garbage())


def _copy(garbage: Cluster) -> Cluster:
    cluster = Cluster()
    cluster.store, cluster.clock = copy_store(garbage.store, garbage.clock)
    return cluster


async def _sweep(cluster: Cluster) -> tuple[frozenset[str], Mapping[Identifier, str]]:
    """All keys and all visible names after several runs with days between them."""
    for _ in range(4):
        await cluster.sweep()
        cluster.clock.advance(STAGED_MS)
    await check_events(cluster.server())
    await reconcile(cluster.server())  # What a dead janitor left active has no next writer.
    turn = cluster.server().layout.operational("janitors", "turn")
    return frozenset(await cluster.keys()) - {turn}, await visible_names(cluster.server())


async def test_only_living_records_remain(garbage: Cluster) -> None:
    cluster = _copy(garbage)
    _, before = await _sweep(_copy(garbage))

    keys, shown = await _sweep(cluster)

    layout = cluster.server().layout
    assert {identifier.name for identifier in shown} == {"kept", "changed", "new", "made", "neighbour"}
    assert shown == before
    assert cluster.errors == []
    folders = (
        layout.stages_folder(),
        layout.transactions_folder(),
        layout.claims_folder(),
        layout.commit_claims_folder(),
        layout.marks_folder(),
        layout.purge_orders_folder(),
    )

    assert [key for key in keys if key.startswith(folders)] == []
    assert len([key for key in keys if key.startswith(layout.all_names_folder())]) == len(shown)
    assert not [key for key in keys if "/purged-" in key or "/dropped-" in key]
    assert content(await load(cluster.server(), identifier_of("changed")))["properties"]["by"] == "both"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_the_next_run_finishes_after_a_death_at_any_call(garbage: Cluster, *, after: bool) -> None:
    spy = SpyStore(_copy(garbage).store)
    await run_janitors(_copy(garbage).server(spy), {}, on_error=ReportedErrors())
    calls = len(spy.calls)
    whole = await _sweep(_copy(garbage))
    assert calls > 100

    for dies_at in range(1, calls + 1):
        cluster = _copy(garbage)
        dying = cluster.server(DyingStore(cluster.store, dies_at=dies_at, after=after))
        with contextlib.suppress(Died):
            await run_janitors(dying, {}, on_error=ReportedErrors())
        for _ in range(10):  # Calls that ran concurrently with the dead one end as well.
            await asyncio.sleep(0)

        keys, shown = await _sweep(cluster)

        assert shown == whole[1], f"died at call {dies_at}"
        assert keys == whole[0], f"died at call {dies_at}"
        assert cluster.errors == [], f"died at call {dies_at}"
