"""The data types of Delta in three forms: JSON of the log, JSON of the Delta API, and SQL text.

A type is decoded JSON: a name, or an object with `type`. The log (and Spark's `type_json`) names the parts of arrays
and maps in camel case, the Delta API in kebab case.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from sandur.errors import Invalid

DataType = object
"""A name, or a mapping with `type`; every function here refuses anything else."""

DEPTH_MAX: Final = 100

_DECIMAL: Final = re.compile(r"decimal\(\s*(\d{1,4})\s*,\s*(-?\d{1,4})\s*\)\Z")
_SIZED: Final = re.compile(r"(char|varchar)\(\s*\d{1,9}\s*\)\Z")
_PRECISION_MAX: Final = 38

_PRIMITIVES: Final = frozenset(
    {"boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz"}
    | {"string", "binary", "variant", "void", "null", "decimal"}
)
TYPE_NAMES: Final = frozenset(
    {"BOOLEAN", "BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "STRING"}
    | {"BINARY", "DECIMAL", "INTERVAL", "ARRAY", "STRUCT", "MAP", "VARIANT", "CHAR", "NULL", "USER_DEFINED_TYPE"}
    | {"TABLE_TYPE"}
)
"""The type names of the classic API."""
# Delta drops columns without a type, and stores char and varchar as strings.
_DELTA_PRIMITIVES: Final = _PRIMITIVES - {"void", "null"}
# Where the classic API or SQL has another name than the log.
_TYPE_NAMES: Final[Mapping[str, str]] = {"integer": "INT", "void": "NULL"}
_TYPE_TEXTS: Final[Mapping[str, str]] = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "null": "void",
    "decimal": "decimal(10,0)",
}
_ALIASES: Final[Mapping[str, str]] = {
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "bigint": "long",
    "real": "float",
    "numeric": "decimal",
    "dec": "decimal",
    "bool": "boolean",
    "timestamp_ltz": "timestamp",
}
_CAMEL_OF: Final[Mapping[str, Mapping[str, str]]] = {
    "array": {"elementType": "element-type", "containsNull": "contains-null"},
    "map": {"keyType": "key-type", "valueType": "value-type", "valueContainsNull": "value-contains-null"},
}
_NESTED: Final = frozenset({"elementType", "keyType", "valueType"})


def decimal_parameters(name: str) -> tuple[int, int] | None:
    """The precision and scale of `decimal(p,s)`; None for any other name."""
    match = _DECIMAL.match(name)
    return (int(match[1]), int(match[2])) if match else None


def from_api(value: DataType, path: str, depth: int = 0) -> DataType:
    """Convert a type from the form of the Delta API to that of the log; raises Invalid with the path."""
    if isinstance(value, str):
        return _checked_name(value, path)
    if depth > DEPTH_MAX:
        raise Invalid(f"{path}: types are nested more than {DEPTH_MAX} levels deep")
    if not isinstance(value, dict):
        raise Invalid(f"{path} is not a type")
    kind = value.get("type")
    if kind == "struct":
        return {"type": "struct", "fields": fields_from_api(value.get("fields"), path, depth + 1)}
    if not isinstance(kind, str) or kind not in _CAMEL_OF:
        raise Invalid(f"{path}: unknown type {kind!r}")
    converted: dict[str, object] = {"type": kind}
    for camel, kebab in _CAMEL_OF[kind].items():
        # The form of the log is accepted as well: clients copy schemas from logs.
        part = value.get(kebab, value.get(camel))
        if part is None:
            raise Invalid(f"{path}.{kebab} is required")
        if camel in _NESTED:
            converted[camel] = from_api(part, f"{path}.{kebab}", depth + 1)
        else:
            converted[camel] = _checked_flag(part, f"{path}.{kebab}")
    return converted


def fields_from_api(value: object, path: str, depth: int = 0) -> list[dict[str, object]]:
    """Convert the fields of a struct to the form of the log; names must differ by more than case."""
    if not isinstance(value, list):
        raise Invalid(f"{path}.fields is required")
    if not value:
        raise Invalid(f"{path}.fields must contain at least one field")
    fields: list[dict[str, object]] = []
    seen: set[str] = set()
    for position, field in enumerate(value):
        where = f"{path}.fields[{position}]"
        converted = _field_from_api(field, where, depth)
        name = str(converted["name"])
        if name.lower() in seen:
            raise Invalid(f"{where}: duplicate field name {name!r} (names differ only by case)")
        seen.add(name.lower())
        fields.append(converted)
    return fields


def _field_from_api(field: object, path: str, depth: int) -> dict[str, object]:
    if not isinstance(field, dict):
        raise Invalid(f"{path} is not a field")
    name = field.get("name")
    if not isinstance(name, str) or not name.strip():
        raise Invalid(f"{path}.name is required")
    for part in ("type", "nullable", "metadata"):
        if field.get(part) is None:
            raise Invalid(f"{path}.{part} is required")
    if not isinstance(field["metadata"], dict):
        raise Invalid(f"{path}.metadata must be an object")
    kind, nullable = field["type"], field["nullable"]
    return {
        "name": name,
        # The path of an error is built only if it is needed.
        "type": kind if isinstance(kind, str) and kind in _DELTA_PRIMITIVES else from_api(kind, f"{path}.type", depth),
        "nullable": nullable if isinstance(nullable, bool) else _checked_flag(nullable, f"{path}.nullable"),
        "metadata": field["metadata"],
    }


def to_api(value: DataType) -> DataType:
    """Convert a type from the form of the log to that of the Delta API; an unknown type stays as it is."""
    if not isinstance(value, dict):
        return value
    kind = value.get("type")
    if kind == "struct":
        return {"type": "struct", "fields": [field_to_api(field) for field in value.get("fields") or ()]}
    if kind is None or kind not in _CAMEL_OF:
        return value
    converted: dict[str, object] = {"type": kind}
    for camel, kebab in _CAMEL_OF[kind].items():
        converted[kebab] = to_api(value.get(camel)) if camel in _NESTED else value.get(camel)
    return converted


def field_to_api(field: Mapping[str, object]) -> dict[str, object]:
    return {**field, "type": to_api(field.get("type"))}


def fields_of(value: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    """The fields of a struct, as far as they are fields: some types come from logs, which clients write."""
    fields = value.get("fields")
    return [field for field in fields if isinstance(field, dict)] if isinstance(fields, list | tuple) else ()


def type_text(value: DataType, *, depth: int = 0) -> str:
    """The SQL text of a type, as in Spark's `catalogString`."""
    if isinstance(value, str):
        return _TYPE_TEXTS.get(value) or value.replace(" ", "")
    if isinstance(value, dict) and depth < DEPTH_MAX:
        below = partial(type_text, depth=depth + 1)
        match value.get("type"):
            case "array":
                return f"array<{below(value.get('elementType'))}>"
            case "map":
                return f"map<{below(value.get('keyType'))},{below(value.get('valueType'))}>"
            case "struct":
                fields = [f"{field.get('name')}:{below(field.get('type'))}" for field in fields_of(value)]
                return f"struct<{','.join(fields)}>"
            case "udt":
                return "udt"
    return "string"


def type_name(value: DataType) -> str:
    """The type name of the classic API."""
    if isinstance(value, str):
        if value in _PRIMITIVES:
            return _TYPE_NAMES.get(value, value.upper())
        if value.startswith("decimal"):
            return "DECIMAL"
        if value.startswith("interval"):
            return "INTERVAL"
        return "CHAR" if _SIZED.match(value) else "USER_DEFINED_TYPE"
    kind = value.get("type") if isinstance(value, dict) else None
    return {"array": "ARRAY", "map": "MAP", "struct": "STRUCT"}.get(str(kind), "USER_DEFINED_TYPE")


def named_type(name: str) -> str:
    """The log's name for a type name of SQL or of the classic API."""
    plain = name.strip().lower()
    return _ALIASES.get(plain, plain)


def _checked_name(name: str, path: str) -> str:
    if numbers := decimal_parameters(name):
        precision, scale = numbers
        if not 0 <= precision <= _PRECISION_MAX:
            raise Invalid(f"{path}: the precision of {name} must be from 0 to {_PRECISION_MAX}")
        if not 0 <= scale <= precision:
            raise Invalid(f"{path}: the scale of {name} must be from 0 to its precision")
        return name
    if name in _DELTA_PRIMITIVES:
        return name
    if name in _PRIMITIVES or _SIZED.match(name) or name.startswith("interval"):
        raise Invalid(f"{path}: a Delta table cannot have a column of the type {name[:100]!r}")
    raise Invalid(f"{path}: unknown type {name[:100]!r}")


def _checked_flag(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise Invalid(f"{path} must be true or false")
    return value
