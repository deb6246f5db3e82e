"""Values of one column as an array, with what is known to be absent, and comparisons of it with literals."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sandur.iceberg.expressions.predicates import Both, Column, Either, Filter, Predicate
from sandur.iceberg.expressions.values import FLOATS, INTEGERS, PRECISION_IN_64_BITS, Value
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
