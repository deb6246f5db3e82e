"""The files of a table as they are now: their sizes, partitions and deletes, and what changed between two snapshots."""

import asyncio
import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import DeltaTable
from sandur.delta.columns import decode_columns, partition_names
from sandur.errors import NotFound, Unsupported
from sandur.extras import LazyModule
from sandur.iceberg.partitioning import PartitionSpec
from sandur.iceberg.table_metadata import TableMetadata
from sandur.operations.access import resolve_authorized
from sandur.operations.delta.log_files import Form, decode_checkpoint
from sandur.operations.delta.publishing import LOG_FOLDER
from sandur.operations.delta.versions import LogAction, LogFile, log_file, newest_version, read_logs
from sandur.operations.lake import Lake
from sandur.operations.locations.placement import allowed_roots
from sandur.operations.tables.documents import TABLES, load_document
from sandur.operations.tables.manifest_places import ReadableManifests
from sandur.operations.tables.names import effective_head, name_not_found
from sandur.splicing import NOT_JSON

if TYPE_CHECKING:
    from sandur.iceberg.scan import columns as scan_columns
    from sandur.iceberg.scan import manifests as scan_manifests
    from sandur.iceberg.scan.columns import ManifestColumns
    from sandur.iceberg.scan.manifests import ManifestFile
    from sandur.operations.planning import manifests as manifest_files
    from sandur.operations.planning.manifests import Manifests
else:  # These modules need numpy and pyarrow.
    scan_columns = LazyModule("sandur.iceberg.scan.columns")
    scan_manifests = LazyModule("sandur.iceberg.scan.manifests")
    manifest_files = LazyModule("sandur.operations.planning.manifests")

FILES_SHOWN: Final = 200
PARTITIONS_SHOWN: Final = 100
MANIFESTS_MAX: Final = 64
"""How many manifests are opened for one answer: the rest of a larger table is not counted."""
LOG_FILES_MAX: Final = 200
_CHECKPOINT_BYTES_MAX: Final = 256 << 20
_EDGES: Final = (1 << 20, 8 << 20, 32 << 20, 128 << 20, 512 << 20, 1 << 30)
_EPOCH: Final = dt.date(1970, 1, 1)


class FileRow(msgspec.Struct, frozen=True, kw_only=True):
    """One data or delete file."""

    path: str
    content: str
    bytes: int
    rows: int | None
    partition: str = ""


class PartitionRow(msgspec.Struct, frozen=True, kw_only=True):
    partition: str
    files: int
    bytes: int
    rows: int | None


class TableFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files of the current version.

    `sizes` counts data files by size: up to each edge in bytes, and above the last one. `is_cut`: the table has more
    files than were looked at, so nothing here is a total.
    """

    format: str
    files: Sequence[FileRow] = ()
    partitions: Sequence[PartitionRow] = ()
    edges: Sequence[int] = _EDGES
    sizes: Sequence[int] = ()
    data_files: int = 0
    delete_files: int = 0
    is_cut: bool = False


class _Counted:
    """Files as they are found: the first rows, and everything by size and partition."""

    def __init__(self) -> None:
        self.rows: list[FileRow] = []
        self.sizes = [0] * (len(_EDGES) + 1)
        self.partitions: dict[str, list[int | None]] = {}
        self.data_files = self.delete_files = 0

    def add(self, file: FileRow) -> None:
        if len(self.rows) < FILES_SHOWN:
            self.rows.append(file)
        if file.content != "data":
            self.delete_files += 1
            return
        self.data_files += 1
        self.sizes[sum(file.bytes > edge for edge in _EDGES)] += 1
        known = self.partitions.setdefault(file.partition, [0, 0, 0])
        known[0] = (known[0] or 0) + 1
        known[1] = (known[1] or 0) + file.bytes
        known[2] = None if known[2] is None or file.rows is None else known[2] + file.rows

    def answer(self, format_: str, *, is_cut: bool) -> TableFiles:
        largest = sorted(self.partitions.items(), key=lambda item: (-(item[1][1] or 0), item[0]))[:PARTITIONS_SHOWN]
        return TableFiles(
            format=format_,
            files=self.rows,
            partitions=[
                PartitionRow(partition=text, files=known[0] or 0, bytes=known[1] or 0, rows=known[2])
                for text, known in largest
                if text
            ],
            sizes=self.sizes,
            data_files=self.data_files,
            delete_files=self.delete_files,
            is_cut=is_cut,
        )


async def load_files(lake: Lake, identifier: Identifier) -> TableFiles:
    """The files of a table that the caller may scan."""
    missing = name_not_found(identifier, "table")
    found = await resolve_authorized(lake, identifier, lambda one: one.name.value.kind == "table", missing=missing)
    match found.pointer.value:
        case DeltaTable() as table:
            return await _delta_files(lake, table)
        case _:
            head = await effective_head(lake, found)
            metadata = (await load_document(lake, TABLES, head.metadata_location)).metadata
            return await _iceberg_files(lake, identifier, metadata)


async def _iceberg_files(lake: Lake, identifier: Identifier, metadata: TableMetadata) -> TableFiles:
    counted = _Counted()
    snapshot = metadata.current_snapshot
    if snapshot is None:
        return counted.answer("iceberg", is_cut=False)
    manifests = manifest_files.Manifests(
        lake, await allowed_roots(lake, identifier.catalog), ReadableManifests(metadata)
    )
    listed = await manifests.listed(snapshot)
    for file in (await _files_of(manifests, metadata, listed)).values():
        counted.add(file)
    return counted.answer("iceberg", is_cut=len(listed) > MANIFESTS_MAX)


def manifest_rows(
    manifest: "ManifestFile", columns: "ManifestColumns", spec: PartitionSpec | None, metadata: TableMetadata
) -> Iterator[FileRow]:
    """The files of a manifest."""
    partitions = _partition_texts(columns, spec, metadata)
    values = zip(
        columns.column("file_path").to_pylist(),
        columns.column("file_size_in_bytes").to_pylist(),
        columns.column("record_count").to_pylist(),
        strict=True,
    )
    kinds = columns.column("content").to_pylist() if columns.has("content") else [0] * columns.count
    for place, (path, size, rows) in enumerate(values):
        content = (
            "data"
            if manifest.content == scan_manifests.DATA
            else "equality deletes"
            if kinds[place] == _EQUALITY
            else "deletes"
        )
        yield FileRow(path=path, content=content, bytes=size or 0, rows=rows, partition=partitions[place])


_EQUALITY: Final = 2


def _partition_texts(columns: "ManifestColumns", spec: PartitionSpec | None, metadata: TableMetadata) -> Sequence[str]:
    """The partition of each file, such as `day=2026-01-31, country=IS`."""
    fields = [
        field for field in (spec.fields if spec else ()) if columns.has(f"{scan_columns.PARTITION}{field.field_id}")
    ]
    values = [columns.column(f"{scan_columns.PARTITION}{field.field_id}").to_pylist() for field in fields]
    types = scan_manifests.partition_types(spec, metadata.schemas) if spec else {}
    kinds = [
        kind.name if field.transform == "identity" and (kind := types.get(field.field_id or 0)) else field.transform
        for field in fields
    ]
    return [
        ", ".join(
            f"{field.name}={partition_text(kind, column[place])}"
            for field, kind, column in zip(fields, kinds, values, strict=True)
        )
        for place in range(columns.count)
    ]


def partition_text(kind: str, value: object) -> str:
    """A partition value as people read it. `kind` is the transform; the type of the column if that is `identity`."""
    if isinstance(value, bytes):  # Manifests have texts as bytes, too.
        text = value.decode("utf-8", "replace")
        return text if text.isprintable() and "\ufffd" not in text else value.hex()
    if not isinstance(value, int) or isinstance(value, bool):
        return "null" if value is None else str(value)
    try:
        return _TIMES.get(kind, str)(value)
    except (OverflowError, ValueError):
        return str(value)


def _day(days: int) -> str:
    return (_EPOCH + dt.timedelta(days=days)).isoformat()


def _instant(micros: int) -> str:
    return (dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=micros)).isoformat(" ")  # noqa: DTZ001 - as the column


_TIMES: Final[Mapping[str, Callable[[int], str]]] = {
    "day": _day,
    "date": _day,
    "timestamp": _instant,
    "timestamptz": _instant,
    "month": lambda months: f"{1970 + months // 12:04d}-{months % 12 + 1:02d}",
    "year": lambda years: str(1970 + years),
    "hour": lambda hours: f"{_day(hours // 24)} {hours % 24:02d}h",
}


class _LastCheckpoint(msgspec.Struct, frozen=True, rename="camel"):
    version: int
    parts: int | None = None
    v2_checkpoint: dict[str, Any] | None = None


async def _delta_files(lake: Lake, table: DeltaTable) -> TableFiles:
    """The live files by the last checkpoint and the log after it."""
    if table.data_source_format != "DELTA":
        raise Unsupported(f"a table in {table.data_source_format} has no list of files in the catalog")
    newest = await newest_version(lake, table)
    partitions = partition_names(decode_columns(table.columns))
    live, since = await _checkpoint_files(lake, table, partitions)
    versions = list(range(since + 1, newest + 1))
    if len(versions) > LOG_FILES_MAX:
        raise Unsupported(
            f"{len(versions)} versions since the last checkpoint are more than {LOG_FILES_MAX}: write a checkpoint"
        )
    logs = await read_logs(lake, table, versions)
    if len(logs) < len(versions):
        raise NotFound("the log of the table is not complete: log files after the checkpoint are gone", subject="file")
    for version in versions:
        _replay(live, logs[version], partitions)
    counted = _Counted()
    for path in sorted(live):
        counted.add(live[path])
    return counted.answer("delta", is_cut=False)


def _replay(live: dict[str, FileRow], log: LogFile, partitions: Sequence[str]) -> None:
    for removed in log.removed:
        live.pop(removed.path, None)
    for added in log.added:
        values = {name: added.partition_values.get(name) for name in partitions}
        live[added.path] = FileRow(
            path=added.path, content="data", bytes=added.size or 0, rows=added.rows, partition=_hive(values)
        )


async def _checkpoint_files(lake: Lake, table: DeltaTable, partitions: Sequence[str]) -> tuple[dict[str, FileRow], int]:
    """The files of the last checkpoint and its version; none and -1 without one."""
    log = f"{table.location}/{LOG_FOLDER}"
    data = await lake.locations.read(f"{log}/_last_checkpoint")
    if data is None:
        return {}, -1
    try:
        last = msgspec.json.decode(data, type=_LastCheckpoint)
    except NOT_JSON:
        return {}, -1
    if last.v2_checkpoint is not None or last.parts:
        raise Unsupported("the checkpoint of this table has several parts, which only engines read")
    location = f"{log}/{last.version:020d}.checkpoint.parquet"
    content = await lake.locations.read(location)
    if content is None or len(content) > _CHECKPOINT_BYTES_MAX:
        raise Unsupported("the last checkpoint of this table is missing or too large, so its files are not known here")
    return await asyncio.to_thread(_checkpoint_rows, content, partitions, location), last.version


def _checkpoint_rows(content: bytes, partitions: Sequence[str], location: str) -> dict[str, FileRow]:
    found: dict[str, FileRow] = {}
    _replay(found, log_file(decode_checkpoint(content, LogAction, _ADDED, location=location)), partitions)
    return found


def _without_nulls(row: Mapping[str, Any]) -> Mapping[str, Any]:
    add = row.get("add")
    return {"add": {name: value for name, value in add.items() if value is not None}} if add else {}


_ADDED: Final = Form(lambda path: path.startswith("add.") and not path.startswith("add.stats_parsed."), _without_nulls)


def _hive(values: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name}={'null' if value is None else value}" for name, value in values.items())


class FileChanges(NamedTuple):
    """The files that are in one of two snapshots only. `is_cut`: there are more manifests than were looked at."""

    added: Sequence[FileRow]
    removed: Sequence[FileRow]
    is_cut: bool


async def load_file_changes(lake: Lake, identifier: Identifier, *, before: int, after: int) -> FileChanges:
    """The files by which two snapshots of an Iceberg table differ, from the manifests that only one of them has."""
    missing = name_not_found(identifier, "table")
    found = await resolve_authorized(lake, identifier, lambda one: one.name.value.kind == "table", missing=missing)
    if isinstance(found.pointer.value, DeltaTable):
        raise Unsupported("the files of two versions are compared for Iceberg tables; a Delta log names them itself")
    head = await effective_head(lake, found)
    metadata = (await load_document(lake, TABLES, head.metadata_location)).metadata
    snapshots = {one.snapshot_id: one for one in metadata.snapshots}
    for id_ in (before, after):
        if id_ and id_ not in snapshots:
            raise NotFound(f"snapshot {id_} has expired: its files are not known any more", subject="file")
    manifests = manifest_files.Manifests(
        lake, await allowed_roots(lake, identifier.catalog), ReadableManifests(metadata)
    )
    old, new = [await manifests.listed(snapshots[id_]) if id_ else () for id_ in (before, after)]
    only_old, only_new = _without(old, new), _without(new, old)
    removed = await _files_of(manifests, metadata, only_old)
    added = await _files_of(manifests, metadata, only_new)
    return FileChanges(
        [row for path, row in added.items() if path not in removed],
        [row for path, row in removed.items() if path not in added],
        max(len(only_old), len(only_new)) > MANIFESTS_MAX,
    )


def _without(manifests: "Sequence[ManifestFile]", others: "Sequence[ManifestFile]") -> "Sequence[ManifestFile]":
    known = {one.manifest_path for one in others}
    return [one for one in manifests if one.manifest_path not in known]


async def _files_of(
    manifests: "Manifests", metadata: TableMetadata, chosen: "Sequence[ManifestFile]"
) -> Mapping[str, FileRow]:
    """The files of some manifests by path, as far as they are read for one answer."""
    specs = {spec.spec_id or 0: spec for spec in metadata.specs}
    files: dict[str, FileRow] = {}
    async for manifest, columns in manifests.each(chosen[:MANIFESTS_MAX]):
        rows = manifest_rows(manifest, columns, specs.get(manifest.partition_spec_id), metadata)
        files |= {row.path: row for row in rows}
    return files
