"""File scan tasks as clients get them: JSON with everything that reading a file takes."""

from collections.abc import Mapping, Sequence
from typing import Final

from sandur.iceberg.expressions.values import Json, Value, from_bytes, spelled
from sandur.iceberg.raw_json import encode
from sandur.iceberg.scan.columns import BOUNDS, COUNTS, ManifestColumns
from sandur.iceberg.scan.deletes import DeleteFile, DeleteIndex
from sandur.iceberg.scan.entries import Entries
from sandur.iceberg.scan.residuals import Residuals
from sandur.iceberg.types import Primitive

_CONTENTS: Final = ("data", "position-deletes", "equality-deletes")
_NUMBERS: Final = ("sort_order_id", "content_offset", "content_size_in_bytes")


class Tasks:
    """The tasks of one answer. Delete files are told once, and referred to by their place."""

    def __init__(self, stats_ids: frozenset[int]) -> None:
        self._stats_ids = stats_ids
        self._tasks: list[bytes] = []
        self._deletes: list[bytes] = []
        self._places: dict[tuple[int, int], int] = {}

    @property
    def count(self) -> int:
        return len(self._tasks)

    def add(self, entries: Entries, rows: Sequence[int], residuals: Residuals, deletes: DeleteIndex) -> None:
        files = file_objects(entries, rows, self._stats_ids)
        applied = deletes.of(entries, rows)
        for row, file, found in zip(rows, files, applied, strict=True):
            residual = residuals.spelled[int(residuals.kinds[row])]
            references = b"" if not found else b',"delete-file-references":' + encode(self._referred(found))
            self._tasks.append(b'{"data-file":' + file + references + b',"residual-filter":' + residual + b"}")

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
        return b'"file-scan-tasks":[' + b",".join(self._tasks) + b"]" + deletes


def file_objects(entries: Entries, rows: Sequence[int], stats_ids: frozenset[int]) -> list[bytes]:
    """Each of the files as a JSON object."""
    if not rows:
        return []
    columns = entries.columns
    taken = columns.batch.take(rows)
    plain = ManifestColumns(taken)
    partitions = partition_rows(entries, plain)
    paths = plain.column("file_path").to_pylist()
    formats = plain.column("file_format").to_pylist()
    contents = plain.column("content").to_pylist()
    sizes = plain.column("file_size_in_bytes").to_pylist()
    counts = plain.column("record_count").to_pylist()
    optional = _optional(entries, plain, rows)
    stats = [_statistics(plain, row, stats_ids) for row in range(len(rows))] if stats_ids else None
    found = []
    for row, path in enumerate(paths):
        file: dict[str, Json] = {
            "spec-id": entries.spec.spec_id or 0,
            "content": _CONTENTS[contents[row]],
            "file-path": path,
            "file-format": formats[row].lower(),
            "partition": partitions[row],
            "file-size-in-bytes": sizes[row],
            "record-count": counts[row],
        }
        for name, values in optional.items():
            if values[row] is not None:
                file[name] = values[row]
        if stats is not None:
            file |= stats[row]
        found.append(encode(file))
    return found


def _optional(entries: Entries, plain: ManifestColumns, rows: Sequence[int]) -> dict[str, list[Json]]:
    """What a file may have beside the rest, by its name in JSON; columns that are empty are left out."""
    found: dict[str, list[Json]] = {}
    for name in ("split_offsets", "sort_order_id", "equality_ids", "referenced_data_file", *_NUMBERS[1:]):
        column = plain.column(name)
        if column.null_count < len(column):
            found[name.replace("_", "-")] = column.to_pylist()
    keys = plain.column("key_metadata")
    if keys.null_count < len(keys):
        found["key-metadata"] = [None if key is None else key.hex().upper() for key in keys.to_pylist()]
    first = entries.first_row_ids
    if first.valid.any():
        found["first-row-id"] = [int(first.values[row]) if first.valid[row] else None for row in rows]
    return found


def partition_rows(entries: Entries, plain: ManifestColumns) -> list[list[Json]]:
    """The partition of every row as JSON values, in the order of the spec's fields."""
    fields = [field.field_id or 0 for field in entries.spec.fields]
    if not fields:
        return [[] for _ in range(plain.count)]
    columns = [_partition_column(plain, field_id, entries.types.get(field_id)) for field_id in fields]
    return [list(values) for values in zip(*columns, strict=True)]


def _partition_column(plain: ManifestColumns, field_id: int, kind: Primitive | None) -> list[Json]:
    name = f"partition.{field_id}"
    if not plain.has(name):
        return [None] * plain.count
    return [None if value is None else _partition_value(kind, value) for value in plain.column(name).to_pylist()]


def _partition_value(kind: Primitive | None, value: Value) -> Json:
    if isinstance(value, bytes):
        if kind is None:
            return value.hex().upper()
        found = from_bytes(kind, value)
        return None if found is None else spelled(kind, found)
    return value if kind is None else spelled(kind, value)


def _statistics(plain: ManifestColumns, row: int, stats_ids: frozenset[int]) -> Mapping[str, Json]:
    """Counts, and bounds as the hex of their binary form, which is what clients read."""
    found: dict[str, Json] = {}
    for which in (*COUNTS, *BOUNDS):
        keys: list[Json] = []
        values: list[Json] = []
        for field_id in plain.ids_of(which):
            if field_id not in stats_ids:
                continue
            value = plain.column(f"{which}.{field_id}")[row].as_py()
            if value is not None:
                keys.append(field_id)
                values.append(value.hex().upper() if isinstance(value, bytes) else value)
        if keys:
            found[which.replace("_", "-")] = {"keys": keys, "values": values}
    return found
