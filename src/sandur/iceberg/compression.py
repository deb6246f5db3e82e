"""Metadata files compressed with gzip."""

import zlib

from sandur.errors import BadRequest

UNCOMPRESSED_BYTES_MAX = 2**30

_GZIP_START = b"\x1f\x8b"
_GZIP_WINDOW_BITS = 31


def uncompressed(data: bytes, what: str) -> bytes:
    """`data` without compression, if it has any; raises `BadRequest` that names `what`."""
    if not data.startswith(_GZIP_START):
        return data
    parts: list[bytes] = []
    size = 0
    while data:  # A gzip file may consist of several members, one after the other.
        member = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
        try:
            parts.append(member.decompress(data, UNCOMPRESSED_BYTES_MAX - size + 1))
        except zlib.error as error:
            raise BadRequest(f"{what} is malformed: {error}") from error
        size += len(parts[-1])
        if size > UNCOMPRESSED_BYTES_MAX:
            raise BadRequest(f"{what} is malformed: larger than {UNCOMPRESSED_BYTES_MAX} bytes when uncompressed")
        if not member.eof:
            raise BadRequest(f"{what} is malformed: the compressed data ends too early")
        data = member.unused_data
    return b"".join(parts)
