"""A server dies at any storage call of a mutation of Unity Catalog's API: a retry applies it once, and lists agree."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Coroutine
from typing import Any, Literal, get_args

import pytest

from sandur.catalog.events import Source
from sandur.catalog.index import CATALOGS, Scope, names_scope, namespaces_scope
from sandur.catalog.records import Request
from sandur.operations.background import Background
from sandur.operations.index.lists import read_page
from sandur.operations.index.truth import list_written_names, read_entries
from sandur.operations.lake import Lake
from tests.crash.unity_mutations import MUTATIONS, RENAME_MODEL, SCHEMA, Mutation, World, make_world, model_names
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.spy_store import SpyStore
from tests.operations.event_chains import all_events, check_events, reconciled
from tests.operations.lakes import visit_marks
from tests.operations.requests import keyed_request, request

SENDER = Source(kind="rest", principal="sender")
Death = Literal["before", "after"]

_CALLS_MAX = 250
_STALE_MS = 3_600_000


@pytest.fixture(scope="module")
def origin() -> World:
    return asyncio.run(make_world())


async def _count_calls(mutation: Mutation, origin: World, sent: Request) -> int:
    world = origin.copy()
    spy = SpyStore(world.store)
    server = world.server(spy)
    await mutation.send(server, sent)
    await server.background.drain()
    assert 0 < len(spy.calls) < _CALLS_MAX
    return len(spy.calls)


async def _kill(mutation: Mutation, origin: World, sent: Request, *, dies_at: int, death: Death) -> tuple[World, bool]:
    """The state after the crash, and whether the crash came after the answer."""
    world = origin.copy()
    server = world.server(DyingStore(world.store, dies_at=dies_at, after=death == "after"))
    is_answered = False
    with contextlib.suppress(Died):
        await mutation.send(server, sent)
        is_answered = True
    await server.background.drain()
    for _ in range(10):  # Calls that ran concurrently with the dead one end as well.
        await asyncio.sleep(0)
    return world, is_answered


async def _check(mutation: Mutation, origin: World, *, dies_at: int, death: Death) -> None:
    sent = keyed_request(str(mutation))._replace(source=SENDER)
    world, is_answered = await _kill(mutation, origin, sent, dies_at=dies_at, death=death)
    await check_events(world.server())
    where = f"{mutation}, dies {death} call {dies_at}"
    if is_answered:
        assert await mutation.seen(world.server()) == mutation.expected, where

    world.clock.advance(_STALE_MS)
    server = world.server()
    await mutation.send(server, sent)
    await server.background.drain()

    assert await mutation.seen(world.server()) == mutation.expected, where
    again = world.server()
    await mutation.send(again, sent)  # A replay changes nothing and gets the same answer.
    await again.background.drain()
    assert await mutation.seen(world.server()) == mutation.expected, where
    await _tells_once(world, mutation, where)
    await _lists_agree(world, where)


async def _tells_once(world: World, mutation: Mutation, where: str) -> None:
    """After a repair, there is one event of each change of the request, and the chains replay to what loads show."""
    await check_events(world.server())
    events = await all_events(await reconciled(world.server(), world.store, world.clock))
    assert sum(event.source == SENDER for event in events) == mutation.events, where


async def _lists_agree(world: World, where: str) -> None:
    """After the janitor of marks, every index agrees with the records."""
    world.clock.advance(_STALE_MS)
    server = world.server()
    await visit_marks(server)
    for scope in (CATALOGS, namespaces_scope("main", None), names_scope(SCHEMA)):
        fresh = world.server()
        assert await _listed_names(fresh, scope) == await _stored_names(fresh, scope), (where, scope)


async def _listed_names(server: Lake, scope: Scope) -> dict[str, str]:
    page = await read_page(server, scope, last=None, wanted=None)
    return {entry.name: entry.uuid for entry in page.entries}


async def _stored_names(server: Lake, scope: Scope) -> dict[str, str]:
    truth = await read_entries(server, scope, await list_written_names(server, scope))
    return {name: entry.uuid for name, entry in truth.items() if entry}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
async def test_every_mutation_is_visible(origin: World, mutation: Mutation) -> None:
    world = origin.copy()
    assert await mutation.seen(world.server()) != mutation.expected

    server = world.server()
    await mutation.send(server, request(str(mutation)))

    assert await mutation.seen(world.server()) == mutation.expected


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
async def test_a_retry_applies_a_killed_mutation_once(origin: World, mutation: Mutation) -> None:
    """Every seventh call, and the first and last ones: the whole matrix is below."""
    calls = await _count_calls(mutation, origin, keyed_request(str(mutation)))
    chosen = sorted({1, calls, *range(2, calls, 7)})

    for death in get_args(Death):
        for dies_at in chosen:
            await _check(mutation, origin, dies_at=dies_at, death=death)


@pytest.mark.parametrize("mutation", [one for one in MUTATIONS if one.undone], ids=str)
async def test_a_retry_of_a_killed_mutation_keeps_later_changes_of_others(origin: World, mutation: Mutation) -> None:
    sent = keyed_request(str(mutation))
    for dies_at in range(1, await _count_calls(mutation, origin, sent) + 1):
        world, _ = await _kill(mutation, origin, sent, dies_at=dies_at, death="after")
        if mutation.undone is None or await mutation.seen(world.server()) != mutation.expected:
            continue
        other = world.server()
        await mutation.undone(other, request(f"undo {mutation}"))
        await other.background.drain()

        world.clock.advance(_STALE_MS)
        server = world.server()
        await mutation.send(server, sent)
        await server.background.drain()

        assert await mutation.seen(world.server()) == mutation.undone_as, f"{mutation}, dies after call {dies_at}"


async def test_a_killed_rename_changes_the_name_and_the_time_of_the_last_change_together(origin: World) -> None:
    sent = request(str(RENAME_MODEL))
    for dies_at in range(1, await _count_calls(RENAME_MODEL, origin, sent) + 1):
        for death in get_args(Death):
            world, _ = await _kill(RENAME_MODEL, origin, sent, dies_at=dies_at, death=death)

            assert await model_names(world.server()) in ({"m": False}, {"n": True}), f"dies {death} call {dies_at}"


class _Held(Background):
    """Work behind answers begins only when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.begins = asyncio.Event()

    async def _guarded(self, what: str, work: Coroutine[Any, Any, object]) -> None:
        await self.begins.wait()
        await super()._guarded(what, work)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
async def test_a_retry_needs_nothing_of_the_work_behind_the_answer(origin: World, mutation: Mutation) -> None:
    world, sent = origin.copy(), keyed_request(str(mutation))
    held = _Held()
    await mutation.send(dataclasses.replace(world.server(), background=held), sent)
    world.clock.advance(_STALE_MS)

    server = world.server()
    await mutation.send(server, sent)
    await server.background.drain()

    assert await mutation.seen(world.server()) == mutation.expected
    held.begins.set()
    await held.drain()
    assert await mutation.seen(world.server()) == mutation.expected


@pytest.mark.crash
@pytest.mark.parametrize("death", get_args(Death))
@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
async def test_a_retry_finishes_a_mutation_killed_at_any_call(origin: World, mutation: Mutation, death: Death) -> None:
    for dies_at in range(1, await _count_calls(mutation, origin, keyed_request(str(mutation))) + 1):
        await _check(mutation, origin, dies_at=dies_at, death=death)
