"""The blocks of Avro files without their compression, and never more of them than is allowed."""

import sys
from collections.abc import Callable, Mapping
from typing import Final

import cramjam
from isal import isal_zlib

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_RAW_DEFLATE: Final = -15
_CHECKSUM_BYTES: Final = 4


def inflated(codec: str, data: bytes, bytes_max: int) -> bytes:
    """The block's bytes; ValueError for those of another codec, for damaged ones, and when there are more of them."""
    if codec not in _CODECS:
        raise ValueError(f"codec {codec!r} is not one of {', '.join(_CODECS)}")
    try:
        found = _CODECS[codec](data, bytes_max + 1)
    except _DAMAGED as error:
        raise ValueError(f"a block is damaged: {error}") from error
    if len(found) > bytes_max:
        raise ValueError("it holds too many bytes")
    return found


_DAMAGED: Final[tuple[type[Exception], ...]] = (
    isal_zlib.error,  # type: ignore[assignment]  # Its stub takes it for an instance.
    cramjam.DecompressionError,
    zstd.ZstdError,
    EOFError,
)


def _deflate(data: bytes, bytes_max: int) -> bytes:
    return isal_zlib.decompressobj(_RAW_DEFLATE).decompress(data, bytes_max)


def _zstandard(data: bytes, bytes_max: int) -> bytes:
    return zstd.ZstdDecompressor().decompress(data, bytes_max)


def _snappy(data: bytes, bytes_max: int) -> bytes:
    """Avro puts a checksum behind what is compressed."""
    raw = data[:-_CHECKSUM_BYTES]
    if cramjam.snappy.decompress_raw_len(raw) >= bytes_max:
        raise ValueError("it holds too many bytes")
    return bytes(cramjam.snappy.decompress_raw(raw))


_CODECS: Final[Mapping[str, Callable[[bytes, int], bytes]]] = {
    "null": lambda data, _: data,
    "deflate": _deflate,
    "snappy": _snappy,
    "zstandard": _zstandard,
}
"""Those that Iceberg's writers know."""
