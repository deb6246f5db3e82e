"""The files of one manifest that a scan reads, and their tasks, written some thousands at a time."""

from typing import Final, NamedTuple, Self

from sandur.iceberg.expressions.arrays import Array
from sandur.iceberg.expressions.predicates import Filter
from sandur.iceberg.expressions.spelling import spelled_filter
from sandur.iceberg.scan.deletes import DeleteIndex
from sandur.iceberg.scan.entries import Entries
from sandur.iceberg.scan.residuals import Residuals, residuals
from sandur.iceberg.scan.tasks import Tasks, file_parts
from sandur.iceberg.scan.texts import Lines, Part, chosen, joined
from sandur.splicing import encode

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
