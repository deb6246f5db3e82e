"""Bound filters: predicates on the columns of one schema, joined by `and` and `or`. Negations are in the predicates."""

from collections.abc import Callable
from typing import Final, Literal, get_args

import msgspec

from sandur.iceberg.expressions.values import Value
from sandur.iceberg.partitioning import Transform
from sandur.iceberg.types import Primitive

UnaryOperator = Literal["is-null", "not-null", "is-nan", "not-nan"]
ComparisonOperator = Literal["lt", "lt-eq", "gt", "gt-eq", "eq", "not-eq", "starts-with", "not-starts-with"]
SetOperator = Literal["in", "not-in"]
Operator = Literal[UnaryOperator, ComparisonOperator, SetOperator]

UNARY: Final = frozenset(get_args(UnaryOperator))
SETS: Final = frozenset(get_args(SetOperator))
# Operators that match null, because null equals nothing.
MATCHES_NULL: Final = frozenset({"is-null", "not-nan", "not-eq", "not-in", "not-starts-with"})

_OPPOSITES: Final[tuple[tuple[Operator, Operator], ...]] = (
    ("is-null", "not-null"),
    ("is-nan", "not-nan"),
    ("lt", "gt-eq"),
    ("gt", "lt-eq"),
    ("eq", "not-eq"),
    ("starts-with", "not-starts-with"),
    ("in", "not-in"),
)
NEGATED: Final = dict(_OPPOSITES) | {right: left for left, right in _OPPOSITES}


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

    @property
    def negated(self) -> "Predicate":
        return Predicate(NEGATED[self.operator], self.column, self.values)


class And(msgspec.Struct, frozen=True):
    left: "Filter"
    right: "Filter"


class Or(msgspec.Struct, frozen=True):
    left: "Filter"
    right: "Filter"


Filter = bool | Predicate | And | Or


def join(kind: type[And | Or], left: Filter, right: Filter) -> Filter:
    """The two filters joined by `and` or `or`, without the booleans that decide nothing."""
    decisive = kind is Or
    if left is decisive or right is decisive:
        return decisive
    if isinstance(left, bool):
        return right
    return left if isinstance(right, bool) else kind(left, right)


def replace_leaves(found: Filter, replace: Callable[[Predicate], Filter]) -> Filter:
    """The filter with another filter in place of every predicate."""
    match found:
        case bool():
            return found
        case Predicate():
            return replace(found)
        case And(left=left, right=right) | Or(left=left, right=right):
            return join(type(found), replace_leaves(left, replace), replace_leaves(right, replace))


def negation(found: Filter) -> Filter:
    match found:
        case bool():
            return not found
        case Predicate():
            return found.negated
        case And(left=left, right=right):
            return Or(negation(left), negation(right))
        case Or(left=left, right=right):
            return And(negation(left), negation(right))


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
