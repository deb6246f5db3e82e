"""The effect of each update on a table: identity, schemas, specs, sort orders, properties, statistics and keys."""

import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar, assert_never

import msgspec

from sandur.errors import Invalid
from sandur.iceberg import updates as u
from sandur.iceberg.partitioning import PartitionSpec, bind_spec, check_field_ids, same_spec, with_field_ids
from sandur.iceberg.schema import Schema, check_format, checked_schema, same_schema
from sandur.iceberg.snapshots import PartitionStatisticsFile, Snapshot, SnapshotId, StatisticsFile
from sandur.iceberg.sort_order import SORTED_ID_START, UNSORTED, UNSORTED_ID, SortOrder, bind_order, same_order
from sandur.iceberg.table_metadata import FORMAT_VERSION_MAX, TableMetadata, without_trailing_slash
from sandur.iceberg.types import UUID_PATTERN
from sandur.splicing import INT32_MAX, JsonArray, next_id, shorten

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
        before = len(self.metadata.snapshots.appended) - len(self.added_snapshots)
        older = self.metadata.snapshots.appended[:before]
        return any(item.snapshot_id == snapshot_id for item in older) or self.metadata.has_stored_snapshot(snapshot_id)

    def changed(self, **fields: object) -> "Draft":
        """The draft with other metadata fields, which counts as a change."""
        return replace(self, metadata=replace(self.metadata, **fields), is_changed=True)  # type: ignore[arg-type] # The caller names fields of TableMetadata.

    def changed_if(self, **fields: object) -> "Draft":
        """Like `changed`, but the draft itself if all fields have these values already."""
        is_same = all(getattr(self.metadata, name) == value for name, value in fields.items())
        return self if is_same else self.changed(**fields)


F = TypeVar("F", StatisticsFile, PartitionStatisticsFile)
T = TypeVar("T")


def apply_definition(draft: Draft, update: u.DefinitionUpdate) -> Draft:  # noqa: C901, PLR0911 # One case per update.
    metadata = draft.metadata
    match update:
        case u.AssignUuid():
            return assign_uuid(draft, update.uuid)
        case u.UpgradeFormatVersion():
            return upgrade_format_version(draft, update.format_version)
        case u.AddSchema():
            return add_schema(draft, update.schema)
        case u.SetCurrentSchema():
            chosen = _resolved(update.schema_id, draft.last_added_schema_id, "schema")
            if chosen not in {schema.schema_id or 0 for schema in metadata.schemas}:
                raise Invalid(f"Cannot set current schema to unknown schema: {chosen}")
            return draft.changed_if(current_schema_id=chosen)
        case u.AddPartitionSpec():
            return add_spec(draft, update.spec)
        # Whether the default spec or order exists is checked at the end: a later update may add it.
        case u.SetDefaultSpec():
            return draft.changed_if(default_spec_id=_resolved(update.spec_id, draft.last_added_spec_id, "spec"))
        case u.AddSortOrder():
            return add_sort_order(draft, update.sort_order)
        case u.SetDefaultSortOrder():
            order_id = _resolved(update.sort_order_id, draft.last_added_order_id, "sort order")
            return draft.changed_if(default_sort_order_id=order_id)
        case u.RemovePartitionSpecs():
            _check_unused("default partition spec", metadata.default_spec_id, update.spec_ids)
            return draft.changed_if(specs=_without(metadata.specs, update.spec_ids, lambda item: item.spec_id))
        case u.RemoveSchemas():
            _check_unused("current schema", metadata.current_schema_id, update.schema_ids)
            return draft.changed_if(schemas=_without(metadata.schemas, update.schema_ids, lambda item: item.schema_id))
        case _:
            assert_never(update)


def apply_attribute(draft: Draft, update: u.AttributeUpdate) -> Draft:  # noqa: PLR0911 # One case per update.
    metadata = draft.metadata
    match update:
        case u.SetLocation():
            return draft.changed_if(location=checked_path(update.location))
        case u.SetProperties():
            return set_properties(draft, update.updates)
        case u.RemoveProperties():
            remaining = without_keys(metadata.properties, update.removals)
            return draft.changed(properties=remaining) if update.removals else draft
        case u.SetStatistics(statistics=file):
            others = without_snapshots(metadata.statistics, {file.snapshot_id})
            return draft.changed(statistics=others.with_appended(file))
        case u.RemoveStatistics(snapshot_id=snapshot_id):
            return draft.changed_if(statistics=without_snapshots(metadata.statistics, {snapshot_id}))
        case u.SetPartitionStatistics(partition_statistics=partition_file):
            rest = without_snapshots(metadata.partition_statistics, {partition_file.snapshot_id})
            return draft.changed(partition_statistics=rest.with_appended(partition_file))
        case u.RemovePartitionStatistics(snapshot_id=snapshot_id):
            rest = without_snapshots(metadata.partition_statistics, {snapshot_id})
            return draft.changed_if(partition_statistics=rest)
        case u.AddEncryptionKey(encryption_key=key):
            is_known = any(found.key_id == key.key_id for found in metadata.encryption_keys)
            return draft if is_known else draft.changed(encryption_keys=metadata.encryption_keys.with_appended(key))
        case u.RemoveEncryptionKey():
            is_kept = [found.key_id != update.key_id for found in metadata.encryption_keys]
            return draft.changed_if(encryption_keys=metadata.encryption_keys.keep(is_kept))
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
    return draft.changed_if(format_version=version)


def add_schema(draft: Draft, requested: Schema) -> Draft:
    metadata = draft.metadata
    schema = checked_schema(requested)
    check_format(schema, metadata.format_version)
    last_column_id = max(metadata.last_column_id, schema.highest_field_id)
    known = next((found for found in metadata.schemas if same_schema(found, schema)), None)
    if known is not None:
        reused = replace(draft, last_added_schema_id=known.schema_id or 0)
        return reused.changed_if(last_column_id=last_column_id)
    schema_id = next_id((found.schema_id or 0 for found in metadata.schemas), start=0)
    added = msgspec.structs.replace(schema, schema_id=schema_id)
    return replace(draft, last_added_schema_id=schema_id).changed(
        schemas=metadata.schemas.with_appended(added), last_column_id=last_column_id
    )


def _resolved(wanted: int, last_added: int | None, kind: str) -> int:
    if wanted != u.LAST_ADDED:
        return wanted
    if last_added is None:
        raise Invalid(f"Cannot set last added {kind}: no {kind} has been added")
    return last_added


def _current_schema(draft: Draft, what: str) -> Schema:
    if draft.metadata.schemas.is_empty:
        raise Invalid(f"Attempting to add a {what} before a schema is added")
    return draft.metadata.current_schema


def add_spec(draft: Draft, requested: PartitionSpec) -> Draft:
    metadata = draft.metadata
    version = metadata.format_version
    spec = bind_spec(requested, _current_schema(draft, "partition spec"), format_version=version)
    known = next((found for found in metadata.specs if same_spec(found, spec)), None)
    if known is not None:
        return replace(draft, last_added_spec_id=known.spec_id or 0)
    with_ids = with_field_ids(spec, metadata.specs, last_id=metadata.last_partition_id, format_version=version)
    check_field_ids(with_ids, format_version=version)
    spec_id = next_id((found.spec_id or 0 for found in metadata.specs), start=0)
    return replace(draft, last_added_spec_id=spec_id).changed(
        specs=metadata.specs.with_appended(msgspec.structs.replace(with_ids, spec_id=spec_id)),
        last_partition_id=max(metadata.last_partition_id, with_ids.highest_field_id),
    )


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
        sort_orders=metadata.sort_orders.with_appended(order)
    )


def _check_unused(what: str, used_id: int, removed_ids: Collection[int]) -> None:
    if used_id in removed_ids:
        raise Invalid(f"Cannot remove the {what}")


def _without(items: JsonArray[T], ids: Iterable[int], id_of: Callable[[T], int | None]) -> JsonArray[T]:
    removed = frozenset(ids)
    return items.keep([(id_of(item) or 0) not in removed for item in items])


def checked_path(location: str) -> str:
    """The location without trailing slashes; raises `Invalid` if it is empty."""
    if not location:
        raise Invalid("Cannot set location: path must not be null or empty")
    return without_trailing_slash(location)


def set_properties(draft: Draft, updates: Mapping[str, str]) -> Draft:
    persisted = {key: value for key, value in updates.items() if key not in RESERVED_PROPERTIES}
    return draft.changed(properties={**draft.metadata.properties, **persisted}) if persisted else draft


def without_snapshots(files: JsonArray[F], snapshot_ids: Container[int]) -> JsonArray[F]:
    """The files of other snapshots; `files` itself if nothing is removed."""
    if files.is_empty:
        return files
    return files.keep([file.snapshot_id not in snapshot_ids for file in files.project(SnapshotId)])


def integer_property(properties: Mapping[str, str], key: str, *, owner: str = "Table") -> int | None:
    """The number under `key`, None if the key is absent; raises `Invalid` if it is not a 32-bit integer."""
    text = properties.get(key)
    if text is None:
        return None
    number = int(text) if _INTEGER.fullmatch(text) else None
    if number is None or not -INT32_MAX - 1 <= number <= INT32_MAX:
        raise Invalid(f"{owner} property {key} must have integer value: {shorten(text)}")
    return number


def without_keys(properties: Mapping[str, str], removals: Collection[str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key not in removals}
