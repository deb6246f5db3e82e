"""The first metadata of a new table, with fresh field ids."""

from collections.abc import Callable, Iterator, Mapping
from itertools import count

import msgspec

from sandur.errors import Invalid
from sandur.iceberg import updates as u
from sandur.iceberg.partitioning import UNPARTITIONED, PartitionField, PartitionSpec, field_text, spec_carried_forward
from sandur.iceberg.properties import integer_property
from sandur.iceberg.requests import CreateTable
from sandur.iceberg.requirements import AssertCreate
from sandur.iceberg.schema import Schema, checked_schema
from sandur.iceberg.snapshots import MAIN_BRANCH
from sandur.iceberg.sort_order import UNSORTED, SortField, SortOrder, order_field_text
from sandur.iceberg.table_commit import FORMAT_VERSION_DEFAULT, next_metadata, supported_format_version
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.types import FieldType, ListType, MapType, NestedField, StructType
from sandur.splicing import next_id, shorten

FORMAT_VERSION_WITH_ENCRYPTION = 3
# What new tables get unless the request says otherwise; existing tables keep what they have.
DEFAULT_PROPERTIES = {"write.parquet.compression-codec": "zstd"}

_METRICS_PREFIX = "write.metadata.metrics.column."
_ENCRYPTION_PROPERTIES = ("encryption.data-key-length", "encryption.key-id")
_COMMIT_PROPERTIES = (
    "commit.retry.num-retries",
    "commit.retry.min-wait-ms",
    "commit.retry.max-wait-ms",
    "commit.retry.total-timeout-ms",
)


def create_table_metadata(request: CreateTable, *, location: str, table_uuid: str, now_ms: int) -> TableMetadata:
    """The metadata of a new table with fresh field ids; raises `Invalid` if the request breaks a rule."""
    properties = request.properties or {}
    version = format_version_of(properties, FORMAT_VERSION_DEFAULT)
    requested = checked_schema(request.schema)
    schema = with_fresh_ids(requested)
    spec = _with_sources_by_name(request.partition_spec or UNPARTITIONED, requested, schema)
    order = _order_with_sources_by_name(request.write_order or UNSORTED, requested, schema)
    _check_properties(properties, requested, version)
    updates: list[u.Update] = [
        u.AssignUuid(uuid=table_uuid),
        u.UpgradeFormatVersion(format_version=version),
        u.AddSchema(schema=schema),
        u.SetCurrentSchema(schema_id=u.LAST_ADDED),
        u.AddPartitionSpec(spec=spec),
        u.SetDefaultSpec(spec_id=u.LAST_ADDED),
        u.AddSortOrder(sort_order=order),
        u.SetDefaultSortOrder(sort_order_id=u.LAST_ADDED),
        u.SetLocation(location=location),
        u.SetProperties(updates={**DEFAULT_PROPERTIES, **properties}),
    ]
    return next_metadata(None, [AssertCreate()], updates, now_ms=now_ms)


def replace_table_metadata(base: TableMetadata, request: CreateTable, *, location: str, now_ms: int) -> TableMetadata:
    """The metadata of a table replaced by a new definition; raises `Invalid` if the request breaks a rule.

    The table keeps its uuid, its snapshots and its history. Columns and partition fields that it had before keep their
    ids; nothing is current until the next snapshot.
    """
    properties = request.properties or {}
    version = format_version_of(properties, base.format_version)
    requested = checked_schema(request.schema)
    schema = with_fresh_ids(requested, previous=base.current_schema, last_id=base.last_column_id)
    spec = _with_sources_by_name(request.partition_spec or UNPARTITIONED, requested, schema)
    if base.format_version == 1:
        spec = spec_carried_forward(spec, base.default_spec, last_id=base.last_partition_id)
    order = _order_with_sources_by_name(request.write_order or UNSORTED, requested, schema)
    updates: list[u.Update] = [
        u.UpgradeFormatVersion(format_version=version),
        u.RemoveSnapshotRef(ref_name=MAIN_BRANCH),
        u.AddSchema(schema=schema),
        u.SetCurrentSchema(schema_id=u.LAST_ADDED),
        u.AddPartitionSpec(spec=spec),
        u.SetDefaultSpec(spec_id=u.LAST_ADDED),
        u.AddSortOrder(sort_order=order),
        u.SetDefaultSortOrder(sort_order_id=u.LAST_ADDED),
        u.SetLocation(location=location),
        u.SetProperties(updates={**DEFAULT_PROPERTIES, **properties}),
    ]
    return next_metadata(base, [], updates, now_ms=now_ms)


def format_version_of(properties: Mapping[str, str], default: int) -> int:
    """The format version that the properties ask for; raises `Invalid` if it is not one that exists."""
    version = integer_property(properties, "format-version")
    return default if version is None else supported_format_version(version)


def _with_sources_by_name(spec: PartitionSpec, requested: Schema, schema: Schema) -> PartitionSpec:
    """The spec with the ids that its source columns have in `schema`, and no field ids of its own."""

    def moved(field: PartitionField) -> PartitionField:
        missing = f"Cannot find source column for partition field: {field_text(field)}"
        sources = _moved_sources(field.sources, requested, schema, missing)
        return PartitionField(name=field.name, transform=field.transform, source_ids=sources)

    return PartitionSpec(fields=tuple(map(moved, spec.fields)))


def _order_with_sources_by_name(order: SortOrder, requested: Schema, schema: Schema) -> SortOrder:
    def moved(field: SortField) -> SortField:
        missing = f"Cannot find source column for sort field: {order_field_text(field)}"
        sources = _moved_sources(field.sources, requested, schema, missing)
        return msgspec.structs.replace(field, source_id=None, source_ids=sources)

    return msgspec.structs.replace(order, fields=tuple(map(moved, order.fields)))


def _moved_sources(sources: tuple[int, ...], requested: Schema, schema: Schema, missing: str) -> tuple[int, ...]:
    if any(source not in requested.columns for source in sources):
        raise Invalid(missing)
    return tuple(schema.ids_by_path[requested.columns[source].path] for source in sources)


def _check_properties(properties: Mapping[str, str], schema: Schema, format_version: int) -> None:
    """What is asked of new tables only: existing ones must stay usable with what they have."""
    for key in properties:
        column = key.removeprefix(_METRICS_PREFIX)
        if key.startswith(_METRICS_PREFIX) and column not in schema.ids_by_path:
            raise Invalid(
                f"Invalid metrics config, could not find column {shorten(column)} "
                f"from table prop {shorten(key)} in schema"
            )
    for key in _COMMIT_PROPERTIES:
        if (integer_property(properties, key) or 0) < 0:
            raise Invalid(f"Table property {key} must have non negative integer value")
    encryption = [key for key in _ENCRYPTION_PROPERTIES if key in properties]
    if encryption and format_version < FORMAT_VERSION_WITH_ENCRYPTION:
        raise Invalid(f"Invalid properties for v{format_version}: [{', '.join(encryption)}]")


IdFor = Callable[[str], int]


def with_fresh_ids(schema: Schema, *, previous: Schema | None = None, last_id: int = 0) -> Schema:
    """The schema with ids counted up from `last_id`, level by level; identifier fields follow their names.

    A column that `previous` has under the same full name keeps that id. The schema has no schema id.
    """
    ids = _ids(previous, last_id)
    fields = _fresh_fields(schema.fields, "", ids)
    fresh = Schema(fields=fields)
    identifiers = tuple(sorted(fresh.ids_by_path[schema.columns[field_id].path] for field_id in _identifiers(schema)))
    next_id([fresh.highest_field_id - 1], start=0)  # Refuses ids that no reader could hold.
    return Schema(fields=fields, identifier_field_ids=identifiers or None)


def _identifiers(schema: Schema) -> Iterator[int]:
    for field_id in schema.identifiers:
        if field_id not in schema.columns:
            raise Invalid(f"Cannot add fieldId {field_id} as an identifier field: field does not exist")
        yield field_id


def _ids(previous: Schema | None, last_id: int) -> IdFor:
    fresh = count(last_id + 1)
    if previous is None:
        return lambda _: next(fresh)
    known = previous.ids_by_path
    return lambda path: known[path] if path in known else next(fresh)


def _fresh_fields(fields: tuple[NestedField, ...], prefix: str, ids: IdFor) -> tuple[NestedField, ...]:
    # All fields of a struct get their ids before any of their children: readers rely on that order.
    paths = [prefix + field.name for field in fields]
    field_ids = list(map(ids, paths))
    return tuple(
        msgspec.structs.replace(field, id=field_id, type=_fresh_type(field.type, path, ids))
        for field, field_id, path in zip(fields, field_ids, paths, strict=True)
    )


def _fresh_type(field_type: FieldType, path: str, ids: IdFor) -> FieldType:
    match field_type:
        case str():
            return field_type
        case StructType(fields=fields):
            return StructType(fields=_fresh_fields(fields, path + ".", ids))
        case ListType():
            element_path = path + ".element"
            element_id = ids(element_path)
            element = _fresh_type(field_type.element, element_path, ids)
            return msgspec.structs.replace(field_type, element_id=element_id, element=element)
        case MapType():
            key_path, value_path = path + ".key", path + ".value"
            key_id, value_id = ids(key_path), ids(value_path)
            key, value = _fresh_type(field_type.key, key_path, ids), _fresh_type(field_type.value, value_path, ids)
            return msgspec.structs.replace(field_type, key_id=key_id, key=key, value_id=value_id, value=value)
