"""Tables of any number of files that consist of manifests only, for benchmarks of planners.

Every file has its own path, size, row count, and statistics of nine columns. Sizes of columns take two to four bytes,
in one of sixteen layouts. One entry of each layout is encoded as Avro; the others are copies of it in which the
different bytes are overwritten.
"""

import hashlib
import io
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import fastavro
import numpy as np
import numpy.typing as npt

from tests.planning.avro_schemas import entry_schema
from tests.planning.odd_manifests import varint
from tests.planning.tables import COLUMNS, SCHEMA, MadeManifest, MadeTable, Spec, value_bytes

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

FILES_PER_MANIFEST: Final = 5_000
METADATA: Final = "v1.metadata.json"
ROWS_STEP: Final = 10_000
"""The distance between the first row ids of two files; no file has more rows."""

SPEC: Final = Spec(1, (("day", "identity", 1000),))
DAYS: Final = range(1_000, 1_400)
_BLOCK_BYTES: Final = 64_000
_DEFLATE_LEVEL: Final = 6
_PATH: Final = "file:///warehouse/db/events/data/day={day:04d}/00000-{number:08d}-{name}.parquet"
_NAME_CHARS: Final = 32
_LAYOUTS: Final = 16
_SIZES: Final = {2: (64, 8_000), 3: (10_000, 900_000), 4: (2_000_000, 100_000_000)}
"""The smallest number that takes a given number of bytes, and the count of such numbers."""


def made_table(folder: Path, count: int, per_manifest: int = FILES_PER_MANIFEST) -> str:
    """Create a table with `count` files, or find an earlier one. Returns the location of its metadata."""
    made = folder / "metadata" / METADATA
    if made.exists():
        return str(made)
    table = _Table(folder, [SPEC])
    parts = [range(first, min(first + per_manifest, count)) for first in range(0, count, per_manifest)]
    table.add_snapshot([_Manifest(SPEC, (), numbers=part) for part in parts])
    return table.write(name=METADATA)


def filters(count: int) -> dict[str, Any]:
    """Everything, a hundredth of the files, and one file."""
    middle = count // 2 * ROWS_STEP
    stop = middle + max(1, count // 100) * ROWS_STEP
    return {
        "100 %": True,
        "1 %": {
            "type": "and",
            "left": {"type": "gt-eq", "term": "id", "value": middle},
            "right": {"type": "lt", "term": "id", "value": stop},
        },
        "one file": {"type": "eq", "term": "id", "value": middle},
    }


class _Manifest(MadeManifest):
    """The files with the given numbers."""

    numbers: range

    def __init__(self, spec: Spec, files: Sequence[Any], *, numbers: range) -> None:
        super().__init__(spec, files)
        object.__setattr__(self, "numbers", numbers)


class _Table(MadeTable):
    """A table whose manifests are written as bytes."""

    def _written(self, manifest: MadeManifest, name: str) -> dict[str, Any]:
        assert isinstance(manifest, _Manifest)
        path = self.folder / "metadata" / f"{name}.avro"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(manifest_bytes(manifest.numbers))
        days = [value_bytes("date", day_of(number)) for number in manifest.numbers]
        summary = {"contains_null": False, "contains_nan": False, "lower_bound": min(days), "upper_bound": max(days)}
        return {
            "manifest_path": f"file://{path}",
            "manifest_length": path.stat().st_size,
            "partition_spec_id": SPEC.spec_id,
            "content": 0,
            "sequence_number": 1,
            "min_sequence_number": 1,
            "added_snapshot_id": 1,
            "added_files_count": len(manifest.numbers),
            "existing_files_count": 0,
            "deleted_files_count": 0,
            "added_rows_count": sum(rows_of(number) for number in manifest.numbers),
            "existing_rows_count": 0,
            "deleted_rows_count": 0,
            "partitions": [summary],
            "key_metadata": None,
            "first_row_id": None,
        }


def day_of(number: int) -> int:
    return DAYS[number % len(DAYS)]


def rows_of(number: int) -> int:
    return 100 + number * 7 % 8_000


def file_bytes_of(number: int) -> int:
    return 100_000 + number * 7_919 % 900_000


def width_of(number: int, field_id: int) -> int:
    """The number of bytes of the size of a column; it differs between columns, and mostly between layouts."""
    return 2 + hashlib.md5(f"{number % _LAYOUTS} {field_id}".encode(), usedforsecurity=False).digest()[0] % 3


def column_bytes_of(number: int, field_id: int) -> int:
    least, others = _SIZES[width_of(number, field_id)]
    return least + (number * 31 + field_id * 977) % others


def path_of(number: int) -> str:
    name = hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()
    return _PATH.format(day=day_of(number), number=number, name=name)


def bounds_of(number: int) -> dict[str, tuple[Any, Any]]:
    """The minimum and maximum of every column of a file."""
    first = number * ROWS_STEP
    last = first + rows_of(number) - 1
    return {
        "id": (first, last),
        "name": ("custom", "custon"),
        "ts": (1_700_000_000_000_000 + first * 1_000, 1_700_000_000_000_000 + last * 1_000),
        "day": (day_of(number), day_of(number)),
        "x": (first / 7, last / 7),
        "flag": (False, True),
        "amount": (number % 1_000, 1_000 + number % 1_000),
        "i": (number % 100, 100 + number % 100),
        "s.inner": (0, 9),
    }


def entry_of(number: int) -> dict[str, Any]:
    """The manifest entry of a file."""
    rows, bounds = rows_of(number), bounds_of(number)
    ids = {name: (COLUMNS[name][0], COLUMNS[name][1]) for name in bounds}
    sides = [
        [{"key": field_id, "value": value_bytes(kind, bounds[name][side])} for name, (field_id, kind) in ids.items()]
        for side in (0, 1)
    ]
    return {
        "status": 1,
        "snapshot_id": 1,
        "sequence_number": 1,
        "file_sequence_number": 1,
        "data_file": {
            "content": 0,
            "file_path": path_of(number),
            "file_format": "PARQUET",
            "partition": {SPEC.name(0): day_of(number)},
            "record_count": rows,
            "file_size_in_bytes": file_bytes_of(number),
            "column_sizes": [{"key": key, "value": column_bytes_of(number, key)} for key, _ in ids.values()],
            "value_counts": [{"key": key, "value": rows} for key, _ in ids.values()],
            "null_value_counts": [{"key": key, "value": 0} for key, _ in ids.values()],
            "nan_value_counts": [{"key": COLUMNS["x"][0], "value": 0}],
            "lower_bounds": sides[0],
            "upper_bounds": sides[1],
            "split_offsets": [4],
            "sort_order_id": 0,
        },
    }


def entry_bytes(number: int) -> bytes:
    """The entry as Avro, as a writer of records encodes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _schema(), entry_of(number))
    return out.getvalue()


def _schema() -> dict[str, Any]:
    fields = [{"name": SPEC.name(0), "type": ["null", "int"], "default": None, "field-id": 1000}]
    return entry_schema(fields, 2)


def different_parts(numbers: range) -> list[Bytes]:
    """The parts that differ between entries, in their order in the entry: for each part a row of bytes per file.

    The files have one layout.
    """
    at: Numbers = np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int64)
    paths = np.frombuffer("".join(map(path_of, numbers)).encode(), dtype=np.uint8).reshape(len(at), -1)
    days, rows = DAYS.start + at % len(DAYS), 100 + at * 7 % 8_000
    ids = [COLUMNS[name][0] for name in bounds_of(0)]
    sizes = [_sizes(at, field_id, width_of(numbers[0], field_id)) for field_id in ids]
    parts = [paths, _varints(days, 2), _varints(rows, 2), _varints(100_000 + at * 7_919 % 900_000, 3), *sizes]
    parts += [_varints(rows, 2)] * len(ids)
    for is_upper in (0, 1):
        ends = at * ROWS_STEP + is_upper * (rows - 1)
        stamps = 1_700_000_000_000_000 + ends * 1_000
        parts += [_raw(ends, "<i8"), _raw(stamps, "<i8"), _raw(days, "<i4"), _raw(ends / 7, "<f8")]
        parts += [_raw(at % 1_000 + 1_000 * is_upper, ">i4"), _raw(at % 100 + 100 * is_upper, "<i4")]
    return parts


def _sizes(at: Numbers, field_id: int, width: int) -> Bytes:
    least, others = _SIZES[width]
    return _varints(least + (at * 31 + field_id * 977) % others, width)


def _varints(values: Numbers, width: int) -> Bytes:
    """Numbers of a given size in bytes, as Avro encodes them."""
    places = np.arange(width)
    pieces = (values[:, None] << 1) >> (7 * places) & 0x7F
    return np.asarray(pieces | np.where(places < width - 1, 0x80, 0), dtype=np.uint8)


def _raw(values: npt.NDArray[Any], form: str) -> Bytes:
    found: Bytes = np.ascontiguousarray(values.astype(form)).view(np.uint8).reshape(len(values), -1)
    return found


def entries(numbers: range) -> list[bytes]:
    """The entries of files as Avro, all of them with one layout."""
    pattern_number = 100_000 * _LAYOUTS + numbers[0] % _LAYOUTS
    pattern = entry_bytes(pattern_number)
    found: Bytes = np.tile(np.frombuffer(pattern, dtype=np.uint8), (len(numbers), 1))
    cursor = 0
    there = different_parts(range(pattern_number, pattern_number + 1))
    for part, known in zip(different_parts(numbers), there, strict=True):
        place = pattern.index(known.tobytes(), cursor)
        cursor = place + part.shape[1]
        found[:, place:cursor] = part
    for place in (0, -1):
        if found[place].tobytes() != entry_bytes(numbers[place]):
            raise AssertionError(f"file {numbers[place]}: its entry is not what a writer makes of it")
    return [row.tobytes() for row in found]


def manifest_bytes(numbers: range) -> bytes:
    """A manifest of the files of these numbers."""
    found = [b""] * len(numbers)
    for place in range(min(_LAYOUTS, len(numbers))):
        found[place::_LAYOUTS] = entries(numbers[place::_LAYOUTS])
    header = {
        "schema": json.dumps(SCHEMA),
        "schema-id": "0",
        "partition-spec": json.dumps(SPEC.json["fields"]),
        "partition-spec-id": str(SPEC.spec_id),
        "format-version": "2",
        "content": "data",
    }
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(_schema()), [], codec="deflate", metadata=header)
    sync = out.getvalue()[-16:]
    per_block = max(1, _BLOCK_BYTES // len(found[0]))
    for first in range(0, len(found), per_block):
        block = found[first : first + per_block]
        squeezed = zlib.compress(b"".join(block), _DEFLATE_LEVEL, wbits=-15)
        out.write(b"".join((varint(len(block)), varint(len(squeezed)), squeezed, sync)))
    return out.getvalue()
