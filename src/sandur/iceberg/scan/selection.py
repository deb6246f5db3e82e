"""The files of one manifest that a scan reads, their residual filters and their tasks."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Self

import numpy as np

from sandur.iceberg.expressions.evaluation import Array, matches
from sandur.iceberg.expressions.filter_json import filter_to_json
from sandur.iceberg.expressions.predicates import Filter, Predicate, leaves, replace_leaves
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
"""The work for one manifest: one answer for each file and each predicate."""

RESIDUAL_BYTES_MAX: Final = 8 << 20
_ANSWERS: Final = {_TRUE: True, _FALSE: False}


class Residuals(NamedTuple):
    """The residual filter of every row as JSON: `texts[kinds[row]]`."""

    kinds: Array
    texts: tuple[bytes, ...]


def residuals(found: Filter, entries: Entries) -> Residuals:
    """The part of the filter that each file's rows still have to pass.

    The partition answers the rest. If the residuals would take too much memory, each one is the whole filter.
    """
    whole = encode(filter_to_json(found))
    unchanged = Residuals(np.zeros(entries.count, dtype=np.int64), (whole,))
    fields_by_leaf = {leaf: fields for leaf in leaves(found) if (fields := _fields(leaf, entries))}
    if not fields_by_leaf or len(fields_by_leaf) * entries.count > ANSWERS_MAX:
        return unchanged
    by_leaf = {leaf: _answers(leaf, fields, entries) for leaf, fields in fields_by_leaf.items()}
    states, kinds = np.unique(np.stack(list(by_leaf.values()), axis=1), axis=0, return_inverse=True)
    if len(states) * len(whole) > RESIDUAL_BYTES_MAX:
        return unchanged
    texts = tuple(
        encode(filter_to_json(_residual(found, dict(zip(by_leaf, row.tolist(), strict=True))))) for row in states
    )
    return Residuals(kinds.reshape(-1), texts)


def _residual(found: Filter, states: Mapping[Predicate, int]) -> Filter:
    return replace_leaves(found, lambda leaf: _ANSWERS.get(states.get(leaf, _OPEN), leaf))


def _fields(leaf: Predicate, entries: Entries) -> list[PartitionField]:
    """The partition fields that can answer a predicate, if the manifest has them."""
    return [field for field in fields_of(leaf, entries.spec) if entries.columns.has(f"partition.{field.field_id or 0}")]


def _answers(leaf: Predicate, fields: Sequence[PartitionField], entries: Entries) -> Array:
    """The answer of each partition to a predicate: true, false, or open."""
    states = np.full(entries.count, _OPEN, dtype=np.int8)
    for field in fields:
        suffices = matches(strict_predicate(leaf, field), entries.partition_values, entries.count)
        is_possible = matches(inclusive_predicate(leaf, field), entries.partition_values, entries.count)
        states[suffices] = _TRUE
        states[~is_possible] = _FALSE
    return states


PORTION_ROWS: Final = 4_096
"""Tasks are written in portions of this many files. The next request usually needs the next files."""

PORTION_BYTES_MAX: Final = 4 << 20
_PORTIONS_KEPT: Final = 2
_ENTRY_BYTES: Final = 400
_TASK_BYTES: Final = 400
_STATISTICS_BYTES: Final = 150
_SELF_BYTES: Final = 50_000


class TaskContent(NamedTuple):
    """The content of every task beside the file: the residual filter, and statistics of some columns."""

    filter: Filter
    stats_ids: frozenset[int]
    task_bytes: int

    @classmethod
    def of(cls, found: Filter, stats_ids: frozenset[int]) -> Self:
        """`task_bytes` is an estimate. The residual is never longer than the filter.

        Every task has a residual, because released clients read an absent one as true, or fail.
        """
        residual_bytes = len(encode(filter_to_json(found)))
        return cls(found, stats_ids, _TASK_BYTES + _STATISTICS_BYTES * len(stats_ids) + residual_bytes)


class Written(NamedTuple):
    """The number of files that were written, and the first row of the manifest that was not."""

    files: int
    stop: int


class Selected:
    """The data files of one manifest that a scan reads, as sorted rows."""

    def __init__(self, entries: Entries, rows: Array, content: TaskContent) -> None:
        self.entries = entries
        self.rows = rows
        self._content = content
        self._portion_rows = max(1, min(PORTION_ROWS, PORTION_BYTES_MAX // content.task_bytes))
        self._residuals: Residuals | None = None
        self._portions: dict[int, Lines] = {}

    @property
    def size_bytes(self) -> int:
        """The approximate memory, including unpacked columns and cached portions."""
        written = min(len(self.rows), _PORTIONS_KEPT * self._portion_rows)
        return self.entries.count * _ENTRY_BYTES + written * self._content.task_bytes + _SELF_BYTES

    def write_all(self, tasks: Tasks, deletes: DeleteIndex) -> None:
        self._write(tasks, 0, len(self.rows), deletes)

    def write(self, tasks: Tasks, start: int, stop: int, deletes: DeleteIndex, *, files_max: int) -> Written:
        """Write the tasks of the files between two rows of the manifest, at most `files_max`."""
        first, last = int(self.rows.searchsorted(start)), int(self.rows.searchsorted(stop))
        stop_at = min(last, first + files_max)
        self._write(tasks, first, stop_at, deletes)
        return Written(stop_at - first, stop if stop_at == last else int(self.rows[stop_at]))

    def _write(self, tasks: Tasks, first: int, last: int, deletes: DeleteIndex) -> None:
        size = self._portion_rows
        for begin in range(first - first % size, last, size) if first < last else ():
            start, stop = max(first, begin), min(last, begin + size)
            if deletes.count:
                # These tasks refer to delete files by their positions in the answer, so they are not cached.
                rows = self.rows[start:stop]
                references = tasks.references(self.entries, rows, deletes)
                lines = Lines(joined([*self._heads(rows), references, *self._tails(rows)]))
                tasks.add(lines.between(0, len(rows)))
            else:
                tasks.add(self._portion(begin).between(start - begin, stop - begin))

    def _portion(self, begin: int) -> Lines:
        found = self._portions.get(begin)
        if found is None:
            rows = self.rows[begin : begin + self._portion_rows]
            found = Lines(joined([*self._heads(rows), *self._tails(rows)]))
            # A new dict, because another thread may be reading the old one.
            kept = list(self._portions.items())[1 - _PORTIONS_KEPT :]
            self._portions = dict([*kept, (begin, found)])
        return found

    def _heads(self, rows: Array) -> list[Part]:
        return ['{"data-file":', *file_parts(self.entries, rows, self._content.stats_ids)]

    def _tails(self, rows: Array) -> list[Part]:
        if self._residuals is None:
            self._residuals = residuals(self._content.filter, self.entries)
        texts = [text.decode() for text in self._residuals.texts]
        return [',"residual-filter":', chosen(texts, self._residuals.kinds[rows]), "},"]
