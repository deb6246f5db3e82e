"""The first metadata of a new table, with fresh field ids."""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import TypeVar

import msgspec

from sandur.errors import Invalid
from sandur.iceberg import updates as u
from sandur.iceberg.partitioning import UNPARTITIONED, PartitionField, PartitionSpec, field_text
from sandur.iceberg.requests import AssertCreate, CreateTable
from sandur.iceberg.schema import Schema, checked_schema
from sandur.iceberg.sort_order import UNSORTED, SortField, order_field_text
from sandur.iceberg.table_commit import FORMAT_VERSION_DEFAULT, next_metadata, supported_format_version
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.table_updates import integer_property
from sandur.iceberg.types import FieldType, ListType, MapType, NestedField, StructType
from sandur.splicing import shorten

F = TypeVar("F", PartitionField, SortField)

FORMAT_VERSION_WITH_ENCRYPTION = 3
# Defaults of new tables; existing tables keep their properties.
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
    version = integer_property(properties, "format-version")
    version = supported_format_version(FORMAT_VERSION_DEFAULT if version is None else version)
    requested = checked_schema(request.schema)
    schema = with_fresh_ids(requested)
    spec_fields = [
        _with_sources_of(field, f"partition field: {field_text(field)}", requested, schema)
        for field in (request.partition_spec or UNPARTITIONED).fields
    ]
    spec = PartitionSpec(fields=tuple(msgspec.structs.replace(field, field_id=None) for field in spec_fields))
    requested_order = request.write_order or UNSORTED
    order_fields = [
        _with_sources_of(field, f"sort field: {order_field_text(field)}", requested, schema)
        for field in requested_order.fields
    ]
    order = msgspec.structs.replace(requested_order, fields=tuple(order_fields))
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


def _with_sources_of(field: F, text: str, requested: Schema, schema: Schema) -> F:
    """The field with the ids that its source columns have in `schema`."""
    if any(source not in requested.columns for source in field.sources):
        raise Invalid(f"Cannot find source column for {text}")
    sources = tuple(schema.ids_by_path[requested.columns[source].path] for source in field.sources)
    return msgspec.structs.replace(field, source_id=None, source_ids=sources)


def _check_properties(properties: Mapping[str, str], schema: Schema, format_version: int) -> None:
    """Raise `Invalid` for properties that only new tables must not have; existing tables stay usable."""
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


def with_fresh_ids(schema: Schema) -> Schema:
    """A checked schema with ids counted up from 1, level by level; identifier fields follow their names.

    The new schema has no schema id.
    """
    fields = _fresh_fields(schema.fields, count(1))
    fresh = Schema(fields=fields)
    identifiers = tuple(sorted(fresh.ids_by_path[schema.columns[field_id].path] for field_id in schema.identifiers))
    return Schema(fields=fields, identifier_field_ids=identifiers or None)


def _fresh_fields(fields: tuple[NestedField, ...], ids: Iterator[int]) -> tuple[NestedField, ...]:
    # All fields of a struct get their ids before any of their children: readers rely on that order.
    field_ids = [next(ids) for _ in fields]
    return tuple(
        msgspec.structs.replace(field, id=field_id, type=_fresh_type(field.type, ids))
        for field, field_id in zip(fields, field_ids, strict=True)
    )


def _fresh_type(field_type: FieldType, ids: Iterator[int]) -> FieldType:
    match field_type:
        case str():
            return field_type
        case StructType(fields=fields):
            return StructType(fields=_fresh_fields(fields, ids))
        case ListType():
            element_id = next(ids)
            element = _fresh_type(field_type.element, ids)
            return msgspec.structs.replace(field_type, element_id=element_id, element=element)
        case MapType():
            key_id, value_id = next(ids), next(ids)
            key, value = _fresh_type(field_type.key, ids), _fresh_type(field_type.value, ids)
            return msgspec.structs.replace(field_type, key_id=key_id, key=key, value_id=value_id, value=value)
