"""The full check of table and view metadata that another program wrote."""

from collections.abc import Iterable

from sandur.errors import Invalid
from sandur.iceberg.partitioning import check_field_ids_complete, check_fits
from sandur.iceberg.schema import check_format, checked_schema
from sandur.iceberg.snapshots import MAIN_BRANCH, check_snapshot, checked_ref
from sandur.iceberg.sort_order import check_order_fits
from sandur.iceberg.table_commit import check_sorted
from sandur.iceberg.table_metadata import TableMetadata, decode_table_metadata
from sandur.iceberg.view_metadata import ViewMetadata, decode_view_metadata
from sandur.splicing import shorten


def decode_foreign_table_metadata(data: bytes, *, metadata_location: str | None = None) -> TableMetadata:
    """Decode a metadata file that another program wrote.

    Raises `Invalid` or `BadRequest` if any part of it is malformed or contradicts another part. Commits trust the
    metadata that passed, and check only what they change.
    """
    metadata = decode_table_metadata(data, metadata_location=metadata_location)
    _check_definitions(metadata)
    _check_snapshots(metadata)
    _check_refs(metadata)
    check_sorted(metadata.snapshot_log, "snapshot log")
    check_sorted(metadata.metadata_log, "metadata log")
    _check_unique((file.snapshot_id for file in metadata.statistics), "statistics file for snapshot")
    _check_unique(
        (file.snapshot_id for file in metadata.partition_statistics), "partition statistics file for snapshot"
    )
    _check_unique((key.key_id for key in metadata.encryption_keys), "encryption key")
    return metadata


def _check_definitions(metadata: TableMetadata) -> None:
    if metadata.table_uuid is None and metadata.format_version > 1:
        raise Invalid(f"UUID is required in format v{metadata.format_version}")
    if not metadata.location:
        raise Invalid(f"Table location is required in format v{metadata.format_version}")
    for schema in metadata.schemas:
        check_format(checked_schema(schema), metadata.format_version)
        if schema.highest_field_id > metadata.last_column_id:
            raise Invalid(
                f"Invalid last column ID: {metadata.last_column_id} < {schema.highest_field_id} (highest field ID)"
            )
    for spec in metadata.specs:
        check_field_ids_complete(spec)
    _check_unique((schema.schema_id or 0 for schema in metadata.schemas), "schema")
    _check_unique((spec.spec_id or 0 for spec in metadata.specs), "partition spec")
    _check_unique((order.order_id or 0 for order in metadata.sort_orders), "sort order")
    check_fits(metadata.default_spec, metadata.current_schema)
    check_order_fits(metadata.default_sort_order, metadata.current_schema)


def _check_snapshots(metadata: TableMetadata) -> None:
    _check_unique((snapshot.snapshot_id for snapshot in metadata.snapshots), "snapshot")
    for snapshot, stored in zip(metadata.snapshots, metadata.snapshots.elements(), strict=True):
        check_snapshot(snapshot)
        if snapshot.sequence_number > metadata.last_sequence_number:
            raise Invalid(
                f"Invalid snapshot with sequence number {snapshot.sequence_number} greater than last sequence number "
                f"{metadata.last_sequence_number}"
            )
        # Commits search for ids in the bytes first, so an id must be written as a plain number.
        if b"%d" % snapshot.snapshot_id not in bytes(stored):
            raise Invalid(f"Invalid snapshot-id: {snapshot.snapshot_id} is not written as an integer")


def _check_refs(metadata: TableMetadata) -> None:
    for name, ref in metadata.refs.items():
        checked_ref(ref)
        if ref.snapshot_id not in metadata.snapshot_ids:
            raise Invalid(f"Snapshot for reference {shorten(name)} does not exist in the existing snapshots list")
    current, main = metadata.current_snapshot_id, metadata.refs.get(MAIN_BRANCH)
    if current is None and main is not None:
        raise Invalid(f"Current snapshot is not set, but main branch exists: {main.snapshot_id}")
    if current is not None and main is not None and current != main.snapshot_id:
        raise Invalid(f"Current snapshot ID does not match main branch ({current} != {main.snapshot_id})")
    if current is not None and current not in metadata.snapshot_ids:
        raise Invalid("Invalid table metadata: Cannot find current version")


def _check_unique(ids: Iterable[int | str], what: str, *, of: str = "table") -> None:
    seen: set[int | str] = set()
    for item_id in ids:
        if item_id in seen:
            raise Invalid(f"Invalid {of} metadata: multiple entries for {what} {item_id}")
        seen.add(item_id)


def decode_foreign_view_metadata(data: bytes, *, metadata_location: str | None = None) -> ViewMetadata:
    """Decode a view metadata file that another program wrote.

    Raises `Invalid` or `BadRequest` if any part of it is malformed or contradicts another part. Limits that only a
    commit enforces are not checked: an engine may keep more versions than the limit, log versions that no longer
    exist, and use representations that are unknown here.
    """
    metadata = decode_view_metadata(data, metadata_location=metadata_location)
    if not metadata.view_uuid:
        raise Invalid("Invalid view metadata: view-uuid is empty")
    if not metadata.location:
        raise Invalid("Invalid view metadata: location is empty")
    for schema in metadata.schemas:
        checked_schema(schema)
    _check_unique((schema.schema_id or 0 for schema in metadata.schemas), "schema", of="view")
    _check_unique((version.version_id for version in metadata.versions), "version", of="view")
    for version in metadata.versions:
        if version.schema_id not in metadata.schemas_by_id:
            raise Invalid(f"Invalid view metadata: version {version.version_id} has unknown schema {version.schema_id}")
    metadata.current_version  # noqa: B018 # Raises if no version is current.
    metadata.version_log.items  # noqa: B018 # Raises if an entry is malformed.
    return metadata
