"""File scan tasks as JSON, written column by column."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sandur.iceberg.expressions.evaluation import Array
from sandur.iceberg.expressions.values import Json, Value, from_bytes, is_near, spelled_in_full
from sandur.iceberg.scan.arrow_arrays import numbers, text_scalar, texts_of
from sandur.iceberg.scan.columns import BOUNDS, COUNTS, PARTITION, binary_parts, is_bytes, plain_values
from sandur.iceberg.scan.deletes import DeleteFile, DeleteIndex
from sandur.iceberg.scan.entries import Entries
from sandur.iceberg.types import Primitive
from sandur.splicing import encode

Part: TypeAlias = "pa.Array | str"
"""A piece of the text of every row; a `str` is the same in all of them."""

_EMPTY: Final = text_scalar("")
_NULL: Final = text_scalar("null")
_COMMA: Final = text_scalar(",")
_FIRST_PRINTED: Final = 0x20
_HEX: Final = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), dtype=np.uint16)


def joined(parts: Iterable[Part]) -> pa.Array:
    """The parts of every row, one after the other; at least one of them has rows. Null where a part is."""
    merged: list[Part] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        elif not isinstance(part, str) or part:
            merged.append(part)
    texts = [part if isinstance(part, pa.Array) else text_scalar(part) for part in merged]
    return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, _EMPTY)


class Lines:
    """The texts of rows, of which any that follow each other are one piece of memory."""

    def __init__(self, column: pa.Array) -> None:
        self._places, content = binary_parts(column)
        self._content = content.data

    def between(self, start: int, stop: int) -> memoryview:
        return self._content[self._places[start] : self._places[stop]]


def chosen(values: Sequence[str], places: Array) -> Part:
    """For each place the text that stands there."""
    if len(values) == 1 or bool((places == places[0]).all()):
        return values[int(places[0])]
    return texts_of(values).take(numbers(places, None, pa.int64()))


def number_texts(column: pa.Array) -> Part:
    """Whole numbers; null where there is none."""
    if not column.null_count:
        values = plain_values(column)
        if bool((values == values[0]).all()):
            return str(int(values[0]))
    return column.cast(pa.string())


def list_texts(column: pa.Array) -> Part:
    """Lists of whole numbers; null where there is none."""
    lengths = np.diff(binary_parts(column)[0])
    if not column.null_count and bool((lengths == lengths[0]).all()):
        rows = plain_values(column.flatten()).reshape(len(column), -1)
        if bool((rows == rows[0]).all()):
            return encode(rows[0].tolist()).decode()
    return joined(["[", pc.binary_join(column.cast(pa.list_(pa.string())), _COMMA), "]"])


def quoted(column: pa.Array) -> list[Part]:
    """Texts as JSON. Hardly any has something in it that has to be escaped."""
    places, content = binary_parts(column)
    piece = content[places[0] : places[-1]]
    if len(piece) and (int(piece.min()) < _FIRST_PRINTED or any(mark in piece.tobytes() for mark in (b'"', b"\\"))):
        return [texts_of([None if text is None else encode(text).decode() for text in column.to_pylist()])]
    return ['"', column, '"']


def lowered(column: pa.Array) -> Part:
    """Texts of which there are few, in small letters, as JSON."""
    places, content = binary_parts(column)
    lengths = np.diff(places)
    if bool((lengths == lengths[0]).all()):
        rows = content[places[0] : places[-1]].reshape(len(column), -1)
        if bool((rows == rows[0]).all()):
            return _lowered(rows[0].tobytes().decode())
    encoded = column.dictionary_encode()
    words = list(map(_lowered, encoded.dictionary.to_pylist()))
    return chosen(words, plain_values(encoded.indices))


def _lowered(text: str) -> str:
    return encode(text.lower()).decode()


def hexed(column: pa.Array) -> list[Part]:
    """Bytes as their hex, all of which are there."""
    places, content = binary_parts(column.cast(pa.binary()))
    digits = _HEX[content[places[0] : places[-1]]]
    offsets = ((places - places[0]) * 2).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(digits)]
    return ['"', pa.Array.from_buffers(pa.string(), len(column), buffers), '"']


def statistic_texts(column: pa.Array) -> list[Part]:
    """Counts or bounds, all of which are there."""
    return hexed(column) if is_bytes(column.type) else [number_texts(column)]


def are_near_days(column: pa.Array) -> bool:
    """Whether all of these days, as numbers, are there and lie in years of four digits."""
    if not pa.types.is_integer(column.type) or column.null_count:
        return False
    days = plain_values(column)
    return is_near(int(days.min())) and is_near(int(days.max()))


def day_texts(column: pa.Array) -> list[Part]:
    """Such days as JSON."""
    days = column.cast(pa.int32()).view(pa.date32())
    return ['"', days.cast(pa.string()), '"']


def or_null(part: Part) -> Part:
    return pc.coalesce(part, _NULL) if isinstance(part, pa.Array) and part.null_count else part


def or_nothing(column: pa.Array) -> pa.Array:
    return pc.coalesce(column, _EMPTY) if column.null_count else column


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
