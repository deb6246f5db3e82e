"""A manifest as columns: every live entry a row, every statistic of every column a column of its own.

Manifests never change, so one is decoded once, kept in this form, and asked again and again. What an entry leaves to
its manifest (sequence number, snapshot, first row id) is left open here: see `entries.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sandur.iceberg.expressions.arrays import Array, Values, kind_of, no_values
from sandur.iceberg.expressions.values import BYTES, FLOATS, INTEGERS, from_bytes
from sandur.iceberg.types import Primitive

EXISTING: Final = 0
ADDED: Final = 1
DELETED: Final = 2

COUNTS: Final = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
BOUNDS: Final = ("lower_bounds", "upper_bounds")

PLAIN: Final[Mapping[str, pa.DataType]] = {
    "status": pa.int8(),
    "snapshot_id": pa.int64(),
    "sequence_number": pa.int64(),
    "content": pa.int8(),
    "file_path": pa.string(),
    "file_format": pa.string(),
    "record_count": pa.int64(),
    "file_size_in_bytes": pa.int64(),
    "sort_order_id": pa.int32(),
    "first_row_id": pa.int64(),
    "key_metadata": pa.binary(),
    "split_offsets": pa.list_(pa.int64()),
    "equality_ids": pa.list_(pa.int32()),
    "referenced_data_file": pa.string(),
    "content_offset": pa.int64(),
    "content_size_in_bytes": pa.int64(),
}
_OF_THE_ENTRY: Final = frozenset({"status", "snapshot_id", "sequence_number"})
_ABSENT_MEANS: Final[Mapping[str, int]] = {"content": 0}
_PARTITION: Final = "partition."
_MICROS_PER_DAY: Final = 86_400_000_000

Record = Mapping[str, Any]


class ManifestColumns:
    """The live entries of one manifest. `spec_id` and `is_v1` come from the file's own header, when it says so."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self._values: dict[tuple[str, Primitive], Values] = {}

    @property
    def count(self) -> int:
        return int(self.batch.num_rows)

    @property
    def size_bytes(self) -> int:
        return int(self.batch.nbytes) + 2_000

    @cached_property
    def spec_id(self) -> int | None:
        found = (self.batch.schema.metadata or {}).get(b"partition-spec-id")
        return None if found is None else int(found)

    @cached_property
    def places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.batch.schema.names)}

    def has(self, name: str) -> bool:
        return name in self.places

    def column(self, name: str) -> pa.Array:
        return self.batch.column(self.places[name])

    def numbers(self, name: str) -> Values:
        """A column of whole numbers."""
        return _numbers(self.column(name)) if self.has(name) else _absent_numbers(self.count)

    def partition(self, field_id: int, kind: Primitive) -> Values:
        """The values of a partition field; nulls when the manifest does not have it."""
        return self._kept(f"{_PARTITION}{field_id}", kind)

    def bound(self, which: str, field_id: int, kind: Primitive) -> Values:
        """The lower or upper bounds of a column, as values of a type; not valid where there is none."""
        return self._kept(f"{which}.{field_id}", kind)

    def _kept(self, name: str, kind: Primitive) -> Values:
        found = self._values.get((name, kind))
        if found is None:
            found = typed(self.column(name), kind) if self.has(name) else no_values(kind, self.count)
            self._values[name, kind] = found
        return found

    def ids_of(self, which: str) -> list[int]:
        """The columns of which the manifest has this statistic."""
        prefix = f"{which}."
        return sorted(int(name.removeprefix(prefix)) for name in self.places if name.startswith(prefix))

    @cached_property
    def told(self) -> list[str]:
        """The columns that are no statistics."""
        return [name for name in self.batch.schema.names if name in PLAIN or name.startswith(_PARTITION)]


def _absent_numbers(count: int) -> Values:
    return Values(np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_))


def _numbers(column: pa.Array) -> Values:
    valid = np.asarray(column.is_valid())
    filled = column.fill_null(0) if column.null_count else column
    return Values(np.asarray(filled).astype(np.int64, copy=False), valid)


def typed(column: pa.Array, kind: Primitive) -> Values:
    """A stored column as values of a type."""
    if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
        return _from_binary(column, kind)
    valid = np.asarray(column.is_valid())
    if kind_of(kind) == np.dtype(object) and kind.name != "decimal":
        return no_values(kind, len(column))  # A number where the schema wants bytes: nothing is known.
    filled = column.fill_null(False if pa.types.is_boolean(column.type) else 0) if column.null_count else column
    values = np.asarray(filled).astype(kind_of(kind), copy=False)
    return Values(values, valid)


def _from_binary(column: pa.Array, kind: Primitive) -> Values:
    if kind.name in INTEGERS or kind.name in FLOATS:
        return _fixed_width(column, kind)
    found = no_values(kind, len(column))
    if kind.name == "string" or kind.name in BYTES:
        raw = column.cast(pa.binary()) if pa.types.is_string(column.type) else column
        found.values[:] = raw.fill_null(b"").to_numpy(zero_copy_only=False)
        return Values(found.values, np.asarray(column.is_valid()))
    for row, data in enumerate(column.to_pylist()):
        value = None if data is None else from_bytes(kind, data)
        if value is not None:
            found.values[row] = value
            found.valid[row] = True
    return found


def _fixed_width(column: pa.Array, kind: Primitive) -> Values:
    """Numbers in their binary form, each of four or eight bytes; NaN is no number."""
    found = no_values(kind, len(column))
    offsets, data = binary_parts(column)
    lengths = np.diff(offsets)
    valid = np.asarray(column.is_valid())
    for width in (4, 8):
        rows = np.flatnonzero(valid & (lengths == width))
        if not len(rows):
            continue
        gathered = data[offsets[rows][:, None] + np.arange(width)]
        form = f"<f{width}" if kind.name in FLOATS else f"<i{width}"
        numbers = np.ascontiguousarray(gathered).view(form)[:, 0].astype(kind_of(kind))
        if width == 4 and kind.name.startswith("timestamp"):  # noqa: PLR2004 - a date that was promoted
            numbers = numbers * (_MICROS_PER_DAY * (1000 if kind.name.endswith("_ns") else 1))
        found.values[rows] = numbers
        found.valid[rows] = True
    if kind.name in FLOATS:
        found.valid[np.isnan(found.values)] = False
    return found


def binary_parts(column: pa.Array) -> tuple[Array, Array]:
    """Where each value begins and ends in the bytes, and the bytes."""
    _, offsets, data = column.buffers()
    places = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    content = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
    return places, content


def columns_of(
    records: Iterable[Record], partition: Sequence[tuple[int, str, pa.DataType]], header: Mapping[str, str]
) -> ManifestColumns:
    """The columns of decoded entries. `partition` has the id, the name in the file and the kept type of every field."""
    live = [record for record in records if record["status"] != DELETED]
    files = [record["data_file"] for record in live]
    columns: dict[str, pa.Array] = {}
    for name, kind in PLAIN.items():
        source = live if name in _OF_THE_ENTRY else files
        columns[name] = pa.array([_plain(one, name) for one in source], type=kind)
    for field_id, name, kind in partition:
        columns[f"{_PARTITION}{field_id}"] = pa.array([_kept(file["partition"].get(name)) for file in files], type=kind)
    for which in COUNTS:
        columns |= _spread(which, files, pa.int64())
    for which in BOUNDS:
        columns |= _spread(which, files, pa.binary())
    return ManifestColumns(batch_of(columns, header))


def batch_of(columns: Mapping[str, pa.Array], header: Mapping[str, str]) -> pa.RecordBatch:
    schema = pa.schema([pa.field(name, column.type) for name, column in columns.items()], metadata=dict(header))
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


def _plain(record: Record, name: str) -> object:
    value = record.get(name)
    return _ABSENT_MEANS.get(name) if value is None else value


def _kept(value: object) -> object:
    return value.encode() if isinstance(value, str) else value


def _spread(which: str, files: Sequence[Record], kind: pa.DataType) -> dict[str, pa.Array]:
    """One column per column id that any of the files has this statistic for."""
    found: dict[int, list[object]] = {}
    for row, file in enumerate(files):
        for pair in file.get(which) or ():
            values = found.get(pair["key"])
            if values is None:
                values = found[pair["key"]] = [None] * len(files)
            values[row] = pair["value"]
    return {f"{which}.{field_id}": pa.array(values, type=kind) for field_id, values in sorted(found.items())}
