"""The live entries of one manifest as columns.

Every entry is a row. Every statistic of every column has a column of its own, such as `lower_bounds.3`. Values that an
entry inherits from its manifest (sequence number, snapshot, first row id) are still null: see `entries.py`.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from sandur.iceberg.expressions.evaluation import Array, Mask, Values, dtype_of, no_values
from sandur.iceberg.expressions.values import DATE_BYTES, units_per_day, value_from_bytes
from sandur.iceberg.types import BYTES, FLOATS, INTEGERS, Primitive

ADDED: Final = 1
DELETED: Final = 2

COUNTS: Final = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
BOUNDS: Final = ("lower_bounds", "upper_bounds")
PARTITION: Final = "partition."

_HIGHEST: Final = 2**63 - 1
_WIDTHS: Final = (4, 8)
_COLUMN_BYTES: Final = 600
"""The memory of a column object. In small manifests it is more than the memory of the values."""


class ManifestColumns:
    """The live entries of one manifest."""

    def __init__(self, columns: Mapping[str, pa.Array], header: Mapping[str, str], count: int) -> None:
        self.columns = columns
        self.header = header
        self.count = count

    @cached_property
    def spec_id(self) -> int | None:
        """The spec id in the file's header, or None if the header has no spec id; ValueError if it is not a number."""
        found = self.header.get("partition-spec-id")
        return None if found is None else int(found)

    @property
    def size_bytes(self) -> int:
        return sum(column.nbytes + _COLUMN_BYTES for column in self.columns.values())

    def has(self, name: str) -> bool:
        return name in self.columns

    def column(self, name: str) -> pa.Array:
        return self.columns[name]

    def numbers(self, name: str) -> Values:
        """A column of whole numbers; all invalid if the manifest does not have the column."""
        if not self.has(name):
            return Values(np.zeros(self.count, dtype=np.int64), np.zeros(self.count, dtype=np.bool_))
        column = self.column(name)
        return Values(plain_values(column).astype(np.int64, copy=False), validity(column))

    def typed(self, name: str, kind: Primitive) -> Values:
        """Bounds or partition values as values of a type; all invalid if the manifest does not have the column."""
        return typed(self.column(name), kind) if self.has(name) else no_values(kind, self.count)

    def ids_of(self, which: str) -> list[int]:
        """The ids of the columns that have this statistic."""
        prefix = f"{which}."
        return sorted(int(name.removeprefix(prefix)) for name in self.columns if name.startswith(prefix))


def validity(column: pa.Array) -> Mask:
    """True for every value that is not null."""
    mask: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return mask


def plain_values(column: pa.Array) -> Array:
    """The numbers of a column, and zeros where it is null."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), dtype=np.int64)
    zero = False if pa.types.is_boolean(column.type) else 0
    values: Array = (column.fill_null(zero) if column.null_count else column).to_numpy(zero_copy_only=False)
    return values


def typed(column: pa.Array, kind: Primitive) -> Values:
    """A stored column as values of a type."""
    if is_bytes(column.type):
        return _from_binary(column, kind)
    if dtype_of(kind) == np.dtype(object) and kind.name != "decimal":
        return no_values(kind, len(column))  # The manifest has numbers where the schema has bytes: nothing is known.
    return Values(plain_values(column).astype(dtype_of(kind), copy=False), validity(column))


def is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_string(kind) or pa.types.is_fixed_size_binary(kind))


def _from_binary(column: pa.Array, kind: Primitive) -> Values:
    if kind.name in INTEGERS or kind.name in FLOATS:
        return _fixed_width(column, kind)
    found = no_values(kind, len(column))
    if kind.name == "string" or kind.name in BYTES:
        found.values[:] = [data or b"" for data in column.cast(pa.binary()).to_pylist()]
        return Values(found.values, validity(column))
    for row, data in enumerate(column.cast(pa.binary()).to_pylist()):
        value = None if data is None else value_from_bytes(kind, data)
        if value is not None:
            found.values[row] = value
            found.valid[row] = True
    return found


def _fixed_width(column: pa.Array, kind: Primitive) -> Values:
    """Numbers that are stored as four or eight bytes each. NaN is invalid."""
    found = no_values(kind, len(column))
    if pa.types.is_fixed_size_binary(column.type) and column.type.byte_width in _WIDTHS:
        made = _of_width(_fixed_bytes(column), kind, column.type.byte_width)
        found.values[:], found.valid[:] = made.values, made.valid & validity(column)
    else:
        flexible = column.cast(pa.binary())
        offsets, data = binary_parts(flexible)
        lengths, valid = np.diff(offsets), validity(flexible)
        for width in _WIDTHS:
            rows = np.flatnonzero(valid & (lengths == width))
            if len(rows):
                gathered = np.ascontiguousarray(data[offsets[rows][:, None] + np.arange(width)])
                found.values[rows], found.valid[rows] = _of_width(gathered, kind, width)
    if kind.name in FLOATS:
        found.valid[np.isnan(found.values)] = False
    return found


def _of_width(content: Array, kind: Primitive, width: int) -> Values:
    form = f"<f{width}" if kind.name in FLOATS else f"<i{width}"
    numbers = content.reshape(-1).view(form).astype(dtype_of(kind), copy=False)
    if width != DATE_BYTES or (units := units_per_day(kind.name)) == 1:
        return Values(numbers, np.ones(len(numbers), dtype=np.bool_))
    # Days of a column that was promoted to a timestamp. Some days are out of a timestamp's range.
    return Values(numbers * units, np.abs(numbers) <= _HIGHEST // units)


def _fixed_bytes(column: pa.Array) -> Array:
    width = column.type.byte_width
    content = np.frombuffer(column.buffers()[1], dtype=np.uint8)
    return content[column.offset * width : (column.offset + len(column)) * width]


def binary_parts(column: pa.Array) -> tuple[Array, Array]:
    """The offsets of a column of bytes, texts or lists, and the bytes that they point into."""
    _, offsets, data, *_ = column.buffers()
    places = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    content = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
    return places, content
