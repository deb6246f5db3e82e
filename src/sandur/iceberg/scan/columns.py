"""A manifest as columns: every live entry a row, every statistic of every column a column of its own.

Manifests never change, so one is decoded once, kept in this form, and asked again and again. What an entry leaves to
its manifest (sequence number, snapshot, first row id) is left open here: see `entries.py`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sandur.iceberg.expressions.evaluation import Array, Mask, Values, kind_of, no_values
from sandur.iceberg.expressions.values import BYTES, DATE_BYTES, FLOATS, INTEGERS, from_bytes, units_per_day
from sandur.iceberg.scan.arrow_arrays import array_of
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
_REQUIRED: Final = ("status", "file_path", "file_format", "record_count", "file_size_in_bytes")
_CONTENT_MAX: Final = 2
_ABSENT_MEANS: Final[Mapping[str, int]] = {"content": 0}
PARTITION: Final = "partition."
_HIGHEST: Final = 2**63 - 1
_WIDTHS: Final = (4, 8)
_COLUMN_BYTES: Final = 600

Record = Mapping[str, Any]


class ManifestColumns:
    """The live entries of one manifest. Columns may be unpacked when they are first asked for."""

    def __init__(self, columns: Mapping[str, pa.Array], header: Mapping[str, str], count: int) -> None:
        self.columns = columns
        self.header = header
        self.count = count

    @cached_property
    def spec_id(self) -> int | None:
        """From the file's own header, when it says so; ValueError when it says something else."""
        found = self.header.get("partition-spec-id")
        return None if found is None else int(found)

    @property
    def size_bytes(self) -> int:
        """How much memory they take: small ones take more for being columns than for what they hold."""
        if isinstance(self.columns, LaterColumns):
            return self.columns.size_bytes
        return sum(column.nbytes + _COLUMN_BYTES for column in self.columns.values())

    def has(self, name: str) -> bool:
        return name in self.columns

    def column(self, name: str) -> pa.Array:
        return self.columns[name]

    def numbers(self, name: str) -> Values:
        """A column of whole numbers; not valid where the manifest has none."""
        if not self.has(name):
            return Values(np.zeros(self.count, dtype=np.int64), np.zeros(self.count, dtype=np.bool_))
        column = self.column(name)
        return Values(plain_values(column).astype(np.int64, copy=False), validity(column))

    def typed(self, name: str, kind: Primitive) -> Values:
        """A column of bounds or partition values, as values of a type; not valid where the manifest has none."""
        return typed(self.column(name), kind) if self.has(name) else no_values(kind, self.count)

    def ids_of(self, which: str) -> list[int]:
        """The columns of which the manifest has this statistic."""
        prefix = f"{which}."
        return sorted(int(name.removeprefix(prefix)) for name in self.columns if name.startswith(prefix))


class LaterColumns(Mapping[str, pa.Array]):
    """Columns by name, of which statistics are made when they are first asked for: most scans ask for few.

    `later` says for each kind of statistic what makes which of its columns. `size_bytes` is about how much all of them
    take, with what they are made of. Two threads may make the same column, which does no harm.
    """

    def __init__(
        self,
        made: dict[str, pa.Array],
        later: Mapping[str, Callable[[], Mapping[str, Callable[[], pa.Array]]]],
        size_bytes: int,
    ) -> None:
        self._made = made
        self._later = later
        self._makers: dict[str, Mapping[str, Callable[[], pa.Array]]] = {}
        self.size_bytes = size_bytes

    def __getitem__(self, name: str) -> pa.Array:
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = self._makers_of(name.partition(".")[0])[name]()
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._made or name in self._makers_of(str(name).partition(".")[0])

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._made, *(name for which in self._later for name in self._makers_of(which)))))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _makers_of(self, which: str) -> Mapping[str, Callable[[], pa.Array]]:
        found = self._makers.get(which)
        if found is None:
            look = self._later.get(which)
            found = self._makers[which] = look() if look is not None else {}
        return found


def checked(found: ManifestColumns) -> ManifestColumns:
    """The same columns; ValueError for entries without what every file has."""
    for name in _REQUIRED:
        if found.column(name).null_count:
            raise ValueError(f"an entry has no {name}")
    content = found.numbers("content").values
    if len(content) and not 0 <= int(content.min()) <= int(content.max()) <= _CONTENT_MAX:
        raise ValueError("an entry is neither of data nor of deletes")
    return found


def field_id_of(name: str) -> int | None:
    """The column that a statistic is about; None for a column that is none."""
    which, _, field_id = name.partition(".")
    return int(field_id) if which in COUNTS or which in BOUNDS else None


def validity(column: pa.Array) -> Mask:
    """Which values are there."""
    bits = column.buffers()[0] if column.null_count else None
    if bits is None:
        return np.full(len(column), column.null_count == 0)
    places = slice(column.offset, column.offset + len(column))
    return np.unpackbits(np.frombuffer(bits, dtype=np.uint8), bitorder="little", count=places.stop)[places].view(
        np.bool_
    )


def plain_values(column: pa.Array) -> Array:
    """The numbers of a column as they lie in memory, whatever stands where there is none."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column), dtype=np.int64)
    content = column.buffers()[1]
    start, stop = column.offset, column.offset + len(column)
    if content is None:
        return np.zeros(len(column), dtype=np.int64)
    if pa.types.is_boolean(kind):
        bits = np.unpackbits(np.frombuffer(content, dtype=np.uint8), bitorder="little", count=stop)
        return bits[start:].view(np.bool_)
    form = f"<f{kind.bit_width // 8}" if pa.types.is_floating(kind) else f"<i{kind.bit_width // 8}"
    return np.frombuffer(content, dtype=form)[start:stop]


def typed(column: pa.Array, kind: Primitive) -> Values:
    """A stored column as values of a type."""
    if is_bytes(column.type):
        return _from_binary(column, kind)
    if kind_of(kind) == np.dtype(object) and kind.name != "decimal":
        return no_values(kind, len(column))  # A number where the schema wants bytes: nothing is known.
    return Values(plain_values(column).astype(kind_of(kind), copy=False), validity(column))


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
        value = None if data is None else from_bytes(kind, data)
        if value is not None:
            found.values[row] = value
            found.valid[row] = True
    return found


def _fixed_width(column: pa.Array, kind: Primitive) -> Values:
    """Numbers in their binary form, each of four or eight bytes; NaN is no number."""
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
    numbers = content.reshape(-1).view(form).astype(kind_of(kind), copy=False)
    if width != DATE_BYTES or (units := units_per_day(kind.name)) == 1:
        return Values(numbers, np.ones(len(numbers), dtype=np.bool_))
    # Days of a column that was promoted; some are further away than a time can be.
    return Values(numbers * units, np.abs(numbers) <= _HIGHEST // units)


def _fixed_bytes(column: pa.Array) -> Array:
    width = column.type.byte_width
    content = np.frombuffer(column.buffers()[1], dtype=np.uint8)
    return content[column.offset * width : (column.offset + len(column)) * width]


def binary_parts(column: pa.Array) -> tuple[Array, Array]:
    """Where each value of a column of bytes, texts or lists begins and ends, and the bytes that it is a part of."""
    _, offsets, data, *_ = column.buffers()
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
        columns[name] = array_of([_plain(one, name) for one in source], kind)
    for field_id, name, kind in partition:
        columns[f"{PARTITION}{field_id}"] = array_of(
            [_kept((file["partition"] or {}).get(name)) for file in files], kind
        )
    for which in COUNTS:
        columns |= _spread(which, files, pa.int64())
    for which in BOUNDS:
        columns |= _spread(which, files, pa.binary())
    return ManifestColumns(columns, header, len(live))


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
    if any(type(field_id) is not int for field_id in found):
        raise TypeError("a map whose keys are no numbers")
    return {f"{which}.{field_id}": array_of(values, kind) for field_id, values in sorted(found.items())}
