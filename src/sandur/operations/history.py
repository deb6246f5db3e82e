"""What a table was like before: its schemas, partition specs and snapshots, from its metadata alone."""

from collections.abc import Sequence

import msgspec

from sandur.catalog.identifiers import Identifier
from sandur.iceberg.snapshots import Snapshot
from sandur.iceberg.table_metadata import TableMetadata
from sandur.operations.lake import Lake
from sandur.operations.load_table import current_document

Row = dict[str, object]


async def schemas(lake: Lake, identifier: Identifier) -> Sequence[Row]:
    """Each snapshot with the schema it was written with; a table without snapshots shows its current schema."""
    metadata = (await current_document(lake, identifier)).metadata
    by_id = {schema.schema_id: msgspec.to_builtins(schema) for schema in metadata.schemas}
    rows: list[Row] = [
        {**_of_snapshot(snapshot), "schema-id": snapshot.schema_id, "schema": by_id.get(snapshot.schema_id)}
        for snapshot in metadata.snapshots
    ]
    current: Row = {"schema-id": metadata.current_schema_id, "schema": by_id.get(metadata.current_schema_id)}
    return rows or [{"snapshot-id": None, "timestamp-ms": metadata.last_updated_ms, **current}]


async def partition_specs(lake: Lake, identifier: Identifier) -> Sequence[Row]:
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


async def snapshots(lake: Lake, identifier: Identifier) -> Sequence[Row]:
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
