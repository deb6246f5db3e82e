"""What is published, as Iceberg tables of the catalog itself: `system.commits` and the others, for whoever selects.

They are made of the published files and committed as any table is. A run that dies between publishing and here is made
good by the next one: what a table holds is compared with what is published, file by file.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.sources import Request, Source
from sandur.errors import AlreadyExists, BadRequest, NotFound, SandurError, SwapLost, Unavailable
from sandur.iceberg.requests import CreateTable, TableCommit
from sandur.iceberg.requirements import AssertCurrentSchemaId, AssertRefSnapshotId, AssertTableUuid
from sandur.iceberg.schema import Schema
from sandur.iceberg.snapshots import BRANCH, MAIN_BRANCH, Snapshot
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.types import NestedField
from sandur.iceberg.updates import AddSchema, AddSnapshot, SetCurrentSchema, SetSnapshotRef, Update
from sandur.operations.concurrency import gather_all
from sandur.operations.containers.catalogs import ensure_default_catalog
from sandur.operations.containers.namespaces import create_namespace
from sandur.operations.lake import Lake
from sandur.operations.tables.commit_table import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.load import current_document
from sandur.pipeline.blocking_lake import open_lake
from sandur.pipeline.executor_tasks.write import FILES_AT_ONCE, SMALL_BYTES_MAX
from sandur.pipeline.iceberg_manifests import (
    DataFile,
    SnapshotIds,
    listed_manifest,
    manifest_list_of,
    manifest_of,
    read_manifest,
    read_manifest_list,
)
from sandur.pipeline.job import JobContext
from sandur.pipeline.publishing import CoreManifest, Dataset
from sandur.pipeline.system_history import forget
from sandur.pipeline.tables import SHAPES, Shape
from sandur.pipeline.tasks import one_task_each
from sandur.pipeline.transforms.commits import SYSTEM_TABLES

NAMESPACE: Final = "system"
MARK: Final = "pipeline.dataset"
"""The property by which a table is known as the pipeline's: one of that name that somebody else made is left alone."""

_SEQUENCE: Final = "published-sequence"


class Copy(NamedTuple):
    """A published file, and where a table keeps it."""

    key: str
    location: str
    size_bytes: int


class _Growth(NamedTuple):
    """What is to become of a table: its files to be, those to copy first, and the manifests that it keeps."""

    shape: Shape
    metadata: TableMetadata
    sequence: int
    kept: Sequence[Mapping[str, Any]]
    files: Sequence[DataFile]
    copies: Sequence[Copy]


def refresh(context: JobContext, manifest: CoreManifest, shapes: Sequence[Shape]) -> Sequence[str]:
    """Make the tables of these datasets hold what is published; what stands in the way is returned as warnings.

    Nothing is committed to a table that holds it already. Conflict when another run is at it.
    """
    if context.dry_run or not manifest.sequence:
        return ()
    try:
        context.wait(_ensure_namespace(context))
    except Unavailable as error:  # The record of the catalog or the namespace is damaged: the next run tries again.
        return [f"system tables are left as they are: {error}"]
    tables = context.wait(gather_all(_ensured(context, shape) for shape in shapes))
    known = [(shape, found) for shape, found in zip(shapes, tables, strict=True) if not isinstance(found, str)]
    ours = [(shape, metadata) for shape, metadata in known if _is_ours(shape, metadata)]
    found = context.wait(gather_all(_growth(context, *one, manifest.datasets.get(one[0].name)) for one in ours))
    growths = [growth for growth in found if growth]
    _copy(context, [copy for growth in growths for copy in growth.copies])
    context.check_fence()
    told = context.wait(gather_all(_grown(context, growth) for growth in growths))
    theirs = [shape.name for shape, metadata in known if not _is_ours(shape, metadata)]
    return [
        *(problem for problem in tables if isinstance(problem, str)),
        *(f"table {NAMESPACE}.{name} is not the pipeline's and is left as it is" for name in theirs),
        *(warning for warnings in told for warning in warnings),
    ]


def _is_ours(shape: Shape, metadata: TableMetadata) -> bool:
    return metadata.properties.get(MARK) == shape.name


async def own_tables(context: JobContext) -> tuple[Sequence[str], Sequence[str]]:
    """The uuids of the pipeline's own tables, as far as they were made; and why some of them cannot be told."""
    found = await gather_all(_found(context, shape) for shape in SHAPES.values())
    uuids: list[str] = []
    problems: list[str] = []
    for shape, metadata in zip(SHAPES.values(), found, strict=True):
        if isinstance(metadata, str):
            problems.append(metadata)
        elif metadata and _is_ours(shape, metadata):
            uuids.append(metadata.table_uuid or "")
    return uuids, problems


async def _found(context: JobContext, shape: Shape) -> TableMetadata | str | None:
    """The table of a shape; None when there is none, and the reason when it cannot be read."""
    try:
        return (await current_document(context.lake, _identifier(context, shape))).metadata
    except NotFound:
        return None
    except SandurError as error:
        return f"table {NAMESPACE}.{shape.name}: {error}"


async def _grown(context: JobContext, growth: _Growth) -> Sequence[str]:
    await _commit(context, growth)
    return await _forget(context, growth.shape)


async def _growth(
    context: JobContext, shape: Shape, metadata: TableMetadata, dataset: Dataset | None
) -> _Growth | None:
    """What a table lacks of what is published; None when it is as it should be."""
    if dataset is None:
        return None
    manifests, held = await _current_files(context, metadata)
    wanted = {file.key.rpartition("/")[2]: file for file in dataset.files}
    held_by_name = {file.path.rpartition("/")[2]: file for file in held}
    if held_by_name.keys() == wanted.keys():
        return None
    only_grows = held_by_name.keys() <= wanted.keys()
    missing = wanted.keys() - held_by_name.keys()
    folder = f"{metadata.location}/data"
    files = [
        held_by_name.get(name) or DataFile(f"{folder}/{name}", file.rows, file.size_bytes)
        for name, file in sorted(wanted.items())
        if not only_grows or name in missing
    ]
    copies = [Copy(wanted[name].key, f"{folder}/{name}", wanted[name].size_bytes) for name in sorted(missing)]
    return _Growth(shape, metadata, dataset.sequence, manifests if only_grows else (), files, copies)


def _copy(context: JobContext, copies: Sequence[Copy]) -> None:
    """Copy published files to where the tables keep their own: by executors, if it is much."""
    if sum(copy.size_bytes for copy in copies) <= SMALL_BYTES_MAX:
        for start in range(0, len(copies), FILES_AT_ONCE):
            some = copies[start : start + FILES_AT_ONCE]
            context.wait(gather_all(_copied(context.lake, copy) for copy in some))
        return
    options = dict(context.source_options)

    def copied(copy: Copy) -> Iterator[Any]:
        with open_lake(options) as open_store:
            open_store.wait(_copied(open_store.lake, copy))
        yield pa.RecordBatch.from_arrays([pa.array([copy.size_bytes])], names=["copied"])

    one_task_each(context.spark, copies, copied, "copied long").collect()


async def _copied(lake: Lake, copy: Copy) -> None:
    found = await lake.store.get(copy.key)
    if found is None:
        raise NotFound(f"published file {copy.key}: is not there", subject="file")
    # Its name is unique: one that is there already is this very file, left by a run that died.
    with contextlib.suppress(SwapLost):
        await lake.locations.create(copy.location, found.data)


async def _forget(context: JobContext, shape: Shape) -> Sequence[str]:
    """Take old snapshots away; that this did not work keeps nobody from reading the table."""
    identifier = _identifier(context, shape)
    try:
        metadata = (await current_document(context.lake, identifier)).metadata
        await forget(context.lake, identifier, metadata, _request(context, f"forget {shape.name}"))
    except SandurError as error:
        return [f"table {NAMESPACE}.{shape.name}: old snapshots are still there: {error}"]
    return ()


async def _ensure_namespace(context: JobContext) -> None:
    await ensure_default_catalog(context.lake)
    namespace = Namespace(context.settings.default_catalog, (NAMESPACE,))
    with contextlib.suppress(AlreadyExists):
        await create_namespace(context.lake, namespace, {}, _request(context, "namespace"))


async def _ensured(context: JobContext, shape: Shape) -> TableMetadata | str:
    """The table of a shape, or why it is left as it is: one that is damaged is in no other's way."""
    try:
        return await _ensure_table(context, shape)
    except (Unavailable, BadRequest) as error:
        return f"table {NAMESPACE}.{shape.name} is left as it is: {error}"


async def _ensure_table(context: JobContext, shape: Shape) -> TableMetadata:
    """The table of a shape, made or widened if need be."""
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
    wider = TableCommit(
        requirements=(
            AssertTableUuid(uuid=metadata.table_uuid or ""),
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        ),
        updates=(AddSchema(schema=iceberg_schema(shape)), SetCurrentSchema(schema_id=-1)),
    )
    await commit_table(context.lake, identifier, wider, _request(context, f"{shape.name} {len(shape.columns)}"))
    return (await current_document(context.lake, identifier)).metadata


async def _current_files(
    context: JobContext, metadata: TableMetadata
) -> tuple[Sequence[Mapping[str, Any]], Sequence[DataFile]]:
    """The manifests of the current snapshot, as its list names them, and the files in them."""
    snapshot = _current_snapshot(metadata)
    if snapshot is None or snapshot.manifest_list is None:
        return (), ()
    manifests = read_manifest_list(await _bytes(context, snapshot.manifest_list))
    files = [file for manifest in manifests for file in read_manifest(await _bytes(context, manifest["manifest_path"]))]
    return manifests, files


async def _commit(context: JobContext, growth: _Growth) -> None:
    """Write the manifests, then commit the snapshot: files behind those that are kept, or in their place."""
    shape, metadata, sequence, kept, files, _ = growth
    ids = SnapshotIds(
        snapshot_id=int(context.clock.new_uuid().replace("-", ""), 16) >> 65,
        parent_id=metadata.current_snapshot_id,
        sequence_number=metadata.last_sequence_number + 1,
    )
    folder = f"{metadata.location}/metadata"
    nonce = context.clock.new_uuid()
    manifests = list(kept)
    if files:
        schema_id = metadata.current_schema_id
        manifest = manifest_of(
            files, schema_json=_schema_json(shape, schema_id), schema_id=schema_id, snapshot_id=ids.snapshot_id
        )
        path = f"{folder}/{nonce}-m0.avro"
        await context.lake.locations.create(path, manifest)
        manifests.append(listed_manifest(path, manifest, files, ids))
    list_path = f"{folder}/snap-{ids.snapshot_id}-1-{nonce}.avro"
    await context.lake.locations.create(list_path, manifest_list_of(manifests, ids))
    snapshot = Snapshot(
        sequence_number=ids.sequence_number,
        snapshot_id=ids.snapshot_id,
        parent_snapshot_id=ids.parent_id,
        timestamp_ms=max(context.clock.now_ms(), metadata.last_updated_ms),
        summary=_summary(files, manifests, replaces=not kept and ids.parent_id is not None, sequence=sequence),
        manifest_list=list_path,
        schema_id=metadata.current_schema_id,
    )
    updates: tuple[Update, ...] = (
        AddSnapshot(snapshot=snapshot),
        SetSnapshotRef(ref_name=MAIN_BRANCH, snapshot_id=ids.snapshot_id, type=BRANCH),
    )
    requirements = (
        AssertTableUuid(uuid=metadata.table_uuid or ""),
        AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=metadata.current_snapshot_id),
    )
    commit = TableCommit(requirements=requirements, updates=updates)
    await commit_table(context.lake, _identifier(context, shape), commit, _request(context, list_path))


def _summary(
    files: Sequence[DataFile], manifests: Sequence[Mapping[str, Any]], *, replaces: bool, sequence: int
) -> dict[str, str]:
    return {
        "operation": "overwrite" if replaces else "append",
        "added-data-files": str(len(files)),
        "added-records": str(sum(file.rows for file in files)),
        "total-data-files": str(sum(manifest["added_files_count"] for manifest in manifests)),
        "total-records": str(sum(manifest["added_rows_count"] for manifest in manifests)),
        _SEQUENCE: str(sequence),
    }


def iceberg_schema(shape: Shape) -> Schema:
    """The shape as Iceberg's schema, under the same ids as in the files."""
    fields = tuple(
        NestedField(id=column.id, name=column.name, required=column.is_required, type=column.kind)
        for column in shape.columns
    )
    return Schema(fields=fields)


def _schema_json(shape: Shape, schema_id: int) -> str:
    return msgspec.json.encode(msgspec.structs.replace(iceberg_schema(shape), schema_id=schema_id)).decode()


def _current_snapshot(metadata: TableMetadata) -> Snapshot | None:
    wanted = metadata.current_snapshot_id
    return next((snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id == wanted), None)


def _identifier(context: JobContext, shape: Shape) -> Identifier:
    return Identifier(context.settings.default_catalog, (NAMESPACE,), shape.name)


def _request(context: JobContext, what: str) -> Request:
    source = Source(kind="pipeline", client="sandur", run_id=context.run_id, task_id=SYSTEM_TABLES)
    return Request(hash=hashlib.sha256(f"{context.run_id} {what}".encode()).hexdigest(), source=source)


async def _bytes(context: JobContext, location: str) -> bytes:
    data = await context.lake.locations.read(location)
    if data is None:
        raise NotFound(f"file {location}: is not there", subject="file")
    return data
