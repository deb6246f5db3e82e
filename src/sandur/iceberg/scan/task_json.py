"""Files and file scan tasks as JSON, written column by column.

The text of each field is made for all rows at once by Arrow, and text that is the same in all rows only once. For
10,000 files this is 6 to 9 times as fast as encoding one object per file.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sandur.iceberg.expressions.evaluation import Array
from sandur.iceberg.expressions.values import Json, Value, partition_value_to_json, value_from_bytes
from sandur.iceberg.scan.columns import BOUNDS, COUNTS, PARTITION, binary_parts, is_bytes, plain_values
from sandur.iceberg.scan.deletes import DeleteFile, DeleteIndex
from sandur.iceberg.scan.entries import Entries
from sandur.iceberg.types import Primitive
from sandur.splicing import encode

Part: TypeAlias = "pa.Array | str"
"""A piece of the text of every row. A `str` is the same in all rows."""

_CONTENTS: Final = ("data", "position-deletes", "equality-deletes")
_NUMBERS: Final = ("sort_order_id", "content_offset", "content_size_in_bytes")
_LISTS: Final = ("split_offsets", "equality_ids")
_FIRST_PRINTED: Final = 0x20
_HEX: Final = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), dtype=np.uint16)
_TYPES_CACHED: Final = 16
_VALUES_CACHED: Final = 2_000


class Tasks:
    """The tasks of one answer. Each delete file is listed once, and tasks refer to its position."""

    def __init__(self) -> None:
        self._tasks: list[memoryview] = []
        self._deletes: list[DeleteFile] = []
        self._places: dict[tuple[int, int], int] = {}

    def add(self, text: memoryview) -> None:
        """Add one or more tasks, each followed by a comma."""
        self._tasks.append(text)

    def references(self, entries: Entries, rows: Array, deletes: DeleteIndex) -> pa.Array:
        """For each file the field that refers to its delete files; empty if it has none."""
        found = deletes.of(entries, rows.tolist())
        texts = [encode([self._place(file) for file in files]).decode() if files else "" for files in found]
        return pa.array([text and f',"delete-file-references":{text}' for text in texts], type=pa.string())

    def _place(self, file: DeleteFile) -> int:
        key = (id(file.entries), file.row)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self._deletes)
            self._deletes.append(file)
        return place

    def fields(self) -> bytes:
        """The tasks and the delete files as fields of a JSON object, without its braces."""
        tasks = [*self._tasks[:-1], *(last[:-1] for last in self._tasks[-1:])]
        deletes = (b',"delete-files":[', b",".join(_delete_files(self._deletes)), b"]") if self._deletes else ()
        # One copy only: an answer can have megabytes.
        return b"".join((b'"file-scan-tasks":[', *tasks, b"]", *deletes))


def _delete_files(deletes: Sequence[DeleteFile]) -> list[bytes]:
    """Each delete file as a JSON object. The files of one manifest are written together, in its order."""
    by_manifest: dict[int, list[int]] = {}
    for place, file in enumerate(deletes):
        by_manifest.setdefault(id(file.entries), []).append(place)
    written = [b""] * len(deletes)
    for places in by_manifest.values():
        places.sort(key=lambda place: deletes[place].row)
        rows = np.array([deletes[place].row for place in places], dtype=np.int64)
        texts = joined(file_parts(deletes[places[0]].entries, rows, frozenset()))
        for place, text in zip(places, texts.to_pylist(), strict=True):
            written[place] = text.encode()
    return written


_ColumnOf = Callable[[str], pa.Array]


def _column_of(entries: Entries, rows: Array) -> _ColumnOf:
    """Reads some rows of a manifest's columns. Consecutive rows need no copy."""
    first, count = int(rows[0]), len(rows)
    if int(rows[-1]) - first == count - 1:
        return lambda name: entries.columns.column(name).slice(first, count)
    places = pa.array(rows)
    return lambda name: entries.columns.column(name).take(places)


def file_parts(entries: Entries, rows: Array, stats_ids: frozenset[int]) -> list[Part]:
    """Each file as a JSON object, in pieces. There is at least one row."""
    column_of = _column_of(entries, rows)
    return [
        f'{{"spec-id":{entries.spec.spec_id or 0},"content":"',
        chosen(_CONTENTS, plain_values(column_of("content"))),
        '","file-path":',
        *_quoted(column_of("file_path")),
        ',"file-format":',
        *_encoded_once(column_of("file_format"), lambda text: encode(str(text).lower()).decode()),
        ',"partition":[',
        *_partition(entries, column_of),
        '],"file-size-in-bytes":',
        _number_texts(column_of("file_size_in_bytes")),
        ',"record-count":',
        _number_texts(column_of("record_count")),
        *_optional(entries, column_of, rows),
        *_statistics(entries, column_of, stats_ids),
        "}",
    ]


def _optional(entries: Entries, column_of: _ColumnOf, rows: Array) -> list[Part]:
    """The fields that a file can have. A field that no file has is left out."""
    parts: list[Part] = []
    for name in (*_NUMBERS, *_LISTS, "referenced_data_file", "key_metadata"):
        column = column_of(name)
        if column.null_count == len(column):
            continue
        if name in _NUMBERS:
            parts.append(_named(name, [_number_texts(column)]))
        elif name in _LISTS:
            parts.append(_named(name, [_list_texts(column)]))
        elif name == "key_metadata":
            keys = [None if key is None else encode(key.hex().upper()).decode() for key in column.to_pylist()]
            parts.append(_named(name, [pa.array(keys, type=pa.string())]))
        else:
            parts.append(_named(name, _quoted(column)))
    first = entries.first_row_ids
    if (valid := first.valid[rows]).any():
        parts.append(_named("first_row_id", [_number_texts(pa.array(first.values[rows], mask=~valid))]))
    return parts


def _named(name: str, value: Sequence[Part]) -> Part:
    """A field with its name; empty where the value is null."""
    label = f',"{name.replace("_", "-")}":'
    if all(isinstance(part, str) for part in value):
        return label + "".join(str(part) for part in value)
    column = joined([label, *value])
    return pc.coalesce(column, "") if column.null_count else column


def _partition(entries: Entries, column_of: _ColumnOf) -> list[Part]:
    """The partition values in the order of the spec's fields, with commas between them."""
    parts: list[Part] = []
    for field in entries.spec.fields:
        field_id = field.field_id or 0
        name = f"{PARTITION}{field_id}"
        if parts:
            parts.append(",")
        has = entries.columns.has(name)
        parts += _partition_texts(column_of(name), entries.types.get(field_id)) if has else ["null"]
    return parts


def _partition_texts(column: pa.Array, kind: Primitive | None) -> list[Part]:
    if pa.types.is_integer(column.type) and (kind is None or kind.name in {"int", "long"}):
        return [_or_null(_number_texts(column))]
    # The cache of the other types would confuse the two signs of zero.
    return _encoded_once(column, _float_text if pa.types.is_floating(column.type) else _partition_encoder(kind))


def _float_text(value: Value) -> str:
    """A number as JSON. All clients read 1e999 as infinity. For NaN there is only the word that Java writes."""
    number = float(value)
    if math.isnan(number):
        return '"NaN"'
    return encode(number).decode() if math.isfinite(number) else str(number).replace("inf", "1e999")


@lru_cache(maxsize=_TYPES_CACHED)
def _partition_encoder(kind: Primitive | None) -> Callable[[Value], str]:
    """Encodes the values of a type as JSON. Most values occur again, so they are cached."""
    return lru_cache(maxsize=_VALUES_CACHED, typed=True)(lambda value: encode(_partition_value(kind, value)).decode())


def _partition_value(kind: Primitive | None, value: Value) -> Json:
    if isinstance(value, bytes):
        if kind is None:
            return value.hex().upper()
        found = value_from_bytes(kind, value)
        return None if found is None else partition_value_to_json(kind, found)
    return value if kind is None else partition_value_to_json(kind, value)


def _statistics(entries: Entries, column_of: _ColumnOf, stats_ids: frozenset[int]) -> list[Part]:
    """Counts as numbers, and bounds as the hexadecimal form of their bytes."""
    parts: list[Part] = []
    for which in (*COUNTS, *BOUNDS) if stats_ids else ():
        ids = [field_id for field_id in entries.columns.ids_of(which) if field_id in stats_ids]
        columns = [column_of(f"{which}.{field_id}") for field_id in ids]
        if any(column.null_count for column in columns):
            parts.append(_with_gaps(which, ids, columns))
        elif columns:
            keys = ",".join(map(str, ids))
            parts.append(f',"{which.replace("_", "-")}":{{"keys":[{keys}],"values":[')
            for place, column in enumerate(columns):
                texts = _hex_texts(column) if is_bytes(column.type) else [_number_texts(column)]
                parts += [",", *texts] if place else texts
            parts.append("]}")
    return parts


def _with_gaps(which: str, ids: Sequence[int], columns: Sequence[pa.Array]) -> pa.Array:
    """One kind of statistic, if some files do not have it for some columns."""
    texts: list[str] = []
    for values in zip(*(column.to_pylist() for column in columns), strict=True):
        pairs = [(field_id, value) for field_id, value in zip(ids, values, strict=True) if value is not None]
        written = [value.hex().upper() if isinstance(value, bytes) else value for _, value in pairs]
        text = encode({"keys": [field_id for field_id, _ in pairs], "values": written}).decode()
        texts.append(f',"{which.replace("_", "-")}":{text}' if pairs else "")
    return pa.array(texts, type=pa.string())


def joined(parts: Iterable[Part]) -> pa.Array:
    """The concatenated parts of every row, null where a part is null. At least one part is an array."""
    merged: list[Part] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        elif not isinstance(part, str) or part:
            merged.append(part)
    return merged[0] if len(merged) == 1 else pc.binary_join_element_wise(*merged, "")


class Lines:
    """The texts of rows. Consecutive rows are one piece of memory."""

    def __init__(self, column: pa.Array) -> None:
        self._places, content = binary_parts(column)
        self._content = content.data

    def between(self, start: int, stop: int) -> memoryview:
        return self._content[self._places[start] : self._places[stop]]


def chosen(values: Sequence[str], places: Array) -> Part:
    """The text at each place."""
    if len(values) == 1 or bool((places == places[0]).all()):
        return values[int(places[0])]
    return pa.array(values, type=pa.string()).take(pa.array(places))


def _encoded_once(column: pa.Array, encoder: Callable[[Value], str]) -> list[Part]:
    """Values as JSON. Each distinct value is encoded once."""
    distinct = column.dictionary_encode()
    texts = list(map(encoder, distinct.dictionary.to_pylist()))
    if not texts:
        return ["null"]
    if not column.null_count:
        return [chosen(texts, plain_values(distinct.indices))]
    return [_or_null(pa.array(texts, type=pa.string()).take(distinct.indices))]


def _number_texts(column: pa.Array) -> Part:
    """Whole numbers, or null."""
    if not column.null_count:
        values = plain_values(column)
        if bool((values == values[0]).all()):
            return str(int(values[0]))
    return column.cast(pa.string())


def _list_texts(column: pa.Array) -> Part:
    """Lists of whole numbers, or null."""
    lengths = np.diff(binary_parts(column)[0])
    if not column.null_count and bool((lengths == lengths[0]).all()):
        rows = plain_values(column.flatten()).reshape(len(column), -1)
        if bool((rows == rows[0]).all()):
            return encode(rows[0].tolist()).decode()
    return joined(["[", pc.binary_join(column.cast(pa.list_(pa.string())), ","), "]"])


def _quoted(column: pa.Array) -> list[Part]:
    """Texts as JSON. Few of them have a character that needs an escape."""
    places, content = binary_parts(column)
    piece = content[places[0] : places[-1]]
    if len(piece) and (int(piece.min()) < _FIRST_PRINTED or any(mark in piece.tobytes() for mark in (b'"', b"\\"))):
        texts = [None if text is None else encode(text).decode() for text in column.to_pylist()]
        return [pa.array(texts, type=pa.string())]
    return ['"', column, '"']


def _hex_texts(column: pa.Array) -> list[Part]:
    """Bytes in hexadecimal form. None of them is null."""
    places, content = binary_parts(column.cast(pa.binary()))
    digits = _HEX[content[places[0] : places[-1]]]
    offsets = ((places - places[0]) * 2).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(digits)]
    return ['"', pa.Array.from_buffers(pa.string(), len(column), buffers), '"']


def _or_null(part: Part) -> Part:
    return pc.coalesce(part, "null") if isinstance(part, pa.Array) and part.null_count else part
