"""Schemas: their fields by id and by name, and what a format version and the rules allow in them."""

from functools import cached_property

import msgspec

from sandur.errors import Invalid
from sandur.iceberg.defaults import check_defaults
from sandur.iceberg.raw_json import Int32, shortened
from sandur.iceberg.types import (
    DEPTH_MAX,
    FORMAT_VERSION_MIN,
    FieldType,
    ListType,
    MapType,
    NestedField,
    StructType,
    canonical_fields,
    primitive,
    same_fields,
    type_text,
)

FORMAT_VERSION_WITH_DEFAULTS = 3


class Column(msgspec.Struct, frozen=True, gc=False):
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
    def columns(self) -> dict[int, Column]:
        """Every column by id; raises `Invalid` for ids and names used twice and for types nested too deeply."""
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

    def path_of(self, field_id: int) -> str:
        """How messages name a column: its path, or its id if there is no such column."""
        column = self.columns.get(field_id)
        return str(field_id) if column is None else shortened(column.path)


def _columns(fields: tuple[NestedField, ...]) -> dict[int, Column]:
    columns: dict[int, Column] = {}
    paths: dict[str, int] = {}
    # Level by level with an explicit queue: a hostile schema cannot exhaust the stack.
    level: list[Column] = [_column_of(field, "", None) for field in fields]
    for _ in range(DEPTH_MAX + 1):
        for column in level:
            _put(columns, paths, column)
        level = [child for column in level for child in _children(column)]
        if not level:
            return columns
    raise Invalid(f"Invalid schema: types are nested more than {DEPTH_MAX} levels deep")


def _put(columns: dict[int, Column], paths: dict[str, int], column: Column) -> None:
    if column.id in columns:
        names = f"{shortened(columns[column.id].path)} and {shortened(column.path)}"
        raise Invalid(f"Invalid schema: multiple fields for id {column.id}: {names}")
    if column.path in paths:
        ids = f"{paths[column.path]} and {column.id}"
        raise Invalid(f"Invalid schema: multiple fields for name {shortened(column.path)}: {ids}")
    columns[column.id] = column
    paths[column.path] = column.id


def _column_of(field: NestedField, prefix: str, parent_id: int | None) -> Column:
    return Column(field.id, prefix + field.name, field.type, field.required, parent_id, field)


def _children(parent: Column) -> list[Column]:
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


def _part(parent: Column, part_id: int, name: str, part_type: FieldType, is_required: bool) -> Column:  # noqa: FBT001 # One call per line reads better.
    return Column(part_id, f"{parent.path}.{name}", part_type, is_required, parent.id, None)


def checked_schema(schema: Schema) -> Schema:
    """The schema in canonical spelling, refused with `Invalid` if it breaks a rule of any format version."""
    schema.columns  # noqa: B018 # Refuses duplicates and depth before anything recurses.
    # An empty list of identifiers means the same as none and is left out, as Java does.
    identifiers = schema.identifier_field_ids or None
    spelled = msgspec.structs.replace(schema, fields=canonical_fields(schema.fields), identifier_field_ids=identifiers)
    for column in spelled.columns.values():
        _check_column(column)
    for field_id in sorted(spelled.identifiers):
        _check_identifier(spelled, field_id)
    return spelled


def _check_column(column: Column) -> None:
    if column.type == "unknown" and column.required:
        raise Invalid(f"Cannot create required field with unknown type: {shortened(column.name)}")
    if column.field is not None:
        check_defaults(column.field)


def _check_identifier(schema: Schema, field_id: int) -> None:
    column = schema.columns.get(field_id)
    if column is None:
        raise Invalid(f"Cannot add fieldId {field_id} as an identifier field: field does not exist")
    refused = f"Cannot add field {shortened(column.name)} as an identifier field: "
    if not isinstance(column.type, str) or column.type == "variant":
        raise Invalid(refused + "not a primitive type field")
    if not column.required:
        raise Invalid(refused + "not a required field")
    if column.type in {"float", "double"}:
        raise Invalid(refused + "must not be float or double field")
    for parent in reversed(ancestors(schema, column)):
        if not isinstance(parent.type, StructType):
            raise Invalid(refused + f"must not be nested in {shortened(parent.path)}")
        if not parent.required:
            raise Invalid(refused + f"must not be nested in an optional field {shortened(parent.path)}")


def ancestors(schema: Schema, column: Column) -> list[Column]:
    """The columns around `column`, innermost first."""
    found = []
    parent_id = column.parent_id
    while parent_id is not None:
        parent = schema.columns[parent_id]
        found.append(parent)
        parent_id = parent.parent_id
    return found


def check_format(schema: Schema, format_version: int) -> None:
    """Refuse with `Invalid`, in one message, everything in `schema` that `format_version` does not know."""
    if format_version >= FORMAT_VERSION_WITH_DEFAULTS:
        return
    problems = [problem for column in schema.columns.values() if (problem := _format_problem(column, format_version))]
    if problems:
        raise Invalid(f"Invalid schema for v{format_version}:\n- " + "\n- ".join(problems))


def _format_problem(column: Column, format_version: int) -> str | None:
    path = shortened(column.path)
    if isinstance(column.type, str):
        since = FORMAT_VERSION_MIN.get(primitive(column.type).name, 1)
        if format_version < since:
            return f"Invalid type for {path}: {type_text(column.type)} is not supported until v{since}"
    default = None if column.field is None else column.field.initial_default
    if default is not None:
        shown = shortened(str(default))
        return f"Invalid initial default for {path}: non-null default ({shown}) is not supported until v3"
    return None


def same_schema(left: Schema, right: Schema) -> bool:
    """Whether two schemas mean the same, whatever their ids."""
    return (
        len(left.fields) == len(right.fields)
        and left.identifiers == right.identifiers
        and same_fields(left.fields, right.fields)
    )
