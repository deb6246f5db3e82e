"""Requests of others between a crash and the retry, and the retry itself."""

from collections.abc import Awaitable, Callable
from typing import Final

from sandur.errors import Busy, OutcomeUnknown, SandurError, SwapLost
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.names import resolve_name
from sandur.operations.tables.rename import rename
from sandur.operations.tables.views import commit_view
from tests.crash.mutations import NEIGHBOUR, NEW, SHORT_LOG, TABLE, TARGET, VIEW, Mutation, World
from tests.operations.requests import NAMESPACE, commit, identifier_of, replace_view, request, set_property, table

RETRIES_MAX: Final = 5
OK: Final = "ok"
UNDECIDED: Final = (Busy.__name__, OutcomeUnknown.__name__)
_SUBJECTS: Final = (TABLE, NEIGHBOUR, VIEW, NEW, TARGET)


async def at_once(world: World) -> None:
    del world


async def time_passed(world: World) -> None:
    world.clock.advance(world.server().settings.claim_timeout_ms + 1)


async def _commit_to_all(world: World, times: int) -> None:
    """Commits of others to everything that exists. The first one may wait until a transaction is stale."""
    for number in range(times):
        world.clock.advance(60_000)
        server = world.server()
        for identifier in _SUBJECTS:
            found = await resolve_name(server, identifier)
            sent = request(f"foreign {number} {identifier} {world.clock.now_ms()}")
            if found is None:
                continue
            if found.name.value.kind == "view":
                await commit_view(server, identifier, replace_view(f"select {sent.hash}"), sent)
            else:
                await commit_table(server, identifier, commit(set_property(f"foreign{number}", "1")), sent)
        await server.background.drain()


async def foreign_commit(world: World) -> None:
    await _commit_to_all(world, 1)


async def truncated_log(world: World) -> None:
    """Enough later commits that no log names our file."""
    await _commit_to_all(world, 3)


async def dropped(world: World) -> None:
    world.clock.advance(60_000)
    server = world.server()
    for identifier in _SUBJECTS:
        if found := await resolve_name(server, identifier):
            kind = found.name.value.kind
            await drop_name(server, identifier, kind=kind, request=request(f"foreign drop {identifier}"))
    await server.background.drain()


async def renamed(world: World) -> None:
    world.clock.advance(60_000)
    server = world.server()
    for identifier in _SUBJECTS:
        if found := await resolve_name(server, identifier):
            away = identifier_of(f"{identifier.name}-away")
            kind = found.name.value.kind
            await rename(server, identifier, away, kind=kind, request=request(f"foreign rename {identifier}"))
    await server.background.drain()


async def recreated(world: World) -> None:
    """Other tables under the same names."""
    await dropped(world)
    server = world.server()
    for identifier in (TABLE, NEIGHBOUR, NEW, TARGET):
        sent = request(f"foreign create {identifier}")
        await create_table(server, NAMESPACE, table(identifier.name, properties=SHORT_LOG), sent)
    await server.background.drain()


async def names_taken(world: World) -> None:
    """Other requests use every free name; taken names stay."""
    world.clock.advance(60_000)
    server = world.server()
    for identifier in (TABLE, NEW, TARGET):
        if await resolve_name(server, identifier) is None:
            await create_table(server, NAMESPACE, table(identifier.name), request(f"foreign create {identifier}"))
    await server.background.drain()


AFTERMATHS: Final = (at_once, time_passed, names_taken, foreign_commit, truncated_log, dropped, renamed, recreated)


async def answer(call: Awaitable[object]) -> str:
    """The outcome of a request as its caller sees it. A bug in our own code is not an outcome."""
    try:
        await call
    except SwapLost:
        raise  # A client never gets this as an answer.
    except SandurError as error:
        return type(error).__name__
    return OK


async def definite_answer(mutation: Mutation, world: World) -> str:
    """The outcome after retries, each at a new server; the client waits as long as the answers tell it."""
    said = ""
    for _ in range(RETRIES_MAX):
        server = world.server()
        said = await answer(mutation.apply(world, server))
        await server.background.drain()
        if said not in UNDECIDED:
            return said
        await time_passed(world)
    raise AssertionError(f"{mutation.name}: stuck at {said}")


Aftermath = Callable[[World], Awaitable[None]]
