"""The health of Delta tables: at their newest version, from checksums, and from the log where they are not enough."""

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from msgspec import json

from sandur.catalog.maintenance.health import TableHealth, needs_of
from sandur.catalog.maintenance.policies import Compaction, Policy
from sandur.catalog.records import DeltaTable
from sandur.clock import SystemClock
from sandur.errors import NotFound, Unavailable
from sandur.operations.lake import Lake, Lakes
from sandur.operations.maintenance.delta_health import COMMITS_MAX, log_position, measure_delta
from sandur.settings import Settings
from sandur.storage.memory import MemoryStore

HEALTH = TableHealth(uuid="u", catalog="main", namespace="sales", name="t", format="delta", last_commit_ms=1)
POLICY = Compaction(min_input_files=3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "outside" / "t"


@pytest.fixture
def lake(tmp_path: Path, folder: Path) -> Lake:
    settings = Settings(store=f"{tmp_path}/store", allowed_locations=(folder.as_uri(),))
    return Lakes(settings, SystemClock(), MemoryStore()).lake("default", "default")


def record_of(folder: Path, last_version: int = 0) -> DeltaTable:
    """A record as the registration made it; writers do not tell the catalog."""
    return DeltaTable(
        uuid="u",
        table_uuid="u",
        state="live",
        table_type="EXTERNAL",
        location=folder.as_uri(),
        last_version=last_version,
    )


def append(folder: Path, times: int, day: str = "a") -> None:
    for number in range(times):
        rows = pa.table({"id": [number], "day": [day]})
        deltalake.write_deltalake(folder, rows, mode="append", partition_by=["day"])


async def test_a_table_without_checksums_is_measured_at_its_newest_version(lake: Lake, folder: Path) -> None:
    append(folder, 7)
    deltalake.DeltaTable(folder).create_checkpoint()
    append(folder, 5)
    deltalake.DeltaTable(folder).delete("id = 0")  # Two files go.
    append(folder, 2, day="b")
    log = folder / "_delta_log"

    health = await measure_delta(lake, record_of(folder), HEALTH, POLICY)

    table = deltalake.DeltaTable(folder)
    sizes = pa.table(table.get_add_actions()).column("size_bytes").to_pylist()
    assert not list(log.glob("*.crc"))
    assert (health.data_files, health.data_bytes) == (len(sizes), sum(sizes)) == (12, sum(sizes))
    assert (health.small_files, health.excess_files) == (10, 9)  # Two files of the other partition are too few.
    assert health.commits_since_checkpoint == table.version() - 6 == 8
    newest = log / f"{table.version():020d}.json"
    assert health.last_commit_ms == newest.stat().st_mtime_ns // 1_000_000
    assert [need.operation for need in needs_of(health, Policy(compaction=POLICY))] == ["compaction"]


async def test_after_its_compaction_a_table_needs_none(lake: Lake, folder: Path) -> None:
    append(folder, 4)
    deltalake.DeltaTable(folder).optimize.compact()

    health = await measure_delta(lake, record_of(folder), HEALTH, POLICY)

    assert (health.data_files, health.small_files, health.excess_files, health.files_with_deletes) == (1, 0, 0, 0)
    assert list(needs_of(health, Policy(compaction=POLICY))) == []


async def test_a_record_that_is_ahead_of_the_log_does_not_hide_the_table(lake: Lake, folder: Path) -> None:
    """Another table, with more versions, lay at this location when the record was made."""
    append(folder, 4)

    health = await measure_delta(lake, record_of(folder, last_version=40), HEALTH, POLICY)

    assert (health.data_files, health.commits_since_checkpoint) == (4, 4)


async def test_a_checksum_without_small_files_spares_reading_the_log(lake: Lake, folder: Path) -> None:
    append(folder, 4)
    log = folder / "_delta_log"
    sizes = {"sortedBinBoundaries": [0, 1 << 30], "fileCounts": [0, 9], "totalBytes": [0, 9 << 30]}
    totals = {"numFiles": 9, "tableSizeBytes": 9 << 30, "fileSizeHistogram": sizes, "numDeletionVectorsOpt": 0}
    (log / f"{3:020d}.crc").write_bytes(json.encode(totals))
    (log / f"{1:020d}.json").unlink()

    health = await measure_delta(lake, record_of(folder, last_version=3), HEALTH, POLICY)

    assert (health.data_files, health.data_bytes, health.excess_files) == (9, 9 << 30, 0)


async def test_a_checksum_with_deletion_vectors_has_the_log_read(lake: Lake, folder: Path) -> None:
    """Delta's checksum knows how many vectors there are, not how many rows of which file they delete."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    vector = {"storageType": "i", "pathOrInlineDv": "abc", "sizeInBytes": 3}
    stats = json.encode({"numRecords": 10}).decode()
    adds = [
        {"path": f"{deleted}.parquet", "size": 1 << 30, "partitionValues": {}, "modificationTime": 1}
        | {"dataChange": True, "stats": stats, "deletionVector": {**vector, "cardinality": deleted}}
        for deleted in (2, 3, 9)
    ]
    (log / f"{0:020d}.json").write_bytes(b"\n".join(json.encode({"add": one}) for one in adds))
    sizes = {"sortedBinBoundaries": [0, 1 << 30], "fileCounts": [0, 3], "totalBytes": [0, 3 << 30]}
    totals = {"numFiles": 3, "tableSizeBytes": 3 << 30, "fileSizeHistogram": sizes, "numDeletionVectorsOpt": 3}
    (log / f"{0:020d}.crc").write_bytes(json.encode(totals))

    health = await measure_delta(lake, record_of(folder), HEALTH, POLICY)

    assert (health.files_with_deletes, health.bytes_with_deletes, health.excess_files) == (2, 2 << 30, 0)


async def test_a_damaged_log_is_an_error_and_a_missing_one_has_no_position(lake: Lake, folder: Path) -> None:
    with pytest.raises(NotFound, match="there is no Delta log"):
        await log_position(lake, record_of(folder))
    append(folder, 4)
    (folder / "_delta_log" / f"{1:020d}.json").unlink()

    with pytest.raises(Unavailable, match="version 1 of its log is missing"):
        await measure_delta(lake, record_of(folder, last_version=3), HEALTH, POLICY)


async def test_a_log_that_is_too_long_to_read_leaves_sizes_unknown_and_a_checkpoint_due(
    lake: Lake, folder: Path
) -> None:
    append(folder, 1)
    for version in range(1, COMMITS_MAX + 1):
        (folder / "_delta_log" / f"{version:020d}.json").write_bytes(b"{}")

    health = await measure_delta(lake, record_of(folder), HEALTH, POLICY)

    assert (health.data_files, health.excess_files) == (None, None)
    assert [need.operation for need in needs_of(health, Policy())] == ["checkpoint"]
