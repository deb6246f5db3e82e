"""Partition specs and transforms: binding to a schema, field ids, and equality."""

import re
from collections.abc import Iterable

import msgspec

from sandur.errors import Invalid
from sandur.iceberg.schema import Schema, SchemaColumn, ancestors
from sandur.iceberg.types import TIMESTAMPS, Primitive, StructType, primitive, type_text
from sandur.splicing import INT32_MAX, Int32, next_id, shorten

_WITH_WIDTH = re.compile(r"(bucket|truncate)\[([0-9]{1,10})\]", re.IGNORECASE)
_PLAIN = frozenset({"identity", "year", "month", "day", "hour", "void"})
_WIDTH_NAMES = {"bucket": "number of buckets", "truncate": "truncate width"}

_DATES = TIMESTAMPS | {"date"}
_ACCEPTED = {
    "bucket": _DATES | {"int", "long", "time", "string", "binary", "fixed", "decimal", "uuid"},
    "truncate": frozenset({"int", "long", "string", "binary", "decimal"}),
    "year": _DATES,
    "month": _DATES,
    "day": _DATES,
    "hour": TIMESTAMPS,
}
_REFUSED_BY_IDENTITY = frozenset({"variant", "geometry", "geography"})

FIELD_ID_START = 1000
UNPARTITIONED_LAST_ID = FIELD_ID_START - 1
FORMAT_VERSION_WITH_SOURCE_IDS = 3


class Transform(msgspec.Struct, frozen=True):
    """A transform; `name` is empty for an unknown one, whose text is kept unchanged."""

    name: str
    text: str

    @property
    def is_void(self) -> bool:
        return self.name == "void"

    def accepts(self, source: Primitive) -> bool:
        """Whether the transform can be applied to a column of this type; an unknown transform is trusted."""
        if self.name == "identity":
            return source.name not in _REFUSED_BY_IDENTITY
        accepted = _ACCEPTED.get(self.name)
        return accepted is None or source.name in accepted


def parse_transform(text: str) -> Transform:
    """Parse a transform; raises `Invalid` for a bucket or truncate without a positive width."""
    lowered = text.lower()
    if lowered in _PLAIN:
        return Transform(name=lowered, text=lowered)
    match = _WITH_WIDTH.fullmatch(text)
    if match is None:
        return Transform(name="", text=text)
    name, width = match[1].lower(), int(match[2])
    if not 0 < width <= INT32_MAX:
        raise Invalid(f"Invalid {_WIDTH_NAMES[name]}: {shorten(match[2])} (must be > 0)")
    return Transform(name=name, text=f"{name}[{width}]")


class PartitionField(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """A partition field. `source_ids` replaces `source_id` for transforms of several columns."""

    source_id: Int32 | None = None
    source_ids: tuple[Int32, ...] | None = None
    field_id: Int32 | None = None
    name: str
    transform: str

    @property
    def sources(self) -> tuple[int, ...]:
        if self.source_ids:
            return self.source_ids
        if self.source_id is None:
            raise Invalid(f"Cannot parse partition field {shorten(self.name)}: missing source-id")
        return (self.source_id,)


class PartitionSpec(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """A partition spec; `spec_id` is absent until one is assigned."""

    spec_id: Int32 | None = None
    fields: tuple[PartitionField, ...]

    @property
    def highest_field_id(self) -> int:
        return max((field.field_id or 0 for field in self.fields), default=UNPARTITIONED_LAST_ID)


UNPARTITIONED = PartitionSpec(fields=(), spec_id=0)


def field_text(field: PartitionField) -> str:
    """The text of a partition field in messages."""
    sources = ", ".join(map(str, field.sources))
    prefix = "" if field.field_id is None else f"{field.field_id}: "
    return f"{prefix}{shorten(field.name)}: {shorten(field.transform)}({sources})"


def same_spec(left: PartitionSpec, right: PartitionSpec) -> bool:
    """Whether two specs have the same sources, transforms and names in the same order; ids do not count."""
    # Names first: nearly all specs differ there, and the comparison is cheap.
    named_alike = [field.name for field in left.fields] == [field.name for field in right.fields]
    return named_alike and _comparable(left) == _comparable(right)


def _comparable(spec: PartitionSpec) -> list[tuple[tuple[int, ...], str, str]]:
    return [(field.sources, parse_transform(field.transform).text, field.name) for field in spec.fields]


def check_field_ids_complete(spec: PartitionSpec) -> None:
    """Raise `Invalid` for a spec in which only some fields have an id."""
    missing = sum(field.field_id is None for field in spec.fields)
    if missing not in {0, len(spec.fields)}:
        raise Invalid(f"Cannot parse spec with missing field IDs: {missing} missing of {len(spec.fields)} fields.")


def bind_spec(spec: PartitionSpec, schema: Schema, *, format_version: int) -> PartitionSpec:
    """The spec with canonical transforms; raises `Invalid` if it does not fit the schema or breaks a rule."""
    check_field_ids_complete(spec)
    names: set[str] = set()
    for field in spec.fields:
        _check_name(field, schema, names)
        if len(field.sources) > 1 and format_version < FORMAT_VERSION_WITH_SOURCE_IDS:
            raise Invalid(
                f"Invalid partition field {shorten(field.name)}: source-ids is not supported until "
                f"v{FORMAT_VERSION_WITH_SOURCE_IDS}"
            )
    bound = PartitionSpec(fields=tuple(map(_canonical, spec.fields)), spec_id=spec.spec_id)
    # With the ids that follow from the position, so that messages contain the same ids as those of Java.
    check_fits(with_default_field_ids(bound), schema)
    return bound


def _canonical(field: PartitionField) -> PartitionField:
    # A single source is always written as source-id, which every reader knows.
    sources = field.sources
    single = len(sources) == 1
    return PartitionField(
        name=field.name,
        transform=parse_transform(field.transform).text,
        source_id=sources[0] if single else None,
        source_ids=None if single else sources,
        field_id=field.field_id,
    )


def _check_name(field: PartitionField, schema: Schema, names: set[str]) -> None:
    name = field.name
    if not name:
        raise Invalid("Invalid column name: (empty)")
    if name in names:
        raise Invalid(f"Cannot use partition name more than once: {shorten(name)}")
    names.add(name)
    column_id = schema.ids_by_path.get(name)
    is_any_source_known = any(source in schema.columns for source in field.sources)
    if column_id is not None and is_any_source_known and column_id not in field.sources:
        raise Invalid(f"Cannot create identity partition sourced from different field in schema: {shorten(name)}")


def check_fits(spec: PartitionSpec, schema: Schema) -> None:
    """Raise `Invalid` for a spec whose sources are missing in the schema or cannot be transformed."""
    for field in spec.fields:
        applied = parse_transform(field.transform)
        if not applied.is_void:
            for source_id in field.sources:
                _check_source(field, applied, source_id, schema)


def _check_source(field: PartitionField, applied: Transform, source_id: int, schema: Schema) -> None:
    column = schema.columns.get(source_id)
    if column is None:
        raise Invalid(f"Cannot find source column for partition field: {field_text(field)}")
    check_transformable(column, applied, verb="partition")
    for parent in ancestors(schema, column):
        if not isinstance(parent.type, StructType):
            raise Invalid(f"Invalid partition field parent: {type_text(parent.type)}")


def check_transformable(column: SchemaColumn, applied: Transform, *, verb: str) -> None:
    """Raise `Invalid` for a column that is not primitive or that the transform does not accept."""
    if not isinstance(column.type, str) or primitive(column.type).name == "variant":
        raise Invalid(f"Cannot {verb} by non-primitive source field: {type_text(column.type)}")
    if not applied.accepts(primitive(column.type)):
        raise Invalid(f"Invalid source type {type_text(column.type)} for transform: {shorten(applied.text)}")


def check_field_ids(spec: PartitionSpec, *, format_version: int) -> None:
    """Raise `Invalid` for repeated field ids, and in v1 for ids that do not count up from 1000."""
    ids = [field.field_id for field in spec.fields]
    if format_version == 1 and ids != list(range(FIELD_ID_START, FIELD_ID_START + len(ids))):
        text = shorten("[" + ", ".join(map(field_text, spec.fields)) + "]")
        raise Invalid(f"Spec does not use sequential IDs that are required in v1: {text}")
    seen: set[int | None] = set()
    for field_id in ids:
        if field_id in seen:
            raise Invalid(f"Cannot use partition field id more than once: {field_id}")
        seen.add(field_id)


def with_field_ids(
    spec: PartitionSpec, existing: Iterable[PartitionSpec], *, last_id: int, format_version: int
) -> PartitionSpec:
    """The spec with an id for every field: its own, else that of an equal field, else an unused one."""
    if all(field.field_id is not None for field in spec.fields):
        return spec
    known: dict[tuple[tuple[int, ...], str], int] = {}
    # In v1 ids are positions; later versions share the id of an equal field in another spec.
    for field in (field for other in existing if format_version > 1 for field in other.fields):
        key = (field.sources, parse_transform(field.transform).text)
        known[key] = max(known.get(key, 0), field.field_id or 0)
    highest_id = UNPARTITIONED_LAST_ID if format_version == 1 else last_id
    fields: list[PartitionField] = []
    taken: set[int] = set()
    for field in spec.fields:
        field_id = known.get((field.sources, field.transform))
        # Java may have assigned one id to different fields of different specs, which this spec combines.
        if field_id is None or field_id in taken:
            field_id = highest_id = next_id([highest_id], start=FIELD_ID_START)
        taken.add(field_id)
        fields.append(msgspec.structs.replace(field, field_id=field_id))
    return PartitionSpec(fields=tuple(fields), spec_id=spec.spec_id)


def with_default_field_ids(spec: PartitionSpec) -> PartitionSpec:
    """A stored spec with the ids that old writers left out, which follow from the position."""
    fields = (
        field if field.field_id is not None else msgspec.structs.replace(field, field_id=FIELD_ID_START + position)
        for position, field in enumerate(spec.fields)
    )
    return PartitionSpec(fields=tuple(fields), spec_id=spec.spec_id)
