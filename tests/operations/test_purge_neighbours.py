"""A purge deletes no file that another table may need, and no table can start to need one."""

import pytest

from sandur.errors import Busy, NotFound
from sandur.operations.delta.tables import NewTable, create_external, drop_table
from sandur.operations.tables.register import register_table
from sandur.storage.contract import ABSENT
from tests.operations.janitor_runs import LONG_MS, Cluster
from tests.operations.requests import (
    NAMESPACE,
    create,
    identifier_of,
    load,
    request,
)
from tests.operations.table_files import (
    TableWithFiles,
    create_table_with_files,
    current_location,
    files_below,
)
from tests.operations.test_purge import DELAY_MS, drop, purged


async def test_files_of_a_table_with_a_second_registered_name_are_never_deleted() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    table = await create_table_with_files(server)
    head = await current_location(server, table)
    await register_table(server, NAMESPACE, "copy", head, request=request("register"))
    before = await files_below(server, table)

    swept = await purged(cluster, table)

    assert swept["purge_blocked"] == 1
    assert await files_below(server, table) == before
    copy = TableWithFiles(identifier_of("copy"), table.uuid, table.location)
    await drop(cluster.server(), copy, purge=False)  # The table may still exist in another catalog.
    cluster.clock.advance(LONG_MS)
    await cluster.sweep()
    assert await files_below(server, table) == before


async def test_files_at_the_location_of_another_table_stay() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    outer = await create_table_with_files(server, "outer", location=f"{server.area}/main/outer")
    inner = await create_table_with_files(server, "inner", location=f"{server.area}/main/outer/inner")

    assert (await purged(cluster, outer))["purge_blocked"] == 1
    assert await server.locations.exists(outer.files[0])
    assert (await load(server, inner.identifier)).table_uuid == inner.uuid


async def test_files_of_a_table_within_another_stay() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    outer = await create_table_with_files(server, "outer", location=f"{server.area}/main/outer")
    inner = await create_table_with_files(server, "inner", location=f"{server.area}/main/outer/inner")

    assert (await purged(cluster, inner))["purge_blocked"] == 1
    assert await server.locations.exists(inner.files[0])
    assert (await load(server, outer.identifier)).table_uuid == outer.uuid


@pytest.mark.parametrize("folder", ["lake/shared", "lake/shared/below", "lake"])
async def test_files_that_a_delta_table_may_need_stay(folder: str) -> None:
    """Some writers keep metadata of both formats for the same files."""
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    table = await create_table_with_files(server, location=f"{server.area}/main/lake/shared")
    asked = NewTable(identifier=identifier_of("d"), table_type="EXTERNAL", location=f"{server.area}/main/{folder}")
    await create_external(server, asked, request=request("delta"))
    before = await files_below(server, table)

    assert (await purged(cluster, table))["purge_blocked"] == 1
    assert await files_below(server, table) == before


async def test_a_dropped_or_neighbouring_delta_table_protects_no_files() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    table = await create_table_with_files(server, location=f"{server.area}/main/lake/shared")
    for name, folder in (("beside", "lake/shared2"), ("gone", "lake/shared")):
        asked = NewTable(identifier=identifier_of(name), table_type="EXTERNAL", location=f"{server.area}/main/{folder}")
        await create_external(server, asked, request=request(name))
    await drop_table(server, identifier_of("gone"), request=request("drop"))

    assert (await purged(cluster, table))["purge_removed"] == 1
    assert await files_below(server, table) == []


async def test_a_neighbour_with_the_same_prefix_protects_no_files() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    table = await create_table_with_files(server, "t", location=f"{server.area}/main/t")
    other = await create_table_with_files(server, "t2", location=f"{server.area}/main/t2")

    assert (await purged(cluster, table))["purge_removed"] == 1
    assert await files_below(server, table) == []
    assert await server.locations.exists(other.files[0])


async def test_two_tables_at_one_location_are_purged_when_both_are_dropped() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    first = await create_table_with_files(server, "first", location=f"{server.area}/main/same")
    second = await create_table_with_files(server, "second", location=f"{server.area}/main/same", snapshots=0)

    swept = await purged(cluster, first, second)

    assert swept["purge_removed"] == 2
    assert await files_below(server, first) == []


async def test_a_table_whose_files_are_being_purged_cannot_be_registered_again() -> None:
    cluster = await Cluster.with_catalog()
    table = await create_table_with_files(cluster.server())
    head = await current_location(cluster.server(), table)
    await drop(cluster.server(), table)

    with pytest.raises(Busy, match="being purged"):
        await register_table(cluster.server(), NAMESPACE, "again", head, request=request("register"))

    cluster.clock.advance(DELAY_MS)
    await cluster.sweep()
    with pytest.raises(NotFound):
        await register_table(cluster.server(), NAMESPACE, "again", head, request=request("register"))


async def test_a_table_that_was_dropped_without_a_purge_can_be_registered_again() -> None:
    cluster = await Cluster.with_catalog()
    table = await create_table_with_files(cluster.server())
    head = await current_location(cluster.server(), table)
    await drop(cluster.server(), table, purge=False)

    await register_table(cluster.server(), NAMESPACE, "again", head, request=request("register"))

    assert (await load(cluster.server(), identifier_of("again"))).table_uuid == table.uuid


async def test_no_files_are_deleted_while_a_pointer_cannot_be_read() -> None:
    """It may belong to a table that needs the files."""
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    table = await create_table_with_files(server)
    await create(server, "other")
    await cluster.store.put(server.layout.pointer("broken"), b"{", expected=ABSENT)
    before = await files_below(server, table)

    swept = await purged(cluster, table)

    assert swept["purge_failed"] == 1
    assert any("is not a Pointer" in error for error in cluster.errors)
    assert await files_below(server, table) == before
