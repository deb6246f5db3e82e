"""Arrow arrays from Python and NumPy values."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sandur.iceberg.expressions.evaluation import Array, Mask

NUMBERS: Final[Mapping[pa.DataType, Any]] = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.float64(): np.float64,
}

_REMEMBERED_MAX: Final = 256
_REMEMBERED_CHARS_MAX: Final = 256


def numbers(values: Array, valid: Mask | None, kind: pa.DataType) -> pa.Array:
    """Numbers as they lie in memory; ValueError when one is too large for the type."""
    if pa.types.is_boolean(kind):
        content = np.packbits(values != 0, bitorder="little")
    elif kind in NUMBERS:
        content = values.astype(NUMBERS[kind], copy=False)
        if content.dtype.itemsize < values.dtype.itemsize and not np.array_equal(content, values):
            raise ValueError("a number is too large for its column")
    else:
        raise ValueError(f"numbers in a column of {kind}")
    return pa.Array.from_buffers(kind, len(values), [validity_bits(valid), pa.py_buffer(np.ascontiguousarray(content))])


def validity_bits(valid: Mask | None) -> pa.Buffer | None:
    return None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A column of values, any of which may be None; TypeError or ValueError when one is of another type."""
    valid = np.fromiter((value is not None for value in values), dtype=np.bool_, count=len(values))
    if pa.types.is_list(kind):
        lists = [value or () for value in values]
        inside = array_of(list(chain.from_iterable(lists)), kind.value_type)
        buffers = [validity_bits(valid), pa.py_buffer(_offsets(lists))]
        return pa.Array.from_buffers(kind, len(values), buffers, children=[inside])
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        parts = [_bytes(value) for value in values]
        buffers = [validity_bits(valid), pa.py_buffer(_offsets(parts)), pa.py_buffer(b"".join(parts))]
        found = pa.Array.from_buffers(kind, len(values), buffers)
        if pa.types.is_string(kind):  # Bytes may have been given for a text.
            found.validate(full=True)
        return found
    plain = [0 if value is None else _number(value) for value in values]
    wide = np.float64 if pa.types.is_floating(kind) else np.int64
    return numbers(np.array(plain, dtype=wide), valid, kind)


def texts_of(values: Sequence[str | None]) -> pa.Array:
    """A column of texts; those without a null and of plain characters are put there in one go."""
    known = [text for text in values if text is not None]
    content = "".join(known)
    if len(known) == len(values) and content.isascii():
        buffers = [None, pa.py_buffer(_offsets(known)), pa.py_buffer(content.encode())]
        return pa.Array.from_buffers(pa.string(), len(values), buffers)
    return array_of(values, pa.string())


def text_scalar(text: str) -> pa.Scalar:
    return _remembered_scalar(text) if len(text) <= _REMEMBERED_CHARS_MAX else _scalar(text)


def _scalar(text: str) -> pa.Scalar:
    return texts_of([text])[0]


# Short ones are mostly the same for all files of all tables.
_remembered_scalar: Final = lru_cache(maxsize=_REMEMBERED_MAX)(_scalar)


def _bytes(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if value is None or isinstance(value, bytes):
        return value or b""
    raise TypeError(f"expected a text, found {type(value).__name__}")


def _number(value: object) -> int | float:
    if isinstance(value, int | float):
        return value
    raise TypeError(f"expected a number, found {type(value).__name__}")


def _offsets(parts: Sequence[Sequence[Any]]) -> Array:
    offsets = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, parts), dtype=np.int64, count=len(parts)), out=offsets[1:])
    if offsets[-1] >= 1 << 31:
        raise ValueError("a column has too many bytes")
    return offsets.astype(np.int32)
