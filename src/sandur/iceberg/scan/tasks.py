"""File scan tasks as clients get them: JSON with everything that reading a file takes, written column by column."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sandur.iceberg.expressions.values import Json, Value, from_bytes, spelled
from sandur.iceberg.raw_json import encode
from sandur.iceberg.scan.columns import BOUNDS, COUNTS, ManifestColumns
from sandur.iceberg.scan.deletes import DeleteFile, DeleteIndex
from sandur.iceberg.scan.entries import Entries
from sandur.iceberg.scan.residuals import Residuals
from sandur.iceberg.types import Primitive

_CONTENTS: Final = ("data", "position-deletes", "equality-deletes")
_NUMBERS: Final = ("sort_order_id", "content_offset", "content_size_in_bytes")
_LISTS: Final = ("split_offsets", "equality_ids")
_NEEDS_ESCAPES: Final = r'["\\\x00-\x1f]'


class Tasks:
    """The tasks of one answer. Delete files are told once, and referred to by their place."""

    def __init__(self) -> None:
        self._tasks: list[bytes] = []
        self._deletes: list[bytes] = []
        self._places: dict[tuple[int, int], int] = {}
        self.count = 0

    def add(
        self, entries: Entries, rows: Sequence[int], texts: pa.Array, residuals: Residuals, deletes: DeleteIndex
    ) -> None:
        """The tasks of these files, of which `texts` tells; none of them twice in one answer."""
        if not rows:
            return
        spelled_residuals = pa.array([text.decode() for text in residuals.spelled], type=pa.string())
        self._tasks.append(
            _as_one_text(
                _joined(
                    '{"data-file":',
                    texts,
                    self._references(entries, rows, deletes),
                    ',"residual-filter":',
                    spelled_residuals.take(pa.array(residuals.kinds[list(rows)])),
                    "},",
                )
            )
        )
        self.count += len(rows)

    def _references(self, entries: Entries, rows: Sequence[int], deletes: DeleteIndex) -> "pa.Array | str":
        if not deletes.count:
            return ""
        found = [b"" if not files else _reference(self._referred(files)) for files in deletes.of(entries, rows)]
        return pa.array([text.decode() for text in found], type=pa.string())

    def _referred(self, found: Sequence[DeleteFile]) -> list[int]:
        return [self._place(file) for file in found]

    def _place(self, file: DeleteFile) -> int:
        key = (id(file.entries), file.row)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self._deletes)
            self._deletes += file_objects(file.entries, [file.row], frozenset())
        return place

    def fields(self) -> bytes:
        """The two lists as fields of a JSON object, without its braces. Delete files only where tasks refer to some."""
        deletes = b',"delete-files":[' + b",".join(self._deletes) + b"]" if self._deletes else b""
        return b'"file-scan-tasks":[' + b"".join(self._tasks).removesuffix(b",") + b"]" + deletes


def _reference(places: Sequence[int]) -> bytes:
    return b',"delete-file-references":' + encode(places)


def _joined(*parts: "pa.Array | str") -> pa.Array:
    """The parts of every row, one after the other; a text is the same in all of them."""
    texts = [part if isinstance(part, pa.Array) else pa.scalar(part, type=pa.string()) for part in parts]
    return pc.binary_join_element_wise(*texts, "")


def _as_one_text(column: pa.Array) -> bytes:
    """All rows, one right behind the other."""
    _, offsets, content = column.buffers()
    places = memoryview(offsets).cast("i")
    return bytes(memoryview(content)[places[column.offset] : places[column.offset + len(column)]])


def file_objects(entries: Entries, rows: Sequence[int], stats_ids: frozenset[int]) -> list[bytes]:
    """Each of the files as a JSON object."""
    return [text.encode() for text in file_texts(entries, rows, stats_ids).to_pylist()]


def file_texts(entries: Entries, rows: Sequence[int], stats_ids: frozenset[int]) -> pa.Array:
    """Each of the files as a JSON object, in a column of texts."""
    plain = _taken(entries, rows, with_statistics=bool(stats_ids))
    contents = pa.array(_CONTENTS, type=pa.string())
    statistics = _statistics(plain, stats_ids) if stats_ids else ""
    return _joined(
        f'{{"spec-id":{entries.spec.spec_id or 0},"content":"',
        contents.take(plain.column("content")),
        '","file-path":',
        _quoted(plain.column("file_path")),
        ',"file-format":"',
        pc.utf8_lower(plain.column("file_format")),
        '","partition":[',
        *_partition(entries, plain),
        '],"file-size-in-bytes":',
        plain.column("file_size_in_bytes").cast(pa.string()),
        ',"record-count":',
        plain.column("record_count").cast(pa.string()),
        *_optional(entries, plain, rows),
        statistics,
        "}",
    )


def _taken(entries: Entries, rows: Sequence[int], *, with_statistics: bool) -> ManifestColumns:
    """Some of the rows, and only the columns that are told of."""
    batch = entries.columns.batch
    if not with_statistics:
        batch = batch.select(entries.columns.told)
    if rows[-1] - rows[0] == len(rows) - 1:  # In order and without gaps, so that nothing has to be copied.
        return ManifestColumns(batch.slice(rows[0], len(rows)))
    return ManifestColumns(batch.take(pa.array(rows, type=pa.int64())))


def _quoted(texts: pa.Array) -> pa.Array:
    """Texts as JSON. Hardly any has something in it that has to be escaped."""
    if pc.any(pc.match_substring_regex(texts, _NEEDS_ESCAPES)).as_py():
        return pa.array([encode(text).decode() for text in texts.to_pylist()], type=pa.string())
    return _joined('"', texts, '"')


def _optional(entries: Entries, plain: ManifestColumns, rows: Sequence[int]) -> list[pa.Array]:
    """What a file may have beside the rest; columns that are empty are left out."""
    found: list[tuple[str, pa.Array]] = []
    for name in (*_NUMBERS, *_LISTS, "referenced_data_file", "key_metadata"):
        column = plain.column(name)
        if column.null_count == len(column):
            continue
        if name in _NUMBERS:
            found.append((name, column.cast(pa.string())))
        elif name in _LISTS:
            joined = pc.binary_join(column.cast(pa.list_(pa.string())), ",")
            found.append((name, _joined("[", joined, "]")))
        elif name == "key_metadata":
            keys = [None if key is None else encode(key.hex().upper()).decode() for key in column.to_pylist()]
            found.append((name, pa.array(keys, type=pa.string())))
        else:
            known = [None if text is None else encode(text).decode() for text in column.to_pylist()]
            found.append((name, pa.array(known, type=pa.string())))
    first = entries.first_row_ids
    if first.valid.any():
        chosen = list(rows)
        numbers = pa.array(first.values[chosen], mask=~first.valid[chosen])
        found.append(("first_row_id", numbers.cast(pa.string())))
    empty = pa.scalar("", type=pa.string())
    return [pc.coalesce(_joined(f',"{name.replace("_", "-")}":', column), empty) for name, column in found]


def _partition(entries: Entries, plain: ManifestColumns) -> "list[pa.Array | str]":
    """The partition values in the order of the spec's fields, with commas between them."""
    found: list[pa.Array | str] = []
    for field in entries.spec.fields:
        field_id = field.field_id or 0
        name = f"partition.{field_id}"
        if found:
            found.append(",")
        found.append(_partition_texts(plain.column(name), entries.types.get(field_id)) if plain.has(name) else "null")
    return found


def _partition_texts(column: pa.Array, kind: Primitive | None) -> pa.Array:
    """Every value is spelled once, however many files have it."""
    encoded = column.dictionary_encode()
    texts = pa.array(
        [encode(_partition_value(kind, value)).decode() for value in encoded.dictionary.to_pylist()], type=pa.string()
    )
    return pc.coalesce(texts.take(encoded.indices), pa.scalar("null", type=pa.string()))


def _partition_value(kind: Primitive | None, value: Value) -> Json:
    if isinstance(value, bytes):
        if kind is None:
            return value.hex().upper()
        found = from_bytes(kind, value)
        return None if found is None else spelled(kind, found)
    return value if kind is None else spelled(kind, value)


def _statistics(plain: ManifestColumns, stats_ids: frozenset[int]) -> pa.Array:
    """Counts, and bounds as the hex of their binary form, which is what clients read."""
    rows: list[dict[str, dict[str, list[Json]]]] = [{} for _ in range(plain.count)]
    for which in (*COUNTS, *BOUNDS):
        for field_id in plain.ids_of(which):
            if field_id not in stats_ids:
                continue
            for row, value in zip(rows, plain.column(f"{which}.{field_id}").to_pylist(), strict=True):
                if value is not None:
                    pairs = row.setdefault(which.replace("_", "-"), {"keys": [], "values": []})
                    pairs["keys"].append(field_id)
                    pairs["values"].append(value.hex().upper() if isinstance(value, bytes) else value)
    return pa.array(["," + encode(row).decode()[1:-1] if row else "" for row in rows], type=pa.string())
