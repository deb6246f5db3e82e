"""Keys of objects: which are valid, and how any text becomes a segment of one."""

import functools
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, unquote

from sandur.errors import BadRequest

KEY_BYTES_MAX: Final = 900
"""S3 allows 1,024 bytes for a whole key; the rest is for the store's prefix in its bucket."""

PREFIX_BYTES_MAX: Final = 120

SEGMENT_BYTES_MAX: Final = 255
"""The longest file name that file systems allow."""

# Matches nearly every valid key in a third of the time. `_key_problem` decides about all other keys.
_SEGMENT: Final = r"[A-Za-z0-9_=%~-][A-Za-z0-9_=%~.-]{0,254}+"
_PLAIN_KEY: Final = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*+\Z")


def validate_key(key: str) -> str:
    """Return the key. Raises BadRequest with the reason if it is not valid."""
    if len(key) <= KEY_BYTES_MAX and _PLAIN_KEY.match(key):
        return key
    if problem := _key_problem(key):
        raise BadRequest(f"key {key[:200]!r}: {problem}")
    return key


def validate_prefix(prefix: str) -> str:
    """Return the prefix: empty, or a key and `/`. Raises BadRequest if it is neither."""
    if prefix and not prefix.endswith("/"):
        raise BadRequest(f"prefix {prefix[:200]!r}: does not end in '/'")
    if prefix:
        validate_key(prefix[:-1])
    return prefix


def _key_problem(key: str) -> str | None:
    # The layout percent-encodes its keys; other bytes come only from locations that users chose.
    size = len(key) if key.isascii() else len(key.encode("utf-8", "surrogatepass"))
    if size > KEY_BYTES_MAX:
        return f"has {size} bytes, more than {KEY_BYTES_MAX}"
    if not key.isprintable():
        return "contains a character that is not printable"
    if "\\" in key:
        return "contains a backslash, which some stores treat as '/'"
    for segment in key.split("/"):
        if segment in {"", ".", ".."}:
            return f"contains the segment {segment!r}"
        if len(segment) > SEGMENT_BYTES_MAX or len(segment.encode()) > SEGMENT_BYTES_MAX:
            return f"contains a segment of more than {SEGMENT_BYTES_MAX} bytes"
    return None


LEVEL_SEPARATOR: Final = "\x1f"

_EMPTY: Final = ".empty"
"""An empty level. No encoded text starts with a dot, so nothing else encodes to this."""

_CONTINUES: Final = "~"
"""Ends a piece that continues in the next segment. Encoded text contains no tilde."""

_PIECE_MAX: Final = 200
_JOINED_BY: Final = "%1F"


# Each request encodes the same few names several times.
_ENCODED_MAX: Final = 65_536


@functools.lru_cache(_ENCODED_MAX)
def encode_segment(text: str) -> str:
    """The text as one segment, or as several joined by `/` if it is too long for one file name."""
    return "/".join(_pieces(_escape(text)))


@functools.lru_cache(_ENCODED_MAX)
def encode_levels(levels: tuple[str, ...]) -> str:
    """The levels of a namespace as one segment (or more), joined by %1F; the reverse of `decode_levels`."""
    for level in levels:
        if LEVEL_SEPARATOR in level:
            raise BadRequest(f"namespace {list(levels)!r}: the level {level!r} contains the separator 0x1F")
    return "/".join(_pieces(_JOINED_BY.join(map(_escape, levels))))


def decode_segment(segment: str) -> str:
    """The text of one segment that `split_path` returned."""
    return "" if segment == _EMPTY else unquote(segment, errors="surrogatepass")


def decode_levels(segment: str) -> tuple[str, ...]:
    return tuple(map(decode_segment, segment.split(_JOINED_BY)))


def split_path(path: str) -> tuple[str, ...]:
    """The segments of a path; the pieces of long segments are joined."""
    segments: list[str] = []
    joined = ""
    for piece in path.split("/"):
        joined += piece.removesuffix(_CONTINUES)
        if not piece.endswith(_CONTINUES):
            segments.append(joined)
            joined = ""
    return tuple(segments)


def _escape(text: str) -> str:
    if not text:
        return _EMPTY
    escaped = quote(text, safe="", errors="surrogatepass").replace(_CONTINUES, "%7E")
    return "%2E" + escaped[1:] if escaped.startswith(".") else escaped


def _pieces(escaped: str) -> Iterator[str]:
    while len(escaped) > _PIECE_MAX:
        yield escaped[:_PIECE_MAX] + _CONTINUES
        escaped = escaped[_PIECE_MAX:]
    yield escaped
