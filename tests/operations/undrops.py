"""Requests that drop and bring back tables, for the tests of undrop."""

from sandur.catalog.identifiers import Identifier
from sandur.operations.janitors.purge import run_purge_queue
from sandur.operations.lake import Lake
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.names import resolve_name
from sandur.operations.tables.undrop import undrop
from tests.operations.event_chains import all_events, ordered
from tests.operations.janitor_runs import Cluster, ReportedErrors
from tests.operations.requests import (
    identifier_of,
    request,
)
from tests.operations.table_files import create_table_with_files

T, U = identifier_of("t"), identifier_of("u")


async def drop(lake: Lake, identifier: Identifier = T, *, purge: bool = False) -> None:
    sent = request(f"drop {lake.clock.new_id()}")
    await drop_name(lake, identifier, kind="table", purge=purge, request=sent)


async def back(lake: Lake, uuid: str | None = None, target: Identifier | None = None) -> str:
    sent = request(f"undrop {lake.clock.new_id()}")
    return (await undrop(lake, T, kind="table", uuid=uuid, target=target, request=sent))[1]


async def uuid_of(lake: Lake, identifier: Identifier = T) -> str:
    found = await resolve_name(lake, identifier)
    assert found
    return found.uuid


async def purge(lake: Lake) -> object:
    return await run_purge_queue(lake, position="", on_error=ReportedErrors())


async def kill_before_the_name(cluster: Cluster, uuid: str) -> None:
    """An undrop dies after it has taken the pointer."""

    async def is_unbound(lake: Lake) -> bool:
        found = await lake.pointer(uuid).read()
        return found is not None and found.value.state == "unbound"

    await cluster.kill_when(back, is_unbound)


async def kinds(lake: Lake, uuid: str) -> list[str]:
    await lake.background.drain()
    return [event.kind for event in ordered([event for event in await all_events(lake) if event.object_id == uuid])]


async def dropped_table(cluster: Cluster, *, purge: bool = False) -> str:
    server = cluster.server()
    await create_table_with_files(server, "t")
    uuid = await uuid_of(server)
    await drop(server, purge=purge)
    await server.background.drain()
    return uuid
