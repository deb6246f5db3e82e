"""Arrow columns from the values that the batch reader found."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from sandur.avro.batch_reader import Array, Fields, Items, Mask, Missing, Numbers, Read, Spans, Unreadable, windows

Live = Mask | None
"""The records to keep. None keeps all of them, which is the usual case."""

Part = tuple[Array, Numbers | Spans]
"""Some records in order, and one value for each."""

_FIXED_WIDTH_MAX: Final = 16
_LENGTHS_MAX: Final = 48
"""Values of up to this many different lengths are copied length by length, and byte by byte beyond that."""

_INTEGERS: Final = ((pa.int8(), 7), (pa.int16(), 15), (pa.int32(), 31), (pa.int64(), 63))


def numbers(values: Array, valid: Mask | None, kind: pa.DataType) -> pa.Array:
    """A column of numbers; pa.ArrowException if a number does not fit the type."""
    given = values != 0 if pa.types.is_boolean(kind) else values
    return pa.array(given, type=kind, mask=None if valid is None else ~valid)


def to_column(buffer: Array, read: Read, kind: pa.DataType, live: Live) -> pa.Array:
    """A column of a given type."""
    match _kept(read, live) if isinstance(read, Numbers | Spans) else read:
        case Numbers(values=values, valid=valid):
            return numbers(values, valid, kind)
        case Spans() as spans:
            return _texts(buffer, spans, kind)
        case Items() as items:
            return _lists(items, kind, live)
        case Fields():
            raise Unreadable("a record in place of a value")
        case Missing(records=records):
            return pa.nulls(records if live is None else int(live.sum()), kind)


def map_columns(buffer: Array, name: str, items: Items, kind: pa.DataType, live: Live) -> dict[str, pa.Array]:
    """A map that Avro stores as an array of pairs: one column `name.key` for every key that has a value."""
    by_key: dict[int, list[Part]] = {}
    for rows, read in items.steps:
        if not isinstance(read, Fields) or not isinstance(keys := read.fields.get("key"), Numbers):
            raise Unreadable("a map without keys")
        if keys.values.dtype.kind != "i":
            raise Unreadable("a map with keys that are not whole numbers")
        value = read.fields.get("value")
        if not isinstance(value, Numbers if pa.types.is_integer(kind) else Spans):
            raise Unreadable(f"a map without values of type {kind}")
        # Usually the same key has the same place in all maps.
        first = int(keys.values[0])
        if bool((keys.values == first).all()):
            by_key.setdefault(first, []).append((rows, value))
            continue
        order = keys.values.argsort(kind="stable")
        for chosen in np.split(order, np.flatnonzero(np.diff(keys.values[order])) + 1):
            by_key.setdefault(int(keys.values[chosen[0]]), []).append((rows[chosen], _kept(value, chosen)))
    return {
        f"{name}.{key}": _map_column(buffer, by_key[key], items.records, live)
        for key in sorted(by_key)
        if _has_any(by_key[key], live)
    }


def concat_columns(pieces: Sequence[Mapping[str, pa.Array]], counts: Sequence[int]) -> dict[str, pa.Array]:
    """The columns of several pieces of a file, in order. A column that a piece does not have is null there."""
    if len(pieces) == 1:
        return dict(pieces[0])
    found: dict[str, pa.Array] = {}
    for name in dict.fromkeys(name for piece in pieces for name in piece):
        kind = _common_type({piece[name].type for piece in pieces if name in piece})
        parts = [
            piece[name].cast(kind) if name in piece else pa.nulls(count, kind)
            for piece, count in zip(pieces, counts, strict=True)
        ]
        found[name] = pa.concat_arrays(parts)
    return found


def _common_type(kinds: set[pa.DataType]) -> pa.DataType:
    if len(kinds) == 1:
        return next(iter(kinds))
    if all(pa.types.is_integer(kind) for kind in kinds):
        return max(kinds, key=lambda kind: kind.bit_width)
    return pa.binary()


def _small_numbers(read: Numbers) -> pa.Array:
    """Whole numbers in the narrowest type that holds all of them."""
    values = read.values
    lowest, highest = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    kind = next(kind for kind, bits in _INTEGERS if -1 << bits <= lowest and highest < 1 << bits)
    return numbers(values, read.valid, kind)


def _texts(buffer: Array, spans: Spans, kind: pa.DataType) -> pa.Array:
    """Pieces of the buffer, copied into one column."""
    lengths = spans.lengths if spans.valid is None else np.where(spans.valid, spans.lengths, 0)
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] >= 1 << 31:
        raise Unreadable("a column has too many bytes")
    content = _copied(buffer, spans.starts, lengths, offsets)
    buffers = [_validity_bits(spans.valid), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content)]
    found = pa.Array.from_buffers(kind, len(lengths), buffers)
    if pa.types.is_string(kind):
        found.validate(full=True)
    return found


def _small_texts(buffer: Array, spans: Spans) -> pa.Array:
    """Bytes; of fixed width, and without offsets, if all values have the same small length."""
    known = spans.lengths if spans.valid is None else spans.lengths[spans.valid]
    width = int(known[0]) if len(known) else 0
    if not 0 < width <= _FIXED_WIDTH_MAX or not bool((known == width).all()):
        return _texts(buffer, spans, pa.binary())
    starts = spans.starts if spans.valid is None else np.where(spans.valid, spans.starts, 0)
    content = windows(buffer, width)[starts]
    return pa.Array.from_buffers(pa.binary(width), len(starts), [_validity_bits(spans.valid), pa.py_buffer(content)])


def _validity_bits(valid: Mask | None) -> pa.Buffer | None:
    return None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _copied(buffer: Array, starts: Array, lengths: Array, offsets: Array) -> Array:
    shortest, longest = (int(lengths.min()), int(lengths.max())) if len(lengths) else (0, 0)
    if shortest == longest:
        return windows(buffer, longest)[starts].view(np.uint8) if longest else np.zeros(0, dtype=np.uint8)
    different = np.flatnonzero(np.bincount(lengths))
    if len(different) > _LENGTHS_MAX:
        places = np.repeat(starts - offsets[:-1], lengths)
        places += np.arange(offsets[-1])
        return buffer.take(places)
    content = np.empty(int(offsets[-1]), dtype=np.uint8)
    for length in different.tolist():
        if length:
            rows = np.flatnonzero(lengths == length)
            windows(content, length)[offsets[rows]] = windows(buffer, length)[starts[rows]]
    return content


def _lists(items: Items, kind: pa.DataType, live: Live) -> pa.Array:
    """Arrays of numbers: each element goes behind the elements of its record that came before."""
    counts = np.zeros(items.records + 1, dtype=np.int64)
    for rows, _ in items.steps:
        counts[rows + 1] += 1
    offsets = np.cumsum(counts)
    free = offsets[:-1].copy()
    values = np.zeros(int(offsets[-1]), dtype=np.int64)
    for rows, read in items.steps:
        if not isinstance(read, Numbers):
            raise Unreadable("a list of values that are not numbers")
        values[free[rows]] = read.values
        free[rows] += 1
    buffers = [_validity_bits(items.valid), pa.py_buffer(offsets.astype(np.int32))]
    inside = numbers(values, None, kind.value_type)
    whole = pa.Array.from_buffers(kind, items.records, buffers, children=[inside])
    return whole if live is None else whole.filter(numbers(live, None, pa.bool_()))


def _has_any(parts: Sequence[Part], live: Live) -> bool:
    """Whether a live record has a value."""
    for rows, read in parts:
        if live is None and read.valid is None:
            return True
        has_value = np.True_ if read.valid is None else read.valid
        if bool((has_value if live is None else live[rows] & has_value).any()):
            return True
    return False


def _kept(read: Numbers | Spans, chosen: Array | None) -> Numbers | Spans:
    """The values at some places, or where a mask is true. None keeps all of them."""
    if chosen is None:
        return read
    valid = None if read.valid is None else read.valid[chosen]
    if isinstance(read, Numbers):
        return Numbers(read.values[chosen], valid)
    return Spans(read.starts[chosen], read.lengths[chosen], valid)


def _map_column(buffer: Array, parts: Sequence[Part], records: int, live: Live) -> pa.Array:
    """One key's values, from parts that hold different records. A later part wins."""
    read = parts[0][1] if len(parts[0][0]) == records and len(parts) == 1 else _combined(parts, records)
    kept = _kept(read, live)
    return _small_numbers(kept) if isinstance(kept, Numbers) else _small_texts(buffer, kept)


def _combined(parts: Sequence[Part], records: int) -> Numbers | Spans:
    valid = np.zeros(records, dtype=np.bool_)
    values, lengths = np.zeros(records, dtype=np.int64), np.zeros(records, dtype=np.int64)
    for rows, read in parts:
        valid[rows] = True if read.valid is None else read.valid
        if isinstance(read, Numbers):
            values[rows] = read.values
        else:
            values[rows], lengths[rows] = read.starts, read.lengths
    return Numbers(values, valid) if isinstance(parts[0][1], Numbers) else Spans(values, lengths, valid)
