"""A table on its way through the updates of one commit."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sandur.iceberg.encryption import EncryptedKey
from sandur.iceberg.partitioning import UNPARTITIONED_LAST_ID, PartitionSpec
from sandur.iceberg.raw_json import empty_array
from sandur.iceberg.schema import Schema
from sandur.iceberg.snapshots import MetadataLogEntry, Snapshot, SnapshotLogEntry
from sandur.iceberg.sorting import SortOrder
from sandur.iceberg.statistics import PartitionStatisticsFile, StatisticsFile
from sandur.iceberg.table_metadata import TableMetadata, replaced


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The metadata so far, and what the rules need to know about this request.

    `is_new` says that the table does not exist yet. The `last_added` ids are what -1 stands for. `main_snapshot_ids`
    are the snapshots added by this request that were, at some point in it, current.
    """

    metadata: TableMetadata
    is_new: bool = False
    is_changed: bool = False
    last_added_schema_id: int | None = None
    last_added_spec_id: int | None = None
    last_added_order_id: int | None = None
    added_snapshots: Mapping[int, Snapshot] = field(default_factory=dict)
    main_snapshot_ids: frozenset[int] = frozenset()
    has_removed_snapshots: bool = False

    def base_has_snapshot(self, snapshot_id: int) -> bool:
        """Whether the snapshot is there and was not added by this request."""
        before = len(self.metadata.snapshot_list.appended) - len(self.added_snapshots)
        older = self.metadata.snapshot_list.appended[:before]
        return any(item.snapshot_id == snapshot_id for item in older) or self.metadata.has_stored_snapshot(snapshot_id)

    def changed(self, **fields: object) -> "Draft":
        """The draft with other metadata fields, which counts as a change."""
        return replace(self, metadata=replaced(self.metadata, **fields), is_changed=True)


def empty_metadata(format_version: int) -> TableMetadata:
    """What a table is before the first update of the request that creates it."""
    return TableMetadata(
        format_version=format_version,
        table_uuid=None,
        location="",
        last_sequence_number=0,
        last_updated_ms=0,
        last_column_id=0,
        current_schema_id=0,
        schema_list=empty_array(Schema),
        default_spec_id=0,
        spec_list=empty_array(PartitionSpec),
        last_partition_id=UNPARTITIONED_LAST_ID,
        default_sort_order_id=0,
        sort_order_list=empty_array(SortOrder),
        properties={},
        current_snapshot_id=None,
        next_row_id=0,
        encryption_key_list=empty_array(EncryptedKey),
        ref_map={},
        snapshot_list=empty_array(Snapshot),
        statistics_list=empty_array(StatisticsFile),
        partition_statistics_list=empty_array(PartitionStatisticsFile),
        snapshot_log_list=empty_array(SnapshotLogEntry),
        metadata_log_list=empty_array(MetadataLogEntry),
        unknown={},
    )
