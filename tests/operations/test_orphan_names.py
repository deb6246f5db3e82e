"""Files with names that no place may have do not confuse the removal of orphans."""

import json

import pytest

from sandur.catalog.locations import canonical_address
from sandur.operations.lake import Lake
from sandur.operations.maintenance.delta_files import DeltaClones
from sandur.operations.maintenance.iceberg_files import IcebergFiles
from sandur.operations.maintenance.references import WorkspaceReferences
from tests.operations.delta_requests import create_managed
from tests.operations.orphan_runs import (
    condemn,
    with_orphan,
)
from tests.operations.table_files import (
    TableWithFiles,
    add_snapshot,
    create_table_with_files,
    manifest,
    manifest_list,
)

ODD_PATHS = [
    "data/url=http%3A%2F%2Fx.org/f.parquet",
    "data/p=a%3Fb/f.parquet",
    "data/p=%231/f.parquet",
    "data/p=a%2A/f.parquet",
    "data/p=%E3%80%80/f.parquet",
    "data/p=%E9/f.parquet",
    "data/p=%5Bx%5D/f.parquet",
]


async def add_manifest(lake: Lake, table: TableWithFiles, *paths: str) -> None:
    """Commit a second snapshot whose manifest names the files, wherever they are."""
    await lake.locations.create(table.at("metadata/odd.avro"), manifest(*paths))
    listed = manifest_list(table.at("metadata/m1.avro"), table.at("metadata/odd.avro"))
    await lake.locations.create(table.at("metadata/snap-2.avro"), listed)
    await add_snapshot(lake, table, 2, table.at("metadata/snap-2.avro"))


@pytest.mark.parametrize("odd", ODD_PATHS)
async def test_another_table_that_refers_to_a_file_with_an_odd_name_shares_it(odd: str) -> None:
    cluster, table = await with_orphan()
    server = cluster.server()
    await server.locations.create(table.at(odd), b"x")
    other = await create_table_with_files(server, "other", snapshots=1)
    await add_manifest(server, other, table.at(odd))

    shared = await IcebergFiles(cluster.server()).sharing(table.uuid, table.location)

    assert shared == f"table {other.uuid} refers to files of it"


async def test_own_files_with_odd_names_are_not_those_of_others() -> None:
    cluster, table = await with_orphan()
    server = cluster.server()
    other = await create_table_with_files(server, "other", snapshots=1)
    await add_manifest(server, other, *map(other.at, ODD_PATHS))
    references = WorkspaceReferences(cluster.server())

    await references.refresh()

    assert list(references.foreign(table.uuid)) == []


async def test_a_clone_of_a_file_with_an_odd_name_blocks_only_its_source() -> None:
    cluster, table = await with_orphan()
    server = cluster.server()
    clone = await create_managed(server)
    first = json.dumps({"add": {"path": "file:/elsewhere/p=a%253Fb/x.parquet"}}).encode()
    await server.locations.create(f"{clone.location}/_delta_log/{0:020d}.json", first)

    found = await condemn(cluster, table)
    source = await DeltaClones(cluster.server()).user_of("source", canonical_address("file:/elsewhere"))

    assert (found.refusal, found.files) == ("", 1)
    assert source == f"table {clone.uuid} names files of it, as a shallow clone does"
