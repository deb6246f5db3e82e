"""Schemas: columns by id and by path, the rules of each format version, and default values."""

from decimal import Decimal, InvalidOperation
from functools import cached_property

import msgspec

from sandur.errors import Invalid
from sandur.iceberg.expressions.values import read_literal
from sandur.iceberg.types import (
    COMPARABLE,
    DEPTH_MAX,
    FLOATS,
    SINCE_V3,
    Default,
    FieldType,
    ListType,
    MapType,
    NestedField,
    Primitive,
    StructType,
    canonical_fields,
    primitive,
    same_fields,
    type_text,
)
from sandur.splicing import Int32, encode, shorten

FORMAT_VERSION_WITH_DEFAULTS = 3

_UTC_SUFFIXES = ("+00:00", "Z")
_INTEGER_BITS = {"int": 32, "long": 64}


class SchemaColumn(msgspec.Struct, frozen=True, gc=False):
    """A field anywhere in a schema: list elements, map keys and map values included.

    `path` is the full dotted name; `parent_id` is absent for the fields of the schema itself.
    """

    id: int
    path: str
    type: FieldType
    required: bool
    parent_id: int | None
    field: NestedField | None

    @property
    def name(self) -> str:
        return self.path if self.field is None else self.field.name


class Schema(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    dict=True,
    rename="kebab",
    omit_defaults=True,
    tag_field="type",
    tag="struct",
):
    """A schema; `schema_id` is absent until one is assigned."""

    schema_id: Int32 | None = None
    identifier_field_ids: tuple[Int32, ...] | None = None
    fields: tuple[NestedField, ...]

    @cached_property
    def columns(self) -> dict[int, SchemaColumn]:
        """Every column by id; raises `Invalid` for repeated ids and names and for types nested too deeply."""
        return _columns(self.fields)

    @cached_property
    def ids_by_path(self) -> dict[str, int]:
        return {column.path: column.id for column in self.columns.values()}

    @property
    def highest_field_id(self) -> int:
        return max(self.columns, default=0)

    @property
    def identifiers(self) -> frozenset[int]:
        return frozenset(self.identifier_field_ids or ())


def _columns(fields: tuple[NestedField, ...]) -> dict[int, SchemaColumn]:
    columns: dict[int, SchemaColumn] = {}
    paths: dict[str, int] = {}
    # Level by level with an explicit queue: a hostile schema cannot exhaust the stack.
    level: list[SchemaColumn] = [_column_of(field, "", None) for field in fields]
    for _ in range(DEPTH_MAX + 1):
        for column in level:
            if column.id in columns:
                names = f"{shorten(columns[column.id].path)} and {shorten(column.path)}"
                raise Invalid(f"Invalid schema: multiple fields for id {column.id}: {names}")
            if column.path in paths:
                ids = f"{paths[column.path]} and {column.id}"
                raise Invalid(f"Invalid schema: multiple fields for name {shorten(column.path)}: {ids}")
            columns[column.id] = column
            paths[column.path] = column.id
        level = [child for column in level for child in _children(column)]
        if not level:
            return columns
    raise Invalid(f"Invalid schema: types are nested more than {DEPTH_MAX} levels deep")


def _column_of(field: NestedField, prefix: str, parent_id: int | None) -> SchemaColumn:
    return SchemaColumn(field.id, prefix + field.name, field.type, field.required, parent_id, field)


def _children(parent: SchemaColumn) -> list[SchemaColumn]:
    prefix = parent.path + "."
    match parent.type:
        case str():
            return []
        case StructType(fields=fields):
            return [_column_of(field, prefix, parent.id) for field in fields]
        case ListType() as list_type:
            return [_part(parent, list_type.element_id, "element", list_type.element, list_type.element_required)]
        case MapType() as map_type:
            return [
                _part(parent, map_type.key_id, "key", map_type.key, is_required=True),
                _part(parent, map_type.value_id, "value", map_type.value, map_type.value_required),
            ]


def _part(parent: SchemaColumn, part_id: int, name: str, part_type: FieldType, is_required: bool) -> SchemaColumn:  # noqa: FBT001 # One call per line reads better.
    return SchemaColumn(part_id, f"{parent.path}.{name}", part_type, is_required, parent.id, None)


def checked_schema(schema: Schema) -> Schema:
    """The schema in canonical form; raises `Invalid` if it breaks a rule of any format version."""
    schema.columns  # noqa: B018 # Refuses duplicates and depth before anything recurses.
    # An empty list of identifiers is left out, as Java does.
    identifiers = schema.identifier_field_ids or None
    fields = canonical_fields(schema.fields)
    canonical = msgspec.structs.replace(schema, fields=fields, identifier_field_ids=identifiers)
    for column in canonical.columns.values():
        if column.type == "unknown" and column.required:
            raise Invalid(f"Cannot create required field with unknown type: {shorten(column.name)}")
        if column.field is not None:
            _check_defaults(column.field)
    for field_id in sorted(canonical.identifiers):
        _check_identifier(canonical, field_id)
    return canonical


def _check_identifier(schema: Schema, field_id: int) -> None:
    column = schema.columns.get(field_id)
    if column is None:
        raise Invalid(f"Cannot add fieldId {field_id} as an identifier field: field does not exist")
    refused = f"Cannot add field {shorten(column.name)} as an identifier field: "
    if not isinstance(column.type, str) or column.type == "variant":
        raise Invalid(refused + "not a primitive type field")
    if not column.required:
        raise Invalid(refused + "not a required field")
    if column.type in {"float", "double"}:
        raise Invalid(refused + "must not be float or double field")
    for parent in reversed(ancestors(schema, column)):
        if not isinstance(parent.type, StructType):
            raise Invalid(refused + f"must not be nested in {shorten(parent.path)}")
        if not parent.required:
            raise Invalid(refused + f"must not be nested in an optional field {shorten(parent.path)}")


def ancestors(schema: Schema, column: SchemaColumn) -> list[SchemaColumn]:
    """The columns that contain `column`, innermost first."""
    found = []
    parent_id = column.parent_id
    while parent_id is not None:
        parent = schema.columns[parent_id]
        found.append(parent)
        parent_id = parent.parent_id
    return found


def check_format(schema: Schema, format_version: int) -> None:
    """Raise one `Invalid` for everything in `schema` that `format_version` does not support."""
    if format_version >= FORMAT_VERSION_WITH_DEFAULTS:
        return
    problems = [problem for column in schema.columns.values() if (problem := _format_problem(column))]
    if problems:
        raise Invalid(f"Invalid schema for v{format_version}:\n- " + "\n- ".join(problems))


def _format_problem(column: SchemaColumn) -> str | None:
    path = shorten(column.path)
    if isinstance(column.type, str) and primitive(column.type).name in SINCE_V3:
        return f"Invalid type for {path}: {type_text(column.type)} is not supported until v3"
    default = None if column.field is None else column.field.initial_default
    if default is not None:
        text = shorten(str(default))
        return f"Invalid initial default for {path}: non-null default ({text}) is not supported until v3"
    return None


def same_schema(left: Schema, right: Schema) -> bool:
    """Whether two schemas are equal apart from their schema ids."""
    return (
        len(left.fields) == len(right.fields)
        and left.identifiers == right.identifiers
        and same_fields(left.fields, right.fields)
    )


def _check_defaults(field: NestedField) -> None:
    for value in (field.initial_default, field.write_default):
        if value is None:
            continue
        text, column_type = shorten(encode(value).decode()), type_text(field.type)
        if not isinstance(field.type, str) or primitive(field.type).name not in COMPARABLE:
            raise Invalid(f"Invalid default value for {column_type}: {text} (must be null)")
        if not _fits(primitive(field.type), value):
            raise Invalid(f"Cannot parse default as a {column_type} value: {text}")


def _fits(column_type: Primitive, value: Default) -> bool:
    match column_type.name, value:
        case ("boolean", bool()) | (("float" | "double"), float()):
            return True
        case (("int" | "long") as name, int()) if not isinstance(value, bool):
            half = 1 << (_INTEGER_BITS[name] - 1)
            return -half <= value < half
        case "decimal", str():
            return _fits_decimal(column_type, value)
        case (("timestamptz" | "timestamptz_ns"), str()) if not value.endswith(_UTC_SUFFIXES):
            return False
        case name, str() if name not in FLOATS:
            return read_literal(column_type, value) is not None
        case _:
            return False


def _fits_decimal(column_type: Primitive, value: str) -> bool:
    try:
        exponent = Decimal(value).as_tuple().exponent
    except InvalidOperation:
        return False
    return exponent == -column_type.scale
