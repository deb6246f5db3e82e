"""A purge deletes no file that another table may need, and no table can start to need one.

New tables cannot overlap. Those that overlap here are older than location claims, and got theirs by the janitor (P13).
"""

import json

import pytest
from msgspec.structs import replace

from sandur.catalog.locations import canonical_address
from sandur.errors import Busy, NotFound
from sandur.operations.containers.drop import drop_catalog
from sandur.operations.delta.tables import NewTable, create_external, drop_table, stage_table
from sandur.operations.lake import Lake
from sandur.operations.tables.register import register_table
from sandur.storage.contract import ABSENT
from sandur.storage.layout import location_claim
from tests.operations.claimed_places import migrate, older_volume
from tests.operations.delta_requests import create_managed
from tests.operations.janitor_runs import LONG_MS, Cluster
from tests.operations.requests import NAMESPACE, content, identifier_of, load, request
from tests.operations.table_files import (
    TableWithFiles,
    add_snapshot,
    create_table_with_files,
    current_location,
    files_below,
    manifest,
    manifest_list,
    older_copy,
)
from tests.operations.test_purge import DELAY_MS, drop, purged


async def test_files_of_a_table_with_a_second_registered_name_are_never_deleted() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    table = await create_table_with_files(server)
    await older_copy(server, "t", "copy")
    await migrate(cluster)
    before = await files_below(server, table)

    swept = await purged(cluster, table)

    assert swept["purge_blocked"] == 1
    assert await files_below(server, table) == before
    copy = TableWithFiles(identifier_of("copy"), table.uuid, table.location)
    await drop(cluster.server(), copy, purge=False)  # The table may still exist in another catalog.
    cluster.clock.advance(LONG_MS)
    await cluster.sweep()
    assert await files_below(server, table) == before


@pytest.mark.parametrize("place", ["outer/inner", "outer", "outer/inner/x"])
async def test_files_of_tables_that_overlap_stay(place: str) -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    table = await create_table_with_files(server, location=f"{server.area}/main/outer/inner")
    await older_volume(server, f"{server.area}/main/{place}")
    await migrate(cluster)
    before = await files_below(server, table)

    assert (await purged(cluster, table))["purge_blocked"] == 1
    assert any("volume older may need the files" in error for error in cluster.errors)
    assert await files_below(server, table) == before


async def test_a_data_path_over_another_table_blocks_the_purge() -> None:
    """Attack 4, by a table that is older than the checks of paths: it names places that the catalog generated."""
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    victim = await create_table_with_files(server, "victim")
    for number, path in enumerate((victim.location, f"{server.area}/main", server.area, "memory://store")):
        table = await create_table_with_files(server, f"t{number}", snapshots=0)
        listed = table.at("metadata/snap-1.avro")
        await table.write(server, table.at("metadata/m1.avro"), manifest(*victim.files))
        await table.write(server, listed, manifest_list(table.at("metadata/m1.avro")))
        await add_snapshot(server, table, 1, listed)
        await older_path(server, table, path)
        before = await files_below(server, victim)

        assert (await purged(cluster, table))["purge_blocked"] == 1, path
        assert await files_below(server, victim) == before


async def older_path(lake: Lake, table: TableWithFiles, path: str) -> None:
    """Give a table a data path, as an earlier version of the server let a commit do."""
    found = await lake.pointer(table.uuid).read()
    assert found
    assert found.value.head
    body = content(await load(lake, table.identifier)) | {"properties": {"write.data.path": path}}
    location = f"{table.location}/metadata/00099-older.metadata.json"
    await lake.locations.create(location, json.dumps(body).encode())
    head = replace(found.value.head, metadata_location=location)
    await lake.pointer(table.uuid).swap(replace(found.value, head=head), expected=found.version)


async def test_a_dropped_or_neighbouring_table_protects_no_files() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    table = await create_table_with_files(server, location=f"{server.area}/main/lake/shared")
    beside = NewTable(
        identifier=identifier_of("beside"), table_type="EXTERNAL", location=f"{server.area}/main/lake/shared2"
    )
    await create_external(server, beside, request=request("beside"))

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


async def test_two_names_of_one_table_are_purged_when_both_are_dropped() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    table = await create_table_with_files(server, location=f"{server.area}/main/same")
    await older_copy(server, "t", "copy")
    await migrate(cluster)
    copy = TableWithFiles(identifier_of("copy"), table.uuid, table.location)

    swept = await purged(cluster, table, copy)

    assert swept["purge_removed"] == 2
    assert await files_below(server, table) == []


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


async def test_no_files_are_deleted_while_a_claim_cannot_be_read() -> None:
    """It may belong to a table that needs the files."""
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    table = await create_table_with_files(server)
    broken = location_claim(canonical_address(f"{table.location}/below"))
    await cluster.store.put(broken, b"{", expected=ABSENT)
    before = await files_below(server, table)

    swept = await purged(cluster, table)

    assert swept["purge_failed"] == 1
    assert any("is not a LocationClaim" in error for error in cluster.errors)
    assert await files_below(server, table) == before


async def test_an_expired_stage_with_an_older_volume_in_it_is_kept() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    stage = await stage_table(server, identifier_of("d"))
    await older_volume(server, f"{stage.location}/files")
    await migrate(cluster)
    await server.locations.create(f"{stage.location}/files/report.csv", b"x")
    cluster.clock.advance(3 * LONG_MS)

    await cluster.sweep()

    assert await server.locations.exists(f"{stage.location}/files/report.csv")


@pytest.mark.parametrize("inside", ["", "/files"])
async def test_the_files_of_an_older_volume_in_a_managed_delta_table_survive_the_drop_of_the_table(inside: str) -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    managed = await create_managed(server)
    await older_volume(server, managed.location + inside)
    await migrate(cluster)
    file = f"{managed.location}{inside}/report.csv"
    await server.locations.create(file, b"x")

    await drop_table(server, identifier_of("d"), request=request("drop"))
    cluster.clock.advance(DELAY_MS)

    assert (await cluster.sweep())["purge_blocked"] == 1
    assert await server.locations.exists(file)


async def test_the_files_of_a_dropped_catalog_are_purged() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    managed = await create_managed(server)
    await server.locations.create(f"{managed.location}/part.parquet", b"x")

    cluster.settings["default_catalog"] = "another"
    await drop_catalog(cluster.server(), "main", force=True, request=request("drop"))
    cluster.clock.advance(DELAY_MS)

    assert (await cluster.sweep())["purge_removed"] == 1
    assert not await server.locations.exists(f"{managed.location}/part.parquet")
