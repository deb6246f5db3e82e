"""Iceberg's columns as Spark spells them: one field of a struct as JSON, the form that catalogs exchange."""

from collections.abc import Mapping, Sequence
from typing import Final

from sandur.iceberg.schema import Schema
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.types import FieldType, ListType, MapType, NestedField, StructType, primitive

SparkType = str | Mapping[str, object]

# What Spark has no type for is named after what its readers get instead.
_PRIMITIVES: Final[Mapping[str, str]] = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "time": "string",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "timestamp_ns": "timestamp_ntz",
    "timestamptz_ns": "timestamp",
    "string": "string",
    "uuid": "string",
    "fixed": "binary",
    "binary": "binary",
    "variant": "variant",
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
            return _PRIMITIVES[found.name]
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
