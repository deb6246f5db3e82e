"""Janitors delete what is old and not needed, and nothing else."""

from sandur.catalog.identifiers import Identifier
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.drop import drop_name
from sandur.storage.contract import ABSENT
from tests.operations.janitor_runs import HOUR_MS, LONG_MS, Cluster
from tests.operations.requests import (
    append,
    content,
    create,
    identifier_of,
    load,
    request,
)

T, U = identifier_of("t"), identifier_of("u")


async def drop(lake: Lake, identifier: Identifier, *, purge: bool = False) -> None:
    await drop_name(lake, identifier, kind="table", purge=purge, request=request(f"drop {identifier}"))
    await lake.background.drain()


async def test_an_unreadable_object_is_reported_and_does_not_stop_the_others() -> None:
    cluster = await Cluster.with_catalog()
    layout = cluster.server().layout
    await cluster.store.put(layout.name(identifier_of("aaa")), b"broken", expected=ABSENT)
    await create(cluster.server(), "t")
    await drop(cluster.server(), T)
    cluster.clock.advance(LONG_MS)

    swept = await cluster.sweep()

    assert (swept["names_failed"], swept["names_removed"]) == (1, 1)
    assert any("aaa" in error for error in cluster.errors)


async def test_living_records_survive_years_of_sweeps() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    made = [await create(server, f"t{number}") for number in range(5)]
    for number in range(5):
        await commit_table(server, identifier_of(f"t{number}"), append(1), request(f"append {number}"))
    await server.background.drain()
    for _ in range(20):
        cluster.clock.advance(20 * 24 * HOUR_MS)
        assert set(await cluster.sweep()) <= {"garbage_committed_receipts_removed"}

    for number in range(5):
        loaded = await load(cluster.server(), identifier_of(f"t{number}"))
        assert loaded.table_uuid == made[number].table_uuid
        assert content(loaded)["current-snapshot-id"] == 1
