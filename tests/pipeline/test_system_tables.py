"""System tables follow what is published, also after a rewrite of their files; their expiry removes old snapshots and
the files that only they name.
"""

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sandur.catalog.identifiers import Identifier
from sandur.catalog.maintenance.policies import FieldOrigin, ScopePolicy
from sandur.iceberg.requests import TableCommit
from sandur.iceberg.snapshots import Snapshot
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.updates import AddSnapshot, SetSnapshotRef
from sandur.operations.lake import Lake
from sandur.operations.policies import Scopes, load_policy
from sandur.operations.published import CoreManifest, Dataset, PublishedFile
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.documents import current_document
from sandur.pipeline.executor_tasks.health import measured_row
from sandur.pipeline.iceberg_manifests import DataFile, SnapshotIds, encode_manifest, encode_manifest_list, list_entry
from sandur.pipeline.job import JobContext
from sandur.pipeline.system_tables import expire_snapshots, refresh
from sandur.pipeline.tables import QUARANTINE
from sandur.storage.contract import list_all
from tests.operations.lakes import make_lake
from tests.operations.requests import TIMESTAMP_MS, create, identifier_of, request, set_up_catalog
from tests.pipeline.maintained import set_policy
from tests.pipeline.test_compact import system_table
from tests.pipeline.world import World

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


class Published:
    """A published dataset whose files have one row each, and its system table."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._identifier = Identifier("main", ("system",), QUARANTINE.name)
        self._files: list[PublishedFile] = []
        self._sequence = 0

    def append(self, *names: str) -> None:
        for name in names:
            data = _parquet([name])
            key = self._world.layout.core_snapshot("attempt", f"{name}.parquet")
            self._world.put(key, data)
            self._files.append(PublishedFile(key=key, rows=1, size_bytes=len(data), sha256=""))

    def replace(self, *names: str) -> None:
        self._files = []
        self.append(*names)

    def refresh(self) -> int | None:
        """Let the table hold what is published; returns its snapshot."""
        self._sequence += 1
        no_spark: Any = None  # Small files are copied by the driver.
        context = JobContext(spark=no_spark, blocking=self._world.blocking, run_id=f"run-{self._sequence}")
        dataset = Dataset(sequence=self._sequence, files=tuple(self._files), columns=(), watermark={})
        manifest = CoreManifest(sequence=self._sequence, datasets={QUARANTINE.name: dataset})
        assert list(refresh(context, manifest, (QUARANTINE,))) == []
        return self.metadata.current_snapshot_id

    @property
    def metadata(self) -> TableMetadata:
        return self._world.wait(current_document(self._world.lake, self._identifier)).metadata

    @property
    def keys(self) -> list[str]:
        return sorted(row["key"] for row in system_table(self._world, QUARANTINE.name))

    @property
    def totals(self) -> tuple[str, str, str]:
        snapshot = self.metadata.current_snapshot
        assert snapshot
        assert snapshot.summary
        names = ("total-data-files", "total-records", "total-files-size")
        return tuple(snapshot.summary[name] for name in names)  # type: ignore[return-value]  # There are three.

    def rewrite(self, operation: str, *keys: str) -> int:
        """Commit one file with these rows in place of all files, as an engine does; returns its snapshot."""
        lake, metadata = self._world.lake, self.metadata
        number = metadata.last_sequence_number + 1
        data, folder = _parquet(keys), metadata.location
        file = DataFile(f"{folder}/data/rewritten-{number}.parquet", len(keys), len(data))
        ids = SnapshotIds(number, metadata.current_snapshot_id, number)
        entries = encode_manifest([file], schema_json="{}", schema_id=0, snapshot_id=number)
        manifest = f"{folder}/metadata/rewritten-{number}.avro"
        listed = encode_manifest_list([list_entry(manifest, entries, [file], ids)], ids)
        for path, content in ((file.path, data), (manifest, entries), (f"{manifest}.list", listed)):
            self._world.wait(lake.locations.create(path, content))
        snapshot = Snapshot(
            sequence_number=number,
            snapshot_id=number,
            parent_snapshot_id=metadata.current_snapshot_id,
            timestamp_ms=metadata.last_updated_ms + 1,
            summary={"operation": operation, "total-records": str(len(keys)), "total-data-files": "1"},
            manifest_list=f"{manifest}.list",
        )
        ref = SetSnapshotRef(ref_name="main", snapshot_id=number, type="branch")
        commit = TableCommit(requirements=(), updates=(AddSnapshot(snapshot=snapshot), ref))
        self._world.wait(commit_table(lake, self._identifier, commit, self._world.request()))
        return number


def _parquet(keys: Any) -> bytes:
    rows = [{"key": key, "problem": "", "detail": "", "size_bytes": 0, "body": None} for key in keys]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=QUARANTINE.arrow_schema), sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data


@pytest.fixture
def published(world: World) -> Published:
    made = Published(world)
    made.append("a", "b", "c")
    made.refresh()
    return made


def test_a_rewritten_table_gets_only_what_is_new(published: Published) -> None:
    rewritten = published.rewrite("replace", "a", "b", "c")

    assert published.refresh() == rewritten
    published.append("d")
    grown = published.refresh()
    assert published.refresh() == grown != rewritten
    published.append("e")
    published.refresh()

    assert published.keys == ["a", "b", "c", "d", "e"]
    assert published.totals[:2] == ("3", "5")
    again = published.rewrite("replace", "a", "b", "c", "d", "e")
    assert published.refresh() == again


def test_a_dataset_that_is_written_again_replaces_a_rewritten_table(published: Published) -> None:
    published.rewrite("replace", "a", "b", "c")
    published.replace("x", "y")

    published.refresh()

    assert published.keys == ["x", "y"]
    assert published.totals[:2] == ("2", "2")


@pytest.mark.parametrize(
    "edits",
    [
        [("append", "abcz")],
        [("append", "abcz"), ("replace", "abcz")],
        [("replace", "ab")],
        [("delete", "abc")],
    ],
)
def test_what_others_write_to_a_table_is_repaired(published: Published, edits: list[tuple[str, str]]) -> None:
    """Only a rewrite that keeps all rows is known to have the published ones."""
    for operation, keys in edits:
        published.rewrite(operation, *keys)

    published.refresh()

    assert published.keys == ["a", "b", "c"]
    assert published.totals[:2] == ("3", "3")


def test_a_system_table_is_measured_at_its_head_and_its_default_policy_yields_to_its_own_and_to_locks(
    world: World, published: Published
) -> None:
    """`project` publishes no head of a system table, because every run changes it."""
    uuid = published.metadata.table_uuid or ""
    unknown = ("metadata_location", "file_count", "size_bytes", "properties_json", "problem", "summary_json")
    row = {
        "catalog": "main",
        "namespace": "system",
        "name": QUARANTINE.name,
        "uuid": uuid,
        "format": "iceberg",
        **dict.fromkeys((*unknown, "snapshots_json", "refs_json", "scans_per_day", "last_commit_ms")),
    }
    report = ScopePolicy("catalog main", {"mode": "report", "priority": 7})
    own = ScopePolicy(f"table {uuid}", {"compaction": {"min_input_files": 3}})
    scopes = Scopes(None, {"main": report}, {}, {uuid: own}, "main")
    locked = scopes._replace(catalogs={"main": report._replace(locked=("mode",))})
    now_ms = world.lake.clock.now_ms()

    found = [world.wait(measured_row(world.lake, row, one, now_ms)) for one in (scopes, locked)]

    assert [one["mode"] for one in found] == ["run", "report"]
    assert (found[0]["data_files"], found[0]["small_files"], found[0]["snapshots"]) == (3, 3, 1)
    assert str(found[0]["data_bytes"]) == published.totals[2]
    assert '"compaction"' in str(found[0]["needs_json"])
    decided = msgspec.json.decode(str(found[0]["policy_json"]), type=list[FieldOrigin])
    by_health = {one.field: (one.value, one.origin) for one in decided}
    set_policy(world, {"mode": "report", "priority": 7})
    set_policy(world, {"compaction": {"min_input_files": 3}}, f"main.system.{QUARANTINE.name}")
    shown = world.wait(load_policy(world.lake, "table", f"main.system.{QUARANTINE.name}")).merged
    by_policy = {one.field: (one.value, one.origin) for one in shown.origins}
    for field in ("mode", "priority", "quiet", "orphans.enabled", "snapshots.max_age"):
        assert by_policy[field] == by_health[field]
    assert by_policy["mode"] == ("run", "default of system tables")
    assert by_policy["priority"] == (7, "catalog main")
    other = world.wait(load_policy(world.lake, "schema", "main.sales")).merged
    assert other.policy.mode == "report"
