"""Projects predicates on columns to predicates on partition values.

An *inclusive* projection is true for every partition that may hold a matching row. A *strict* projection is true only
for partitions in which every row matches.
"""

from functools import partial, reduce
from typing import Final

from sandur.iceberg.expressions.binding import result_type
from sandur.iceberg.expressions.predicates import And, BoundTerm, Filter, Or, Predicate, join, negation, replace_leaves
from sandur.iceberg.expressions.transform_functions import apply_transform, truncate, width_of, wrapped_above
from sandur.iceberg.expressions.values import Value
from sandur.iceberg.partitioning import PartitionField, PartitionSpec, Transform, parse_transform
from sandur.iceberg.types import FLOATS

_TIMES: Final = frozenset({"year", "month", "day", "hour"})
_NULL_TESTS: Final = frozenset({"is-null", "not-null"})
_EQUAL: Final = frozenset({"eq", "in"})


def inclusive_projection(found: Filter, spec: PartitionSpec) -> Filter:
    """The inclusive projection of a filter. Its terms have the ids of partition fields."""

    def project(predicate: Predicate) -> Filter:
        every_row: Filter = True
        projected = (inclusive_predicate(predicate, field) for field in fields_of(predicate, spec))
        return reduce(partial(join, And), projected, every_row)

    return replace_leaves(found, project)


def fields_of(predicate: Predicate, spec: PartitionSpec) -> list[PartitionField]:
    """The partition fields with the predicate's column as their only source."""
    return [field for field in spec.fields if field.sources == (predicate.column.id,)]


def inclusive_predicate(predicate: Predicate, field: PartitionField) -> Filter:
    """The inclusive projection to one partition field; true if nothing is known."""
    applied = parse_transform(field.transform)
    source = predicate.column.source
    if not applied.name or applied.is_void or not applied.accepts(source):
        return True
    column = BoundTerm(field.field_id or 0, field.name, source, result_type(applied, source))
    if predicate.column.transform is not None or predicate.operator in _NULL_TESTS:
        return _same_transform(predicate, column, applied)
    match applied.name:
        case "identity":
            return _inclusive_same(predicate, column)
        case "bucket":
            return _each_transformed(predicate, column, applied) if predicate.operator in _EQUAL else True
        case "truncate" if predicate.values and isinstance(predicate.values[0], str):
            return _inclusive_text(predicate, column, applied)
        case _:
            return _inclusive_number(predicate, column, applied)


def strict_predicate(predicate: Predicate, field: PartitionField) -> Filter:
    """The strict projection to one partition field: in no row of the partition does the opposite match."""
    return negation(inclusive_predicate(predicate.negated, field))


def _inclusive_same(predicate: Predicate, column: BoundTerm) -> Filter:
    same = Predicate(predicate.operator, column, predicate.values)
    if predicate.operator in {"gt", "gt-eq"} and column.type.name in FLOATS:
        # To some engines NaN is the greatest number, to others it is not comparable. Both have to find it.
        return Or(same, Predicate("is-nan", column))
    return same


def _same_transform(predicate: Predicate, column: BoundTerm, applied: Transform) -> Filter:
    """A test of the transform that the partition field has, or a test for null, which every transform keeps."""
    if predicate.column.transform is None or predicate.column.transform == applied:
        return Predicate(predicate.operator, column, predicate.values)
    # Two transforms of one column have only their nulls in common.
    return Predicate(predicate.operator, column) if predicate.operator in _NULL_TESTS else True


def _each_transformed(predicate: Predicate, column: BoundTerm, applied: Transform) -> Predicate:
    """Equality with the partition values of the literals."""
    values: dict[Value, None] = {}
    for value in predicate.values:
        found = apply_transform(applied, predicate.column.source, value)
        values[found] = None
        # Old writers rounded times before 1970 up, so that the partition value can be the next one.
        if applied.name in _TIMES and int(found) < 0:
            values[int(found) + 1] = None
    return Predicate("eq" if len(values) == 1 else "in", column, tuple(values))


def _inclusive_number(predicate: Predicate, column: BoundTerm, applied: Transform) -> Filter:
    """For transforms that keep the order: truncated numbers and bytes, and times."""
    operator = predicate.operator
    if operator in _EQUAL:
        return _each_transformed(predicate, column, applied)
    if operator in {"lt", "lt-eq"}:
        edge = _edge(predicate, applied, -1 if operator == "lt" else 0)
        if applied.name in _TIMES and isinstance(edge, int) and edge < 0:
            edge += 1  # Old writers rounded times before 1970 up.
        wrapped = wrapped_above(applied, column.source)
        below = Predicate("lt-eq", column, (edge,))
        return below if wrapped is None else Or(below, Predicate("gt", column, (wrapped,)))
    if operator in {"gt", "gt-eq"}:
        return Predicate("gt-eq", column, (_edge(predicate, applied, 1 if operator == "gt" else 0),))
    return True


def _edge(predicate: Predicate, applied: Transform, step: int) -> Value:
    """The partition value of the last matching value. Bytes have no neighbour, so the literal itself is used."""
    value = predicate.values[0]
    if isinstance(value, int) and not isinstance(value, bool):
        value += step
    if applied.name == "truncate":
        # Without wrapping around, so that it is below all others even where the partition value is not.
        return truncate(width_of(applied), value)
    return apply_transform(applied, predicate.column.source, value)


def _inclusive_text(predicate: Predicate, column: BoundTerm, applied: Transform) -> Filter:
    operator, prefix = predicate.operator, str(predicate.values[0])
    width = width_of(applied)
    match operator:
        case "starts-with" | "not-starts-with" if len(prefix) < width:
            return Predicate(operator, column, (prefix,))
        case "starts-with":
            return Predicate("eq", column, (prefix[:width],))
        case "not-starts-with":
            return Predicate("not-eq", column, (prefix,)) if len(prefix) == width else True
        case _:
            return _inclusive_number(predicate, column, applied)
