"""How names become path segments and come back: percent-encoded (RFC 3986), never too long, never ambiguous."""

import functools
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote, unquote

from sandur.errors import BadRequest

LEVEL_SEPARATOR: Final = "\x1f"

_EMPTY: Final = ".empty"
"""An empty level. No encoded text begins with a dot, so nothing else is spelled like this."""

_CONTINUES: Final = "~"
"""Ends a piece that goes on in the next segment. Encoded text holds no tilde."""

_PIECE_MAX: Final = 200
_JOINED_BY: Final = "%1F"


# The same few names are spelled again and again, several times a request.
_SPELLINGS_MAX: Final = 65_536


@functools.lru_cache(_SPELLINGS_MAX)
def encoded(text: str) -> str:
    """The text as one segment, or as several joined by `/` when it is too long for a file system's names."""
    return "/".join(_pieces(_escaped(text)))


def encoded_levels(levels: Sequence[str]) -> str:
    """The levels of a namespace as one segment (or more), joined by %1F; the reverse of `decoded_levels`."""
    return _encoded_levels(tuple(levels))


@functools.lru_cache(_SPELLINGS_MAX)
def _encoded_levels(levels: tuple[str, ...]) -> str:
    for level in levels:
        if LEVEL_SEPARATOR in level:
            raise BadRequest(f"namespace {list(levels)!r}: the level {level!r} holds the separator 0x1F")
    return "/".join(_pieces(_JOINED_BY.join(map(_escaped, levels))))


def decoded(segment: str) -> str:
    """The text of a segment as `gathered` gives it."""
    return "" if segment == _EMPTY else unquote(segment, errors="surrogatepass")


def decoded_levels(segment: str) -> tuple[str, ...]:
    return tuple(map(decoded, segment.split(_JOINED_BY)))


def gathered(path: str) -> tuple[str, ...]:
    """The segments of a path with the pieces of long ones put together again."""
    whole: list[str] = []
    begun = ""
    for piece in path.split("/"):
        begun += piece.removesuffix(_CONTINUES)
        if not piece.endswith(_CONTINUES):
            whole.append(begun)
            begun = ""
    return tuple(whole)


def _escaped(text: str) -> str:
    if not text:
        return _EMPTY
    escaped = quote(text, safe="", errors="surrogatepass").replace(_CONTINUES, "%7E")
    return "%2E" + escaped[1:] if escaped.startswith(".") else escaped


def _pieces(escaped: str) -> Iterator[str]:
    while len(escaped) > _PIECE_MAX:
        yield escaped[:_PIECE_MAX] + _CONTINUES
        escaped = escaped[_PIECE_MAX:]
    yield escaped
