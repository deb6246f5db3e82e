"""Load a table: one round of reads when it is cached, and no answer that the store has not confirmed."""

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.records import Head
from sandur.errors import NotFound, Unavailable
from sandur.iceberg.snapshots import Snapshot
from sandur.iceberg.table_metadata import TableMetadata, encode_table_metadata, with_referenced_snapshots_only
from sandur.operations.concurrency import gather_all
from sandur.operations.lake import CELLS_MAX, BytesLruCache, Lake, LruCache
from sandur.operations.tables.documents import TABLES, Document, DocumentCache, load_document, missing_file
from sandur.operations.tables.names import ResolvedName, resolve_name
from sandur.operations.transactions.resolution import effective_pointer
from sandur.storage.contract import Version

REPRESENTATION_OVERHEAD_BYTES: Final = 500
_REFS_BYTES_MAX: Final = 32 << 20
ETAG_LENGTH: Final = 32
_NOT_SEEN: Final = ""

Snapshots = Literal["all", "refs"]
Row = dict[str, object]


class LoadedTable(NamedTuple):
    """A table as a client gets it; `metadata` is JSON. A staged table has no location and no ETag."""

    metadata: bytes
    table_uuid: str
    metadata_location: str | None = None
    etag: str | None = None
    config: Mapping[str, str] = {}


class NotModified(NamedTuple):
    """The client already has the current state."""

    etag: str


async def load_table(
    lake: Lake, identifier: Identifier, *, snapshots: Snapshots = "all", if_none_match: str | None = None
) -> LoadedTable | NotModified:
    """The table as it is now; NotModified if the client's ETag matches it."""
    document = await current_document(lake, identifier)
    if if_none_match is not None and if_none_match == etag_of(document.location, snapshots):
        return NotModified(if_none_match)
    return loaded_table(lake, document, snapshots=snapshots)


async def table_exists(lake: Lake, identifier: Identifier) -> bool:
    found = await resolve_name(lake, identifier)
    return found is not None and found.is_a("table")


async def current_document(lake: Lake, identifier: Identifier) -> Document[TableMetadata]:
    """The current metadata file, by name, pointer and, if a transaction is pending on it, its record (T6).

    A cached file counts only if it still exists. Its existence is checked in the same round as name and pointer, unless
    reads are instant: then there is no round to save.
    """
    confirmed, found = None, None
    if lake.store.has_instant_reads:
        heads = lake.feature(_validated_heads)
        head = heads.get(identifier)
        if head and await lake.store.are_current(head.versions):
            return await load_document(lake, TABLES, head.location)
        found = await resolve_name(lake, identifier, prefetch=True)
    else:
        # The check comes first: it depends on what this server saw before the name is read.
        confirmed, found = await gather_all(
            (_confirm_last_head(lake, identifier), resolve_name(lake, identifier, prefetch=True))
        )
    if found is None or not found.is_a("table"):
        raise TABLES.missing(identifier)
    location = (await effective_head(lake, found)).metadata_location
    is_cached = location in lake.feature(DocumentCache).tables
    if is_cached and confirmed not in {location, _NOT_SEEN} and not await lake.locations.exists(location):
        raise missing_file(location)
    document = await load_document(lake, TABLES, location)
    if lake.store.has_instant_reads:
        _remember_head(lake, found, location)
    return document


class _ValidatedHead(NamedTuple):
    """The current metadata file of a table, as long as all these objects are at these versions."""

    location: str
    versions: tuple[tuple[str, Version], ...]


def _validated_heads(_lake: Lake) -> LruCache[Identifier, _ValidatedHead]:
    """The heads that earlier loads found, by the name of the table."""
    return LruCache(CELLS_MAX)


def _remember_head(lake: Lake, found: ResolvedName, location: str) -> None:
    """Remember what a load found, if it depends only on the name, its namespaces, the pointer and the file.

    A pending pointer depends on its transaction, too (T6).
    """
    store, key = lake.locations.holder(location)
    pointer, namespaces = found.iceberg_pointer, _namespaces_behind(lake, found)
    if store is not lake.store or pointer is None or pointer.value.pending or namespaces is None:
        return
    file_version = None
    with contextlib.suppress(Unavailable):  # The load itself has succeeded.
        file_version = store.version_now(key)
    if file_version:
        lake.feature(_validated_heads)[found.identifier] = _ValidatedHead(
            location,
            (
                (lake.layout.name(found.identifier), found.name.version),
                (lake.layout.pointer(found.uuid), pointer.version),
                (key, file_version),
                *namespaces,
            ),
        )


def _namespaces_behind(lake: Lake, found: ResolvedName) -> Sequence[tuple[str, Version]] | None:
    """The namespaces that the name depends on (N4), with their versions; None if that is not certain.

    A name or a namespace that is `new` exists only with the namespace it was made for; an `active` one by itself.
    """
    versions: list[tuple[str, Version]] = []
    state: str = found.name.value.state
    namespace_id = found.name.value.namespace_id
    parent: Namespace | None = found.identifier.namespace
    while state == "new" and parent is not None:
        record = lake.namespace(parent).last_seen
        if record is None or record.value.id != namespace_id:
            return None
        versions.append((lake.layout.namespace(parent), record.version))
        state, namespace_id, parent = record.value.state, record.value.parent_id, parent.parent
    return versions if state in {"active", "new"} else None


async def _confirm_last_head(lake: Lake, identifier: Identifier) -> str | None:
    """The location of the head that this server saw last, if the file still exists.

    `_NOT_SEEN` if this server has not seen the table: then its file is read in this request.
    """
    name = lake.name(identifier).last_seen
    if name is None:
        return _NOT_SEEN
    pointer = lake.pointer(name.value.uuid).last_seen
    if pointer is None or pointer.value.head is None:
        return None
    location = pointer.value.head.metadata_location
    return location if await lake.locations.exists(location) else None


async def effective_head(lake: Lake, found: ResolvedName) -> Head:
    """The current head, with a pending transaction taken into account (T6). Raises NotFound if there is no head."""
    pointer = found.iceberg_pointer
    if pointer and pointer.value.pending:
        pointer = await effective_pointer(lake, pointer)
    if pointer is None or pointer.value.head is None:
        raise NotFound(f"{found.identifier} has no metadata", subject="table")
    return pointer.value.head


def loaded_table(lake: Lake, document: Document[TableMetadata], *, snapshots: Snapshots = "all") -> LoadedTable:
    """The answer to a request, from a document."""
    return LoadedTable(
        metadata=document.body if snapshots == "all" else _body_with_refs(lake, document),
        table_uuid=document.metadata.table_uuid or "",
        metadata_location=document.location,
        etag=etag_of(document.location, snapshots),
    )


def etag_of(metadata_location: str, snapshots: Snapshots) -> str:
    """T7: the id of a table's state and representation: the effective location, never a pointer's version."""
    return hashlib.sha256(f"{snapshots}\n{metadata_location}".encode()).hexdigest()[:ETAG_LENGTH]


def _refs_cache(_lake: Lake) -> BytesLruCache[str, bytes]:
    """Representations with referenced snapshots only, by the location of the file."""
    return BytesLruCache(_REFS_BYTES_MAX)


def _body_with_refs(lake: Lake, document: Document[TableMetadata]) -> bytes:
    """The representation with referenced snapshots only, which is cached too."""
    cache = lake.feature(_refs_cache)
    cached = cache.get(document.location)
    if cached is not None:
        return cached
    body = encode_table_metadata(with_referenced_snapshots_only(document.metadata))
    cache.put(document.location, body, len(body) + REPRESENTATION_OVERHEAD_BYTES)
    return body


async def schema_history(lake: Lake, identifier: Identifier) -> Sequence[Row]:
    """Each snapshot with the schema it was written with; a table without snapshots shows its current schema."""
    metadata = (await current_document(lake, identifier)).metadata
    by_id = {schema.schema_id: msgspec.to_builtins(schema) for schema in metadata.schemas}
    rows: list[Row] = [
        {**_of_snapshot(snapshot), "schema-id": snapshot.schema_id, "schema": by_id.get(snapshot.schema_id)}
        for snapshot in metadata.snapshots
    ]
    current: Row = {"schema-id": metadata.current_schema_id, "schema": by_id.get(metadata.current_schema_id)}
    return rows or [{"snapshot-id": None, "timestamp-ms": metadata.last_updated_ms, **current}]


async def partition_spec_history(lake: Lake, identifier: Identifier) -> Sequence[Row]:
    """Every partition spec the table has or had, and whether it is the one new files get."""
    metadata = (await current_document(lake, identifier)).metadata
    return [
        {
            "spec-id": spec.spec_id,
            "is-default": spec.spec_id == metadata.default_spec_id,
            "fields": msgspec.to_builtins(spec.fields),
        }
        for spec in metadata.specs
    ]


async def snapshot_history(lake: Lake, identifier: Identifier) -> Sequence[Row]:
    """The snapshots, oldest first, with the references that point at them."""
    metadata = (await current_document(lake, identifier)).metadata
    return [
        {
            **_of_snapshot(snapshot),
            "parent-snapshot-id": snapshot.parent_snapshot_id,
            "sequence-number": snapshot.sequence_number,
            "schema-id": snapshot.schema_id,
            "manifest-list": snapshot.manifest_list,
            "summary": snapshot.summary or {},
            "refs": sorted(_refs_to(metadata, snapshot.snapshot_id)),
            "is-current": snapshot.snapshot_id == metadata.current_snapshot_id,
        }
        for snapshot in metadata.snapshots
    ]


def _of_snapshot(snapshot: Snapshot) -> Row:
    return {"snapshot-id": snapshot.snapshot_id, "timestamp-ms": snapshot.timestamp_ms}


def _refs_to(metadata: TableMetadata, snapshot_id: int) -> Sequence[str]:
    return [name for name, ref in metadata.refs.items() if ref.snapshot_id == snapshot_id]
