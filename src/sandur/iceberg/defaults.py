"""Default values of columns: which JSON values a type accepts."""

import re
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation

from sandur.errors import Invalid
from sandur.iceberg.raw_json import encode, shortened
from sandur.iceberg.types import Default, FieldType, NestedField, Primitive, primitive, type_text

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = re.compile(r"([0-9a-fA-F]{2})*")
_TIME = re.compile(r"([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(\.[0-9]{1,9})?")
_TIMESTAMP = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(\.[0-9]{1,9})?")
_UTC_SUFFIXES = ("+00:00", "Z")
_NULL_ONLY = frozenset({"variant", "unknown", "geometry", "geography"})
_INTEGER_BITS = {"int": 32, "long": 64}


def check_defaults(field: NestedField) -> None:
    """Refuse with `Invalid` a default that does not fit the type of the field."""
    for value in (field.initial_default, field.write_default):
        if value is not None:
            _check_default(field.type, value)


def _check_default(field_type: FieldType, value: Default) -> None:
    shown = shortened(encode(value).decode())
    if not isinstance(field_type, str) or primitive(field_type).name in _NULL_ONLY:
        raise Invalid(f"Invalid default value for {type_text(field_type)}: {shown} (must be null)")
    column_type = primitive(field_type)
    if not _fits(column_type, value):
        raise Invalid(f"Cannot parse default as a {column_type.text} value: {shown}")


def _fits(column_type: Primitive, value: Default) -> bool:
    match column_type.name, value:
        case "boolean", bool():
            return True
        case (("int" | "long"), int()) if not isinstance(value, bool):
            half = 1 << (_INTEGER_BITS[column_type.name] - 1)
            return -half <= value < half
        case (("float" | "double"), float()):
            return True
        case "string", str():
            return True
        case _, str():
            return _fits_text(column_type, value)
        case _:
            return False


def _fits_text(column_type: Primitive, value: str) -> bool:
    match column_type.name:
        case "decimal":
            fits = _fits_decimal(column_type, value)
        case "uuid":
            fits = _UUID.fullmatch(value) is not None
        case "date":
            fits = _parses(date.fromisoformat, value)
        case "time":
            fits = (match := _TIME.fullmatch(value)) is not None and _parses(time.fromisoformat, match[1])
        case "timestamp" | "timestamp_ns":
            fits = _is_timestamp(value)
        case "timestamptz" | "timestamptz_ns":
            fits = any(value.endswith(suffix) and _is_timestamp(value.removesuffix(suffix)) for suffix in _UTC_SUFFIXES)
        case "fixed":
            fits = len(value) == 2 * column_type.length and _HEX.fullmatch(value) is not None
        case "binary":
            fits = _HEX.fullmatch(value) is not None
        case _:
            fits = False
    return fits


def _fits_decimal(column_type: Primitive, value: str) -> bool:
    try:
        exponent = Decimal(value).as_tuple().exponent
    except InvalidOperation:
        return False
    return exponent == -column_type.scale


def _is_timestamp(value: str) -> bool:
    match = _TIMESTAMP.fullmatch(value)
    return match is not None and _parses(datetime.fromisoformat, match[1])


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True
