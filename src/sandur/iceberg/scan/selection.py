"""The files of one manifest that a scan reads, their residual filters and their tasks."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Self

import numpy as np

from sandur.iceberg.expressions.evaluation import Array, matches
from sandur.iceberg.expressions.filter_json import spelled_filter
from sandur.iceberg.expressions.predicates import Both, Either, Filter, Predicate, both, either, leaves
from sandur.iceberg.expressions.projection import fields_of, inclusive_predicate, strict_predicate
from sandur.iceberg.partitioning import PartitionField
from sandur.iceberg.scan.deletes import DeleteIndex
from sandur.iceberg.scan.entries import Entries
from sandur.iceberg.scan.task_json import Lines, Part, Tasks, chosen, file_parts, joined
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


PORTION_ROWS: Final = 4_096
"""Tasks are written for so many files at once: those that come next are mostly asked for next."""

PORTION_BYTES_MAX: Final = 4 << 20
_PORTIONS_KEPT: Final = 2
_ENTRY_BYTES: Final = 400
_TASK_BYTES: Final = 400
_STATISTICS_BYTES: Final = 150
_SELF_BYTES: Final = 50_000


class Wanted(NamedTuple):
    """What is told of every file: what is left of the filter, and statistics of some columns."""

    filter: Filter
    stats_ids: frozenset[int]
    task_bytes: int

    @classmethod
    def of(cls, found: Filter, stats_ids: frozenset[int]) -> Self:
        """Every file has its residual: released clients take one that is absent for true, or for an error.

        It is never longer than the filter.
        """
        residual_bytes = len(encode(spelled_filter(found)))
        return cls(found, stats_ids, _TASK_BYTES + _STATISTICS_BYTES * len(stats_ids) + residual_bytes)


class Written(NamedTuple):
    """How many files were told, and from which place of the manifest on they were not."""

    files: int
    stop: int


class Selected:
    """Data files of one manifest that a scan reads: their rows, in order."""

    def __init__(self, entries: Entries, rows: Array, wanted: Wanted) -> None:
        self.entries = entries
        self.rows = rows
        self._wanted = wanted
        self._portion_rows = max(1, min(PORTION_ROWS, PORTION_BYTES_MAX // wanted.task_bytes))
        self._residuals: Residuals | None = None
        self._portions: dict[int, Lines] = {}

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes, with what it unpacks and keeps."""
        written = min(len(self.rows), _PORTIONS_KEPT * self._portion_rows)
        return self.entries.count * _ENTRY_BYTES + written * self._wanted.task_bytes + _SELF_BYTES

    def write_all(self, tasks: Tasks, deletes: DeleteIndex) -> None:
        self._write(tasks, 0, len(self.rows), deletes)

    def write(self, tasks: Tasks, start: int, stop: int, deletes: DeleteIndex, *, files_max: int) -> Written:
        """The tasks of those files that stand between these places of the manifest, as many as may be told."""
        first, last = int(self.rows.searchsorted(start)), int(self.rows.searchsorted(stop))
        told = min(last, first + files_max)
        self._write(tasks, first, told, deletes)
        return Written(told - first, stop if told == last else int(self.rows[told]))

    def _write(self, tasks: Tasks, first: int, last: int, deletes: DeleteIndex) -> None:
        size = self._portion_rows
        for begin in range(first - first % size, last, size) if first < last else ():
            start, stop = max(first, begin), min(last, begin + size)
            if deletes.count:
                tasks.add(self._referring(tasks, self.rows[start:stop], deletes))
            else:
                tasks.add(self._portion(begin).between(start - begin, stop - begin))

    def _portion(self, begin: int) -> Lines:
        found = self._portions.get(begin)
        if found is None:
            rows = self.rows[begin : begin + self._portion_rows]
            found = Lines(joined([*self._heads(rows), *self._tails(rows)]))
            # Replaced, for another thread may be reading.
            kept = list(self._portions.items())[1 - _PORTIONS_KEPT :]
            self._portions = dict([*kept, (begin, found)])
        return found

    def _referring(self, tasks: Tasks, rows: Array, deletes: DeleteIndex) -> memoryview:
        """Tasks that refer to delete files, by the places that these have in the answer."""
        references = tasks.references(self.entries, rows, deletes)
        return Lines(joined([*self._heads(rows), references, *self._tails(rows)])).between(0, len(rows))

    def _heads(self, rows: Array) -> list[Part]:
        return ['{"data-file":', *file_parts(self.entries, rows, self._wanted.stats_ids)]

    def _tails(self, rows: Array) -> list[Part]:
        if self._residuals is None:
            self._residuals = residuals(self._wanted.filter, self.entries)
        spelled = [text.decode() for text in self._residuals.spelled]
        return [',"residual-filter":', chosen(spelled, self._residuals.kinds[rows]), "},"]
