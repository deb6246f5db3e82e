"""Which rows of columns match a filter, exactly: used for partition values, of which every row has one."""

from typing import assert_never

import numpy as np

from sandur.iceberg.expressions.arrays import (
    Array,
    Mask,
    Values,
    ValuesOf,
    evaluated,
    is_in,
    operand,
    starts_with,
)
from sandur.iceberg.expressions.predicates import MATCHES_NULL, Filter, Predicate
from sandur.iceberg.expressions.values import Value


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
