"""The info of a name in Unity Catalog's API: a table or view of any format, a volume, a function or a model."""

from collections.abc import Mapping, Sequence
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier
from sandur.catalog.infos import (
    FunctionInfo,
    RegisteredModelInfo,
    TableInfo,
    VolumeInfo,
    delta_table_info,
    securable_info,
    with_rename,
)
from sandur.catalog.locations import is_within, normalize_location
from sandur.catalog.records import BoundRecord, DeltaTable, NameRecord, Pointer, Securable
from sandur.delta import columns
from sandur.errors import BadRequest, NotFound
from sandur.iceberg.schema import Schema
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.types import FieldType, ListType, MapType, NestedField, StructType, primitive
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.lake import Lake
from sandur.operations.tables.documents import TABLES, VIEWS, load_document

Info = TableInfo | VolumeInfo | FunctionInfo | RegisteredModelInfo


async def info_of(lake: Lake, identifier: Identifier, name: NameRecord, record: BoundRecord) -> Info:
    """The info for lists and loads; with the bare minimum if the metadata of an Iceberg table cannot be read."""
    match record:
        case DeltaTable():
            return delta_table_info(identifier, with_rename(record, name))
        case Securable():
            return securable_info(identifier, with_rename(record, name))
        case Pointer():
            return await _iceberg_info(lake, identifier, name, record)
        case _:
            assert_never(record)


async def _iceberg_info(lake: Lake, identifier: Identifier, name: NameRecord, pointer: Pointer) -> TableInfo:
    location = pointer.head.metadata_location if pointer.head else ""
    bare = _bare_info(identifier, name, pointer, "VIEW" if name.kind == "view" else "EXTERNAL")
    try:
        if name.kind == "view":
            view = (await load_document(lake, VIEWS, location)).metadata
            version = view.current_version
            text = next((one.sql for one in version.representations if one.sql), None)
            described = _described(bare, view, ())
            owner = pointer.owner or described.owner
            dated = _dated(described, name, pointer, version.timestamp_ms)
            return replace(dated, view_definition=text, owner=owner)
        table = (await load_document(lake, TABLES, location)).metadata
        catalog = lake.catalog(identifier.catalog).last_seen or await lake.catalog(identifier.catalog).read()
        root = normalize_location(catalog.value.root) if catalog else ""
        info = _described(bare, table, identity_partitions(table))
        is_managed = bool(root) and is_within(normalize_location(table.location), root)
        table_type = "MANAGED" if is_managed else "EXTERNAL"
        dated = _dated(info, name, pointer, table.last_updated_ms or name.updated_ms)
        return replace(dated, table_type=table_type, owner=pointer.owner or info.owner)
    except (NotFound, BadRequest):  # The metadata file is missing or invalid. An unavailable store still raises.
        return bare


def _dated(info: TableInfo, name: NameRecord, pointer: Pointer, updated_ms: int) -> TableInfo:
    """The info with its last change: the last commit, or the rename that gave the table its name."""
    if name.renamed_by is not None and name.updated_ms > updated_ms:
        return replace(info, updated_at=name.updated_ms, updated_by=name.renamed_by or None)
    changed_by = pointer.head.source.principal if pointer.head else ""
    return replace(info, updated_at=updated_ms, updated_by=changed_by or None)


def _described(info: TableInfo, metadata: TableMetadata | ViewMetadata, partitions: Sequence[str]) -> TableInfo:
    """The info with the columns, the location and the properties of the metadata."""
    fields = enumerate(spark_fields(metadata.current_schema))
    table_columns = [columns.column_from_field(field, position) for position, field in fields]
    return replace(
        info,
        columns=columns.encode_columns(columns.with_partitions(table_columns, partitions)),
        storage_location=metadata.location,
        properties=dict(metadata.properties),
        comment=metadata.properties.get("comment"),
        owner=metadata.properties.get("owner"),
    )


def _bare_info(identifier: Identifier, name: NameRecord, pointer: Pointer, table_type: str) -> TableInfo:
    return TableInfo(
        name=identifier.name,
        catalog_name=identifier.catalog,
        schema_name=str(identifier.namespace),
        table_type=table_type,
        data_source_format="ICEBERG",
        columns=msgspec.Raw(b"[]"),
        storage_location="",
        properties={},
        table_id=name.uuid,
        created_at=pointer.created_ms or name.updated_ms,
        created_by=pointer.created_by or None,
        updated_at=name.updated_ms,
    )


SparkType = str | Mapping[str, object]

# Primitives with another name in Spark. What Spark has no type for is named after what its readers get instead.
_SPARK_NAMES: Final[Mapping[str, str]] = {
    "int": "integer",
    "time": "string",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "timestamp_ns": "timestamp_ntz",
    "timestamptz_ns": "timestamp",
    "uuid": "string",
    "fixed": "binary",
    "unknown": "void",
    "geometry": "binary",
    "geography": "binary",
}


def spark_fields(schema: Schema) -> Sequence[Mapping[str, object]]:
    """The fields of a schema, in their order."""
    return [_field(field) for field in schema.fields]


def identity_partitions(metadata: TableMetadata) -> Sequence[str]:
    """The columns that the table is partitioned by as they are, in the order of its partition spec."""
    names = {field.id: field.name for field in metadata.current_schema.fields}
    identities = [field for field in metadata.default_spec.fields if field.transform == "identity"]
    return list(dict.fromkeys(names[field.sources[0]] for field in identities if field.sources[0] in names))


def _field(field: NestedField) -> Mapping[str, object]:
    return {
        "name": field.name,
        "type": _type(field.type),
        "nullable": not field.required,
        "metadata": {} if field.doc is None else {"comment": field.doc},
    }


def _type(field_type: FieldType) -> SparkType:
    match field_type:
        case str():
            found = primitive(field_type)
            if found.name == "decimal":
                return f"decimal({found.precision},{found.scale})"
            return _SPARK_NAMES.get(found.name, found.name)
        case StructType(fields=fields):
            return {"type": "struct", "fields": [_field(field) for field in fields]}
        case ListType():
            return {
                "type": "array",
                "elementType": _type(field_type.element),
                "containsNull": not field_type.element_required,
            }
        case MapType():
            return {
                "type": "map",
                "keyType": _type(field_type.key),
                "valueType": _type(field_type.value),
                "valueContainsNull": not field_type.value_required,
            }
