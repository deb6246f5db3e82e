"""A manifest decoded straight into columns, all records at once.

Where a record begins is known only when the one before has been read. But every entry has a path, all paths of a table
begin alike, and a search finds those at once; from its path an entry can be read to its end, and that has to be where
the next one begins. When everything meets, the records are where they were thought to be; when anything does not, the
caller is told, and reads record by record.
"""

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sandur.iceberg.expressions.arrays import Array, Mask
from sandur.iceberg.scan.columns import BOUNDS, COUNTS, DELETED, PLAIN, ManifestColumns, batch_of
from sandur.iceberg.scan.container import Container, varint
from sandur.iceberg.scan.lanes import Fields, Items, Lanes, Numbers, Read, Spans, Unreadable

RECORDS_MIN: Final = 64
"""Below this, reading record by record is as fast."""

_PREFIX_CHARS_MIN: Final = 4
_RAW_DEFLATE: Final = -15
_INFLATED_MAX: Final = 1 << 30


def decoded_columns(container: Container, partition: Sequence[tuple[int, str, pa.DataType]]) -> dict[str, pa.Array]:
    """The live entries as columns; Unreadable when they have to be read in another way."""
    data, starts, stops, count = _inflated(container)
    if count < RECORDS_MIN:
        raise Unreadable("too few records to be worth it")
    fields = container.schema["fields"]
    entry, file, path = _split(fields)
    lanes = Lanes(data)
    paths = _path_places(data, fields, starts, count)
    lengths = _lengths_before(lanes, paths)
    after, ends = lanes.record(file, paths + lengths)
    begins = _begins(ends, paths, starts, stops)
    before, at = lanes.record([*entry, *path], begins)
    if not np.array_equal(at, paths + lengths):
        raise Unreadable("an entry does not lead to its path")
    return _columns(lanes, Fields({**before.fields, **after.fields}), partition)


def _inflated(container: Container) -> tuple[bytes, Array, Array, int]:
    """All blocks one after the other, where each begins and ends, and how many records there are."""
    parts: list[bytes] = []
    size = count = 0
    starts, stops = [], []
    for block in container.blocks():
        raw = container.data[block.start : block.stop]
        if container.codec == "deflate":
            inflating = zlib.decompressobj(_RAW_DEFLATE)
            raw = inflating.decompress(raw, _INFLATED_MAX - size + 1)
            if size + len(raw) > _INFLATED_MAX:
                # Not for the slow way either: it would take several times as much.
                raise ValueError(f"it holds more than {_INFLATED_MAX} bytes")
        elif container.codec != "null":
            raise Unreadable(f"codec {container.codec}")
        parts.append(raw)
        starts.append(size)
        size += len(raw)
        stops.append(size)
        count += block.records
    return b"".join(parts), np.array(starts, dtype=np.int64), np.array(stops, dtype=np.int64), count


def _split(fields: Sequence[Mapping[str, Any]]) -> tuple[list[Any], list[Any], list[Any]]:
    """The fields of an entry before its file, those of the file behind the path, and those up to the path."""
    *entry, last = fields
    inner = last["type"]["fields"] if isinstance(last["type"], dict) else []
    place = next((place for place, field in enumerate(inner) if field["name"] == "file_path"), None)
    if last["name"] != "data_file" or place is None:
        raise Unreadable("an entry does not end with its file")
    return entry, inner[place + 1 :], inner[: place + 1]


def _path_places(data: bytes, fields: Sequence[Mapping[str, Any]], starts: Array, count: int) -> Array:
    """Where the path of every entry begins: what the first paths of all blocks have in common, searched for."""
    entry, _, path = _split(fields)
    first = [_first_path(data, int(start), [*entry, *path]) for start in starts]
    # The folder alone when there is only one: names in it need not begin alike.
    common = _common(first) if len(first) > 1 else first[0].rpartition(b"/")[0]
    if len(common) < _PREFIX_CHARS_MIN:
        raise Unreadable("paths have too little in common")
    found = np.fromiter((match.start() for match in re.finditer(re.escape(common), data)), dtype=np.int64)
    if len(found) != count:
        raise Unreadable("there are not as many paths as entries")
    return found


def _common(texts: Sequence[bytes]) -> bytes:
    """What all texts begin with."""
    lowest, highest = min(texts), max(texts)
    same = next(
        (place for place, byte in enumerate(lowest) if highest[place : place + 1] != bytes([byte])), len(lowest)
    )
    return lowest[:same]


def _first_path(data: bytes, place: int, fields: Sequence[Mapping[str, Any]]) -> bytes:
    for field in fields[:-1]:
        chosen = 1
        if isinstance(field["type"], list):
            chosen, place = varint(data, place)
        if not isinstance(field["type"], list) or field["type"][chosen] != "null":
            _, place = varint(data, place)
    size, place = varint(data, place)
    return data[place : place + size]


def _lengths_before(lanes: Lanes, paths: Array) -> Array:
    """The number right before each place: what comes before it is a number as well, so that its begin is certain."""
    at = paths - 1
    for _ in range(4):
        continues = (at > 0) & (lanes.buffer[np.maximum(at - 1, 0)] >= 0x80)  # noqa: PLR2004 - more follows
        if not continues.any():
            break
        at = np.where(continues, at - 1, at)
    lengths, after = lanes.longs(at)
    if not np.array_equal(after, paths) or int(lengths.min()) < 0:
        raise Unreadable("a path has no length")
    return lengths


def _begins(ends: Array, paths: Array, starts: Array, stops: Array) -> Array:
    """Where each entry begins: at the begin of its block, or at the end of the one before."""
    blocks = np.searchsorted(starts, paths, side="right") - 1
    is_first = np.concatenate(([True], blocks[1:] != blocks[:-1]))
    is_last = np.concatenate((blocks[1:] != blocks[:-1], [True]))
    if not np.array_equal(ends[is_last], stops[blocks[is_last]]) or len(np.unique(blocks)) != len(starts):
        raise Unreadable("a block does not end with an entry")
    return np.where(is_first, starts[blocks], np.concatenate(([0], ends[:-1])))


def _columns(lanes: Lanes, entry: Fields, partition: Sequence[tuple[int, str, pa.DataType]]) -> dict[str, pa.Array]:
    status = entry.fields["status"]
    if not isinstance(status, Numbers):
        raise Unreadable("a status is no number")
    is_live = status.values != DELETED
    found: dict[str, pa.Array] = {}
    for name, kind in PLAIN.items():
        read = entry.fields.get(name)
        if read is None:
            missing = 0 if name == "content" else None
            found[name] = pa.array([missing] * int(is_live.sum()), type=kind)
        else:
            found[name] = _column(lanes, read, kind, is_live)
    places = entry.fields["partition"]
    for field_id, name, kind in partition:
        inner = places.fields.get(name) if isinstance(places, Fields) else None
        if inner is None:
            raise Unreadable("a partition is no record")
        found[f"partition.{field_id}"] = _column(lanes, inner, kind, is_live)
    for which in (*COUNTS, *BOUNDS):
        read = entry.fields.get(which)
        if isinstance(read, Items):
            found |= _by_key(lanes, which, read, is_live)
    return found


def _column(lanes: Lanes, read: Read, kind: pa.DataType, is_live: Mask) -> pa.Array:
    match read:
        case Numbers(values=values, valid=valid):
            kept = values[is_live]
            nulls = None if valid is None else ~valid[is_live]
            return pa.array(kept, mask=nulls, from_pandas=False).cast(kind)
        case Spans():
            return _binary(lanes, _live_spans(read, is_live), kind)
        case Items():
            return _lists(read, kind, is_live)
        case Fields():
            raise Unreadable("a record where a value should be")


def _live_spans(spans: Spans, is_live: Mask) -> Spans:
    valid = None if spans.valid is None else spans.valid[is_live]
    return Spans(spans.starts[is_live], spans.lengths[is_live], valid)


def _binary(lanes: Lanes, spans: Spans, kind: pa.DataType) -> pa.Array:
    """The pieces of the buffer, one after the other."""
    lengths = spans.lengths if spans.valid is None else np.where(spans.valid, spans.lengths, 0)
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] >= 1 << 31:
        raise Unreadable("a column has too many bytes")
    # Positions in half the room: there is one for every byte.
    places = np.repeat((spans.starts - offsets[:-1]).astype(np.int32), lengths)
    places += np.arange(offsets[-1], dtype=np.int32)
    content = lanes.buffer[places]
    buffers = [_validity(spans.valid), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content)]
    found = pa.Array.from_buffers(kind, len(lengths), buffers)
    if pa.types.is_string(kind):
        found.validate(full=True)
    return found


def _validity(valid: Mask | None) -> pa.Buffer | None:
    return None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _lists(items: Items, kind: pa.DataType, is_live: Mask) -> pa.Array:
    """Arrays of numbers: each element goes to where its row's elements begin, behind those that came before."""
    counts = np.zeros(len(is_live) + 1, dtype=np.int64)
    for rows, _ in items.steps:
        counts[rows + 1] += 1
    offsets = np.cumsum(counts)
    free = offsets[:-1].copy()
    values = np.zeros(int(offsets[-1]), dtype=np.int64)
    for rows, read in items.steps:
        if not isinstance(read, Numbers):
            raise Unreadable("a list of something else than numbers")
        values[free[rows]] = read.values
        free[rows] += 1
    nulls = None if items.valid is None else pa.array(~items.valid)
    whole = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values), mask=nulls)
    return whole.filter(pa.array(is_live)).cast(kind)


def _by_key(lanes: Lanes, which: str, items: Items, is_live: Mask) -> dict[str, pa.Array]:
    """A map from column ids, kept as an array of pairs: one column per id."""
    count = len(is_live)
    numbers: dict[int, Numbers] = {}
    spans: dict[int, Spans] = {}
    for rows, read in items.steps:
        if not isinstance(read, Fields) or not isinstance(keys := read.fields.get("key"), Numbers):
            raise Unreadable("a map without keys")
        value = read.fields["value"]
        # Nearly always the same column stands at the same place of all maps.
        is_same = bool((keys.values == keys.values[0]).all())
        for key in [int(keys.values[0])] if is_same else np.unique(keys.values).tolist():
            chosen: Mask | slice = slice(None) if is_same else keys.values == key
            at = rows[chosen]
            match value:
                case Numbers(values=values):
                    target = numbers.setdefault(key, _no_numbers(count))
                    target.values[at] = values[chosen]
                    _set(target.valid, at)
                case Spans(starts=starts, lengths=lengths):
                    place = spans.setdefault(key, _no_spans(count))
                    place.starts[at], place.lengths[at] = starts[chosen], lengths[chosen]
                    _set(place.valid, at)
                case _:
                    raise Unreadable("a map of something else than numbers and bytes")
    found: dict[str, pa.Array] = {}
    for key in sorted(numbers):
        column = _column(lanes, numbers[key], pa.int64(), is_live)
        if column.null_count < len(column):
            found[f"{which}.{key}"] = column
    for key in sorted(spans):
        column = _column(lanes, spans[key], pa.binary(), is_live)
        if column.null_count < len(column):
            found[f"{which}.{key}"] = column
    return found


def _no_numbers(count: int) -> Numbers:
    return Numbers(np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_))


def _no_spans(count: int) -> Spans:
    return Spans(np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_))


def _set(valid: Mask | None, rows: Array) -> None:
    if valid is not None:
        valid[rows] = True


def manifest_columns(columns: Mapping[str, pa.Array], header: Mapping[str, str]) -> ManifestColumns:
    return ManifestColumns(batch_of(columns, header))
