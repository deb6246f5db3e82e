"""Bound filters: predicates over columns of one schema, joined by and, or; a `not` has been pushed into the leaves."""

from typing import Final, Literal

import msgspec

from sandur.iceberg.expressions.values import Value
from sandur.iceberg.partitioning import Transform
from sandur.iceberg.types import Primitive

UnaryOperator = Literal["is-null", "not-null", "is-nan", "not-nan"]
ComparisonOperator = Literal["lt", "lt-eq", "gt", "gt-eq", "eq", "not-eq", "starts-with", "not-starts-with"]
SetOperator = Literal["in", "not-in"]
Operator = Literal[UnaryOperator, ComparisonOperator, SetOperator]

UNARY: Final = frozenset({"is-null", "not-null", "is-nan", "not-nan"})
SETS: Final = frozenset({"in", "not-in"})
COMPARISONS: Final = frozenset({"lt", "lt-eq", "gt", "gt-eq", "eq", "not-eq", "starts-with", "not-starts-with"})
OPERATORS: Final = UNARY | SETS | COMPARISONS
# Where a null counts as a match: what is not there is not equal to anything.
MATCHES_NULL: Final = frozenset({"is-null", "not-nan", "not-eq", "not-in", "not-starts-with"})

NEGATED: Final[dict[Operator, Operator]] = {
    "is-null": "not-null",
    "not-null": "is-null",
    "is-nan": "not-nan",
    "not-nan": "is-nan",
    "lt": "gt-eq",
    "lt-eq": "gt",
    "gt": "lt-eq",
    "gt-eq": "lt",
    "eq": "not-eq",
    "not-eq": "eq",
    "starts-with": "not-starts-with",
    "not-starts-with": "starts-with",
    "in": "not-in",
    "not-in": "in",
}


class Column(msgspec.Struct, frozen=True):
    """What a predicate is about: a column of the schema, or what a transform makes of it.

    `type` is the type of the values that are compared, `source` the type of the column itself.
    """

    id: int
    path: str
    source: Primitive
    type: Primitive
    transform: Transform | None = None

    @property
    def is_void(self) -> bool:
        """Whether it is null in every row."""
        return self.transform is not None and self.transform.is_void


class Predicate(msgspec.Struct, frozen=True):
    """A test of one column; `values` holds one value for a comparison, and any number for a set."""

    operator: Operator
    column: Column
    values: tuple[Value, ...] = ()


class Both(msgspec.Struct, frozen=True):
    """And."""

    left: "Filter"
    right: "Filter"


class Either(msgspec.Struct, frozen=True):
    """Or."""

    left: "Filter"
    right: "Filter"


Filter = bool | Predicate | Both | Either


def both(left: Filter, right: Filter) -> Filter:
    if left is False or right is False:
        return False
    if left is True:
        return right
    return left if right is True else Both(left, right)


def either(left: Filter, right: Filter) -> Filter:
    if left is True or right is True:
        return True
    if left is False:
        return right
    return left if right is False else Either(left, right)


def leaves(found: Filter) -> tuple[Predicate, ...]:
    """Every predicate once, in the order of reading."""
    seen: dict[Predicate, None] = {}
    waiting = [found]
    while waiting:
        match waiting.pop():
            case Predicate() as predicate:
                seen[predicate] = None
            case Both(left=left, right=right) | Either(left=left, right=right):
                waiting += [right, left]
            case _:
                pass
    return tuple(seen)
