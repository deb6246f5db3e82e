"""Arrays of as many numbers, which take as many bytes as they need, read in one go instead of number by number.

The last byte of a number is the only one below 0x80. So where every number of an array ends is seen at once, without
reading the ones before it, and the array ends with its last number.
"""

from typing import Final, NamedTuple

import numpy as np

from sandur.iceberg.expressions.arrays import Array, Mask
from sandur.iceberg.scan.buffers import BITS, CONTINUES, NUMBER_BYTES_MAX, TIMES_THE_BUFFER_MAX, rows_at, signed
from sandur.iceberg.scan.container import varint

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
