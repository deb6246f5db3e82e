"""The 25 updates of a commit, for tables and views, as one tagged union."""

import msgspec

from sandur.iceberg.partitioning import PartitionSpec
from sandur.iceberg.schema import Schema
from sandur.iceberg.snapshots import EncryptedKey, PartitionStatisticsFile, Snapshot, SnapshotRef, StatisticsFile
from sandur.iceberg.sort_order import SortOrder
from sandur.splicing import Int32, Int64

# In place of an id: the schema, spec, order or version that this request added last.
LAST_ADDED = -1


class _Update(msgspec.Struct, frozen=True, rename="kebab", tag_field="action", omit_defaults=True):
    pass


class AssignUuid(_Update, frozen=True, tag="assign-uuid"):
    uuid: str


class UpgradeFormatVersion(_Update, frozen=True, tag="upgrade-format-version"):
    format_version: Int32


class AddSchema(_Update, frozen=True, tag="add-schema"):
    schema: Schema


class SetCurrentSchema(_Update, frozen=True, tag="set-current-schema"):
    schema_id: Int32


class AddPartitionSpec(_Update, frozen=True, tag="add-spec"):
    spec: PartitionSpec


class SetDefaultSpec(_Update, frozen=True, tag="set-default-spec"):
    spec_id: Int32


class AddSortOrder(_Update, frozen=True, tag="add-sort-order"):
    sort_order: SortOrder


class SetDefaultSortOrder(_Update, frozen=True, tag="set-default-sort-order"):
    sort_order_id: Int32


class AddSnapshot(_Update, frozen=True, tag="add-snapshot"):
    snapshot: Snapshot


class SetSnapshotRef(SnapshotRef, frozen=True, kw_only=True, tag_field="action", tag="set-snapshot-ref"):
    ref_name: str


class RemoveSnapshotRef(_Update, frozen=True, tag="remove-snapshot-ref"):
    ref_name: str


class RemoveSnapshots(_Update, frozen=True, tag="remove-snapshots"):
    snapshot_ids: tuple[Int64, ...]


class SetLocation(_Update, frozen=True, tag="set-location"):
    location: str


class SetProperties(_Update, frozen=True, tag="set-properties"):
    updates: dict[str, str]


class RemoveProperties(_Update, frozen=True, tag="remove-properties"):
    removals: tuple[str, ...]


class SetStatistics(_Update, frozen=True, tag="set-statistics"):
    statistics: StatisticsFile


class RemoveStatistics(_Update, frozen=True, tag="remove-statistics"):
    snapshot_id: Int64


class SetPartitionStatistics(_Update, frozen=True, tag="set-partition-statistics"):
    partition_statistics: PartitionStatisticsFile


class RemovePartitionStatistics(_Update, frozen=True, tag="remove-partition-statistics"):
    snapshot_id: Int64


class RemovePartitionSpecs(_Update, frozen=True, tag="remove-partition-specs"):
    spec_ids: tuple[Int32, ...]


class RemoveSchemas(_Update, frozen=True, tag="remove-schemas"):
    schema_ids: tuple[Int32, ...]


class AddEncryptionKey(_Update, frozen=True, tag="add-encryption-key"):
    encryption_key: EncryptedKey


class RemoveEncryptionKey(_Update, frozen=True, tag="remove-encryption-key"):
    key_id: str


class ViewRepresentation(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """A representation of a view; only `sql` representations have a dialect and a text."""

    type: str
    sql: str | None = None
    dialect: str | None = None


class ViewVersion(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    version_id: Int32
    timestamp_ms: Int64
    schema_id: Int32
    summary: dict[str, str]
    representations: tuple[ViewRepresentation, ...]
    default_namespace: tuple[str, ...]
    default_catalog: str | None = None


class AddViewVersion(_Update, frozen=True, tag="add-view-version"):
    view_version: ViewVersion


class SetCurrentViewVersion(_Update, frozen=True, tag="set-current-view-version"):
    view_version_id: Int32


DefinitionUpdate = (
    AssignUuid
    | UpgradeFormatVersion
    | AddSchema
    | SetCurrentSchema
    | AddPartitionSpec
    | SetDefaultSpec
    | AddSortOrder
    | SetDefaultSortOrder
    | RemovePartitionSpecs
    | RemoveSchemas
)
SnapshotUpdate = AddSnapshot | SetSnapshotRef | RemoveSnapshotRef | RemoveSnapshots
AttributeUpdate = (
    SetLocation
    | SetProperties
    | RemoveProperties
    | SetStatistics
    | RemoveStatistics
    | SetPartitionStatistics
    | RemovePartitionStatistics
    | AddEncryptionKey
    | RemoveEncryptionKey
)
Update = DefinitionUpdate | SnapshotUpdate | AttributeUpdate | AddViewVersion | SetCurrentViewVersion


def tag_of(struct: msgspec.Struct) -> str:
    """The name of an update or a requirement in the protocol."""
    return str(struct.__struct_config__.tag)
