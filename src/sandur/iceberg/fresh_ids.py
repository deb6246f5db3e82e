"""New field ids for the schema of a new or replaced table."""

from collections.abc import Callable, Iterator
from itertools import count

import msgspec

from sandur.errors import Invalid
from sandur.iceberg.raw_json import next_id
from sandur.iceberg.schema import Schema
from sandur.iceberg.types import FieldType, ListType, MapType, NestedField, StructType

IdFor = Callable[[str], int]


def with_fresh_ids(schema: Schema, *, previous: Schema | None = None, last_id: int = 0) -> Schema:
    """The schema with ids counted up from `last_id`, level by level; identifier fields follow their names.

    A column that `previous` has under the same full name keeps that id. The schema has no schema id.
    """
    ids = _ids(previous, last_id)
    fields = _fresh_fields(schema.fields, "", ids)
    fresh = Schema(fields=fields)
    identifiers = tuple(sorted(fresh.ids_by_path[schema.columns[field_id].path] for field_id in _identifiers(schema)))
    next_id([fresh.highest_field_id - 1], start=0)  # Refuses ids that no reader could hold.
    return Schema(fields=fields, identifier_field_ids=identifiers or None)


def _identifiers(schema: Schema) -> Iterator[int]:
    for field_id in schema.identifiers:
        if field_id not in schema.columns:
            raise Invalid(f"Cannot add fieldId {field_id} as an identifier field: field does not exist")
        yield field_id


def _ids(previous: Schema | None, last_id: int) -> IdFor:
    fresh = count(last_id + 1)
    if previous is None:
        return lambda _: next(fresh)
    known = previous.ids_by_path
    return lambda path: known[path] if path in known else next(fresh)


def _fresh_fields(fields: tuple[NestedField, ...], prefix: str, ids: IdFor) -> tuple[NestedField, ...]:
    # All fields of a struct get their ids before any of their children: readers rely on that order.
    paths = [prefix + field.name for field in fields]
    field_ids = list(map(ids, paths))
    return tuple(
        msgspec.structs.replace(field, id=field_id, type=_fresh_type(field.type, path, ids))
        for field, field_id, path in zip(fields, field_ids, paths, strict=True)
    )


def _fresh_type(field_type: FieldType, path: str, ids: IdFor) -> FieldType:
    match field_type:
        case str():
            return field_type
        case StructType(fields=fields):
            return StructType(fields=_fresh_fields(fields, path + ".", ids))
        case ListType():
            element_path = path + ".element"
            element_id = ids(element_path)
            element = _fresh_type(field_type.element, element_path, ids)
            return msgspec.structs.replace(field_type, element_id=element_id, element=element)
        case MapType():
            key_path, value_path = path + ".key", path + ".value"
            key_id, value_id = ids(key_path), ids(value_path)
            key, value = _fresh_type(field_type.key, key_path, ids), _fresh_type(field_type.value, value_path, ids)
            return msgspec.structs.replace(field_type, key_id=key_id, key=key, value_id=value_id, value=value)
