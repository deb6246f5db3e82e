"""The expiry of a system table removes old snapshots and the files that only they name."""

import pytest

from sandur.iceberg.requests import TableCommit
from sandur.iceberg.snapshots import Snapshot
from sandur.iceberg.updates import AddSnapshot, SetSnapshotRef
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.documents import current_document
from sandur.pipeline.iceberg_manifests import DataFile, SnapshotIds, encode_manifest, encode_manifest_list, list_entry
from sandur.pipeline.system_tables import expire_snapshots
from sandur.storage.contract import list_all
from tests.operations.lakes import make_lake
from tests.operations.requests import TIMESTAMP_MS, create, identifier_of, request, set_up_catalog

T = identifier_of("t")


@pytest.fixture
async def lake() -> Lake:
    made = make_lake()
    await set_up_catalog(made)
    await create(made, "t")
    return made


async def add_snapshot(lake: Lake, number: int, *, keeps: tuple[int, ...] = ()) -> None:
    """A snapshot with its own data file and those of others; every file exists."""
    folder = (await current_document(lake, T)).metadata.location
    files = [DataFile(f"{folder}/data/{one}.parquet", 1, 1) for one in (*keeps, number)]
    await lake.locations.create(files[-1].path, b"x")
    ids = SnapshotIds(number, None, number)
    manifest = encode_manifest(files, schema_json="{}", schema_id=0, snapshot_id=number)
    await lake.locations.create(f"{folder}/metadata/{number}-m0.avro", manifest)
    listed = list_entry(f"{folder}/metadata/{number}-m0.avro", manifest, files, ids)
    await lake.locations.create(f"{folder}/metadata/snap-{number}.avro", encode_manifest_list([listed], ids))
    snapshot = Snapshot(
        sequence_number=number,
        snapshot_id=number,
        timestamp_ms=TIMESTAMP_MS + number,
        summary={"operation": "overwrite"},
        manifest_list=f"{folder}/metadata/snap-{number}.avro",
    )
    refs = ("main", "kept") if number == 1 else ("main",)
    updates = [
        SetSnapshotRef(ref_name=ref, snapshot_id=number, type="tag" if ref == "kept" else "branch") for ref in refs
    ]
    commit = TableCommit(requirements=(), updates=(AddSnapshot(snapshot=snapshot), *updates))
    await commit_table(lake, T, commit, request(f"snapshot {number}"))


async def names_of_files(lake: Lake) -> set[str]:
    listed = await list_all(lake.store, lake.layout.tables_folder())
    return {one.key.rpartition("/")[2] for one in listed if not one.key.endswith(".metadata.json")}


async def test_old_snapshots_are_removed_with_the_files_that_only_they_name(lake: Lake) -> None:
    for number in range(1, 7):
        await add_snapshot(lake, number, keeps=(2,) if number == 6 else ())

    removed = await expire_snapshots(lake, T, (await current_document(lake, T)).metadata, request("expire"), keep=2)

    metadata = (await current_document(lake, T)).metadata
    assert [snapshot.snapshot_id for snapshot in metadata.snapshots] == [1, 5, 6]
    kept = {f"{name}" for number in (1, 5, 6) for name in (f"snap-{number}.avro", f"{number}-m0.avro")}
    assert await names_of_files(lake) == kept | {"1.parquet", "2.parquet", "5.parquet", "6.parquet"}
    assert removed == 8


async def test_few_snapshots_are_all_kept(lake: Lake) -> None:
    for number in range(1, 4):
        await add_snapshot(lake, number)
    before = await names_of_files(lake)

    removed = await expire_snapshots(lake, T, (await current_document(lake, T)).metadata, request("expire"), keep=2)

    assert removed == 0
    assert await names_of_files(lake) == before
