"""Columns of the classic API, converted from and to the fields of Delta schemas."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from sandur.delta import types
from sandur.errors import Invalid
from sandur.splicing import NOT_JSON, Int32

COLUMNS_MAX: Final = 10_000

_COMMENT: Final = "comment"


class ColumnInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A column of the classic API. `type_json` is the text of one field in Spark's JSON form.

    None means: not set by the request. A stored column has every attribute that its type has.
    """

    name: str
    type_text: str | None = None
    type_json: str | None = None
    type_name: str | None = None
    type_precision: Int32 | None = None
    type_scale: Int32 | None = None
    type_interval_type: str | None = None
    position: Int32 | None = None
    comment: str | None = None
    nullable: bool | None = None
    partition_index: Int32 | None = None


_COLUMNS: Final = msgspec.json.Decoder(tuple[ColumnInfo, ...])


def encode_columns(columns: Sequence[ColumnInfo]) -> msgspec.Raw:
    """The columns as records store them."""
    return msgspec.Raw(msgspec.json.encode(columns))


def decode_columns(columns: msgspec.Raw) -> tuple[ColumnInfo, ...]:
    return _COLUMNS.decode(columns)


def columns_from_api(struct: object, partitions: Sequence[str] | None) -> tuple[ColumnInfo, ...]:
    """The columns of a struct of the Delta API (section 2.1); raises Invalid if it breaks a rule."""
    if not isinstance(struct, dict) or struct.get("type") != "struct":
        raise Invalid("columns must be a struct")
    fields = types.fields_from_api(struct.get("fields"), "columns")
    if len(fields) > COLUMNS_MAX:
        raise Invalid(f"columns: {len(fields)} columns, at most {COLUMNS_MAX} are allowed")
    return with_partitions(
        tuple(column_from_field(field, position) for position, field in enumerate(fields)), partitions or ()
    )


def column_from_field(field: Mapping[str, object], position: int) -> ColumnInfo:
    """The column of a field of the log."""
    kind = field["type"]
    numbers = types.decimal_parameters(kind) if isinstance(kind, str) else None
    metadata = field.get("metadata")
    comment = metadata.get(_COMMENT) if isinstance(metadata, dict) else None
    return ColumnInfo(
        name=str(field["name"]),
        type_text=types.type_text(kind),
        type_json=msgspec.json.encode(field).decode(),
        type_name=types.type_name(kind),
        type_precision=numbers[0] if numbers else None,
        type_scale=numbers[1] if numbers else None,
        position=position,
        comment=comment if isinstance(comment, str) else None,
        nullable=field["nullable"] is True,
    )


def with_partitions(columns: Sequence[ColumnInfo], partitions: Sequence[str]) -> tuple[ColumnInfo, ...]:
    """The columns, partitioned by the named ones in that order; raises Invalid for an unknown or repeated name."""
    if not partitions and all(column.partition_index is None for column in columns):
        return tuple(columns)
    order = {name.lower(): index for index, name in enumerate(partitions)}
    if len(order) < len(partitions):
        raise Invalid("partition-columns: a column is named more than once")
    known = {column.name.lower() for column in columns}
    if missing := [name for name in partitions if name.lower() not in known]:
        raise Invalid(f"partition-columns: no such column: {', '.join(missing)}")
    return tuple(msgspec.structs.replace(column, partition_index=order.get(column.name.lower())) for column in columns)


def partition_names(columns: Sequence[ColumnInfo]) -> list[str]:
    """The names of the partition columns, in their order."""
    chosen = [(column.partition_index, column.name) for column in columns if column.partition_index is not None]
    return [name for _, name in sorted(chosen)]


def field_from_column(column: ColumnInfo) -> dict[str, object]:
    """The field of the log for a column; derived from the other attributes if its `type_json` holds no type."""
    given = _decoded(column.type_json or "")
    field: dict[str, object] = {
        "name": column.name,
        "type": None,
        "nullable": column.nullable is not False,
        "metadata": {},
    }
    if isinstance(given, dict) and isinstance(given.get("name"), str) and given.get("type") is not None:
        return {**field, **given}
    bare = _bare_type(given)
    return {**field, "type": _type_of(column) if bare is None else bare}


def _decoded(type_json: str) -> object:
    """The content of a `type_json`; None if it is not JSON."""
    try:
        return msgspec.json.decode(type_json)
    except NOT_JSON:
        return None


def _bare_type(given: object) -> object:
    """The type, if a `type_json` is a type instead of a field; None otherwise.

    The Spark connector before 0.5 sends `"integer"`; Unity Catalog's tests of the older API send `{"type":"integer"}`.
    """
    if isinstance(given, dict) and "name" not in given and "type" in given:
        kind = given["type"]
        return types.named_type(kind) if len(given) == 1 and isinstance(kind, str) else given
    return given if isinstance(given, str) else None


def _check_type_json(column: ColumnInfo) -> None:
    """Raise Invalid unless the `type_json` is a field or a type. Every known client that creates tables sends one."""
    given = _decoded(column.type_json or "")
    problem = f"Invalid type_json for column {column.name}"
    if not column.type_json:
        raise Invalid(f"{problem}: it is required")
    if given is None:
        raise Invalid(f"{problem}: it is not JSON: {column.type_json[:100]!r}")
    if _bare_type(given) is not None:
        return
    for part in ("name", "type", "nullable", "metadata"):
        if not isinstance(given, dict) or given.get(part) is None:
            raise Invalid(f"{problem}: {part} is required")


def _type_of(column: ColumnInfo) -> str:
    kind = types.named_type(column.type_text or column.type_name or "string")
    if kind == "decimal" and column.type_precision is not None:
        return f"decimal({column.type_precision},{column.type_scale or 0})"
    return kind


def struct_for_api(columns: Sequence[ColumnInfo]) -> dict[str, object]:
    """The columns as a struct of the Delta API."""
    return {"type": "struct", "fields": [types.field_to_api(field_from_column(column)) for column in columns]}


def schema_string(columns: Sequence[ColumnInfo]) -> str:
    """The schema as JSON text, as `metaData` in the log holds it."""
    fields = [field_from_column(column) for column in columns]
    return msgspec.json.encode({"type": "struct", "fields": fields}).decode()


def complete_columns(columns: Sequence[ColumnInfo], *, is_delta: bool) -> tuple[ColumnInfo, ...]:
    """The columns of a request with every missing attribute derived; raises Invalid for a contradiction."""
    if len(columns) > COLUMNS_MAX:
        raise Invalid(f"columns: {len(columns)} columns, at most {COLUMNS_MAX} are allowed")
    seen: set[str] = set()
    for column in columns:
        if not column.name:
            raise Invalid("columns: a column has no name")
        if column.name.lower() in seen:
            raise Invalid(f"columns: duplicate column name {column.name!r} (names differ only by case)")
        seen.add(column.name.lower())
        if column.type_name and column.type_name not in types.TYPE_NAMES:
            raise Invalid(f"column {column.name}: unknown type_name {column.type_name[:100]!r}")
    return tuple(_completed(column, position, is_delta=is_delta) for position, column in enumerate(columns))


def _completed(column: ColumnInfo, position: int, *, is_delta: bool) -> ColumnInfo:
    _check_type_json(column)
    field = field_from_column(column)
    if field["name"] != column.name:
        raise Invalid(f"column {column.name}: its type_json names {field['name']!r}")
    if column.nullable is not None and field["nullable"] is not column.nullable:
        raise Invalid(f"column {column.name}: nullable is {column.nullable}, its type_json says {field['nullable']}")
    if is_delta:
        types.from_api(field["type"], f"column {column.name}: type_json.type")
    # Every attribute that the request sets wins; an empty text means that it does not set it.
    attributes = msgspec.structs.asdict(column).items()
    given = {name: value for name, value in attributes if value is not None and (value != "" or name == _COMMENT)}
    derived = column_from_field(field, position)
    if _bare_type(_decoded(column.type_json or "")) is not None:
        given["type_json"] = derived.type_json
    return msgspec.structs.replace(derived, **given | {"nullable": derived.nullable})
