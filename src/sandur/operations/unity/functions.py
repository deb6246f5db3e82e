"""Functions of Unity Catalog in the form of Iceberg's functions, for clients of the Iceberg REST API."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from sandur.catalog.functions import FunctionParameter
from sandur.catalog.records import Securable
from sandur.delta.columns import ColumnInfo, field_from_column
from sandur.delta.create_plan import parse_columns
from sandur.errors import Invalid

IcebergType = str | dict[str, object]

_NAMES: Final[Mapping[str, str]] = {
    "byte": "int",
    "short": "int",
    "integer": "int",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "void": "unknown",
    "null": "unknown",
}
_PLAIN: Final = frozenset({"boolean", "long", "float", "double", "date", "binary", "string", "variant"})
_SQL: Final = "spark"
_TABLE: Final = "TABLE_TYPE"


def function_metadata(record: Securable) -> Mapping[str, object]:
    """The metadata of a function that exists, with one definition of one version: Unity Catalog knows no overloads.

    Types that Iceberg does not have, such as intervals, become strings. A body in another language than SQL has that
    language as its dialect.
    """
    function = record.function
    if function is None:
        raise Invalid(f"function {record.uuid} has no definition")
    parameters = function.input_params.parameters or ()
    types = [_parameter_type(parameter) for parameter in parameters]
    definition_id = ",".join(map(_text, types))
    returned = (function.return_params.parameters if function.return_params else None) or ()
    is_table = function.data_type == _TABLE
    dialect = _SQL if function.routine_body == "SQL" else (function.external_language or "external").lower()
    version = {
        "version-id": 1,
        "representations": [{"type": "sql", "dialect": dialect, "sql": function.routine_definition}],
        "deterministic": function.is_deterministic,
        "on-null-input": "call" if function.is_null_call else "return-null",
        "timestamp-ms": record.created_ms,
    }
    definition = {
        "definition-id": definition_id,
        "specific-name": function.specific_name,
        "parameters": [_described(parameter, kind) for parameter, kind in zip(parameters, types, strict=True)],
        "return-type": _struct(returned) if is_table else _type(_parsed(function.full_data_type, function.data_type)),
        "versions": [version],
        "current-version-id": 1,
        "function-type": "udtf" if is_table else "udf",
    }
    chosen = {"definition-id": definition_id, "version-id": 1}
    metadata = {
        "function-uuid": record.uuid,
        "format-version": 1,
        "definitions": [definition],
        "definition-log": [{"timestamp-ms": record.created_ms, "definition-versions": [chosen]}],
        "secure": False,
    }
    return {**metadata, "doc": record.comment} if record.comment else metadata


def _described(parameter: FunctionParameter, kind: IcebergType) -> dict[str, object]:
    described: dict[str, object] = {"name": parameter.name, "type": kind}
    return {**described, "doc": parameter.comment} if parameter.comment else described


def _struct(columns: Sequence[FunctionParameter]) -> IcebergType:
    return {"type": "struct", "fields": [{"name": one.name, "type": _parameter_type(one)} for one in columns]}


def _parameter_type(parameter: FunctionParameter) -> IcebergType:
    column = ColumnInfo(
        name=parameter.name,
        type_text=parameter.type_text,
        type_json=parameter.type_json,
        type_name=parameter.type_name,
        type_precision=parameter.type_precision,
        type_scale=parameter.type_scale,
    )
    return _type(field_from_column(column)["type"])


def _parsed(text: str, name: str) -> object:
    """The type of a text such as `array<int>`; the named type if the text is not a type of SQL."""
    try:
        return parse_columns(f"value {text}")[0]["type"]
    except Invalid:
        return field_from_column(ColumnInfo(name="value", type_name=name))["type"]


def _type(kind: object) -> IcebergType:
    """Iceberg's type for one of Spark."""
    match kind:
        case str():
            plain = kind.replace(" ", "").lower()
            return plain if plain in _PLAIN or plain.startswith("decimal(") else _NAMES.get(plain, "string")
        case {"type": "array", "elementType": element}:
            return {"type": "list", "element": _type(element)}
        case {"type": "map", "keyType": key, "valueType": value}:
            return {"type": "map", "key": _type(key), "value": _type(value)}
        case {"type": "struct", "fields": [*fields]}:
            return {"type": "struct", "fields": [{"name": one["name"], "type": _type(one["type"])} for one in fields]}
    return "string"


def _text(kind: IcebergType) -> str:
    """A type as a part of a definition's id: without spaces."""
    return kind if isinstance(kind, str) else msgspec.json.encode(kind).decode().replace(" ", "")
