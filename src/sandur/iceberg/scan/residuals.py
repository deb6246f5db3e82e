"""What is left of a filter for each file, once its partition has answered a part of it."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from sandur.iceberg.expressions.arrays import Array
from sandur.iceberg.expressions.matching import matches
from sandur.iceberg.expressions.predicates import Both, Either, Filter, Predicate, both, either, leaves
from sandur.iceberg.expressions.projection import fields_of, inclusive_predicate, strict_predicate
from sandur.iceberg.expressions.spelling import spelled_filter
from sandur.iceberg.partitioning import PartitionField
from sandur.iceberg.scan.entries import Entries
from sandur.splicing import encode

_OPEN: Final = 0
_TRUE: Final = 1
_FALSE: Final = 2
ANSWERS_MAX: Final = 50_000_000
"""How many answers of partitions, one for each file and predicate, are worked out for one manifest."""
SPELLED_BYTES_MAX: Final = 8 << 20
_ANSWERS: Final = {_TRUE: True, _FALSE: False}


class Residuals(NamedTuple):
    """The residual of every row: `spelled[kinds[row]]`, as JSON."""

    kinds: Array
    spelled: tuple[bytes, ...]


def residuals(found: Filter, entries: Entries) -> Residuals:
    """What each file's rows have yet to be tested for: the whole filter where saying less would take too much room."""
    whole = encode(spelled_filter(found))
    unchanged = Residuals(np.zeros(entries.count, dtype=np.int64), (whole,))
    fields_by_leaf = {leaf: fields for leaf in leaves(found) if (fields := _fields(leaf, entries))}
    if not fields_by_leaf or len(fields_by_leaf) * entries.count > ANSWERS_MAX:
        return unchanged
    by_leaf = {leaf: _answers(leaf, fields, entries) for leaf, fields in fields_by_leaf.items()}
    states, kinds = np.unique(np.stack(list(by_leaf.values()), axis=1), axis=0, return_inverse=True)
    if len(states) * len(whole) > SPELLED_BYTES_MAX:
        return unchanged
    spelled = tuple(
        encode(spelled_filter(_substituted(found, dict(zip(by_leaf, map(int, row), strict=True))))) for row in states
    )
    return Residuals(kinds.reshape(-1), spelled)


def _fields(leaf: Predicate, entries: Entries) -> list[PartitionField]:
    """The partition fields that say something of a predicate, as far as the files have them."""
    return [field for field in fields_of(leaf, entries.spec) if entries.columns.has(f"partition.{field.field_id or 0}")]


def _answers(leaf: Predicate, fields: Sequence[PartitionField], entries: Entries) -> Array:
    """What the partitions say of a predicate: always, never, or neither."""
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
