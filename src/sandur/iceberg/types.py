"""The types of Iceberg columns: primitives as their canonical text, and struct, list and map."""

import re
from functools import lru_cache
from typing import Literal

import msgspec

from sandur.errors import Invalid
from sandur.splicing import INT32_MAX, Int32, shorten

UUID_PATTERN = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

DEPTH_MAX = 100
DECIMAL_PRECISION_MAX = 38
GEO_CRS_DEFAULT = "OGC:CRS84"
GEO_ALGORITHM_DEFAULT = "spherical"
GEO_ALGORITHMS = ("spherical", "vincenty", "thomas", "andoyer", "karney")

TIMESTAMPS = frozenset({"timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"})
INTEGERS = TIMESTAMPS | {"int", "long", "date", "time"}
FLOATS = frozenset({"float", "double"})
BYTES = frozenset({"uuid", "fixed", "binary"})
COMPARABLE = INTEGERS | FLOATS | BYTES | {"boolean", "decimal", "string"}
SINCE_V3 = frozenset({"timestamp_ns", "timestamptz_ns", "variant", "unknown", "geometry", "geography"})

_PLAIN = COMPARABLE - {"decimal", "fixed"} | {"unknown", "variant"}
_FIXED = re.compile(r"fixed\[\s*([0-9]{1,10})\s*\]")
_DECIMAL = re.compile(r"decimal\(\s*([0-9]{1,10})\s*,\s*([0-9]{1,10})\s*\)")
_GEOMETRY = re.compile(r"geometry\s*(?:\(([^)]*)\))?", re.IGNORECASE)
_GEOGRAPHY = re.compile(r"geography\s*(?:\(([^,)]*)(?:,\s*(\w*)\s*)?\))?", re.IGNORECASE)

Default = bool | int | float | str
PrimitiveForm = Literal["text", "meaning"]


class Primitive(msgspec.Struct, frozen=True):
    """A primitive type, or `variant`.

    `name` is the word without parameters, `text` the canonical form, and `meaning` is equal for all equivalent forms.
    """

    name: str
    text: str
    meaning: str
    length: int = 0
    precision: int = 0
    scale: int = 0


@lru_cache(maxsize=4096)
def primitive(text: str) -> Primitive:
    """Parse a primitive type; raises `Invalid`."""
    lowered = text.lower()
    if lowered in _PLAIN:
        return Primitive(name=lowered, text=lowered, meaning=lowered)
    if match := _FIXED.fullmatch(lowered):
        if (length := int(match[1])) > INT32_MAX:
            raise Invalid(f"Invalid length for fixed: {length}")
        return Primitive(name="fixed", text=f"fixed[{length}]", meaning=f"fixed[{length}]", length=length)
    if match := _DECIMAL.fullmatch(lowered):
        return _decimal(int(match[1]), int(match[2]))
    if match := _GEOMETRY.fullmatch(text):
        return _geometry(match[1])
    if match := _GEOGRAPHY.fullmatch(text):
        return _geography(match[1], match[2])
    raise Invalid(f"Cannot parse type string to primitive: {shorten(text)}")


def _decimal(precision: int, scale: int) -> Primitive:
    if precision > DECIMAL_PRECISION_MAX:
        raise Invalid(f"Decimals with precision larger than {DECIMAL_PRECISION_MAX} are not supported: {precision}")
    text = f"decimal({precision}, {scale})"
    return Primitive(name="decimal", text=text, meaning=text, precision=precision, scale=scale)


def _geometry(crs: str | None) -> Primitive:
    reference_system = _reference_system(crs)
    text = f"geometry({reference_system})" if crs is not None else "geometry"
    return Primitive(name="geometry", text=text, meaning=f"geometry({reference_system.upper()})")


def _geography(crs: str | None, algorithm: str | None) -> Primitive:
    reference_system = _reference_system(crs)
    edges = (algorithm or GEO_ALGORITHM_DEFAULT).lower()
    if edges not in GEO_ALGORITHMS:
        raise Invalid(f"Invalid edge interpolation algorithm: {shorten(edges)}")
    text = "geography"
    if crs is not None:
        text = f"geography({reference_system})" if algorithm is None else f"geography({reference_system}, {edges})"
    return Primitive(name="geography", text=text, meaning=f"geography({reference_system.upper()}, {edges})")


def _reference_system(crs: str | None) -> str:
    if crs is None:
        return GEO_CRS_DEFAULT
    stripped = crs.strip()
    if not stripped:
        raise Invalid("Invalid CRS: (empty string)")
    return stripped


class NestedField(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """A named field of a struct; a primitive `type` is its text."""

    id: Int32
    name: str
    required: bool
    type: "str | StructType | ListType | MapType"
    doc: str | None = None
    initial_default: Default | None = None
    write_default: Default | None = None


class StructType(msgspec.Struct, frozen=True, tag_field="type", tag="struct"):
    fields: tuple[NestedField, ...]


class ListType(msgspec.Struct, frozen=True, rename="kebab", tag_field="type", tag="list"):
    element_id: Int32
    element: "str | StructType | ListType | MapType"
    element_required: bool


class MapType(msgspec.Struct, frozen=True, rename="kebab", tag_field="type", tag="map"):
    key_id: Int32
    key: "str | StructType | ListType | MapType"
    value_id: Int32
    value: "str | StructType | ListType | MapType"
    value_required: bool


FieldType = str | StructType | ListType | MapType


def type_text(field_type: FieldType) -> str:
    """The name of a type in messages; nested types by their kind and fields."""
    match field_type:
        case str():
            return primitive(field_type).text
        case StructType(fields=fields):
            return shorten(f"struct<{', '.join(field.name for field in fields[:10])}>")
        case ListType():
            return "list"
        case MapType():
            return "map"


def canonical(field_type: FieldType, depth: int = 0, *, form: PrimitiveForm = "text") -> FieldType:
    """The type with every primitive in canonical form; raises `Invalid` for unknown types and deep nesting."""
    if depth > DEPTH_MAX:
        raise Invalid(f"Invalid schema: types are nested more than {DEPTH_MAX} levels deep")
    match field_type:
        case str():
            found = primitive(field_type)
            return found.text if form == "text" else found.meaning
        case StructType(fields=fields):
            return StructType(fields=canonical_fields(fields, depth + 1, form=form))
        case ListType():
            return msgspec.structs.replace(field_type, element=canonical(field_type.element, depth + 1, form=form))
        case MapType():
            key, value = (canonical(part, depth + 1, form=form) for part in (field_type.key, field_type.value))
            return msgspec.structs.replace(field_type, key=key, value=value)


def canonical_fields(
    fields: tuple[NestedField, ...], depth: int = 0, *, form: PrimitiveForm = "text"
) -> tuple[NestedField, ...]:
    return tuple(
        msgspec.structs.replace(
            field,
            type=canonical(field.type, depth, form=form),
            initial_default=_canonical_default(field.type, field.initial_default),
            write_default=_canonical_default(field.type, field.write_default),
        )
        for field in fields
    )


def _canonical_default(field_type: FieldType, value: Default | None) -> Default | None:
    """The default in the form of Java, so that equal schemas of different writers compare as equal."""
    if not isinstance(field_type, str) or not isinstance(value, str):
        return value
    match primitive(field_type).name:
        case "binary" | "fixed":
            return value.upper()
        case "uuid":
            return value.lower()
        case _:
            return value


def same_fields(left: tuple[NestedField, ...], right: tuple[NestedField, ...]) -> bool:
    """Whether fields are equal in canonical form, including ids, names, docs and defaults."""
    # Ids and names first: nearly all schemas differ there, and the comparison is cheap.
    named_alike = [(field.id, field.name) for field in left] == [(field.id, field.name) for field in right]
    return named_alike and (
        left == right or canonical_fields(left, form="meaning") == canonical_fields(right, form="meaning")
    )
