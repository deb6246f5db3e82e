"""Many places of one buffer looked at together, and numbers as Avro writes them."""

from typing import Final

import numpy as np

from sandur.iceberg.expressions.arrays import Array

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
