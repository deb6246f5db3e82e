"""Columns as JSON: the text of every row, made for all rows at once, and what is the same in all of them only once."""

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sandur.iceberg.expressions.arrays import Array
from sandur.iceberg.expressions.values import is_near
from sandur.iceberg.scan.arrow import numbers, text_scalar, texts_of
from sandur.iceberg.scan.columns import binary_parts, is_bytes, plain_values
from sandur.splicing import encode

Part: TypeAlias = "pa.Array | str"
"""A piece of the text of every row; a `str` is the same in all of them."""

_EMPTY: Final = text_scalar("")
_NULL: Final = text_scalar("null")
_COMMA: Final = text_scalar(",")
_FIRST_PRINTED: Final = 0x20
_HEX: Final = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), dtype=np.uint16)


def joined(parts: Iterable[Part]) -> pa.Array:
    """The parts of every row, one after the other; at least one of them has rows. Null where a part is."""
    merged: list[Part] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        elif not isinstance(part, str) or part:
            merged.append(part)
    texts = [part if isinstance(part, pa.Array) else text_scalar(part) for part in merged]
    return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, _EMPTY)


class Lines:
    """The texts of rows, of which any that follow each other are one piece of memory."""

    def __init__(self, column: pa.Array) -> None:
        self._places, content = binary_parts(column)
        self._content = content.data

    def between(self, start: int, stop: int) -> memoryview:
        return self._content[self._places[start] : self._places[stop]]


def chosen(values: Sequence[str], places: Array) -> Part:
    """For each place the text that stands there."""
    if len(values) == 1 or bool((places == places[0]).all()):
        return values[int(places[0])]
    return texts_of(values).take(numbers(places, None, pa.int64()))


def number_texts(column: pa.Array) -> Part:
    """Whole numbers; null where there is none."""
    if not column.null_count:
        values = plain_values(column)
        if bool((values == values[0]).all()):
            return str(int(values[0]))
    return column.cast(pa.string())


def list_texts(column: pa.Array) -> Part:
    """Lists of whole numbers; null where there is none."""
    lengths = np.diff(binary_parts(column)[0])
    if not column.null_count and bool((lengths == lengths[0]).all()):
        rows = plain_values(column.flatten()).reshape(len(column), -1)
        if bool((rows == rows[0]).all()):
            return encode(rows[0].tolist()).decode()
    return joined(["[", pc.binary_join(column.cast(pa.list_(pa.string())), _COMMA), "]"])


def quoted(column: pa.Array) -> list[Part]:
    """Texts as JSON. Hardly any has something in it that has to be escaped."""
    places, content = binary_parts(column)
    piece = content[places[0] : places[-1]]
    if len(piece) and (int(piece.min()) < _FIRST_PRINTED or any(mark in piece.tobytes() for mark in (b'"', b"\\"))):
        return [texts_of([None if text is None else encode(text).decode() for text in column.to_pylist()])]
    return ['"', column, '"']


def lowered(column: pa.Array) -> Part:
    """Texts of which there are few, in small letters, as JSON."""
    places, content = binary_parts(column)
    lengths = np.diff(places)
    if bool((lengths == lengths[0]).all()):
        rows = content[places[0] : places[-1]].reshape(len(column), -1)
        if bool((rows == rows[0]).all()):
            return _lowered(rows[0].tobytes().decode())
    encoded = column.dictionary_encode()
    words = list(map(_lowered, encoded.dictionary.to_pylist()))
    return chosen(words, plain_values(encoded.indices))


def _lowered(text: str) -> str:
    return encode(text.lower()).decode()


def hexed(column: pa.Array) -> list[Part]:
    """Bytes as their hex, all of which are there."""
    places, content = binary_parts(column.cast(pa.binary()))
    digits = _HEX[content[places[0] : places[-1]]]
    offsets = ((places - places[0]) * 2).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(digits)]
    return ['"', pa.Array.from_buffers(pa.string(), len(column), buffers), '"']


def statistic_texts(column: pa.Array) -> list[Part]:
    """Counts or bounds, all of which are there."""
    return hexed(column) if is_bytes(column.type) else [number_texts(column)]


def are_near_days(column: pa.Array) -> bool:
    """Whether all of these days, as numbers, are there and lie in years of four digits."""
    if not pa.types.is_integer(column.type) or column.null_count:
        return False
    days = plain_values(column)
    return is_near(int(days.min())) and is_near(int(days.max()))


def day_texts(column: pa.Array) -> list[Part]:
    """Such days as JSON."""
    days = column.cast(pa.int32()).view(pa.date32())
    return ['"', days.cast(pa.string()), '"']


def or_null(part: Part) -> Part:
    return pc.coalesce(part, _NULL) if isinstance(part, pa.Array) and part.null_count else part


def or_nothing(column: pa.Array) -> pa.Array:
    return pc.coalesce(column, _EMPTY) if column.null_count else column
