"""Evaluates bound filters over arrays: exactly over values, and conservatively over bounds and counts.

Exact evaluation is for partition values. Conservative evaluation finds groups of rows that may hold a match. A group is
a data file, described by its manifest entry, or a manifest, described by its entry in the manifest list.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, assert_never

import numpy as np
import numpy.typing as npt

from sandur.iceberg.expressions.predicates import MATCHES_NULL, And, BoundTerm, Filter, Operator, Or, Predicate
from sandur.iceberg.expressions.transform_functions import apply_transform, wrapped_above
from sandur.iceberg.expressions.values import PRECISION_IN_64_BITS, Value
from sandur.iceberg.partitioning import Transform
from sandur.iceberg.types import FLOATS, INTEGERS, Primitive

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

# The bounds of a transform that keeps the order are the transform of the bounds.
_ORDERED: Final = frozenset({"truncate", "year", "month", "day", "hour"})
# Java has changed the order of UUIDs, so that bounds of one writer mean nothing to another.
_WITHOUT_ORDER: Final = frozenset({"uuid"})
_GREATER: Final = frozenset({"gt", "gt-eq"})
_INCLUDING: Final[Mapping[Operator, Operator]] = {"lt": "lt-eq", "gt": "gt-eq"}
_COMPARE: Final[Mapping[Operator, Callable[[Any, Any], Any]]] = {
    "lt": operator.lt,
    "lt-eq": operator.le,
    "gt": operator.gt,
    "gt-eq": operator.ge,
    "eq": operator.eq,
}


class Values(NamedTuple):
    """One value per row. Where `valid` is false, the value is arbitrary."""

    values: Array
    valid: Mask


class Facts(NamedTuple):
    """What is known of one column, per group. A bound that is not valid is unknown."""

    lower: Values
    upper: Values
    may_have_null: Mask
    is_only_null: Mask
    may_have_nan: Mask
    has_nan: Mask
    """At least one value is NaN."""
    is_only_nan: Mask
    """All values that are not null are NaN."""


ValuesOf = Callable[[BoundTerm], Values]
FactsOf = Callable[[BoundTerm], Facts]


def matches(found: Filter, values_of: ValuesOf, count: int) -> Mask:
    """Whether each row matches. A null equals nothing, and is neither smaller nor greater than anything."""
    return _evaluated(found, lambda predicate: _matches(predicate, values_of(predicate.column)), count)


def may_match(found: Filter, facts_of: FactsOf, count: int) -> Mask:
    """False only for groups that certainly hold no matching row."""
    return _evaluated(found, lambda predicate: _may_match(predicate, facts_of(predicate.column)), count)


def _evaluated(found: Filter, leaf: Callable[[Predicate], Mask], count: int) -> Mask:
    match found:
        case bool():
            return np.full(count, found, dtype=np.bool_)
        case And(left=left, right=right):
            mask = _evaluated(left, leaf, count)
            return mask & _evaluated(right, leaf, count) if mask.any() else mask
        case Or(left=left, right=right):
            mask = _evaluated(left, leaf, count)
            return mask if mask.all() else mask | _evaluated(right, leaf, count)
        case Predicate():
            return leaf(found)


def dtype_of(column: Primitive) -> "np.dtype[Any]":
    """The array type for values of a type: 64-bit numbers where they fit, otherwise objects. Texts are bytes."""
    if column.name in INTEGERS or (column.name == "decimal" and column.precision <= PRECISION_IN_64_BITS):
        return np.dtype(np.int64)
    if column.name in FLOATS:
        return np.dtype(np.float64)
    return np.dtype(np.bool_) if column.name == "boolean" else np.dtype(object)


def no_values(column: Primitive, count: int) -> Values:
    """Rows without a known value. The placeholders can be compared with any literal of the type."""
    kind = dtype_of(column)
    values = np.zeros(count, dtype=kind)
    if kind == np.dtype(object) and column.name != "decimal":
        values.fill(b"")
    return Values(values, np.zeros(count, dtype=np.bool_))


def comparable(value: Value) -> Value:
    """A literal in the form of array values: a text as its UTF-8 bytes, which sort like its characters."""
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def _matches(predicate: Predicate, found: Values) -> Mask:
    is_null = ~found.valid
    match predicate.operator:
        case "is-null":
            return is_null
        case "not-null":
            return found.valid
        case _:
            known = _compared(predicate, found.values)
            return known | is_null if predicate.operator in MATCHES_NULL else known & found.valid


def _compared(predicate: Predicate, values: Array) -> Mask:
    match predicate.operator:
        case "not-eq" | "not-in" | "not-starts-with" | "not-nan":
            return ~_compared(predicate.negated, values)
        case "in":
            return _is_in(predicate.column.type, predicate.values, values)
        case "starts-with":
            return _starts_with(values, predicate.values[0])
        case "is-nan":
            return np.isnan(values)
        case "lt" | "lt-eq" | "gt" | "gt-eq" | "eq" as comparison:
            mask: Mask = _COMPARE[comparison](values, _operand(predicate.values[0])).astype(np.bool_, copy=False)
            return mask
        case "is-null" | "not-null":
            raise ValueError(f"{predicate.operator} compares nothing")
        case _:
            assert_never(predicate.operator)


def _may_match(predicate: Predicate, facts: Facts) -> Mask:
    match predicate.operator:
        case "is-null":
            return facts.may_have_null
        case "not-null":
            return ~facts.is_only_null
        case "is-nan":
            return facts.may_have_nan & ~facts.is_only_null
        case "not-nan":
            return facts.may_have_null | ~facts.is_only_nan
        case _:
            within = _within(predicate, _bounds(predicate.column, facts))
            if predicate.operator in MATCHES_NULL:
                # NaN is outside of all bounds, and equals nothing.
                has_others = facts.may_have_nan if predicate.column.type.name in FLOATS else facts.may_have_null
                return within | facts.may_have_null | has_others
            possible = within & ~facts.is_only_null & ~facts.is_only_nan
            # To some engines NaN is the greatest number, to others it is not comparable. Both have to find it.
            return possible | facts.has_nan if predicate.operator in _GREATER else possible


_Bounds = tuple[Values, Values]
"""The lower and the upper bound of a term."""


def _bounds(column: BoundTerm, facts: Facts) -> _Bounds:
    if column.type.name in FLOATS:
        # A writer that wrote NaN as one bound compared with NaN, so the other bound is wrong too.
        are_known = facts.lower.valid & facts.upper.valid
        return Values(facts.lower.values, are_known), Values(facts.upper.values, are_known)
    if column.transform is None and column.type.name not in _WITHOUT_ORDER:
        return facts.lower, facts.upper
    if column.transform is not None and column.transform.name in _ORDERED:
        applied, source = column.transform, column.source
        lower, upper = (_transformed_bound(bound, applied, source) for bound in (facts.lower, facts.upper))
        if wrapped_above(applied, source) is not None:
            # The lowest numbers wrap around to the highest. Then the numbers in between are unknown.
            is_ordered = lower.valid & (lower.values <= facts.lower.values)
            return Values(lower.values, is_ordered), Values(upper.values, upper.valid & is_ordered)
        return lower, upper
    nothing = no_values(column.type, len(facts.is_only_null))
    return nothing, nothing


def _transformed_bound(bound: Values, applied: Transform, source: Primitive) -> Values:
    made, valid = bound.values.copy(), bound.valid.copy()
    for row in np.flatnonzero(valid):
        value = _plain(bound.values[row], source)
        if value is None:
            valid[row] = False
        else:
            made[row] = comparable(apply_transform(applied, source, value))
    return Values(made, valid)


def _plain(value: object, source: Primitive) -> int | str | bytes | None:
    """A Python value from an array; None for a text that was cut inside of a character."""
    if not isinstance(value, bytes):
        return int(value)  # type: ignore[call-overload,no-any-return]  # a number of some kind
    if source.name != "string":
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _within(predicate: Predicate, bounds: _Bounds) -> Mask:
    (lower, has_lower), (upper, has_upper) = bounds
    first = predicate.values[0]
    literal = _operand(first)
    comparison = predicate.operator
    if predicate.column.type.name in FLOATS and first == 0:
        # Some readers order -0.0 below 0.0, so a comparison with zero includes zero.
        comparison = _INCLUDING.get(comparison, comparison)
    match comparison:
        case "lt" | "lt-eq":
            mask: Mask = ~has_lower | _COMPARE[comparison](lower, literal)
        case "gt" | "gt-eq":
            mask = ~has_upper | _COMPARE[comparison](upper, literal)
        case "eq":
            mask = (~has_lower | (lower <= literal)) & (~has_upper | (upper >= literal))
        case "in":
            mask = _overlaps(predicate, bounds)
        case "starts-with":
            length = len(str(first).encode("utf-8", "surrogatepass"))
            mask = (~has_lower | (_cut(lower, length) <= literal)) & (~has_upper | (_cut(upper, length) >= literal))
        case "not-starts-with":
            mask = ~(has_lower & has_upper & _starts_with(lower, first) & _starts_with(upper, first))
        case "not-eq" | "not-in":
            mask = ~_is_one_of(predicate, bounds)
        case "is-null" | "not-null" | "is-nan" | "not-nan":
            raise ValueError(f"{predicate.operator} does not compare with bounds")
        case _:
            assert_never(comparison)
    return mask.astype(np.bool_, copy=False)


def _is_one_of(predicate: Predicate, bounds: _Bounds) -> Mask:
    """Whether all values of a group are the same, and in the predicate's set."""
    (lower, has_lower), (upper, has_upper) = bounds
    found = np.asarray(lower == upper, dtype=np.bool_) & _is_in(predicate.column.type, predicate.values, lower)
    if predicate.column.type.name in FLOATS:
        # Some readers distinguish the two signs of zero.
        found &= lower != 0
    return found & has_lower & has_upper


def _overlaps(predicate: Predicate, bounds: _Bounds) -> Mask:
    """Whether a literal lies within the bounds: the first one that is not below them must not be above them."""
    (lower, has_lower), (upper, has_upper) = bounds
    ordered = _sorted_literals(predicate.column.type, predicate.values)
    places = np.where(has_lower, np.searchsorted(ordered, lower), 0)
    exists = places < len(ordered)
    first = ordered[np.minimum(places, len(ordered) - 1)]
    return exists & (~has_upper | (first <= upper).astype(np.bool_, copy=False))


def _operand(value: Value) -> Array | Value:
    """A literal to compare an array with. Bytes are boxed, because NumPy would strip trailing zeros."""
    found = comparable(value)
    if not isinstance(found, bytes):
        return found
    boxed = np.empty((), dtype=object)
    boxed[()] = found
    return boxed


def _sorted_literals(column: Primitive, values: Sequence[Value]) -> Array:
    ordered = np.empty(len(values), dtype=dtype_of(column))
    ordered[:] = sorted(comparable(value) for value in values)
    return ordered


def _is_in(column: Primitive, wanted: Sequence[Value], values: Array) -> Mask:
    """Whether each value is one of the literals, of which there is at least one."""
    ordered = _sorted_literals(column, wanted)
    places = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.asarray(ordered[places] == values, dtype=np.bool_)


def _starts_with(values: Array, prefix: Value) -> Mask:
    wanted = comparable(prefix)
    return np.fromiter((value.startswith(wanted) for value in values), dtype=np.bool_, count=len(values))


def _cut(values: Array, length: int) -> Array:
    """The first bytes of every value."""
    shortened = np.empty(len(values), dtype=object)
    shortened[:] = [value[:length] for value in values]
    return shortened
