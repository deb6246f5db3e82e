"""Bound filters: predicates on the columns of one schema, joined by `and` and `or`. Negations are in the predicates."""

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
# Operators that match null, because null equals nothing.
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


class BoundTerm(msgspec.Struct, frozen=True):
    """A column of the schema, or a transform of it.

    `type` is the type of the compared values, `source` the type of the column.
    """

    id: int
    path: str
    source: Primitive
    type: Primitive
    transform: Transform | None = None

    @property
    def is_void(self) -> bool:
        """Whether the term is null in every row."""
        return self.transform is not None and self.transform.is_void


class Predicate(msgspec.Struct, frozen=True):
    """A test of one term. `values` holds one value for a comparison, any number for a set, and none otherwise."""

    operator: Operator
    column: BoundTerm
    values: tuple[Value, ...] = ()


class And(msgspec.Struct, frozen=True):
    left: "Filter"
    right: "Filter"


class Or(msgspec.Struct, frozen=True):
    left: "Filter"
    right: "Filter"


Filter = bool | Predicate | And | Or


def conjunction(left: Filter, right: Filter) -> Filter:
    if left is False or right is False:
        return False
    if left is True:
        return right
    return left if right is True else And(left, right)


def disjunction(left: Filter, right: Filter) -> Filter:
    if left is True or right is True:
        return True
    if left is False:
        return right
    return left if right is False else Or(left, right)


def leaves(found: Filter) -> tuple[Predicate, ...]:
    """Every predicate once, from left to right."""
    seen: dict[Predicate, None] = {}
    pending = [found]
    while pending:
        match pending.pop():
            case Predicate() as predicate:
                seen[predicate] = None
            case And(left=left, right=right) | Or(left=left, right=right):
                pending += [right, left]
            case _:
                pass
    return tuple(seen)
