"""File scan tasks as clients get them: JSON with everything that reading a file takes, written column by column."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from sandur.iceberg.expressions.arrays import Array
from sandur.iceberg.expressions.values import Json, Value, from_bytes, spelled_in_full
from sandur.iceberg.scan.arrow import numbers, texts_of
from sandur.iceberg.scan.columns import BOUNDS, COUNTS, PARTITION, plain_values
from sandur.iceberg.scan.deletes import DeleteFile, DeleteIndex
from sandur.iceberg.scan.entries import Entries
from sandur.iceberg.scan.texts import (
    Part,
    are_near_days,
    chosen,
    day_texts,
    joined,
    list_texts,
    lowered,
    number_texts,
    or_nothing,
    or_null,
    quoted,
    statistic_texts,
)
from sandur.iceberg.types import Primitive
from sandur.splicing import encode

_CONTENTS: Final = ("data", "position-deletes", "equality-deletes")
_NUMBERS: Final = ("sort_order_id", "content_offset", "content_size_in_bytes")
_PLAIN_NUMBERS: Final = ("int", "long")
_TYPES_SPELLED: Final = 16
_VALUES_SPELLED: Final = 2_000
_LISTS: Final = ("split_offsets", "equality_ids")


class Tasks:
    """The tasks of one answer. Delete files are told once, and referred to by their place."""

    def __init__(self) -> None:
        self._tasks: list[memoryview] = []
        self._deletes: list[DeleteFile] = []
        self._places: dict[tuple[int, int], int] = {}

    def add(self, text: memoryview) -> None:
        """Tasks, at least one, each with a comma behind it; none of them twice in one answer."""
        self._tasks.append(text)

    def references(self, entries: Entries, rows: Array, deletes: DeleteIndex) -> pa.Array:
        """What the task of each file says of its deletes."""
        found = deletes.of(entries, rows.tolist())
        return texts_of(["" if not files else _reference([self._place(file) for file in files]) for files in found])

    def _place(self, file: DeleteFile) -> int:
        key = (id(file.entries), file.row)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self._deletes)
            self._deletes.append(file)
        return place

    def fields(self) -> bytes:
        """The two lists as fields of a JSON object, without its braces. Delete files only where tasks refer to some."""
        tasks = [*self._tasks[:-1], *(last[:-1] for last in self._tasks[-1:])]
        deletes = (b',"delete-files":[', b",".join(_told(self._deletes)), b"]") if self._deletes else ()
        # Copied once: an answer may have megabytes.
        return b"".join((b'"file-scan-tasks":[', *tasks, b"]", *deletes))


def _reference(places: Sequence[int]) -> str:
    return ',"delete-file-references":' + encode(places).decode()


def _told(deletes: Sequence[DeleteFile]) -> list[bytes]:
    """Each of the delete files as a JSON object. Those of one manifest are written together, in its order."""
    by_manifest: dict[int, list[int]] = {}
    for place, file in enumerate(deletes):
        by_manifest.setdefault(id(file.entries), []).append(place)
    told = [b""] * len(deletes)
    for places in by_manifest.values():
        places.sort(key=lambda place: deletes[place].row)
        texts = file_objects(deletes[places[0]].entries, [deletes[place].row for place in places])
        for place, text in zip(places, texts, strict=True):
            told[place] = text
    return told


def file_objects(entries: Entries, rows: Sequence[int]) -> list[bytes]:
    """Each of the files as a JSON object, without statistics."""
    parts = file_parts(entries, np.array(rows, dtype=np.int64), frozenset())
    return [text.encode() for text in joined(parts).to_pylist()]


class _Chosen:
    """Some rows of a manifest's columns."""

    def __init__(self, entries: Entries, rows: Array) -> None:
        self._columns = entries.columns
        # In order and without gaps, so that nothing has to be copied.
        self._is_slice = int(rows[-1]) - int(rows[0]) == len(rows) - 1
        self._first, self._count = int(rows[0]), len(rows)
        self._rows = None if self._is_slice else numbers(rows, None, pa.int64())

    def column(self, name: str) -> pa.Array:
        whole = self._columns.column(name)
        return whole.slice(self._first, self._count) if self._rows is None else whole.take(self._rows)


def file_parts(entries: Entries, rows: Array, stats_ids: frozenset[int]) -> list[Part]:
    """Each of the files as a JSON object, in pieces. There is at least one row."""
    found = _Chosen(entries, rows)
    return [
        f'{{"spec-id":{entries.spec.spec_id or 0},"content":"',
        chosen(_CONTENTS, plain_values(found.column("content"))),
        '","file-path":',
        *quoted(found.column("file_path")),
        ',"file-format":',
        lowered(found.column("file_format")),
        ',"partition":[',
        *_partition(entries, found),
        '],"file-size-in-bytes":',
        number_texts(found.column("file_size_in_bytes")),
        ',"record-count":',
        number_texts(found.column("record_count")),
        *_optional(entries, found, rows),
        *_statistics(entries, found, stats_ids),
        "}",
    ]


def _optional(entries: Entries, found: _Chosen, rows: Array) -> list[Part]:
    """What a file may have beside the rest; columns that are empty are left out."""
    parts: list[Part] = []
    for name in (*_NUMBERS, *_LISTS, "referenced_data_file", "key_metadata"):
        column = found.column(name)
        if column.null_count == len(column):
            continue
        if name in _NUMBERS:
            parts.append(_named(name, [number_texts(column)]))
        elif name in _LISTS:
            parts.append(_named(name, [list_texts(column)]))
        elif name == "key_metadata":
            keys = [None if key is None else encode(key.hex().upper()).decode() for key in column.to_pylist()]
            parts.append(_named(name, [texts_of(keys)]))
        else:
            parts.append(_named(name, quoted(column)))
    first = entries.first_row_ids
    if first.valid[rows].any():
        parts.append(_named("first_row_id", [number_texts(numbers(first.values[rows], first.valid[rows], pa.int64()))]))
    return parts


def _named(name: str, value: Sequence[Part]) -> Part:
    """A field with its name; nothing where the value is null."""
    label = f',"{name.replace("_", "-")}":'
    if all(isinstance(part, str) for part in value):
        return label + "".join(str(part) for part in value)
    return or_nothing(joined([label, *value]))


def _partition(entries: Entries, found: _Chosen) -> list[Part]:
    """The partition values in the order of the spec's fields, with commas between them."""
    parts: list[Part] = []
    for field in entries.spec.fields:
        field_id = field.field_id or 0
        name = f"{PARTITION}{field_id}"
        if parts:
            parts.append(",")
        has = entries.columns.has(name)
        parts += _partition_texts(found.column(name), entries.types.get(field_id)) if has else ["null"]
    return parts


def _partition_texts(column: pa.Array, kind: Primitive | None) -> list[Part]:
    """Every value is spelled once, however many files have it; numbers and days are spelled by Arrow."""
    if pa.types.is_integer(column.type) and (kind is None or kind.name in _PLAIN_NUMBERS):
        return [or_null(number_texts(column))]
    if kind is not None and kind.name == "date" and are_near_days(column):
        return day_texts(column)
    encoded = column.dictionary_encode()
    # Zeros of both signs would share a place in the cache of the others.
    spelled_as = _float_text if pa.types.is_floating(column.type) else _speller(kind)
    words = list(map(spelled_as, encoded.dictionary.to_pylist()))
    if not words:
        return ["null"]
    if not column.null_count:
        return [chosen(words, plain_values(encoded.indices))]
    return [or_null(texts_of(words).take(encoded.indices))]


def _float_text(value: float) -> str:
    """A number as JSON. Infinity is one that all clients read as such; for NaN there is only Java's word."""
    if math.isnan(value):
        return '"NaN"'
    return encode(value).decode() if math.isfinite(value) else str(value).replace("inf", "1e999")


@lru_cache(maxsize=_TYPES_SPELLED)
def _speller(kind: Primitive | None) -> Callable[[Value], str]:
    """What spells the values of a type as JSON. The same ones are mostly asked for again."""
    return lru_cache(maxsize=_VALUES_SPELLED, typed=True)(lambda value: encode(_partition_value(kind, value)).decode())


def _partition_value(kind: Primitive | None, value: Value) -> Json:
    if isinstance(value, bytes):
        if kind is None:
            return value.hex().upper()
        found = from_bytes(kind, value)
        return None if found is None else spelled_in_full(kind, found)
    return value if kind is None else spelled_in_full(kind, value)


def _statistics(entries: Entries, found: _Chosen, stats_ids: frozenset[int]) -> list[Part]:
    """Counts, and bounds as the hex of their binary form, which is what clients read."""
    parts: list[Part] = []
    for which in (*COUNTS, *BOUNDS) if stats_ids else ():
        ids = [field_id for field_id in entries.columns.ids_of(which) if field_id in stats_ids]
        columns = [found.column(f"{which}.{field_id}") for field_id in ids]
        if any(column.null_count for column in columns):
            parts.append(_with_gaps(which, ids, columns))
        elif columns:
            keys = ",".join(map(str, ids))
            parts.append(f',"{which.replace("_", "-")}":{{"keys":[{keys}],"values":[')
            for place, column in enumerate(columns):
                parts += [",", *statistic_texts(column)] if place else statistic_texts(column)
            parts.append("]}")
    return parts


def _with_gaps(which: str, ids: Sequence[int], columns: Sequence[pa.Array]) -> pa.Array:
    """One kind of statistic, where not every file has it of every column."""
    texts: list[str] = []
    for values in zip(*(column.to_pylist() for column in columns), strict=True):
        pairs = [(field_id, value) for field_id, value in zip(ids, values, strict=True) if value is not None]
        told = [value.hex().upper() if isinstance(value, bytes) else value for _, value in pairs]
        text = encode({"keys": [field_id for field_id, _ in pairs], "values": told}).decode()
        texts.append(f',"{which.replace("_", "-")}":{text}' if pairs else "")
    return texts_of(texts)
