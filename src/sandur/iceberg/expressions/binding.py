"""Binds filters to a schema: names become columns, and literals become values of their types."""

from collections.abc import Iterable
from typing import Final

from sandur.errors import BadRequest
from sandur.iceberg.expressions.filter_json import UnboundPredicate, UnboundTerm, parse_filter
from sandur.iceberg.expressions.predicates import MATCHES_NULL, SETS, UNARY, BoundTerm, Filter, Operator, Predicate
from sandur.iceberg.expressions.values import ColumnLiteral, Json, Value, parse_literal
from sandur.iceberg.partitioning import Transform
from sandur.iceberg.schema import Schema, SchemaColumn, ancestors
from sandur.iceberg.types import COMPARABLE, FLOATS, ListType, MapType, Primitive, primitive
from sandur.splicing import shorten

# For a literal above or below the nearest value of the column: the operator to compare with that value.
_ABOVE: Final[dict[Operator, Operator]] = {"lt": "lt-eq", "lt-eq": "lt-eq", "gt": "gt", "gt-eq": "gt"}
_BELOW: Final[dict[Operator, Operator]] = {"lt": "lt", "lt-eq": "lt", "gt": "gt-eq", "gt-eq": "gt-eq"}
_PREFIXES: Final = frozenset({"starts-with", "not-starts-with"})


class ColumnNames:
    """The columns of a schema by name, with or without regard to case."""

    def __init__(self, schema: Schema, *, is_case_sensitive: bool) -> None:
        self._schema = schema
        self._folded = str if is_case_sensitive else str.lower
        self._ids: dict[str, list[int]] = {}
        for path, field_id in schema.ids_by_path.items():
            self._ids.setdefault(self._folded(path), []).append(field_id)

    def id_of(self, name: str) -> int:
        """The id of the column; BadRequest if no column has the name, or more than one."""
        ids = self._ids.get(self._folded(name), [])
        if len(ids) > 1:
            raise BadRequest(f"Cannot find field '{shorten(name)}': more than one column has that name")
        if not ids:
            raise BadRequest(f"Cannot find field '{shorten(name)}' in {shorten(', '.join(self._schema.ids_by_path))}")
        return ids[0]


def bind_filter(given: Json, schema: Schema, *, is_case_sensitive: bool = True) -> Filter:
    """A filter of a schema; BadRequest for an unknown column, or a literal that does not fit its column."""
    names = ColumnNames(schema, is_case_sensitive=is_case_sensitive)
    return parse_filter(given, lambda predicate: _bind_predicate(predicate, schema, names))


def _bind_predicate(test: UnboundPredicate, schema: Schema, names: ColumnNames) -> Filter:
    found = _column(test.term, schema, names)
    column = _bind_term(found, test.term.transform)
    if test.operator in UNARY:
        # A required field of an optional struct is null where the struct is null.
        can_be_null = any(not one.required for one in (found, *ancestors(schema, found)))
        return _bind_unary(test.operator, column, can_be_null=can_be_null)
    if column.type.name not in COMPARABLE:
        raise BadRequest(f"Cannot compare column {shorten(column.path)} of type {column.type.text}")
    if test.operator in _PREFIXES and column.type.name != "string":
        raise BadRequest(f"Cannot use {test.operator} with column {shorten(column.path)} of type {column.type.text}")
    values = [
        parse_literal(column.type, given.value, nanos=(given.data_type or "").endswith("_ns"))
        for given in test.literals
    ]
    if column.is_void:
        return test.operator in MATCHES_NULL
    if test.operator in SETS:
        return _bind_set(test.operator, column, values)
    return _bind_comparison(test.operator, column, values[0])


def _column(term: UnboundTerm, schema: Schema, names: ColumnNames) -> SchemaColumn:
    field_id = term.id if term.id is not None else names.id_of(term.name or "")
    found = schema.columns.get(field_id)
    if found is None:
        raise BadRequest(f"Cannot find field with id {field_id}")
    if any(isinstance(parent.type, ListType | MapType) for parent in ancestors(schema, found)):
        raise BadRequest(f"Cannot filter by {shorten(found.path)}: it is inside of a list or a map")
    return found


def _bind_term(found: SchemaColumn, applied: Transform | None) -> BoundTerm:
    if not isinstance(found.type, str):
        # A nested column can only be tested for null, so its type is never used.
        if applied is not None:
            raise BadRequest(f"Cannot apply {applied.text} to {shorten(found.path)}: it is nested")
        nested = Primitive(name="nested", text="nested", meaning="nested")
        return BoundTerm(found.id, found.path, nested, nested)
    source = primitive(found.type)
    if applied is None or applied.name == "identity":
        return BoundTerm(found.id, found.path, source, source)
    if not applied.accepts(source):
        raise BadRequest(f"Cannot apply {applied.text} to column {shorten(found.path)} of type {source.text}")
    return BoundTerm(found.id, found.path, source, result_type(applied, source), applied)


def result_type(applied: Transform, source: Primitive) -> Primitive:
    """The type of a transform's results."""
    match applied.name:
        case "bucket" | "year" | "month" | "hour":
            return primitive("int")
        case "day":
            return primitive("date")
        case _:
            return source


def _bind_unary(operator: Operator, column: BoundTerm, *, can_be_null: bool) -> Filter:
    match operator:
        case "is-nan" | "not-nan" if column.type.name not in FLOATS:
            raise BadRequest(f"Cannot use {operator} with column {shorten(column.path)} of type {column.type.text}")
        case _ if column.is_void:
            return operator in MATCHES_NULL
        case "is-null" if not can_be_null:
            return False
        case "not-null" if not can_be_null:
            return True
        case _:
            return Predicate(operator, column)


def _bind_set(operator: Operator, column: BoundTerm, found: Iterable[ColumnLiteral]) -> Filter:
    values: tuple[Value, ...] = tuple(dict.fromkeys(one.value for one in found if one.side == 0))
    if not values:
        return operator == "not-in"
    if len(values) == 1:
        return Predicate("eq" if operator == "in" else "not-eq", column, values)
    return Predicate(operator, column, values)


def _bind_comparison(operator: Operator, column: BoundTerm, found: ColumnLiteral) -> Filter:
    if found.side == 0:
        return Predicate(operator, column, (found.value,))
    if operator in {"eq", "not-eq"}:
        return operator == "not-eq"
    return Predicate((_ABOVE if found.side > 0 else _BELOW)[operator], column, (found.value,))
