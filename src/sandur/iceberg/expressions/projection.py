"""From predicates over columns to predicates over partition values: what must hold, and what suffices.

An *inclusive* projection is true of every partition that may hold a matching row; a *strict* one only of partitions in
which every row matches.
"""

from typing import Final

from sandur.iceberg.expressions.binding import result_type
from sandur.iceberg.expressions.predicates import Both, Column, Either, Filter, Operator, Predicate, both, either
from sandur.iceberg.expressions.transform_functions import transformed, truncated, width_of, wrapped_above
from sandur.iceberg.expressions.values import FLOATS, Value
from sandur.iceberg.partitioning import PartitionField, PartitionSpec, Transform, parse_transform

_TIMES: Final = frozenset({"year", "month", "day", "hour"})
_NULL_TESTS: Final = frozenset({"is-null", "not-null"})


def inclusive(found: Filter, spec: PartitionSpec) -> Filter:
    """What every partition with a matching row satisfies, over columns that are named by partition field ids."""
    match found:
        case bool():
            return found
        case Both(left=left, right=right):
            return both(inclusive(left, spec), inclusive(right, spec))
        case Either(left=left, right=right):
            return either(inclusive(left, spec), inclusive(right, spec))
        case Predicate():
            projected: Filter = True
            for field in fields_of(found, spec):
                projected = both(projected, inclusive_predicate(found, field))
            return projected


def fields_of(predicate: Predicate, spec: PartitionSpec) -> list[PartitionField]:
    """The partition fields that are made of the predicate's column alone."""
    return [field for field in spec.fields if field.sources == (predicate.column.id,)]


def partition_column(predicate: Predicate, field: PartitionField, applied: Transform) -> Column:
    source = predicate.column.source
    return Column(field.field_id or 0, field.name, source, result_type(applied, source))


def inclusive_predicate(predicate: Predicate, field: PartitionField) -> Filter:
    """What the partition value satisfies wherever a row matches; true when nothing can be said."""
    applied = parse_transform(field.transform)
    if not applied.name or applied.is_void or not applied.accepts(predicate.column.source):
        return True
    column = partition_column(predicate, field, applied)
    if predicate.column.transform is not None or predicate.operator in _NULL_TESTS:
        return _carried(predicate, column, applied)
    match applied.name:
        case "identity":
            return _inclusive_same(predicate, column)
        case "bucket":
            return _one_of(predicate, column, applied) if predicate.operator in {"eq", "in"} else True
        case "truncate" if isinstance(_first(predicate), str):
            return _inclusive_text(predicate, column, applied)
        case _:
            return _inclusive_number(predicate, column, applied)


def strict_predicate(predicate: Predicate, field: PartitionField) -> Filter:
    """What makes every row of the partition match; false when nothing can be said."""
    applied = parse_transform(field.transform)
    if not applied.name or applied.is_void or not applied.accepts(predicate.column.source):
        return False
    column = partition_column(predicate, field, applied)
    if predicate.column.transform is not None or predicate.operator in _NULL_TESTS:
        carried = _carried(predicate, column, applied)
        return carried if isinstance(carried, Predicate) else False
    match applied.name:
        case "identity":
            return Predicate(predicate.operator, column, predicate.values)
        case "bucket":
            return _none_of(predicate, column, applied) if predicate.operator in {"not-eq", "not-in"} else False
        case "truncate" if isinstance(_first(predicate), str):
            return _strict_text(predicate, column, applied)
        case _:
            return _strict_number(predicate, column, applied)


def _inclusive_same(predicate: Predicate, column: Column) -> Filter:
    same = Predicate(predicate.operator, column, predicate.values)
    if predicate.operator in {"gt", "gt-eq"} and column.type.name in FLOATS:
        # Some engines take NaN for the greatest number and some for none: whether it matches is theirs to say.
        return Either(same, Predicate("is-nan", column))
    return same


def _first(predicate: Predicate) -> Value | None:
    return predicate.values[0] if predicate.values else None


def _carried(predicate: Predicate, column: Column, applied: Transform) -> Filter:
    """A test of the very transform that the partition has, or of absence, which every transform keeps."""
    if predicate.column.transform is None or predicate.column.transform == applied:
        return Predicate(predicate.operator, column, predicate.values)
    # Another transform of the same column: whether it is null is all that is shared.
    return Predicate(predicate.operator, column) if predicate.operator in _NULL_TESTS else True


def _one_of(predicate: Predicate, column: Column, applied: Transform) -> Filter:
    return _set(predicate, column, applied, "eq", "in", off_by_one=applied.name in _TIMES)


def _none_of(predicate: Predicate, column: Column, applied: Transform) -> Filter:
    return _set(predicate, column, applied, "not-eq", "not-in", off_by_one=applied.name in _TIMES)


def _set(
    predicate: Predicate, column: Column, applied: Transform, one: Operator, many: Operator, *, off_by_one: bool
) -> Predicate:
    values: dict[Value, None] = {}
    for value in predicate.values:
        found = transformed(applied, predicate.column.source, value)
        values[found] = None
        # Old writers rounded times before 1970 towards it, so that their partition may be the next one.
        if off_by_one and int(found) < 0:
            values[int(found) + 1] = None
    return Predicate(one if len(values) == 1 else many, column, tuple(values))


def _inclusive_number(predicate: Predicate, column: Column, applied: Transform) -> Filter:
    """Truncated numbers and bytes, and times: transforms that keep the order."""
    operator = predicate.operator
    if operator in {"eq", "in"}:
        return _one_of(predicate, column, applied)
    if operator in {"lt", "lt-eq"}:
        edge = _edge(predicate, applied, -1 if operator == "lt" else 0)
        if applied.name in _TIMES and isinstance(edge, int) and edge < 0:
            edge += 1
        wrapped = wrapped_above(applied, column.source)
        below = Predicate("lt-eq", column, (edge,))
        return below if wrapped is None else Either(below, Predicate("gt", column, (wrapped,)))
    if operator in {"gt", "gt-eq"}:
        return Predicate("gt-eq", column, (_edge(predicate, applied, 1 if operator == "gt" else 0),))
    return True


def _strict_number(predicate: Predicate, column: Column, applied: Transform) -> Filter:
    operator = predicate.operator
    if operator in {"not-eq", "not-in"}:
        return _none_of(predicate, column, applied)
    if operator in {"lt", "lt-eq"}:
        return Predicate("lt", column, (_edge(predicate, applied, 0 if operator == "lt" else 1),))
    if operator in {"gt", "gt-eq"}:
        edge = _edge(predicate, applied, 0 if operator == "gt" else -1)
        if applied.name in _TIMES and isinstance(edge, int) and edge < 0:
            edge += 1
        wrapped = wrapped_above(applied, column.source)
        above = Predicate("gt", column, (edge,))
        return above if wrapped is None else Both(above, Predicate("lt-eq", column, (wrapped,)))
    return False


def _edge(predicate: Predicate, applied: Transform, step: int) -> Value:
    """The partition of the last value that matches; bytes have no neighbours, and are taken as they are."""
    value = predicate.values[0]
    if isinstance(value, int) and not isinstance(value, bool):
        value += step
    if applied.name == "truncate":
        # As a number without end, so that it lies below all others even where a partition value would not.
        return truncated(width_of(applied), value)
    return transformed(applied, predicate.column.source, value)


def _inclusive_text(predicate: Predicate, column: Column, applied: Transform) -> Filter:
    operator, prefix = predicate.operator, str(predicate.values[0])
    width = width_of(applied)
    match operator:
        case "starts-with" if len(prefix) < width:
            return Predicate("starts-with", column, (prefix,))
        case "starts-with":
            return Predicate("eq", column, (prefix[:width],))
        case "not-starts-with" if len(prefix) < width:
            return Predicate("not-starts-with", column, (prefix,))
        case "not-starts-with":
            return Predicate("not-eq", column, (prefix,)) if len(prefix) == width else True
        case _:
            return _inclusive_number(predicate, column, applied)


def _strict_text(predicate: Predicate, column: Column, applied: Transform) -> Filter:
    operator, prefix = predicate.operator, str(predicate.values[0])
    width = width_of(applied)
    match operator:
        case "starts-with":
            return Predicate("starts-with", column, (prefix,)) if len(prefix) <= width else False
        case "not-starts-with" if len(prefix) <= width:
            return Predicate("not-starts-with", column, (prefix,))
        case "not-starts-with":
            return Predicate("not-eq", column, (prefix[:width],))
        case _:
            return _strict_number(predicate, column, applied)
