"""Arrow columns from the values that the batch reader found."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from sandur.iceberg.expressions.evaluation import Array, Mask
from sandur.iceberg.scan.array_layouts import BYTES_TYPES, NUMBER_TYPES, windows
from sandur.iceberg.scan.arrow_arrays import NUMBERS, numbers, validity_bits
from sandur.iceberg.scan.batch_reader import Fields, Items, Later, Missing, Numbers, Read, Spans, Unreadable
from sandur.iceberg.scan.columns import COUNTS

Live = Mask | None
"""Which records count; None means all of them, as nearly always."""

Part = tuple[Array, Numbers | Spans]
"""Some records, in order, and what each of them has."""

_FIXED_WIDTH_MAX: Final = 16
_LENGTHS_MAX: Final = 48
"""Up to so many different lengths, values are copied length by length; beyond that, byte by byte."""

_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def column(buffer: Array, read: Read, kind: pa.DataType, live: Live) -> pa.Array:
    """A column of a type that is known."""
    match read:
        case Numbers(values=values, valid=valid):
            return numbers(_kept(values, live), _kept_mask(valid, live), kind)
        case Spans():
            return texts(buffer, _live_spans(read, live), kind)
        case Items():
            return _lists(read, kind, live)
        case Fields():
            raise Unreadable("a record where a value should be")
        case Missing(records=records):
            return pa.nulls(records if live is None else int(live.sum()), kind)


def small_numbers(values: Array, valid: Mask | None) -> pa.Array:
    """Whole numbers in as few bytes each as all of them take."""
    if values.dtype == np.int8:
        return numbers(values, valid, pa.int8())
    lowest, highest = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    for kind in _INTEGERS:
        limits = np.iinfo(NUMBERS[kind])
        if limits.min <= lowest and highest <= limits.max:
            return numbers(values, valid, kind)
    raise Unreadable("a number is too large")


def texts(buffer: Array, spans: Spans, kind: pa.DataType) -> pa.Array:
    """The pieces of the buffer, one after the other."""
    lengths = _lengths(spans)
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] >= 1 << 31:
        raise Unreadable("a column has too many bytes")
    content = _gathered(buffer, spans.starts, lengths, offsets)
    buffers = [validity_bits(spans.valid), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content)]
    found = pa.Array.from_buffers(kind, len(lengths), buffers)
    if pa.types.is_string(kind):
        found.validate(full=True)
    return found


def small_texts(buffer: Array, spans: Spans) -> pa.Array:
    """Bytes; when all values have as many of them, and few, without telling so of each."""
    known = spans.lengths if spans.valid is None else spans.lengths[spans.valid]
    width = int(known[0]) if len(known) else 0
    if not 0 < width <= _FIXED_WIDTH_MAX or not bool((known == width).all()):
        return texts(buffer, spans, pa.binary())
    starts = spans.starts if spans.valid is None else np.where(spans.valid, spans.starts, 0)
    content = windows(buffer, width)[starts]
    return pa.Array.from_buffers(pa.binary(width), len(starts), [validity_bits(spans.valid), pa.py_buffer(content)])


def _lengths(spans: Spans) -> Array:
    return spans.lengths if spans.valid is None else np.where(spans.valid, spans.lengths, 0)


def _gathered(buffer: Array, starts: Array, lengths: Array, offsets: Array) -> Array:
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


def _kept(values: Array, live: Live) -> Array:
    return values if live is None else values[live]


def _kept_mask(valid: Mask | None, live: Live) -> Mask | None:
    return valid if valid is None or live is None else valid[live]


def _live_spans(spans: Spans, live: Live) -> Spans:
    return Spans(_kept(spans.starts, live), _kept(spans.lengths, live), _kept_mask(spans.valid, live))


def _lists(items: Items, kind: pa.DataType, live: Live) -> pa.Array:
    """Arrays of numbers."""
    steps: list[tuple[Array, Array]] = []
    for rows, read in items.steps:
        if not isinstance(read, Numbers):
            raise Unreadable("a list of something else than numbers")
        steps.append((rows, read.values))
    if steps and all(len(rows) == items.records for rows, _ in steps):
        offsets = np.arange(0, (items.records + 1) * len(steps), len(steps))
        values = np.stack([read for _, read in steps], axis=1).reshape(-1)
    else:
        offsets, values = _in_turn(steps, items.records)
    buffers = [validity_bits(items.valid), pa.py_buffer(offsets.astype(np.int32))]
    inside = numbers(values, None, kind.value_type)
    whole = pa.Array.from_buffers(kind, items.records, buffers, children=[inside])
    return whole if live is None else whole.filter(numbers(live, None, pa.bool_()))


def _in_turn(steps: Sequence[tuple[Array, Array]], records: int) -> tuple[Array, Array]:
    """Where each row's elements begin and end, and all elements: each goes behind those of its row that came before."""
    counts = np.zeros(records + 1, dtype=np.int64)
    for rows, _ in steps:
        counts[rows + 1] += 1
    offsets = np.cumsum(counts)
    free = offsets[:-1].copy()
    values = np.zeros(int(offsets[-1]), dtype=np.int64)
    for rows, read in steps:
        values[free[rows]] = read
        free[rows] += 1
    return offsets, values


def check_map(which: str, elements: Later) -> None:
    """Unreadable when they are no pairs of a number and of what this statistic is."""
    value = elements.fields.get("value")
    is_value = value in NUMBER_TYPES if which in COUNTS else value in BYTES_TYPES
    if not is_value or elements.fields.get("key") not in NUMBER_TYPES:
        raise Unreadable("a map without keys or values")


def columns_by_key(buffer: Array, which: str, items: Items, live: Live) -> dict[str, Callable[[], pa.Array]]:
    """A map from column ids, kept as an array of pairs: what makes one column per id that has a value."""
    by_key: dict[int, list[Part]] = {}
    for rows, read in items.steps:
        if not isinstance(read, Fields) or not isinstance(keys := read.fields.get("key"), Numbers):
            raise Unreadable("a map without keys")
        if keys.values.dtype.kind != "i":
            raise Unreadable("a map whose keys are no whole numbers")
        value = read.fields.get("value")
        if not isinstance(value, Numbers if which in COUNTS else Spans):
            raise Unreadable("a map of something else than numbers, or bytes")
        # Nearly always the same column stands at the same place of all maps.
        first = int(keys.values[0])
        if bool((keys.values == first).all()):
            by_key.setdefault(first, []).append((rows, value))
            continue
        for chosen in _by_value(keys.values):
            by_key.setdefault(int(keys.values[chosen[0]]), []).append((rows[chosen], _some(value, chosen)))
    return {
        f"{which}.{key}": partial(_by_key, buffer, by_key[key], items.records, live)
        for key in sorted(by_key)
        if _has_any(by_key[key], live)
    }


def _by_value(values: Array) -> list[Array]:
    """The places of each value, in order."""
    order = values.argsort(kind="stable")
    return np.split(order, np.flatnonzero(np.diff(values[order])) + 1)


def _has_any(parts: Sequence[Part], live: Live) -> bool:
    """Whether a live record has a value."""
    for rows, read in parts:
        if live is None and read.valid is None:
            return True
        has_value = np.True_ if read.valid is None else read.valid
        if bool((has_value if live is None else live[rows] & has_value).any()):
            return True
    return False


def _by_key(buffer: Array, parts: Sequence[Part], records: int, live: Live) -> pa.Array:
    read = _placed(None, *parts[0], records)
    for part in parts[1:]:
        read = _placed(read, *part, records)
    match read:
        case Numbers(values=values, valid=valid):
            return small_numbers(_kept(values, live), _kept_mask(valid, live))
        case Spans():
            return small_texts(buffer, _live_spans(read, live))


def _some(read: Numbers | Spans, chosen: Array) -> Numbers | Spans:
    match read:
        case Numbers(values=values, valid=valid):
            return Numbers(values[chosen], None if valid is None else valid[chosen])
        case Spans(starts=starts, lengths=lengths, valid=valid):
            return Spans(starts[chosen], lengths[chosen], None if valid is None else valid[chosen])


def _placed(found: Numbers | Spans | None, rows: Array, read: Numbers | Spans, records: int) -> Numbers | Spans:
    """What was found so far, and what was read in these rows."""
    if found is None and len(rows) == records:
        return read
    valid = np.zeros(records, dtype=np.bool_)
    if found is not None:
        valid[:] = True if found.valid is None else found.valid
    valid[rows] = True if read.valid is None else read.valid
    match read:
        case Numbers(values=values):
            return Numbers(_with(found.values if isinstance(found, Numbers) else None, rows, values, records), valid)
        case Spans(starts=starts, lengths=lengths):
            before = found if isinstance(found, Spans) else None
            return Spans(
                _with(None if before is None else before.starts, rows, starts, records),
                _with(None if before is None else before.lengths, rows, lengths, records),
                valid,
            )


def _with(found: Array | None, rows: Array, values: Array, records: int) -> Array:
    changed = np.zeros(records, dtype=np.int64) if found is None else found.astype(np.int64)
    changed[rows] = values
    return changed


def together(pieces: Sequence[Mapping[str, pa.Array]], counts: Sequence[int]) -> Mapping[str, pa.Array]:
    """Columns of several pieces of a manifest, one behind the other; a piece without a column has nulls there."""
    if len(pieces) == 1:
        return pieces[0]
    names = list(dict.fromkeys(name for piece in pieces for name in piece))
    found: dict[str, pa.Array] = {}
    for name in names:
        kind = _kind_of_all({piece[name].type for piece in pieces if name in piece})
        parts = [
            piece[name].cast(kind) if name in piece else pa.nulls(count, kind)
            for piece, count in zip(pieces, counts, strict=True)
        ]
        found[name] = pa.concat_arrays(parts)
    return found


def _kind_of_all(kinds: set[pa.DataType]) -> pa.DataType:
    if len(kinds) == 1:
        return next(iter(kinds))
    if all(pa.types.is_integer(kind) for kind in kinds):
        return max(kinds, key=lambda kind: kind.bit_width)
    return pa.binary()
