"""What is left of a filter for each file, once its partition has answered a part of it."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from sandur.iceberg.expressions.arrays import Array
from sandur.iceberg.expressions.matching import matches
from sandur.iceberg.expressions.predicates import Both, Either, Filter, Predicate, both, either, leaves
from sandur.iceberg.expressions.projection import fields_of, inclusive_predicate, strict_predicate
from sandur.iceberg.expressions.spelling import spelled_filter
from sandur.iceberg.raw_json import encode
from sandur.iceberg.scan.entries import Entries

_OPEN: Final = 0
_TRUE: Final = 1
_FALSE: Final = 2
_ANSWERS: Final = {_TRUE: True, _FALSE: False}


class Residuals(NamedTuple):
    """The residual of every row: `spelled[kinds[row]]`, as JSON."""

    kinds: Array
    spelled: tuple[bytes, ...]


def residuals(found: Filter, entries: Entries) -> Residuals:
    """What each file's rows have yet to be tested for."""
    answered = {leaf: _answers(leaf, entries) for leaf in leaves(found)}
    by_leaf = {leaf: states for leaf, states in answered.items() if states is not None}
    if not by_leaf:
        return Residuals(np.zeros(entries.count, dtype=np.int64), (encode(spelled_filter(found)),))
    states, kinds = np.unique(np.stack(list(by_leaf.values()), axis=1), axis=0, return_inverse=True)
    spelled = tuple(
        encode(spelled_filter(_substituted(found, dict(zip(by_leaf, map(int, row), strict=True))))) for row in states
    )
    return Residuals(kinds.reshape(-1), spelled)


def _answers(leaf: Predicate, entries: Entries) -> Array | None:
    """What the partitions say of a predicate: always, never, or neither; None when they say nothing at all."""
    fields = [
        field for field in fields_of(leaf, entries.spec) if entries.columns.has(f"partition.{field.field_id or 0}")
    ]
    if not fields:
        return None
    states = np.full(entries.count, _OPEN, dtype=np.int8)
    for field in fields:
        suffices = matches(strict_predicate(leaf, field), entries.partition_values, entries.count)
        is_possible = matches(inclusive_predicate(leaf, field), entries.partition_values, entries.count)
        states[suffices] = _TRUE
        states[~is_possible] = _FALSE
    return states


def _substituted(found: Filter, states: Mapping[Predicate, int]) -> Filter:
    match found:
        case Predicate():
            return _ANSWERS.get(states.get(found, _OPEN), found)
        case Both(left=left, right=right):
            return both(_substituted(left, states), _substituted(right, states))
        case Either(left=left, right=right):
            return either(_substituted(left, states), _substituted(right, states))
        case bool():
            return found
