"""Avro arrays of many records read together when they share a layout.

Files of a table mostly have statistics of the same columns, in the same order, and of as many bytes. So one record's
array is taken for a pattern: one comparison of bytes tells which others have it, and in those every element stands
where it stands in the pattern.

The last byte of a number is the only one below 0x80. So where every number of an array ends is seen at once, without
reading the ones before it, and the array ends with its last number.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from sandur.avro.container import varint
from sandur.iceberg.expressions.evaluation import Array, Mask

CONTINUES: Final = 0x80
"""The bit of a byte that says that the number goes on."""

BITS: Final = 0x7F
NUMBER_BYTES_MAX: Final = 10
TIMES_THE_BUFFER_MAX: Final = 4
"""What is looked at together may overlap, but takes no more room than so many buffers."""


def windows(buffer: Array, width: int) -> Array:
    """The buffer as pieces of a width, one beginning at every byte; nothing is copied."""
    return np.ndarray(shape=(len(buffer) - width + 1,), dtype=f"V{width}", buffer=buffer, strides=(1,))


def rows_at(buffer: Array, at: Array, width: int) -> Array:
    """So many bytes from each of the places, one row for each."""
    return windows(buffer, width)[at].view(np.uint8).reshape(len(at), width)


def signed(written: Array) -> Array:
    """Numbers without a sign as the ones they stand for: the lowest bit is the sign."""
    one, kind = written.dtype.type(1), f"i{written.itemsize}"
    found: Array = (written >> one).view(kind) ^ -(written & one).view(kind)
    return found


_KEY: Final = "key"
NUMBER_TYPES: Final = ("int", "long")
BYTES_TYPES: Final = ("string", "bytes")
_WORD_BYTES: Final = 8
_EXACT: Final = b"\xff" * NUMBER_BYTES_MAX
_GOES_ON: Final = b"\x80" * NUMBER_BYTES_MAX
_ELEMENTS_MAX: Final = 10_000
_RECENT_MAX: Final = 64
_RECENT_BYTES_MAX: Final = 8 << 10
"""Arrays that are longer are rare, and what is known of 64 of them would take more room than it is worth."""

_NOT_SMALL: Final = 0x81
"""The bits that a number of one byte does not have unless it is negative."""

_WORDS: Final = {1: np.uint8, 2: np.uint16, 3: np.uint32, 4: np.uint32}


class Place(NamedTuple):
    """Where a value stands, counted from the array's begin: a number with its bytes, or bytes behind their length."""

    start: int
    width: int
    is_number: bool


class Pattern(NamedTuple):
    """An array of one record: which of its bits have to be the same, and what stands where in each element."""

    width: int
    mask: Array
    wanted: Array
    elements: list[dict[str, Place]]


def pattern_of(data: bytes, begin: int, fields: dict[str, str]) -> Pattern | None:
    """The pattern of the array that begins there; None when it has none, or is none."""
    key = (*fields.items(), data[begin : begin + _WORD_BYTES // 2])
    known = _RECENT.get(key)
    if known is not None and _is_of(data, begin, known):
        return known
    found = _new_pattern(data, begin, fields)
    if found is not None and found.width <= _RECENT_BYTES_MAX:
        if len(_RECENT) >= _RECENT_MAX:
            _RECENT.clear()
        _RECENT[key] = found
    return found


# Manifests of a table have the same ones, and finding one takes as long as reading some hundred arrays that have it.
_RECENT: Final[dict[tuple[object, ...], Pattern]] = {}


def _is_of(data: bytes, begin: int, pattern: Pattern) -> bool:
    if begin + len(pattern.mask) > len(data):
        return False
    there = np.frombuffer(data, dtype=np.uint8, count=len(pattern.mask), offset=begin)
    return np.array_equal(there & pattern.mask, pattern.wanted)


def _new_pattern(data: bytes, begin: int, fields: dict[str, str]) -> Pattern | None:
    try:
        elements, bits, end = _walked(data, begin, fields)
    except (IndexError, ValueError):
        return None
    if not elements:
        return None
    # Whole words, and at least one behind the end, so that a number may be read as a word.
    whole = (end - begin) // _WORD_BYTES * _WORD_BYTES + 2 * _WORD_BYTES
    mask = np.frombuffer(bits.ljust(whole, b"\x00"), dtype=np.uint8)
    there = np.frombuffer(data[begin : begin + whole].ljust(whole, b"\x00"), dtype=np.uint8)
    return Pattern(end - begin, mask, there & mask, elements)


def _walked(data: bytes, begin: int, fields: dict[str, str]) -> tuple[list[dict[str, Place]], bytearray, int]:
    """The elements of the one block that the array has, which bits make the pattern, and where it ends."""
    count, place = varint(data, begin)
    if count > _ELEMENTS_MAX:
        raise ValueError("too many elements")
    bits = bytearray(_EXACT[: place - begin])
    kinds = [(name, kind in NUMBER_TYPES) for name, kind in fields.items()]
    elements: list[dict[str, Place]] = []
    for _ in range(count):
        element: dict[str, Place] = {}
        for name, is_number in kinds:
            byte = data[place]
            number, after = (byte >> 1, place + 1) if not byte & _NOT_SMALL else varint(data, place)
            bits += (_GOES_ON if is_number and name != _KEY else _EXACT)[: after - place]
            if is_number:
                if after - place > _WORD_BYTES:
                    raise ValueError("a number is too long")
                element[name] = Place(place - begin, after - place, is_number=True)
            else:
                if number > len(data) - after:
                    raise ValueError("bytes are cut off")
                element[name] = Place(after - begin, number, is_number=False)
                bits += bytes(number)
                after += number
            place = after
        elements.append(element)
    if data[place] != 0:
        raise ValueError("the array goes on")
    return elements, bits + _EXACT[:1], place + 1


def alike(buffer: Array, at: Array, pattern: Pattern) -> Mask | None:
    """Which of the arrays that begin at these places have the pattern; None when that is too much to be asked."""
    whole = len(pattern.mask)
    last = len(buffer) - whole
    if last < 0 or len(at) * whole > TIMES_THE_BUFFER_MAX * len(buffer):
        return None
    # Laid out flat: rows are too short to be gone through one by one.
    bits = windows(buffer, whole)[np.minimum(at, last)].view(np.uint64) & _repeated(pattern.mask, len(at))
    if np.array_equal(bits, _repeated(pattern.wanted, len(at))):
        return np.asarray(at <= last)
    return np.asarray((bits.view(f"V{whole}") == pattern.wanted.view(f"V{whole}")[0]) & (at <= last))


def _repeated(row: Array, times: int) -> Array:
    return np.frombuffer(row.tobytes() * times, dtype=np.uint64)


def numbers_in(buffer: Array, at: Array, pattern: Pattern) -> dict[int, Array]:
    """The numbers of all elements of arrays that have the pattern, by where they stand."""
    by_width: dict[int, list[int]] = {}
    for element in pattern.elements:
        for name, place in element.items():
            if place.is_number and name != _KEY:
                by_width.setdefault(place.width, []).append(place.start)
    if not by_width:
        return {}
    rows = rows_at(buffer, at, len(pattern.mask))
    found: dict[int, Array] = {}
    for width, starts in by_width.items():
        found |= zip(starts, _numbers(rows, starts, width), strict=True)
    return found


def _numbers(rows: Array, starts: list[int], width: int) -> Array:
    """Numbers of so many bytes, together: seven bits of each, the first byte's last, and the sign in the lowest bit."""
    kind: Any = _WORDS.get(width, np.uint64)
    words = np.empty((len(starts), len(rows)), dtype=kind)
    for place, start in enumerate(starts):
        words[place] = np.ndarray(len(rows), dtype=kind, buffer=rows, offset=start, strides=(rows.shape[1],))
    values = words & kind(BITS)
    for byte in range(1, width):
        values |= (words >> kind(byte)) & kind(BITS << 7 * byte)
    return signed(values)


_COUNT_MAX: Final = 10_000
_MORE_BYTES: Final = 16
"""Arrays may be longer than the first by half of it and this; those that are longer still are read in another way."""


class Row(NamedTuple):
    """What the arrays have in common: how their count is written, how many numbers follow, and how far to look."""

    written_count: bytes
    numbers: int
    width: int


def row_of(data: bytes, begin: int, numbers_each: int) -> Row | None:
    """What arrays have that have as many elements as the one that begins there; None when it is not of one block."""
    try:
        count, place = varint(data, begin)
        if not 0 < count <= _COUNT_MAX:
            return None
        written, numbers = data[begin:place], count * numbers_each
        for _ in range(numbers + 1):
            _, place = varint(data, place)
    except (IndexError, ValueError):
        return None
    whole = place - begin
    return Row(written, numbers, whole + whole // 2 + _MORE_BYTES)


def widths_of(buffer: Array, at: Array, row: Row) -> tuple[Mask, Array] | None:
    """Which of the arrays that begin at these places are such ones, and how many bytes those take.

    None when that is too much to be asked.
    """
    if len(buffer) < row.width or len(at) * row.width > TIMES_THE_BUFFER_MAX * len(buffer):
        return None
    is_inside = at <= len(buffer) - row.width
    pieces = rows_at(buffer, np.minimum(at, len(buffer) - row.width), row.width)
    is_last, of_row = _last_bytes(pieces)
    count_bytes = np.frombuffer(row.written_count, dtype=np.uint8)
    enough = np.diff(of_row) > row.numbers + 1
    fits = is_inside & enough & (pieces[:, : len(count_bytes)] == count_bytes).all(axis=1)
    if int(np.diff(is_last).max(initial=0)) > NUMBER_BYTES_MAX:  # Perhaps of what lies behind the numbers.
        fits[fits] = _widths(is_last, of_row[:-1][fits], row.numbers).max(axis=0) <= NUMBER_BYTES_MAX
    ends = is_last[of_row[:-1][fits] + row.numbers] - np.flatnonzero(fits) * row.width
    # No more elements follow.
    is_over = pieces[fits, ends + 1] == 0
    fits[fits] = is_over
    return fits, ends[is_over] + 2


def numbers_of(buffer: Array, at: Array, row: Row) -> Array:
    """The numbers of such arrays behind their count, for each number one row of those of all arrays."""
    pieces = rows_at(buffer, at, row.width)
    is_last, of_row = _last_bytes(pieces)
    starts = is_last[of_row[:-1] + np.arange(row.numbers)[:, None]] + 1
    widths = _widths(is_last, of_row[:-1], row.numbers)
    content = pieces.reshape(-1)
    found = (content.take(starts) & BITS).astype(np.uint64)
    for byte in range(1, int(widths.max(initial=0))):
        more = (content.take(starts + byte, mode="clip") & BITS) * (widths > byte)
        found |= more.astype(np.uint64) << np.uint64(7 * byte)
    return signed(found)


def _widths(is_last: Array, first: Array, numbers: int) -> Array:
    """How many bytes each of so many numbers takes that follow the one which ends there."""
    return np.diff(is_last[first + np.arange(numbers + 1)[:, None]], axis=0)


def _last_bytes(pieces: Array) -> tuple[Array, Array]:
    """Where numbers end, all rows one after the other, and from where on which of these are a row's."""
    is_last = np.flatnonzero(pieces < CONTINUES)
    return is_last, is_last.searchsorted(np.arange(0, pieces.size + 1, pieces.shape[1]))
