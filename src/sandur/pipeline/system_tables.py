"""Published datasets as Iceberg tables of the catalog: `system.commits` and the others.

A system table holds copies of the published files, committed as to any table. The next run repairs the tables of a run
that died before this step: it compares the files of each table with the published ones. The tables do not refer to the
published files themselves: an engine may purge, compact or expire a table, and must not delete published files.

Maintenance rewrites files of these tables, too. A table therefore names the published files whose rows it has, and a
rewrite, which keeps all rows, does not change that.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from posixpath import basename
from typing import Any, Final, NamedTuple

import msgspec

from sandur.catalog.events import Source
from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.locations import normalize_location
from sandur.catalog.records import Request
from sandur.errors import AlreadyExists, BadRequest, NotFound, SandurError, SwapLost, Unavailable
from sandur.iceberg.requests import (
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    AssertTableUuid,
    CreateTable,
    TableCommit,
)
from sandur.iceberg.scan.manifests import ManifestFile, decode_manifest_list
from sandur.iceberg.schema import Schema
from sandur.iceberg.snapshots import BRANCH, MAIN_BRANCH, Snapshot
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.types import NestedField
from sandur.iceberg.updates import (
    AddSchema,
    AddSnapshot,
    RemoveSnapshots,
    SetCurrentSchema,
    SetProperties,
    SetSnapshotRef,
)
from sandur.operations.containers.catalogs import ensure_default_catalog
from sandur.operations.containers.namespaces import create_namespace
from sandur.operations.lake import Lake
from sandur.operations.published import CoreManifest, Dataset, PublishedFile
from sandur.operations.receipts import commit_key
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import current_document
from sandur.pipeline.blocking_lake import open_lake
from sandur.pipeline.executor_tasks.write import FILES_AT_ONCE, SMALL_BYTES_MAX
from sandur.pipeline.iceberg_manifests import (
    DataFile,
    SnapshotIds,
    encode_manifest,
    encode_manifest_list,
    files_of,
    list_entry,
)
from sandur.pipeline.job import JobContext, WrittenTable
from sandur.pipeline.maintenance.engine import session_refusal
from sandur.pipeline.tables import SHAPES, Shape
from sandur.pipeline.tasks import record_batch, run_per_item
from sandur.pipeline.transforms.commits import SYSTEM_TABLES
from sandur.storage.cell import gather_all
from sandur.storage.contract import portions

NAMESPACE: Final = "system"
MARK: Final = "pipeline.dataset"
"""The property that marks a table as the pipeline's; a table of the same name without it is left alone."""
FILES: Final = "pipeline.files"
"""The property with the first published files, in their order, whose rows a table has: their number and their hash."""
SNAPSHOTS_KEPT: Final = 20
SNAPSHOTS_MAX: Final = 400
"""Maintenance expires snapshots by their age; with more than this, and without maintenance, the pipeline does it."""
_SEQUENCE: Final = "published-sequence"


class Copy(NamedTuple):
    """A published file, and its copy in a table."""

    key: str
    location: str
    size_bytes: int


class _Growth(NamedTuple):
    """The next snapshot of a table: the manifests to keep with the bytes of their files, the files to add, those of
    them to copy first, and what it then holds.
    """

    shape: Shape
    metadata: TableMetadata
    sequence: int
    kept: Sequence[ManifestFile]
    kept_bytes: int
    files: Sequence[DataFile]
    copies: Sequence[Copy]
    content: str


def refresh(context: JobContext, manifest: CoreManifest, shapes: Sequence[Shape]) -> Sequence[str]:
    """Make the tables of these datasets hold the published files; returns warnings about tables that are left alone.

    A table with the right files gets no commit. Raises Conflict if another run took over.
    """
    if context.dry_run or not manifest.sequence:
        return ()
    context.progress("update system tables")
    try:
        context.wait(_ensure_namespace(context))
    except Unavailable as error:  # The record of the catalog or the namespace is damaged; the next run tries again.
        return [f"system tables are not updated: {error}"]
    plans = context.wait(gather_all(_plan(context, shape, manifest.datasets.get(shape.name)) for shape in shapes))
    growths = [plan for plan in plans if isinstance(plan, _Growth)]
    _copy_files(context, [copy for growth in growths for copy in growth.copies])
    context.check_fence()
    warnings = context.wait(gather_all(_grow(context, growth) for growth in growths))
    return [text for text in (*plans, *warnings) if isinstance(text, str)]


async def own_tables(context: JobContext) -> tuple[Sequence[str], Sequence[str]]:
    """The uuids of the pipeline's existing tables, and warnings about tables that cannot be read."""
    found = await gather_all(_load(context, shape) for shape in SHAPES.values())
    tables = [(shape, one) for shape, one in zip(SHAPES.values(), found, strict=True) if isinstance(one, TableMetadata)]
    uuids = [metadata.table_uuid or "" for shape, metadata in tables if _is_ours(shape, metadata)]
    return uuids, [one for one in found if isinstance(one, str)]


async def _load(context: JobContext, shape: Shape) -> TableMetadata | str | None:
    """The table of a shape; None if it does not exist, a warning if it cannot be read."""
    try:
        return (await current_document(context.lake, _identifier(context, shape))).metadata
    except NotFound:
        return None
    except SandurError as error:
        return f"table {NAMESPACE}.{shape.name}: {error}"


def _is_ours(shape: Shape, metadata: TableMetadata) -> bool:
    return metadata.properties.get(MARK) == shape.name


async def _plan(context: JobContext, shape: Shape, dataset: Dataset | None) -> _Growth | str | None:
    """The next snapshot of a table, created if it is missing; None if it needs none, a warning if it is left alone."""
    try:
        metadata = await _ensure_table(context, shape)
    except (Unavailable, BadRequest) as error:
        return f"table {NAMESPACE}.{shape.name} is not updated: {error}"
    if not _is_ours(shape, metadata):
        return f"table {NAMESPACE}.{shape.name} was not created by the pipeline and is left alone"
    return await _next_growth(context, shape, metadata, dataset) if dataset else None


async def _next_growth(context: JobContext, shape: Shape, metadata: TableMetadata, dataset: Dataset) -> _Growth | None:
    current = metadata.current_snapshot
    manifests = await _manifests(context.lake, current)
    held = [file for one in manifests for file in await _data_files(context.lake, one.manifest_path)]
    by_name = {basename(file.path): file for file in held}
    wanted = {basename(file.key): file for file in dataset.files}
    known = _known_files(metadata, current, dataset) or by_name.keys()
    if known == wanted.keys():
        return None
    content = _content(dataset.files)
    if known <= wanted.keys():
        files, copies = _new_files(metadata, [wanted[name] for name in sorted(wanted.keys() - known)])
        live, live_bytes = [one for one in manifests if one.live_files != 0], sum(file.size_bytes for file in held)
        return _Growth(shape, metadata, dataset.sequence, live, live_bytes, files, copies, content)
    files, copies = _new_files(metadata, [wanted[name] for name in sorted(wanted.keys() - by_name.keys())])
    files = [*(by_name[name] for name in sorted(wanted.keys() & by_name.keys())), *files]
    return _Growth(shape, metadata, dataset.sequence, (), 0, files, copies, content)


def _new_files(metadata: TableMetadata, published: Sequence[PublishedFile]) -> tuple[list[DataFile], list[Copy]]:
    """The files of a table that published files become, and how they are copied."""
    copies = [Copy(one.key, f"{metadata.location}/data/{basename(one.key)}", one.size_bytes) for one in published]
    files = [DataFile(copy.location, one.rows, copy.size_bytes) for copy, one in zip(copies, published, strict=True)]
    return files, copies


def _content(files: Sequence[PublishedFile]) -> str:
    names = "\n".join(basename(file.key) for file in files)
    return f"{len(files)}:{hashlib.sha256(names.encode()).hexdigest()}"


def _known_files(metadata: TableMetadata, current: Snapshot | None, dataset: Dataset) -> AbstractSet[str] | None:
    """The names of the published files whose rows a table has, in whatever files; None if its own files must tell.

    A dataset grows at its end. Of other snapshots than our own, only a rewrite with as many rows has the same content.
    """
    number, _, _ = metadata.properties.get(FILES, "").partition(":")
    files = dataset.files[: int(number)] if number.isascii() and number.isdecimal() else ()
    summary = (current.summary if current else None) or {}
    is_same = _SEQUENCE in summary or summary.get("operation") == "replace"
    has_rows = summary.get("total-records") == str(sum(file.rows for file in files))
    if not is_same or not has_rows or _content(files) != metadata.properties.get(FILES):
        return None
    return {basename(file.key) for file in files}


def _copy_files(context: JobContext, copies: Sequence[Copy]) -> None:
    """Copy published files into the tables' locations; in executors if the files are large."""
    if sum(copy.size_bytes for copy in copies) <= SMALL_BYTES_MAX:
        for some in portions(copies, FILES_AT_ONCE):
            context.wait(gather_all(_copy_file(context.lake, copy) for copy in some))
        return
    options = context.source_options

    def run(copy: Copy) -> Iterator[Any]:
        with open_lake(options) as blocking:
            blocking.wait(_copy_file(blocking.lake, copy))
        yield record_batch("copied long", [(copy.size_bytes,)])

    run_per_item(context.spark, copies, run, "copied long").collect()


async def _copy_file(lake: Lake, copy: Copy) -> None:
    found = await lake.store.get(copy.key)
    if found is None:
        raise NotFound(f"published file {copy.key} does not exist", subject="file")
    # The name is unique: an existing file is this very copy, left by a run that died.
    with contextlib.suppress(SwapLost):
        await lake.locations.create(copy.location, found.data)


async def _grow(context: JobContext, growth: _Growth) -> str | None:
    """Commit the next snapshot and expire old ones; returns a warning if the expiry failed, which harms no reader."""
    await _commit_snapshot(context, growth)
    identifier = _identifier(context, growth.shape)
    try:
        metadata = (await current_document(context.lake, identifier)).metadata
        most = 2 * SNAPSHOTS_KEPT if session_refusal(context.spark) else SNAPSHOTS_MAX
        if len(metadata.snapshots) >= most:
            await expire_snapshots(context.lake, identifier, metadata, _request(context, f"expire {growth.shape.name}"))
    except SandurError as error:
        return f"table {NAMESPACE}.{growth.shape.name}: old snapshots were not removed: {error}"
    return None


async def _ensure_namespace(context: JobContext) -> None:
    await ensure_default_catalog(context.lake)
    namespace = Namespace(context.settings.default_catalog, (NAMESPACE,))
    with contextlib.suppress(AlreadyExists):
        await create_namespace(context.lake, namespace, {}, _request(context, "namespace"))


async def _ensure_table(context: JobContext, shape: Shape) -> TableMetadata:
    """The table of a shape; it is created if it is missing, and gets the columns that it lacks."""
    identifier = _identifier(context, shape)
    try:
        metadata = (await current_document(context.lake, identifier)).metadata
    except NotFound:
        create = CreateTable(name=shape.name, schema=iceberg_schema(shape), properties={MARK: shape.name})
        with contextlib.suppress(AlreadyExists):
            await create_table(context.lake, identifier.namespace, create, _request(context, shape.name))
        metadata = (await current_document(context.lake, identifier)).metadata
    current = next(schema for schema in metadata.schemas if schema.schema_id == metadata.current_schema_id)
    if not _is_ours(shape, metadata) or len(current.fields) >= len(shape.columns):
        return metadata
    commit = TableCommit(
        requirements=(
            AssertTableUuid(uuid=metadata.table_uuid or ""),
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        ),
        updates=(AddSchema(schema=iceberg_schema(shape)), SetCurrentSchema(schema_id=-1)),
    )
    await commit_table(context.lake, identifier, commit, _request(context, f"{shape.name} {len(shape.columns)}"))
    return (await current_document(context.lake, identifier)).metadata


async def _manifests(lake: Lake, snapshot: Snapshot | None) -> Sequence[ManifestFile]:
    location = snapshot.manifest_list if snapshot else None
    return decode_manifest_list(await _read(lake, location), location=location) if location else ()


async def _data_files(lake: Lake, manifest: str) -> Sequence[DataFile]:
    return files_of(await _read(lake, manifest), location=manifest)


async def _commit_snapshot(context: JobContext, growth: _Growth) -> None:
    shape, metadata, kept, files = growth.shape, growth.metadata, growth.kept, growth.files
    ids = SnapshotIds(
        snapshot_id=int(context.clock.new_uuid().replace("-", ""), 16) >> 65,
        parent_id=metadata.current_snapshot_id,
        sequence_number=metadata.last_sequence_number + 1,
    )
    folder, nonce, schema_id = f"{metadata.location}/metadata", context.clock.new_uuid(), metadata.current_schema_id
    manifests = list(kept)
    if files:
        schema = msgspec.json.encode(msgspec.structs.replace(iceberg_schema(shape), schema_id=schema_id)).decode()
        data = encode_manifest(files, schema_json=schema, schema_id=schema_id, snapshot_id=ids.snapshot_id)
        path = f"{folder}/{nonce}-m0.avro"
        await context.lake.locations.create(path, data)
        manifests.append(list_entry(path, data, files, ids))
    list_path = f"{folder}/snap-{ids.snapshot_id}-1-{nonce}.avro"
    await context.lake.locations.create(list_path, encode_manifest_list(manifests, ids))
    snapshot = Snapshot(
        sequence_number=ids.sequence_number,
        snapshot_id=ids.snapshot_id,
        parent_snapshot_id=ids.parent_id,
        timestamp_ms=max(context.clock.now_ms(), metadata.last_updated_ms),
        summary=_summary(growth, manifests),
        manifest_list=list_path,
        schema_id=schema_id,
    )
    commit = TableCommit(
        requirements=(
            AssertTableUuid(uuid=metadata.table_uuid or ""),
            AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=metadata.current_snapshot_id),
        ),
        updates=(
            SetProperties(updates={FILES: growth.content}),
            AddSnapshot(snapshot=snapshot),
            SetSnapshotRef(ref_name=MAIN_BRANCH, snapshot_id=ids.snapshot_id, type=BRANCH),
        ),
    )
    done = await commit_table(context.lake, _identifier(context, shape), commit, _request(context, list_path))
    context.written.append(
        WrittenTable(
            dataset=shape.name,
            table_uuid=metadata.table_uuid or "",
            snapshot_id=ids.snapshot_id,
            commit_key=commit_key(done.metadata_location or ""),
            rows=_rows(manifests),
        )
    )


def _summary(growth: _Growth, manifests: Sequence[ManifestFile]) -> dict[str, str]:
    replaces = not growth.kept and growth.metadata.current_snapshot_id is not None
    return {
        "operation": "overwrite" if replaces else "append",
        "added-data-files": str(len(growth.files)),
        "added-records": str(sum(file.rows for file in growth.files)),
        "total-data-files": str(sum(manifest.live_files or 0 for manifest in manifests)),
        "total-records": str(_rows(manifests)),
        "total-files-size": str(growth.kept_bytes + sum(file.size_bytes for file in growth.files)),
        "total-delete-files": "0",
        _SEQUENCE: str(growth.sequence),
    }


def _rows(manifests: Sequence[ManifestFile]) -> int:
    return sum((manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0) for manifest in manifests)


async def expire_snapshots(
    lake: Lake, identifier: Identifier, metadata: TableMetadata, request: Request, *, keep: int = SNAPSHOTS_KEPT
) -> int:
    """Remove old snapshots from a table, then the files that only they name; returns the number of removed files.

    Old are all but the newest `keep` and those with a branch or tag. Nothing is removed until there are twice as many
    as `keep`, so that not every commit removes some. A run that dies in between leaves files that nothing refers to.
    """
    in_order = sorted(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number)
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    old = [snapshot for snapshot in in_order[:-keep] if snapshot.snapshot_id not in named]
    if not old or len(in_order) < 2 * keep:
        return 0
    old_ids = {snapshot.snapshot_id for snapshot in old}
    needed = await _all_files(lake, [one for one in metadata.snapshots if one.snapshot_id not in old_ids])
    unneeded = await _all_files(lake, old) - needed
    commit = TableCommit(
        requirements=(AssertTableUuid(uuid=metadata.table_uuid or ""),),
        updates=(RemoveSnapshots(snapshot_ids=tuple(sorted(old_ids))),),
    )
    await commit_table(lake, identifier, commit, request)
    return sum([await lake.locations.remove(location) for location in sorted(unneeded)])


async def _all_files(lake: Lake, snapshots: Sequence[Snapshot]) -> set[str]:
    """The normalized locations of every manifest list, manifest and data file of the snapshots."""
    lists = {snapshot.manifest_list for snapshot in snapshots if snapshot.manifest_list}
    manifests = {one.manifest_path for snapshot in snapshots for one in await _manifests(lake, snapshot)}
    files = {file.path for one in manifests for file in await _data_files(lake, one)}
    return set(map(normalize_location, lists | manifests | files))


def iceberg_schema(shape: Shape) -> Schema:
    """The shape as an Iceberg schema, with the field ids of the Parquet files."""
    columns = shape.columns
    return Schema(
        fields=tuple(NestedField(id=one.id, name=one.name, required=one.is_required, type=one.kind) for one in columns)
    )


def _identifier(context: JobContext, shape: Shape) -> Identifier:
    return Identifier(context.settings.default_catalog, (NAMESPACE,), shape.name)


def _request(context: JobContext, what: str) -> Request:
    source = Source(kind="pipeline", client="sandur", run_id=context.run_id, task_id=SYSTEM_TABLES)
    return Request(hash=hashlib.sha256(f"{context.run_id} {what}".encode()).hexdigest(), source=source)


async def _read(lake: Lake, location: str) -> bytes:
    data = await lake.locations.read(location)
    if data is None:
        raise NotFound(f"file {location} does not exist", subject="file")
    return data
