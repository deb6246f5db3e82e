"""The effect of each update on a table: identity, schemas, specs, sort orders, properties, statistics and keys."""

import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, assert_never

import msgspec

from sandur.errors import Invalid
from sandur.iceberg import updates as u
from sandur.iceberg.partitioning import (
    SPEC_ID_START,
    UNPARTITIONED_LAST_ID,
    PartitionSpec,
    bind_spec,
    check_field_ids,
    same_spec,
    with_field_ids,
)
from sandur.iceberg.schema import Schema, check_format, checked_schema, same_schema
from sandur.iceberg.snapshots import (
    EncryptedKey,
    MetadataLogEntry,
    PartitionStatisticsFile,
    Snapshot,
    SnapshotId,
    SnapshotLogEntry,
    StatisticsFile,
)
from sandur.iceberg.sort_order import SORTED_ID_START, UNSORTED, UNSORTED_ID, SortOrder, bind_order, same_order
from sandur.iceberg.table_metadata import FORMAT_VERSION_MAX, TableMetadata, without_trailing_slash
from sandur.iceberg.types import UUID_PATTERN
from sandur.splicing import JsonArray, empty_array, next_id, shorten

# Keys that clients send or display, and that are never part of a table's properties.
RESERVED_PROPERTIES = frozenset(
    {
        "format-version",
        "uuid",
        "snapshot-count",
        "current-snapshot-summary",
        "current-snapshot-id",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)

_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The metadata so far, and the state of the request that the rules need.

    `is_new`: the table does not exist yet. -1 in an update stands for a `last_added` id. `main_snapshot_ids` are the
    snapshots that this request added and that were current at some point in it.
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
        """Whether the snapshot existed before this request."""
        before = len(self.metadata.snapshot_list.appended) - len(self.added_snapshots)
        older = self.metadata.snapshot_list.appended[:before]
        return any(item.snapshot_id == snapshot_id for item in older) or self.metadata.has_stored_snapshot(snapshot_id)

    def changed(self, **fields: object) -> "Draft":
        """The draft with other metadata fields, which counts as a change."""
        return replace(self, metadata=replace(self.metadata, **fields), is_changed=True)  # type: ignore[arg-type] # The caller names fields of TableMetadata.


def empty_metadata(format_version: int) -> TableMetadata:
    """The metadata of a new table before its first update."""
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


F = TypeVar("F", StatisticsFile, PartitionStatisticsFile)


def apply_definition(draft: Draft, update: u.DefinitionUpdate) -> Draft:  # noqa: C901, PLR0911 # One line per update.
    match update:
        case u.AssignUuid():
            return assign_uuid(draft, update.uuid)
        case u.UpgradeFormatVersion():
            return upgrade_format_version(draft, update.format_version)
        case u.AddSchema():
            return add_schema(draft, update.schema)
        case u.SetCurrentSchema():
            return set_current_schema(draft, update.schema_id)
        case u.AddPartitionSpec():
            return add_spec(draft, update.spec)
        case u.SetDefaultSpec():
            return set_default_spec(draft, update.spec_id)
        case u.AddSortOrder():
            return add_sort_order(draft, update.sort_order)
        case u.SetDefaultSortOrder():
            return set_default_sort_order(draft, update.sort_order_id)
        case u.RemovePartitionSpecs():
            return remove_specs(draft, update.spec_ids)
        case u.RemoveSchemas():
            return remove_schemas(draft, update.schema_ids)
        case _:
            assert_never(update)


def apply_attribute(draft: Draft, update: u.AttributeUpdate) -> Draft:  # noqa: PLR0911 # One line per update.
    match update:
        case u.SetLocation():
            return set_location(draft, update.location)
        case u.SetProperties():
            return set_properties(draft, update.updates)
        case u.RemoveProperties():
            return remove_properties(draft, update.removals)
        case u.SetStatistics():
            return set_statistics(draft, update.statistics)
        case u.RemoveStatistics():
            return remove_statistics(draft, update.snapshot_id)
        case u.SetPartitionStatistics():
            return set_partition_statistics(draft, update.partition_statistics)
        case u.RemovePartitionStatistics():
            return remove_partition_statistics(draft, update.snapshot_id)
        case u.AddEncryptionKey():
            return add_encryption_key(draft, update.encryption_key)
        case u.RemoveEncryptionKey():
            return remove_encryption_key(draft, update.key_id)
        case _:
            assert_never(update)


def assign_uuid(draft: Draft, uuid: str) -> Draft:
    if not UUID_PATTERN.fullmatch(uuid):
        raise Invalid(f"Cannot assign uuid, not a UUID: {shorten(uuid)}")
    current = draft.metadata.table_uuid
    if current is not None and current.lower() == uuid.lower():
        return draft
    # Readers and locks identify a table by its uuid: with another uuid it would be another table.
    if current is not None and not draft.is_new:
        raise Invalid(f"Cannot reassign uuid: expected {current}, found {uuid}")
    return draft.changed(table_uuid=uuid)


def upgrade_format_version(draft: Draft, version: int) -> Draft:
    current = draft.metadata.format_version
    if version > FORMAT_VERSION_MAX:
        raise Invalid(
            f"Cannot upgrade table to unsupported format version: v{version} (supported: v{FORMAT_VERSION_MAX})"
        )
    if version < current:
        raise Invalid(f"Cannot downgrade v{current} table to v{version}")
    return draft if version == current else draft.changed(format_version=version)


def add_schema(draft: Draft, requested: Schema) -> Draft:
    metadata = draft.metadata
    schema = checked_schema(requested)
    check_format(schema, metadata.format_version)
    last_column_id = max(metadata.last_column_id, schema.highest_field_id)
    known = next((found for found in metadata.schemas if same_schema(found, schema)), None)
    if known is not None:
        reused = replace(draft, last_added_schema_id=known.schema_id or 0)
        return reused if last_column_id == metadata.last_column_id else reused.changed(last_column_id=last_column_id)
    schema_id = next_id((found.schema_id or 0 for found in metadata.schemas), start=0)
    added = msgspec.structs.replace(schema, schema_id=schema_id)
    return replace(draft, last_added_schema_id=schema_id).changed(
        schema_list=metadata.schema_list.with_appended(added), last_column_id=last_column_id
    )


def set_current_schema(draft: Draft, schema_id: int) -> Draft:
    chosen = _resolved(schema_id, draft.last_added_schema_id, "schema", "schema")
    if chosen not in {schema.schema_id or 0 for schema in draft.metadata.schemas}:
        raise Invalid(f"Cannot set current schema to unknown schema: {chosen}")
    if chosen == draft.metadata.current_schema_id:
        return draft
    return draft.changed(current_schema_id=chosen)


def _resolved(wanted: int, last_added: int | None, kind: str, noun: str) -> int:
    if wanted != u.LAST_ADDED:
        return wanted
    if last_added is None:
        raise Invalid(f"Cannot set last added {kind}: no {noun} has been added")
    return last_added


def _current_schema(draft: Draft, what: str) -> Schema:
    if draft.metadata.schema_list.is_empty:
        raise Invalid(f"Attempting to add a {what} before a schema is added")
    return draft.metadata.current_schema


def add_spec(draft: Draft, requested: PartitionSpec) -> Draft:
    metadata = draft.metadata
    version = metadata.format_version
    spec = bind_spec(requested, _current_schema(draft, "partition spec"), format_version=version)
    known = next((found for found in metadata.specs if same_spec(found, spec)), None)
    if known is not None:
        return replace(draft, last_added_spec_id=known.spec_id or SPEC_ID_START)
    with_ids = with_field_ids(spec, metadata.specs, last_id=metadata.last_partition_id, format_version=version)
    check_field_ids(with_ids, format_version=version)
    spec_id = next_id((found.spec_id or 0 for found in metadata.specs), start=SPEC_ID_START)
    return replace(draft, last_added_spec_id=spec_id).changed(
        spec_list=metadata.spec_list.with_appended(msgspec.structs.replace(with_ids, spec_id=spec_id)),
        last_partition_id=max(metadata.last_partition_id, with_ids.highest_field_id),
    )


def set_default_spec(draft: Draft, spec_id: int) -> Draft:
    """Whether the spec exists is checked at the end, so that a later update may add it."""
    chosen = _resolved(spec_id, draft.last_added_spec_id, "spec", "spec")
    return draft if chosen == draft.metadata.default_spec_id else draft.changed(default_spec_id=chosen)


def add_sort_order(draft: Draft, requested: SortOrder) -> Draft:
    metadata = draft.metadata
    order = bind_order(requested, _current_schema(draft, "sort order"))
    known = next((found for found in metadata.sort_orders if same_order(found, order)), None)
    if known is not None:
        return replace(draft, last_added_order_id=known.order_id or UNSORTED_ID)
    if order.fields:
        order_id = next_id((found.order_id or 0 for found in metadata.sort_orders), start=SORTED_ID_START)
        order = msgspec.structs.replace(order, order_id=order_id)
    else:
        order = UNSORTED
    return replace(draft, last_added_order_id=order.order_id).changed(
        sort_order_list=metadata.sort_order_list.with_appended(order)
    )


def set_default_sort_order(draft: Draft, order_id: int) -> Draft:
    """Whether the order exists is checked at the end, so that a later update may add it."""
    chosen = _resolved(order_id, draft.last_added_order_id, "sort order", "sort order")
    return draft if chosen == draft.metadata.default_sort_order_id else draft.changed(default_sort_order_id=chosen)


def remove_specs(draft: Draft, spec_ids: Iterable[int]) -> Draft:
    removed = frozenset(spec_ids)
    metadata = draft.metadata
    if metadata.default_spec_id in removed:
        raise Invalid("Cannot remove the default partition spec")
    is_kept = [(spec.spec_id or 0) not in removed for spec in metadata.specs]
    return draft if all(is_kept) else draft.changed(spec_list=metadata.spec_list.keep(is_kept))


def remove_schemas(draft: Draft, schema_ids: Iterable[int]) -> Draft:
    removed = frozenset(schema_ids)
    metadata = draft.metadata
    if metadata.current_schema_id in removed:
        raise Invalid("Cannot remove the current schema")
    is_kept = [(schema.schema_id or 0) not in removed for schema in metadata.schemas]
    return draft if all(is_kept) else draft.changed(schema_list=metadata.schema_list.keep(is_kept))


def set_location(draft: Draft, location: str) -> Draft:
    if not location:
        raise Invalid("Cannot set location: path must not be null or empty")
    stripped = without_trailing_slash(location)
    return draft if stripped == draft.metadata.location else draft.changed(location=stripped)


def set_properties(draft: Draft, updates: Mapping[str, str]) -> Draft:
    persisted = {key: value for key, value in updates.items() if key not in RESERVED_PROPERTIES}
    return draft.changed(properties={**draft.metadata.properties, **persisted}) if persisted else draft


def remove_properties(draft: Draft, removals: Sequence[str]) -> Draft:
    return draft.changed(properties=without_keys(draft.metadata.properties, removals)) if removals else draft


def set_statistics(draft: Draft, file: StatisticsFile) -> Draft:
    others = without_snapshots(draft.metadata.statistics_list, {file.snapshot_id})
    return draft.changed(statistics_list=others.with_appended(file))


def set_partition_statistics(draft: Draft, file: PartitionStatisticsFile) -> Draft:
    others = without_snapshots(draft.metadata.partition_statistics_list, {file.snapshot_id})
    return draft.changed(partition_statistics_list=others.with_appended(file))


def remove_statistics(draft: Draft, snapshot_id: int) -> Draft:
    files = draft.metadata.statistics_list
    others = without_snapshots(files, {snapshot_id})
    return draft if others is files else draft.changed(statistics_list=others)


def remove_partition_statistics(draft: Draft, snapshot_id: int) -> Draft:
    files = draft.metadata.partition_statistics_list
    others = without_snapshots(files, {snapshot_id})
    return draft if others is files else draft.changed(partition_statistics_list=others)


def without_snapshots(files: JsonArray[F], snapshot_ids: Container[int]) -> JsonArray[F]:
    """The files of other snapshots; `files` itself if nothing is removed."""
    if files.is_empty:
        return files
    is_kept = [file.snapshot_id not in snapshot_ids for file in files.project(SnapshotId)]
    return files if all(is_kept) else files.keep(is_kept)


def add_encryption_key(draft: Draft, key: EncryptedKey) -> Draft:
    keys = draft.metadata.encryption_key_list
    if key.key_id in {found.key_id for found in keys.items}:
        return draft
    return draft.changed(encryption_key_list=keys.with_appended(key))


def remove_encryption_key(draft: Draft, key_id: str) -> Draft:
    keys = draft.metadata.encryption_key_list
    is_kept = [found.key_id != key_id for found in keys.items]
    return draft if all(is_kept) else draft.changed(encryption_key_list=keys.keep(is_kept))


def integer_property(properties: Mapping[str, str], key: str, *, owner: str = "Table") -> int | None:
    """The number under `key`, None if the key is absent; raises `Invalid` if it is not a 32-bit integer."""
    text = properties.get(key)
    if text is None:
        return None
    number = int(text) if _INTEGER.fullmatch(text) else None
    if number is None or not -_INT32_MAX - 1 <= number <= _INT32_MAX:
        raise Invalid(f"{owner} property {key} must have integer value: {shorten(text)}")
    return number


def without_keys(properties: Mapping[str, str], removals: Collection[str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key not in removals}
