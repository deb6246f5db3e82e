"""Iceberg columns in Spark's JSON form."""

import pytest

from sandur.delta.types import type_name, type_text
from sandur.iceberg.schema import Schema
from sandur.iceberg.types import ListType, MapType, NestedField, StructType
from sandur.operations.unity.infos import spark_fields


def fields(*types: object) -> Schema:
    return Schema(
        fields=tuple(
            NestedField(id=number, name=f"c{number}", required=False, type=kind)  # type: ignore[arg-type] # any of them
            for number, kind in enumerate(types, 1)
        )
    )


@pytest.mark.parametrize(
    ("iceberg", "spark", "text", "name"),
    [
        ("boolean", "boolean", "boolean", "BOOLEAN"),
        ("int", "integer", "int", "INT"),
        ("long", "long", "bigint", "LONG"),
        ("float", "float", "float", "FLOAT"),
        ("double", "double", "double", "DOUBLE"),
        ("date", "date", "date", "DATE"),
        ("time", "string", "string", "STRING"),
        ("timestamp", "timestamp_ntz", "timestamp_ntz", "TIMESTAMP_NTZ"),
        ("timestamptz", "timestamp", "timestamp", "TIMESTAMP"),
        ("timestamp_ns", "timestamp_ntz", "timestamp_ntz", "TIMESTAMP_NTZ"),
        ("timestamptz_ns", "timestamp", "timestamp", "TIMESTAMP"),
        ("string", "string", "string", "STRING"),
        ("uuid", "string", "string", "STRING"),
        ("fixed[16]", "binary", "binary", "BINARY"),
        ("binary", "binary", "binary", "BINARY"),
        ("decimal(9, 2)", "decimal(9,2)", "decimal(9,2)", "DECIMAL"),
        ("variant", "variant", "variant", "VARIANT"),
        ("unknown", "void", "void", "NULL"),
        ("geometry", "binary", "binary", "BINARY"),
        ("geography(srid:4326)", "binary", "binary", "BINARY"),
    ],
)
def test_every_primitive_has_a_type_that_spark_reads(iceberg: str, spark: str, text: str, name: str) -> None:
    (field,) = spark_fields(fields(iceberg))

    assert field["type"] == spark
    assert (type_text(field["type"]), type_name(field["type"])) == (text, name)


def test_nested_types_keep_their_nullability() -> None:
    inner = StructType(fields=(NestedField(id=10, name="x", required=True, type="int", doc="inside"),))
    schema = fields(
        inner,
        ListType(element_id=11, element="long", element_required=True),
        MapType(key_id=12, key="string", value_id=13, value=inner, value_required=False),
    )

    struct, array, mapping = (field["type"] for field in spark_fields(schema))

    assert struct == {
        "type": "struct",
        "fields": [{"name": "x", "type": "integer", "nullable": False, "metadata": {"comment": "inside"}}],
    }
    assert array == {"type": "array", "elementType": "long", "containsNull": False}
    assert mapping == {"type": "map", "keyType": "string", "valueType": struct, "valueContainsNull": True}
    assert type_text(mapping) == "map<string,struct<x:int>>"
