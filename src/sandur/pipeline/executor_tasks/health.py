"""Executor tasks of `health`: the health of each table, from published rows; candidates are opened and measured.

A table is opened only if its totals say that compaction may pay: the totals of a snapshot know no partitions and no
sizes. What cannot be read makes a table `blocked`, never healthy.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier
from sandur.catalog.maintenance.health import TableHealth, needs_of
from sandur.catalog.maintenance.measures import (
    Fragments,
    Group,
    Reference,
    SnapshotAge,
    fragments_of,
    kept_snapshots,
    small_file_bytes,
)
from sandur.catalog.maintenance.policies import Compaction, Policy, merged_policy
from sandur.catalog.records import DeltaTable
from sandur.errors import Invalid, NotFound, SandurError
from sandur.iceberg.scan.columns import PARTITION, ManifestColumns
from sandur.iceberg.scan.manifests import DATA, ManifestFile
from sandur.iceberg.snapshots import BRANCH
from sandur.operations.lake import Lake
from sandur.operations.locations.placement import allowed_roots
from sandur.operations.maintenance.delta_health import FILES_MEASURED_MAX, measure_delta
from sandur.operations.maintenance.planning import MEASURED
from sandur.operations.planning.manifests import Manifests
from sandur.operations.policies import Scopes
from sandur.operations.tables.documents import TABLES as DOCUMENTS
from sandur.operations.tables.documents import current_document, load_document
from sandur.operations.tables.manifest_places import ReadableManifests
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.sources.range_reader import gather_bounded, shaped_batch
from sandur.pipeline.tables import TABLE_HEALTH
from sandur.pipeline.tasks import Row
from sandur.splicing import INT64_MAX, count_in

_ENCRYPTED: Final = "encryption.key-id"


def measure_tables(blocking: BlockingLake, rows: Sequence[Row], scopes: Scopes, now_ms: int) -> Any:  # noqa: ANN401 - Arrow has no types
    """Rows of `table_health` for rows of tables."""

    async def one(row: Row) -> Mapping[str, object]:
        return await measured_row(blocking.lake, row, scopes, now_ms)

    return shaped_batch(TABLE_HEALTH, blocking.wait(gather_bounded(rows, one)))


async def measured_row(lake: Lake, row: Row, scopes: Scopes, now_ms: int) -> Mapping[str, object]:
    problem = ""
    if scopes.is_system(row) and row["format"] == "iceberg":
        try:
            row = await _with_head(lake, row)
        except SandurError as error:
            problem = str(error)
    properties = _object(row["properties_json"])
    merged = merged_policy(scopes.of(row), properties)
    health = _from_totals({**row, "problem": row["problem"] or problem}, merged.policy, properties, now_ms)
    try:
        if not health.blocked:
            health = _checked(await _opened(lake, row, health, merged.policy))
    except SandurError as error:
        health = replace(health, blocked=f"cannot be read: {error}"[:1_000])
    needs = [need._asdict() for need in needs_of(health, merged.policy)] if not health.blocked else []
    own = [origin for origin in merged.origins if origin.origin != "default"]
    return {
        **msgspec.to_builtins(replace(health, namespace=row["namespace"])),
        "blocked": health.blocked,
        "last_commit_at": health.last_commit_ms,
        "measured_at": now_ms,
        "mode": merged.policy.mode,
        "needs_json": msgspec.json.encode(needs).decode(),
        "policy_json": msgspec.json.encode(own).decode(),
        "benefit": sum(need["benefit_bytes"] for need in needs),
    }


async def _with_head(lake: Lake, row: Row) -> Row:
    """The row of a system table with what its current metadata says.

    `project` does not publish that, because every run of the pipeline changes it.
    """
    name = Identifier(row["catalog"], tuple(row["namespace"].split(".")), row["name"])
    document = await current_document(lake, name)
    metadata = document.metadata
    snapshot = metadata.current_snapshot
    summary = (snapshot.summary if snapshot else None) or {}
    ages = [
        SnapshotAge(snapshot_id=one.snapshot_id, committed_ms=one.timestamp_ms, parent_id=one.parent_snapshot_id)
        for one in metadata.snapshots
    ]
    references = [
        Reference(name=name, is_branch=ref.type == BRANCH, snapshot_id=ref.snapshot_id)
        for name, ref in metadata.refs.items()
    ]
    return {
        **row,
        "metadata_location": document.location,
        "last_commit_ms": metadata.last_updated_ms,
        "file_count": count_in(summary.get("total-data-files")),
        "size_bytes": count_in(summary.get("total-files-size")),
        "properties_json": msgspec.json.encode(metadata.properties).decode(),
        "summary_json": msgspec.json.encode(summary).decode(),
        "snapshots_json": msgspec.json.encode(ages).decode(),
        "refs_json": msgspec.json.encode(references).decode(),
    }


def _from_totals(row: Row, policy: Policy, properties: Mapping[str, str], now_ms: int) -> TableHealth:
    """What the published rows say; unknown totals stay unknown."""
    summary = _object(row["summary_json"])
    snapshots = msgspec.json.decode(row["snapshots_json"] or "[]", type=list[SnapshotAge])
    references = msgspec.json.decode(row["refs_json"] or "[]", type=list[Reference])
    kept = kept_snapshots(snapshots, references, policy.snapshots, now_ms=now_ms)
    is_iceberg = row["format"] == "iceberg"
    blocked = f"cannot be read: {row['problem']}"[:1_000] if row["problem"] else ""
    if _ENCRYPTED in properties:
        blocked = "is encrypted: its files are not opened"
    return TableHealth(
        uuid=row["uuid"],
        catalog=row["catalog"],
        namespace=row["namespace"],
        name=row["name"],
        format=row["format"],
        last_commit_ms=row["last_commit_ms"],
        data_files=row["file_count"],
        data_bytes=row["size_bytes"],
        delete_files=count_in(summary.get("total-delete-files")) if is_iceberg else None,
        snapshots=len(snapshots) if is_iceberg else None,
        expirable_snapshots=len(snapshots) - len(kept) if is_iceberg else None,
        scans_per_day=row["scans_per_day"],
        blocked=blocked,
    )


async def _opened(lake: Lake, row: Row, health: TableHealth, policy: Policy) -> TableHealth:
    if row["format"] == "delta":
        return await _measured_delta(lake, row, health, policy.compaction)
    if not _is_candidate(health, policy.compaction):
        return replace(health, small_files=0, small_bytes=0, excess_files=0)
    return await _measured_iceberg(lake, row, health, policy.compaction)


def _checked(health: TableHealth) -> TableHealth:
    """Blocked if a number does not fit: it is made of what clients write, and would end the job for all tables."""
    measured = {name: value for name in MEASURED if isinstance(value := getattr(health, name), int)}
    large = [name for name, value in measured.items() if abs(value) > INT64_MAX]
    if not large:
        return health
    return replace(health, **dict.fromkeys(large), blocked=f"cannot be read: {large[0]} has more than 64 bits")


def _is_candidate(health: TableHealth, policy: Compaction) -> bool:
    """Whether the files of an Iceberg table are worth opening its manifests."""
    files, size = health.data_files, health.data_bytes
    if files is None or files > FILES_MEASURED_MAX:
        return False
    has_small = size is None or size < files * small_file_bytes(policy)
    return (files >= policy.min_input_files and has_small) or bool(health.delete_files)


async def _measured_iceberg(lake: Lake, row: Row, health: TableHealth, policy: Compaction) -> TableHealth:
    """The sizes of all files by partition, and the rows that are deleted from each."""
    metadata = (await load_document(lake, DOCUMENTS, row["metadata_location"])).metadata
    snapshot = metadata.current_snapshot
    if snapshot is None:
        return replace(health, small_files=0, small_bytes=0, excess_files=0)
    roots = (*await allowed_roots(lake, row["catalog"]), metadata.location)
    manifests = Manifests(lake, roots, ReadableManifests(metadata))
    listed = await manifests.listed(snapshot)
    data, deletes = _FileSizes(small_file_bytes(policy)), _Deletes()
    async for manifest, columns in manifests.each([one for one in listed if one.content != DATA]):
        deletes.add(manifest, columns)
    async for manifest, columns in manifests.each([one for one in listed if one.content == DATA]):
        data.add(manifest, columns)
        deletes.count(columns, policy)
    return replace(
        _with_fragments(health, fragments_of(data.groups(), policy)),
        files_with_deletes=deletes.files,
        bytes_with_deletes=deletes.bytes,
        delete_bytes=deletes.delete_bytes,
        manifests=len(listed),
        manifest_bytes=sum(one.manifest_length for one in listed),
    )


def _with_fragments(health: TableHealth, found: Fragments) -> TableHealth:
    small_files, small_bytes, excess_files = found
    return replace(health, small_files=small_files, small_bytes=small_bytes, excess_files=excess_files)


class _FileSizes:
    """The small files of a table, by spec and partition."""

    def __init__(self, small_bytes: int) -> None:
        self._small_bytes = small_bytes
        self._tables: dict[int, list[pa.Table]] = {}

    def add(self, manifest: ManifestFile, columns: ManifestColumns) -> None:
        names = sorted(name for name in columns.columns if name.startswith(PARTITION))
        sizes = columns.column("file_size_in_bytes")
        table = pa.table([sizes, *(columns.column(name) for name in names)], names=["size", *names])
        small = table.filter(pa.array([size < self._small_bytes for size in sizes.to_pylist()], type=pa.bool_()))
        self._tables.setdefault(manifest.partition_spec_id, []).append(small)

    def groups(self) -> Iterable[Group]:
        for tables in self._tables.values():
            try:
                together = pa.concat_tables(tables, promote_options="permissive")
            except pa.ArrowException as error:
                raise Invalid(f"manifests of one spec have partitions of different types: {error}") from error
            keys = [name for name in together.column_names if name != "size"]
            if not keys:
                yield Group(together.num_rows, sum(together.column("size").to_pylist()))
                continue
            counted = together.group_by(keys).aggregate([("size", "count"), ("size", "sum")])
            counts, sums = counted.column("size_count").to_pylist(), counted.column("size_sum").to_pylist()
            yield from (Group(count, size) for count, size in zip(counts, sums, strict=True))


class _Deletes:
    """Deleted rows by data file, as far as delete files name their data file; and the data files with too many."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._delete_files: dict[str, int] = {}
        self.delete_bytes = 0
        self.files = 0
        self.bytes = 0

    def add(self, _manifest: ManifestFile, columns: ManifestColumns) -> None:
        self.delete_bytes += sum(columns.column("file_size_in_bytes").to_pylist())
        if not columns.has("referenced_data_file"):
            return
        named = columns.column("referenced_data_file").to_pylist()
        for path, rows in zip(named, columns.column("record_count").to_pylist(), strict=True):
            if path:
                self._rows[path] = self._rows.get(path, 0) + rows
                self._delete_files[path] = self._delete_files.get(path, 0) + 1

    def count(self, columns: ManifestColumns, policy: Compaction) -> None:
        """Count the data files of a manifest with too many deleted rows or delete files."""
        if not self._rows:
            return
        files = zip(
            columns.column("file_path").to_pylist(),
            columns.column("record_count").to_pylist(),
            columns.column("file_size_in_bytes").to_pylist(),
            strict=True,
        )
        for path, rows, size in files:
            has_many = self._rows.get(path, 0) >= max(1, rows * policy.deleted_rows_share)
            if has_many or self._delete_files.get(path, 0) >= policy.delete_files_per_file:
                self.files += 1
                self.bytes += size


async def _measured_delta(lake: Lake, row: Row, health: TableHealth, policy: Compaction) -> TableHealth:
    found = await lake.bound_record(row["uuid"], "delta").read()
    record = found.value if found else None
    if not isinstance(record, DeltaTable):
        raise NotFound(f"Table does not exist: {row['name']}", subject="table")
    if record.data_source_format != "DELTA":
        return replace(health, blocked=f"is a table in {record.data_source_format}, which only its engine maintains")
    return await measure_delta(lake, record, health, policy)


def _object(text: str | None) -> dict[str, str]:
    return msgspec.json.decode(text, type=dict[str, str]) if text else {}
