"""Table metadata as a client asked to see it."""

from dataclasses import replace

from sandur.iceberg.table_metadata import TableMetadata


def with_referenced_snapshots_only(metadata: TableMetadata) -> TableMetadata:
    """The metadata with only the snapshots that a branch or a tag points at; everything else is unchanged."""
    referenced = {ref.snapshot_id for ref in metadata.refs.values()}
    is_kept = [snapshot_id in referenced for snapshot_id in metadata.snapshot_id_list]
    if all(is_kept):
        return metadata
    return replace(metadata, snapshot_list=metadata.snapshot_list.without(is_kept))
