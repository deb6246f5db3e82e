"""Janitors delete what is old and not needed, and nothing else."""

from sandur.catalog.identifiers import Identifier
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.drop import drop_name
from sandur.storage.contract import ABSENT
from tests.operations.janitor_runs import HOUR_MS, LONG_MS, Shore
from tests.operations.requests import (
    append,
    called,
    content,
    create,
    load,
    request,
)

T, U = called("t"), called("u")


async def drop(lake: Lake, identifier: Identifier, *, purge: bool = False) -> None:
    await drop_name(lake, identifier, kind="table", purge=purge, request=request(f"drop {identifier}"))
    await lake.background.drain()


async def test_an_unreadable_object_is_reported_and_does_not_stop_the_others() -> None:
    shore = await Shore.furnished()
    layout = shore.server().layout
    await shore.store.put(layout.name(called("aaa")), b"broken", expected=ABSENT)
    await create(shore.server(), "t")
    await drop(shore.server(), T)
    shore.clock.advance(LONG_MS)

    swept = await shore.sweep()

    assert (swept["names_failed"], swept["names_removed"]) == (1, 1)
    assert any("aaa" in error for error in shore.trouble)


async def test_living_records_survive_years_of_sweeps() -> None:
    shore = await Shore.furnished()
    server = shore.server()
    made = [await create(server, f"t{number}") for number in range(5)]
    for number in range(5):
        await commit_table(server, called(f"t{number}"), append(1), request(f"append {number}"))
    await server.background.drain()
    for _ in range(20):
        shore.clock.advance(20 * 24 * HOUR_MS)
        assert await shore.sweep() == {}

    for number in range(5):
        loaded = await load(shore.server(), called(f"t{number}"))
        assert loaded.table_uuid == made[number].table_uuid
        assert content(loaded)["current-snapshot-id"] == 1
