"""Bound filters evaluated over arrays: exactly for values, and conservatively for bounds and counts.

The same for the rows of a data file, whose manifest entry has them by column, and for the files of a manifest, whose
entry in the manifest list has them by partition field.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, assert_never

import numpy as np
import numpy.typing as npt

from sandur.iceberg.expressions.predicates import MATCHES_NULL, Both, Column, Either, Filter, Operator, Predicate
from sandur.iceberg.expressions.transform_functions import transformed, wrapped_above
from sandur.iceberg.expressions.values import FLOATS, INTEGERS, PRECISION_IN_64_BITS, Value
from sandur.iceberg.partitioning import Transform
from sandur.iceberg.types import Primitive

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


class Values(NamedTuple):
    """One value per row; where `valid` is false the value means nothing."""

    values: Array
    valid: Mask


def kind_of(column: Primitive) -> "np.dtype[Any]":
    """How values of a type are kept: as numbers of 64 bits, or else as objects; texts as their bytes."""
    if column.name in INTEGERS or (column.name == "decimal" and column.precision <= PRECISION_IN_64_BITS):
        return np.dtype(np.int64)
    if column.name in FLOATS:
        return np.dtype(np.float64)
    return np.dtype(np.bool_) if column.name == "boolean" else np.dtype(object)


def no_values(column: Primitive, count: int) -> Values:
    """Rows of which no value is known; what stands there instead can be compared with any literal of the type."""
    kind = kind_of(column)
    values = np.zeros(count, dtype=kind)
    if kind == np.dtype(object) and column.name != "decimal":
        values.fill(b"")
    return Values(values, np.zeros(count, dtype=np.bool_))


def raw(value: Value) -> Value:
    """A literal as it is compared: a text as its bytes, which sort as its characters do."""
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def operand(value: Value) -> Array | Value:
    """A literal that a whole array is compared with. Bytes are boxed: NumPy would drop the zeros at their end."""
    found = raw(value)
    if not isinstance(found, bytes):
        return found
    boxed = np.empty((), dtype=object)
    boxed[()] = found
    return boxed


def sorted_literals(column: Primitive, values: Sequence[Value]) -> Array:
    ordered = np.empty(len(values), dtype=kind_of(column))
    ordered[:] = sorted(raw(value) for value in values)
    return ordered


def is_in(column: Primitive, wanted: Sequence[Value], values: Array) -> Mask:
    """Which values are among the wanted ones, of which there is at least one."""
    ordered = sorted_literals(column, wanted)
    places = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.asarray(ordered[places] == values, dtype=np.bool_)


def starts_with(values: Array, prefix: Value) -> Mask:
    wanted = raw(prefix)
    if not isinstance(wanted, bytes):
        raise TypeError(f"a prefix is a text, not {type(prefix).__name__}")
    return np.fromiter((value.startswith(wanted) for value in values), dtype=np.bool_, count=len(values))


def cut(values: Array, length: int) -> Array:
    """Every value of bytes without what follows its first bytes."""
    shortened = np.empty(len(values), dtype=object)
    shortened[:] = [value[:length] for value in values]
    return shortened


Leaf = Callable[[Predicate], Mask]


def evaluated(found: Filter, leaf: Leaf, count: int) -> Mask:
    """The filter over so many rows, given what each predicate says of them."""
    match found:
        case bool():
            return np.full(count, found, dtype=np.bool_)
        case Both(left=left, right=right):
            mask = evaluated(left, leaf, count)
            # What is refused already need not be asked again.
            return mask & evaluated(right, leaf, count) if mask.any() else mask
        case Either(left=left, right=right):
            mask = evaluated(left, leaf, count)
            return mask if mask.all() else mask | evaluated(right, leaf, count)
        case Predicate():
            return leaf(found)


ValuesOf = Callable[[Column], Values]


def matches(found: Filter, values_of: ValuesOf, count: int) -> Mask:
    """Whether each row matches. A null is not equal to anything, and neither smaller nor greater."""
    return evaluated(found, lambda predicate: _matches(predicate, values_of(predicate.column)), count)


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


def _compared(predicate: Predicate, values: Array) -> Mask:  # noqa: C901, PLR0912 - one line per operator
    first: Value = predicate.values[0] if predicate.values else False
    literal = operand(first)
    match predicate.operator:
        case "lt":
            mask = values < literal
        case "lt-eq":
            mask = values <= literal
        case "gt":
            mask = values > literal
        case "gt-eq":
            mask = values >= literal
        case "eq":
            mask = values == literal
        case "not-eq":
            mask = values != literal
        case "in":
            mask = is_in(predicate.column.type, predicate.values, values)
        case "not-in":
            mask = ~is_in(predicate.column.type, predicate.values, values)
        case "starts-with":
            mask = starts_with(values, first)
        case "not-starts-with":
            mask = ~starts_with(values, first)
        case "is-nan":
            mask = np.isnan(values)
        case "not-nan":
            mask = ~np.isnan(values)
        case "is-null" | "not-null":
            raise ValueError(f"{predicate.operator} compares nothing")
        case _:
            assert_never(predicate.operator)
    return mask.astype(np.bool_, copy=False)


# Transforms that keep the order: the bounds of what they make are what they make of the bounds.
_ORDERED: Final = frozenset({"truncate", "year", "month", "day", "hour"})
# Java has ordered these in two ways over time, so that bounds of one reader are no bounds of another.
_WITHOUT_ORDER: Final = frozenset({"uuid"})


_GREATER: Final = frozenset({"gt", "gt-eq"})
_INCLUDING: Final[Mapping[Operator, Operator]] = {"lt": "lt-eq", "gt": "gt-eq"}


class Facts(NamedTuple):
    """What is known of one column, per group. A bound that is not valid is not known."""

    lower: Values
    upper: Values
    may_have_null: Mask
    is_only_null: Mask
    may_have_nan: Mask
    has_nan: Mask
    """That some are for certain."""
    is_only_nan: Mask
    """That all values are NaN that are not null."""


FactsOf = Callable[[Column], Facts]


def may_match(found: Filter, facts_of: FactsOf, count: int) -> Mask:
    """False only for groups that certainly hold no matching row."""
    return evaluated(found, lambda predicate: _may_match(predicate, facts_of(predicate.column)), count)


def unknown(column: Column, count: int) -> Facts:
    """What is known of a column about which nothing was written down."""
    nothing = no_values(column.type, count)
    yes, no = np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    return Facts(nothing, nothing, yes, no, yes, no, no)


def _may_match(predicate: Predicate, facts: Facts) -> Mask:
    match predicate.operator:
        case "is-null":
            return facts.may_have_null
        case "not-null":
            return ~facts.is_only_null
        case "is-nan":
            return facts.may_have_nan & ~facts.is_only_null
        case "not-nan":
            # What is not there is not a number either, and matches.
            return facts.may_have_null | ~facts.is_only_nan
        case _:
            within = _within(predicate, _bounds(predicate.column, facts))
            if predicate.operator in MATCHES_NULL:
                # NaNs lie outside of all bounds, and are not equal to anything either.
                has_others = facts.may_have_nan if predicate.column.type.name in FLOATS else facts.may_have_null
                return within | facts.may_have_null | has_others
            possible = within & ~facts.is_only_null & ~facts.is_only_nan
            # Some engines take NaN for the greatest number and some for none: whether it matches is theirs to say.
            return possible | facts.has_nan if predicate.operator in _GREATER else possible


class _Bounds(NamedTuple):
    lower: Values
    upper: Values


def _bounds(column: Column, facts: Facts) -> _Bounds:
    if column.type.name in FLOATS:
        # Writers that put a NaN among the bounds compared with it, and so the other one is none either.
        are_known = facts.lower.valid & facts.upper.valid
        return _Bounds(Values(facts.lower.values, are_known), Values(facts.upper.values, are_known))
    if column.transform is None and column.type.name not in _WITHOUT_ORDER:
        return _Bounds(facts.lower, facts.upper)
    if column.transform is not None and column.transform.name in _ORDERED:
        applied, source = column.transform, column.source
        lower, upper = (_transformed(bound, applied, source) for bound in (facts.lower, facts.upper))
        if wrapped_above(applied, source) is not None:
            # The lowest numbers are made to the highest, so that nothing is known of those in between.
            is_ordered = lower.valid & (lower.values <= facts.lower.values)
            return _Bounds(Values(lower.values, is_ordered), Values(upper.values, upper.valid & is_ordered))
        return _Bounds(lower, upper)
    nothing = unknown(column, len(facts.is_only_null))
    return _Bounds(nothing.lower, nothing.upper)


def _transformed(bound: Values, applied: Transform, source: Primitive) -> Values:
    made, valid = bound.values.copy(), bound.valid.copy()
    for row in np.flatnonzero(valid):
        value = _plain(bound.values[row], source)
        if value is None:
            valid[row] = False
        else:
            made[row] = raw(transformed(applied, source, value))
    return Values(made, valid)


def _plain(value: object, source: Primitive) -> int | str | bytes | None:
    """A value of an array as Python has it; None for a text that was cut within a character."""
    if isinstance(value, bytes):
        return _text(value) if source.name == "string" else value
    return int(value)  # type: ignore[call-overload,no-any-return]  # a number of some kind


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _within(predicate: Predicate, bounds: _Bounds) -> Mask:  # noqa: C901 - one line per operator
    (lower, has_lower), (upper, has_upper) = bounds
    first = predicate.values[0]
    literal = operand(first)
    operator = _towards_zero(predicate)
    match operator:
        case "lt":
            mask = ~has_lower | (lower < literal)
        case "lt-eq":
            mask = ~has_lower | (lower <= literal)
        case "gt":
            mask = ~has_upper | (upper > literal)
        case "gt-eq":
            mask = ~has_upper | (upper >= literal)
        case "eq":
            mask = (~has_lower | (lower <= literal)) & (~has_upper | (upper >= literal))
        case "in":
            mask = _overlaps(predicate, bounds)
        case "starts-with":
            mask = _prefix_within(first, bounds)
        case "not-starts-with":
            has_prefix = has_lower & has_upper & starts_with(lower, first) & starts_with(upper, first)
            mask = ~has_prefix
        case "not-eq" | "not-in":
            mask = ~_is_one_of(predicate, bounds)
        case "is-null" | "not-null" | "is-nan" | "not-nan":
            raise ValueError(f"{predicate.operator} does not compare with bounds")
        case _:
            assert_never(operator)
    return mask.astype(np.bool_, copy=False)


def _towards_zero(predicate: Predicate) -> Operator:
    """The operator, or one that includes zero where it is compared with: to some readers -0.0 is less than 0.0."""
    if predicate.column.type.name in FLOATS and predicate.values[0] == 0:
        return _INCLUDING.get(predicate.operator, predicate.operator)
    return predicate.operator


def _is_one_of(predicate: Predicate, bounds: _Bounds) -> Mask:
    """Whether all values are the same, and among those of the predicate."""
    (lower, has_lower), (upper, has_upper) = bounds
    found = np.asarray(lower == upper, dtype=np.bool_) & is_in(predicate.column.type, predicate.values, lower)
    if predicate.column.type.name in FLOATS:
        # Zero has two signs, which some readers tell apart.
        found &= lower != 0
    return found & has_lower & has_upper


def _overlaps(predicate: Predicate, bounds: _Bounds) -> Mask:
    """Whether a value of the set lies within the bounds: the first that is not below them is not above them."""
    (lower, has_lower), (upper, has_upper) = bounds
    ordered = sorted_literals(predicate.column.type, predicate.values)
    places = np.where(has_lower, np.searchsorted(ordered, lower), 0)
    exists = places < len(ordered)
    first = ordered[np.minimum(places, len(ordered) - 1)]
    return exists & (~has_upper | (first <= upper).astype(np.bool_, copy=False))


def _prefix_within(prefix: Value, bounds: _Bounds) -> Mask:
    (lower, has_lower), (upper, has_upper) = bounds
    if not isinstance(prefix, str):
        raise TypeError("a prefix is a text")
    literal, length = operand(prefix), len(prefix.encode("utf-8", "surrogatepass"))
    return (~has_lower | (cut(lower, length) <= literal)) & (~has_upper | (cut(upper, length) >= literal))
