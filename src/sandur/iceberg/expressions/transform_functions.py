"""Partition transforms applied to single values."""

import struct
from typing import Final

from sandur.iceberg.expressions.values import Value, calendar_day
from sandur.iceberg.partitioning import Transform
from sandur.iceberg.types import Primitive

_EPOCH_YEAR: Final = 1970
_MICROS_PER_HOUR: Final = 3_600_000_000
_MASK: Final = 0xFFFF_FFFF
_BITS: Final = {"int": 31, "long": 63}


def width_of(transform: Transform) -> int:
    """The number in `bucket[n]` or `truncate[n]`."""
    return int(transform.text.partition("[")[2].rstrip("]"))


def apply_transform(transform: Transform, source: Primitive, value: Value) -> Value:
    """The partition value of a value, for a known transform that is not void.

    If truncating leaves the range of the type, the result wraps around to the highest numbers: see `wrapped_above`.
    """
    match transform.name:
        case "identity":
            return value
        case "bucket":
            return (murmur3(_hashed_form(source, value)) & 0x7FFF_FFFF) % width_of(transform)
        case "truncate":
            found = truncate(width_of(transform), value)
            bits = _BITS.get(source.name)
            return found if bits is None or not isinstance(found, int) or found >= -1 << bits else found + (2 << bits)
        case "hour":
            return int(value) // (_MICROS_PER_HOUR * _nanos_factor(source))
        case name:
            return _calendar(name, source, int(value))


def truncate(width: int, value: Value) -> Value:
    """The largest multiple of the width up to a number, or the first characters or bytes."""
    if isinstance(value, str | bytes):
        return value[:width]
    return int(value) - int(value) % width


def wrapped_above(transform: Transform, source: Primitive) -> int | None:
    """The partition value above which the lowest numbers can be too; None if the transform does not wrap around."""
    bits = _BITS.get(source.name)
    return None if bits is None or transform.name != "truncate" else (1 << bits) - width_of(transform)


def _nanos_factor(source: Primitive) -> int:
    return 1000 if source.name.endswith("_ns") else 1


def _calendar(name: str, source: Primitive, value: int) -> int:
    days = value if source.name == "date" else value // (24 * _MICROS_PER_HOUR * _nanos_factor(source))
    if name == "day":
        return days
    year, month, _ = calendar_day(days)
    return year - _EPOCH_YEAR if name == "year" else (year - _EPOCH_YEAR) * 12 + month - 1


def _hashed_form(source: Primitive, value: Value) -> bytes:
    match value:
        case str():
            return value.encode("utf-8", "surrogatepass")
        case bytes():
            return value
        case _ if source.name == "decimal":
            number = int(value)
            return number.to_bytes(((number if number >= 0 else ~number).bit_length() // 8) + 1, signed=True)
        case _:
            # Nanoseconds hash like their microseconds, so that a promoted column keeps its buckets.
            number = int(value) // _nanos_factor(source) if source.name.startswith("timestamp") else int(value)
            return struct.pack("<q", number)


def murmur3(data: bytes) -> int:
    """The 32-bit Murmur3 hash (x86 variant, seed 0), unsigned."""
    result = 0
    whole = len(data) // 4 * 4
    for (block,) in struct.iter_unpack("<I", data[:whole]):
        result ^= _mixed(block)
        result = (_rotated(result, 13) * 5 + 0xE654_6B64) & _MASK
    if tail := data[whole:]:
        result ^= _mixed(int.from_bytes(tail, "little"))
    result ^= len(data)
    result = (result ^ result >> 16) * 0x85EB_CA6B & _MASK
    result = (result ^ result >> 13) * 0xC2B2_AE35 & _MASK
    return result ^ result >> 16


def _mixed(block: int) -> int:
    return _rotated(block * 0xCC9E_2D51 & _MASK, 15) * 0x1B87_3593 & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
