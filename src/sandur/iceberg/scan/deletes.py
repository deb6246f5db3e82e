"""Finds the delete files of a data file: by sequence number, and by partition or path."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sandur.errors import Invalid
from sandur.iceberg.expressions.evaluation import Mask
from sandur.iceberg.expressions.predicates import BoundTerm
from sandur.iceberg.partitioning import parse_transform
from sandur.iceberg.scan.columns import PARTITION
from sandur.iceberg.scan.entries import Entries
from sandur.iceberg.types import FLOATS

EQUALITY_DELETES: Final = 2

# The reserved id of the `file_path` column of position delete files.
_PATH_FIELD_ID: Final = 2_147_483_546

PartitionKey = tuple[int, tuple[object, ...]]


class DeleteFile(NamedTuple):
    """A delete file: its row in a manifest, and its sequence number."""

    entries: Entries
    row: int
    sequence_number: int


class DeleteIndex:
    """The delete files of a snapshot that may apply to a scan; Invalid if a data file has two deletion vectors."""

    def __init__(self, groups: Iterable[tuple[Entries, Mask]]) -> None:
        self.count = 0
        self._vectors: dict[str, DeleteFile] = {}
        self._by_path: dict[str, list[DeleteFile]] = {}
        self._positions: dict[PartitionKey | None, list[DeleteFile]] = {}
        self._equalities: dict[PartitionKey | None, list[DeleteFile]] = {}
        self._everywhere: list[DeleteFile] = []
        for entries, mask in groups:
            self._add(entries, mask)

    def _add(self, entries: Entries, mask: Mask) -> None:
        rows = [int(row) for row in mask.nonzero()[0]]
        if not rows:
            return
        keys = partition_keys(entries, rows)
        columns = entries.columns
        content = columns.numbers("content").values
        formats = columns.column("file_format").to_pylist()
        named = _named_paths(entries)
        is_unpartitioned = all(parse_transform(field.transform).is_void for field in entries.spec.fields)
        for row, key in zip(rows, keys, strict=True):
            file = DeleteFile(entries, row, int(entries.sequence_numbers[row]))
            self.count += 1
            path = named[row]
            if content[row] == EQUALITY_DELETES:
                # Without a partition, it applies to all partitions of every spec.
                target = self._everywhere if is_unpartitioned else self._equalities.setdefault(key, [])
                target.append(file)
            elif path is not None and formats[row].lower() == "puffin":
                if path in self._vectors:
                    raise Invalid(f"data file {path}: has more than one deletion vector")
                self._vectors[path] = file
            elif path is not None:
                self._by_path.setdefault(path, []).append(file)
            else:
                self._positions.setdefault(key, []).append(file)

    def of(self, entries: Entries, rows: Sequence[int]) -> list[list[DeleteFile]]:
        """The delete files of each data file."""
        if self.count == 0:
            return [[] for _ in rows]
        paths = _take(entries.columns.column("file_path"), rows)
        has_keys = self._positions or self._equalities
        keys: Sequence[PartitionKey | None] = partition_keys(entries, rows) if has_keys else [None] * len(rows)
        return [
            self._of_file(path, key, int(entries.sequence_numbers[row]))
            for path, key, row in zip(paths, keys, rows, strict=True)
        ]

    def _of_file(self, path: str, key: PartitionKey | None, sequence_number: int) -> list[DeleteFile]:
        # An equality delete applies to rows that are older than its commit, a position delete also to those of the
        # same commit.
        found = [file for file in self._everywhere if file.sequence_number > sequence_number]
        found += [file for file in self._equalities.get(key, ()) if file.sequence_number > sequence_number]
        vector = self._vectors.get(path)
        if vector is not None and vector.sequence_number >= sequence_number:
            # A deletion vector includes all earlier position deletes.
            return [*found, vector]
        found += [file for file in self._by_path.get(path, ()) if file.sequence_number >= sequence_number]
        found += [file for file in self._positions.get(key, ()) if file.sequence_number >= sequence_number]
        return found


def partition_keys(entries: Entries, rows: Sequence[int]) -> list[PartitionKey]:
    """The spec and the partition values of each row, as a hashable key."""
    spec_id = entries.spec.spec_id or 0
    if not entries.spec.fields:
        return [(spec_id, ())] * len(rows)
    columns = [_keys(entries, field.field_id or 0, rows) for field in entries.spec.fields]
    return [(spec_id, values) for values in zip(*columns, strict=True)]


def _keys(entries: Entries, field_id: int, rows: Sequence[int]) -> list[Any]:
    """The values of one partition field. Equal values are equal in all manifests, also if their types differ."""
    name, kind = f"{PARTITION}{field_id}", entries.types.get(field_id)
    if not entries.columns.has(name):
        return [None] * len(rows)
    if kind is None:
        return _take(entries.columns.column(name), rows)
    found = entries.partition_values(BoundTerm(field_id, name, kind, kind))
    values, valid = found.values[rows], found.valid[rows]
    if kind.name in FLOATS:
        # As bits: NaN equals NaN, and the two signs of zero differ.
        values = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return [value if is_there else None for value, is_there in zip(values.tolist(), valid.tolist(), strict=True)]


def _take(column: pa.Array, rows: Sequence[int]) -> list[Any]:
    return list(column.take(pa.array(rows, type=pa.int64())).to_pylist())


def _named_paths(entries: Entries) -> list[str | None]:
    """The data file of a position delete file that has only one, from its field or from its bounds; else None."""
    columns = entries.columns
    named: list[str | None] = columns.column("referenced_data_file").to_pylist()
    lower, upper = f"lower_bounds.{_PATH_FIELD_ID}", f"upper_bounds.{_PATH_FIELD_ID}"
    if not columns.has(lower) or not columns.has(upper):
        return named
    bounds = zip(columns.column(lower).to_pylist(), columns.column(upper).to_pylist(), strict=True)
    return [
        path if path is not None or low is None or low != high else low.decode("utf-8", "replace")
        for path, (low, high) in zip(named, bounds, strict=True)
    ]
