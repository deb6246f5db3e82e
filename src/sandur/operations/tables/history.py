"""The history of a table as rows: its snapshots, and the schema and partition spec of each.

The metadata says what a snapshot is. When the catalog committed it, and with which spec, only the receipts say. Those
of the files in the metadata log are read in one round.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import AttemptedFile, Head
from sandur.iceberg.snapshots import Snapshot
from sandur.iceberg.table_metadata import TableMetadata
from sandur.operations.lake import Lake
from sandur.operations.receipts import Receipt, receipt_key, tried_of
from sandur.operations.tables.documents import Document, current_document
from sandur.storage.contract import get_many

_LOG_ENTRIES_MAX: Final = 1_000
"""How many of the newest versions are looked at; a table keeps 100 unless its properties say otherwise."""

_SNAPSHOT_OPERATIONS: Final = ("append", "overwrite", "replace", "delete")

Row = dict[str, object]


class _Ingestion(NamedTuple):
    """The commit that added a snapshot: its time, and the partition spec of new files; None where it is unknown."""

    time_ms: int | None = None
    spec_id: int | None = None


_UNKNOWN: Final = _Ingestion()


class LoggedVersion(NamedTuple):
    """A metadata file that is or was current, its time, and the receipt of its commit; None if it is missing."""

    location: str
    time_ms: int
    receipt: Receipt | None


async def schema_history(lake: Lake, identifier: Identifier) -> Sequence[Row]:
    """Each snapshot with the schema it was written with; a table without snapshots shows its current schema."""
    document = await current_document(lake, identifier)
    metadata, ingested = document.metadata, await _ingestions(lake, document)
    rows: list[Row] = [
        {**_of_snapshot(snapshot, ingested), **_schema(metadata, snapshot.schema_id)} for snapshot in metadata.snapshots
    ]
    return rows or [{**_without_snapshot(metadata), **_schema(metadata, metadata.current_schema_id)}]


async def partition_spec_history(lake: Lake, identifier: Identifier) -> Sequence[Row]:
    """Each snapshot with the partition spec of its commit, then the specs that no snapshot is known to have."""
    document = await current_document(lake, identifier)
    metadata, ingested = document.metadata, await _ingestions(lake, document)
    used = {snapshot.snapshot_id: _spec_id(metadata, snapshot, ingested) for snapshot in metadata.snapshots}
    rows: list[Row] = [
        {**_of_snapshot(snapshot, ingested), **_spec(metadata, used[snapshot.snapshot_id])}
        for snapshot in metadata.snapshots
    ]
    unused = [spec.spec_id for spec in metadata.specs if spec.spec_id not in used.values()]
    return [*rows, *({**_without_snapshot(metadata), **_spec(metadata, spec_id)} for spec_id in unused)]


async def snapshot_history(lake: Lake, identifier: Identifier) -> Sequence[Row]:
    """The snapshots, oldest first, with their schema, their partition spec, and the references that point at them."""
    document = await current_document(lake, identifier)
    metadata, ingested = document.metadata, await _ingestions(lake, document)
    return [
        {
            **_of_snapshot(snapshot, ingested),
            "parent-snapshot-id": snapshot.parent_snapshot_id,
            "sequence-number": snapshot.sequence_number,
            **_schema(metadata, snapshot.schema_id),
            "partition-spec": _spec(metadata, _spec_id(metadata, snapshot, ingested)),
            "manifest-list": snapshot.manifest_list,
            "summary": snapshot.summary or {},
            "refs": sorted(name for name, ref in metadata.refs.items() if ref.snapshot_id == snapshot.snapshot_id),
            "is-current": snapshot.snapshot_id == metadata.current_snapshot_id,
        }
        for snapshot in metadata.snapshots
    ]


def _of_snapshot(snapshot: Snapshot, ingested: Mapping[int, _Ingestion]) -> Row:
    """`timestamp-ms` is the time of the engine that wrote the snapshot, `ingested-at-ms` that of the commit."""
    return {
        "snapshot-id": snapshot.snapshot_id,
        "timestamp-ms": snapshot.timestamp_ms,
        "ingested-at-ms": ingested.get(snapshot.snapshot_id, _UNKNOWN).time_ms,
    }


def _without_snapshot(metadata: TableMetadata) -> Row:
    return {"snapshot-id": None, "timestamp-ms": metadata.last_updated_ms, "ingested-at-ms": metadata.last_updated_ms}


def _schema(metadata: TableMetadata, schema_id: int | None) -> Row:
    found = next((schema for schema in metadata.schemas if schema.schema_id == schema_id), None)
    return {"schema-id": schema_id, "schema": msgspec.to_builtins(found) if found else None}


def _spec_id(metadata: TableMetadata, snapshot: Snapshot, ingested: Mapping[int, _Ingestion]) -> int | None:
    if len(metadata.specs) == 1:
        return metadata.specs[0].spec_id
    return ingested.get(snapshot.snapshot_id, _UNKNOWN).spec_id


def _spec(metadata: TableMetadata, spec_id: int | None) -> Row:
    """A partition spec. Iceberg gives specs no names, so the name is made of the id."""
    found = next((spec for spec in metadata.specs if spec.spec_id == spec_id), None)
    return {
        "spec-id": spec_id,
        "spec-name": None if spec_id is None else f"spec-{spec_id}",
        "is-default": spec_id == metadata.default_spec_id,
        "fields": msgspec.to_builtins(found.fields) if found else None,
    }


async def _ingestions(lake: Lake, document: Document[TableMetadata]) -> Mapping[int, _Ingestion]:
    """The commits that added snapshots, by snapshot, as far as the receipts of the metadata log show them."""
    return ingestions_of([one.receipt for one in await logged_versions(lake, document) if one.receipt])


async def logged_versions(
    lake: Lake, document: Document[TableMetadata], *, newest: int = _LOG_ENTRIES_MAX, head: Head | None = None
) -> Sequence[LoggedVersion]:
    """The versions that the metadata log names and the current one, oldest first, with their receipts, in one round.

    Of a longer log only the `newest`. Only the head of the table knows by which registration it replaced another one.
    """
    metadata = document.metadata
    logged = [(entry.metadata_file, entry.timestamp_ms) for entry in metadata.metadata_log]
    logged.append((document.location, metadata.last_updated_ms))
    read = logged[-min(newest, _LOG_ENTRIES_MAX) :]
    found = await _receipts(lake, [AttemptedFile(location, time_ms) for location, time_ms in read])
    if None in found:  # The receipt of a registered file has another key.
        registered = [AttemptedFile(*entry, registration=metadata.table_uuid or "") for entry in read]
        if head and head.metadata_location == document.location:
            registered[-1] = tried_of(head)
        found = [one or other for one, other in zip(found, await _receipts(lake, registered), strict=True)]
    return [LoggedVersion(*entry, receipt) for entry, receipt in zip(read, found, strict=True)]


async def _receipts(lake: Lake, tried: Sequence[AttemptedFile]) -> Sequence[Receipt | None]:
    stored = await get_many(lake.store, [receipt_key(lake.layout, one) for one in tried])
    return [msgspec.json.decode(one.data, type=Receipt) if one else None for one in stored]


def ingestions_of(receipts: Sequence[Receipt]) -> Mapping[int, _Ingestion]:
    """The first commit of each snapshot, by receipts in their order.

    After a gap, older snapshots look like new ones: only the snapshot that the commit itself added counts.
    """
    known: set[str] = set()
    seen: set[int] = set()
    found: dict[int, _Ingestion] = {}
    for receipt in receipts:
        current = () if receipt.snapshot_id is None else (receipt.snapshot_id,)
        snapshots = {*current, *(receipt.refs.values() if receipt.refs else ())}
        is_linked = receipt.previous_commit_key is None or receipt.previous_commit_key in known
        added = snapshots if is_linked else set(current) if receipt.operation in _SNAPSHOT_OPERATIONS else set()
        spec_id = None if receipt.spec_id is msgspec.UNSET else receipt.spec_id
        found |= {id_: _Ingestion(receipt.committed_at_ms, spec_id) for id_ in added - seen}
        seen |= snapshots
        known.add(receipt.commit_key)
    return found
