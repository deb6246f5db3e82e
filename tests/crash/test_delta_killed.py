"""A server dies at any storage call of a change to a Delta table; a retry finds all of the change or nothing."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, get_args

import pytest

from sandur.catalog.records import Request
from sandur.delta.requests import Comment, DeltaChange
from sandur.operations.delta.commit import update_table
from sandur.operations.delta.tables import create_from_staging, drop_table, rename_table
from sandur.operations.lake import Lake
from sandur.storage.contract import ObjectStore
from tests.crash.aftermaths import OK, answer
from tests.crash.delta_world import NEW, TARGET, DeltaWorld, check_delta_invariants, make_delta_world
from tests.crash.straggling_store import StragglingStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.spy_store import SpyStore
from tests.operations.delta_requests import D, commit_file, new_delta_table
from tests.operations.requests import request

Death = Literal["before", "after", "alone"]
RETRIES_MAX = 5
UNDECIDED = ("Busy", "OutcomeUnknown")


@dataclass(frozen=True)
class Mutation:
    """A request. `is_recognized`: a retry after it was applied gets the same answer."""

    name: str
    send: Callable[[DeltaWorld, Lake, Request], Awaitable[object]]
    applied: Callable[[DeltaWorld], Awaitable[bool]]
    is_recognized: bool

    async def apply(self, world: DeltaWorld, server: Lake) -> object:
        return await self.send(world, server, request(self.name))


async def _finalize(world: DeltaWorld, server: Lake, sent: Request) -> object:
    return await create_from_staging(server, new_delta_table(world.staged_at, world.uuids["new"], NEW), request=sent)


async def _commit(world: DeltaWorld, server: Lake, sent: Request) -> object:
    change = DeltaChange(asserted_uuid=world.uuids["d"], commit=commit_file(4, "ours.json"), published=3)
    return await update_table(server, D, change, sent)


async def _commit_metadata(world: DeltaWorld, server: Lake, sent: Request) -> object:
    change = DeltaChange(asserted_uuid=world.uuids["d"], commit=commit_file(4, "ours.json"), comment=Comment("ours"))
    return await update_table(server, D, change, sent)


async def _comment(world: DeltaWorld, server: Lake, sent: Request) -> object:
    return await update_table(server, D, DeltaChange(asserted_uuid=world.uuids["d"], comment=Comment("ours")), sent)


async def _report(world: DeltaWorld, server: Lake, sent: Request) -> object:
    return await update_table(server, D, DeltaChange(asserted_uuid=world.uuids["d"], published=3), sent)


async def _drop(world: DeltaWorld, server: Lake, sent: Request) -> None:
    del world
    await drop_table(server, D, request=sent)


async def _rename(world: DeltaWorld, server: Lake, sent: Request) -> None:
    del world
    await rename_table(server, D, TARGET.name, request=sent)


async def _is_created(world: DeltaWorld) -> bool:
    table = await world.table(NEW)
    return table is not None and table.uuid == world.uuids["new"]


async def _is_committed(world: DeltaWorld) -> bool:
    table = await world.table()
    return table is not None and any(row.file_name == "ours.json" for row in table.commits)


async def _is_committed_whole(world: DeltaWorld) -> bool:
    table = await world.table()
    is_made = await _is_committed(world)
    assert is_made == (table is not None and table.comment == "ours"), "half of a commit"
    return is_made


async def _is_commented(world: DeltaWorld) -> bool:
    table = await world.table()
    return table is not None and table.comment == "ours"


async def _is_reported(world: DeltaWorld) -> bool:
    table = await world.table()
    return table is not None and table.published == 1


async def _is_dropped(world: DeltaWorld) -> bool:
    return await world.table() is None


async def _is_renamed(world: DeltaWorld) -> bool:
    table = await world.table(TARGET)
    assert (table is None) != (await world.table() is None), "under both names, or none"
    return table is not None


MUTATIONS = (
    Mutation("finalize", _finalize, _is_created, is_recognized=True),
    Mutation("commit", _commit, _is_committed, is_recognized=True),
    Mutation("commit with metadata", _commit_metadata, _is_committed_whole, is_recognized=True),
    Mutation("comment", _comment, _is_commented, is_recognized=True),
    Mutation("report", _report, _is_reported, is_recognized=True),
    Mutation("drop", _drop, _is_dropped, is_recognized=False),
    Mutation("rename", _rename, _is_renamed, is_recognized=False),
)


@pytest.fixture(scope="module")
def origin() -> DeltaWorld:
    return asyncio.run(make_delta_world())


async def _count_calls(mutation: Mutation, origin: DeltaWorld) -> int:
    world = origin.copy()
    spy = SpyStore(world.store)
    server = world.server(spy)
    await mutation.apply(world, server)
    await server.background.drain()
    return len(spy.calls)


async def _kill(mutation: Mutation, origin: DeltaWorld, *, dies_at: int, death: Death) -> tuple[DeltaWorld, bool]:
    """The state after the crash, and whether the crash came after the answer."""
    world = origin.copy()
    store: ObjectStore
    if death == "alone":
        store = StragglingStore(world.store, loses_at=dies_at)
    else:
        store = DyingStore(world.store, dies_at=dies_at, after=death == "after")
    server = world.server(store)
    is_answered = False
    with contextlib.suppress(Died):
        await mutation.apply(world, server)
        is_answered = True
    await server.background.drain()
    for _ in range(10):  # Calls that ran concurrently with the dead one end as well.
        await asyncio.sleep(0)
    return world, is_answered


async def _definite_answer(mutation: Mutation, world: DeltaWorld) -> str:
    said = ""
    for _ in range(RETRIES_MAX):
        server = world.server()
        said = await answer(mutation.apply(world, server))
        await server.background.drain()
        if said not in UNDECIDED:
            return said
        world.clock.advance(3_600_000)
    raise AssertionError(f"{mutation.name}: stuck at {said}")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
async def test_a_killed_change_is_all_or_nothing_and_a_retry_reports_which(
    mutation: Mutation, origin: DeltaWorld
) -> None:
    for dies_at in range(1, await _count_calls(mutation, origin) + 1):
        for death in get_args(Death):
            world, is_answered = await _kill(mutation, origin, dies_at=dies_at, death=death)
            await check_delta_invariants(world)
            before = await mutation.applied(world)
            assert before or not is_answered, "acknowledged and not applied"

            said = await _definite_answer(mutation, world)

            await check_delta_invariants(world)
            after = await mutation.applied(world)
            assert after or not before, "what had happened was undone"
            if mutation.is_recognized:
                assert (said, after) == (OK, True)


async def test_an_unconfirmed_creation_can_be_repeated_or_swept(origin: DeltaWorld) -> None:
    """An abandoned creation is invisible, at whatever step it died."""
    mutation = MUTATIONS[0]
    for dies_at in range(1, await _count_calls(mutation, origin) + 1):
        world, is_answered = await _kill(mutation, origin, dies_at=dies_at, death="before")
        if is_answered:
            continue
        is_visible = await mutation.applied(world)
        assert (await world.table(NEW) is not None) == is_visible
