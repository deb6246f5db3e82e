"""Names in paths: split where they are still encoded, then decoded level by level."""

import re
from typing import Final
from urllib.parse import quote

from sandur.server.paths import decoded_query, decoded_segment

__all__ = ["SEPARATOR", "decoded_levels", "decoded_query", "decoded_segment", "encoded_segment", "parent_levels"]

SEPARATOR: Final = "%1F"
"""What joins the levels of a namespace in a path, as `config` tells clients."""

_ENCODED_SEPARATOR: Final = re.compile(rb"%1[Ff]|\x1f")


def decoded_levels(raw: bytes) -> tuple[str, ...]:
    """The levels of a namespace in a path."""
    if b"%" not in raw and b"\x1f" not in raw:
        return (decoded_segment(raw),)
    return tuple(decoded_segment(level) for level in _ENCODED_SEPARATOR.split(raw))


def encoded_segment(name: str) -> str:
    """A name as it stands in a path."""
    return quote(name, safe="")


def parent_levels(parent: str, *, is_encoded_twice: bool) -> tuple[str, ...]:
    """The levels of the query parameter `parent`, which has been decoded once.

    Java joins plain levels by 0x1F. PyIceberg joins encoded ones, and has the result encoded again.
    """
    if is_encoded_twice or ("\x1f" not in parent and SEPARATOR in parent.upper()):
        return decoded_levels(parent.encode())
    return tuple(parent.split("\x1f"))
