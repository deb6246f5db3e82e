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
from tests.operations.filled import filled
from tests.operations.invariants import visible_names
from tests.operations.janitor_runs import HOUR_MS, Shore, Trouble
from tests.operations.requests import (
    NAMESPACE,
    called,
    commit,
    content,
    copied,
    create,
    created_by_commit,
    keyed,
    load,
    set_property,
    table,
)

UUID = "5b6b2b4e-0000-4000-8000-000000000009"
STAGED_MS = 73 * HOUR_MS


async def _rubble() -> Shore:
    """A store with every kind of garbage that finished and killed requests leave behind."""
    shore = await Shore.furnished()
    for name in ("kept", "changed", "old", "dropped"):
        await create(shore.server(), name)
    await filled(shore.server(), "neighbour")
    await filled(shore.server(), "purged")
    await create_table(shore.server(), NAMESPACE, table("staged", stage_create=True), keyed("stage"))
    await _dead_create(shore)
    await _dead_rename(shore)
    await _dead_transaction(shore)
    server = shore.server()
    await commit_table(server, called("kept"), commit(set_property("a", "b")), keyed("commit"))
    await drop_name(server, called("purged"), kind="table", purge=True, request=keyed("purge"))
    await server.background.drain()
    await _dead_drop(shore)
    shore.clock.advance(STAGED_MS)
    return shore


async def _dead_create(shore: Shore) -> None:
    async def is_orphan(server: Lake) -> bool:
        pointers = await server.store.list(server.layout.pointers_folder())
        return len(pointers) > before

    before = len(await shore.keys(shore.server().layout.pointers_folder()))
    await shore.dies_when(lambda server: create_table(server, NAMESPACE, table("orphan"), keyed("orphan")), is_orphan)


async def _dead_rename(shore: Shore) -> None:
    async def is_moved(server: Lake) -> bool:
        old = await server.name(called("old")).read()
        return old is not None and old.value.state == "moved"

    sent = keyed("rename")
    await shore.dies_when(
        lambda server: rename(server, called("old"), called("new"), kind="table", request=sent), is_moved
    )


async def _dead_transaction(shore: Shore) -> None:
    async def is_committed(server: Lake) -> bool:
        record = await server.transaction(key_hash_of(keyed("both")) or "").read()
        return record is not None and record.value.state == "committed"

    changes = [(called("changed"), commit(set_property("by", "both"))), (called("made"), created_by_commit(UUID))]
    await shore.dies_when(lambda server: commit_transaction(server, "main", changes, keyed("both")), is_committed)


async def _dead_drop(shore: Shore) -> None:
    async def is_dropped(server: Lake) -> bool:
        name = await server.name(called("dropped")).read()
        return name is not None and name.value.state == "dropped"

    sent = keyed("drop")
    await shore.dies_when(
        lambda server: drop_name(server, called("dropped"), kind="table", purge=True, request=sent), is_dropped
    )


@pytest.fixture(scope="module")
def rubble() -> Shore:
    return asyncio.run(_rubble())


def _copy(rubble: Shore) -> Shore:
    shore = Shore()
    shore.store, shore.clock = copied(rubble.store, rubble.clock)
    return shore


async def _swept(shore: Shore) -> tuple[frozenset[str], Mapping[Identifier, str]]:
    """All keys and all visible names after several runs with days between them."""
    for _ in range(4):
        await shore.sweep()
        shore.clock.advance(STAGED_MS)
    turn = shore.server().layout.operational("janitors", "turn")
    return frozenset(await shore.keys()) - {turn}, await visible_names(shore.server())


async def test_only_living_records_remain(rubble: Shore) -> None:
    shore = _copy(rubble)
    _, before = await _swept(_copy(rubble))

    keys, shown = await _swept(shore)

    layout = shore.server().layout
    assert {identifier.name for identifier in shown} == {"kept", "changed", "new", "made", "neighbour"}
    assert shown == before
    assert shore.trouble == []
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
    assert content(await load(shore.server(), called("changed")))["properties"]["by"] == "both"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_the_next_run_finishes_after_a_death_at_any_call(rubble: Shore, *, after: bool) -> None:
    spy = SpyStore(_copy(rubble).store)
    await run_janitors(_copy(rubble).server(spy), {}, on_error=Trouble())
    calls = len(spy.calls)
    whole = await _swept(_copy(rubble))
    assert calls > 100

    for dies_at in range(1, calls + 1):
        shore = _copy(rubble)
        dying = shore.server(DyingStore(shore.store, dies_at=dies_at, after=after))
        with contextlib.suppress(Died):
            await run_janitors(dying, {}, on_error=Trouble())
        for _ in range(10):  # Calls that ran concurrently with the dead one end as well.
            await asyncio.sleep(0)

        keys, shown = await _swept(shore)

        assert shown == whole[1], f"died at call {dies_at}"
        assert keys == whole[0], f"died at call {dies_at}"
        assert shore.trouble == [], f"died at call {dies_at}"
