"""Which strings are keys: what every store accepts and no store can be tricked with."""

import re
from typing import Final

from sandur.errors import BadRequest

KEY_BYTES_MAX: Final = 900
"""S3 allows 1,024 for a whole key; the rest is left to the prefix of the store within its bucket."""

PREFIX_BYTES_MAX: Final = 120

SEGMENT_BYTES_MAX: Final = 255
"""What a file system allows for one name."""

# Nearly every key: what `_key_problem` accepts, found in a third of the time. Every other key is looked at in full.
_SEGMENT: Final = r"[A-Za-z0-9_=%~-][A-Za-z0-9_=%~.-]{0,254}+"
_PLAIN_KEY: Final = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*+\Z")


def checked_key(key: str) -> str:
    """The key itself, or BadRequest with the reason why it is none."""
    if len(key) <= KEY_BYTES_MAX and _PLAIN_KEY.match(key):
        return key
    if problem := _key_problem(key):
        raise BadRequest(f"key {key[:200]!r}: {problem}")
    return key


def checked_prefix(prefix: str) -> str:
    """The prefix itself (empty, or a key and `/`), or BadRequest."""
    if prefix and not prefix.endswith("/"):
        raise BadRequest(f"prefix {prefix[:200]!r}: does not end in '/'")
    if prefix:
        checked_key(prefix[:-1])
    return prefix


def _key_problem(key: str) -> str | None:
    # Keys are ASCII by construction (layout percent-encodes); other bytes only come from locations users chose.
    size = len(key) if key.isascii() else len(key.encode("utf-8", "surrogatepass"))
    if size > KEY_BYTES_MAX:
        return f"has {size} bytes, more than {KEY_BYTES_MAX}"
    if not key.isprintable():
        return "holds a character that cannot be printed"
    if "\\" in key:
        return "holds a backslash, which some stores take for '/'"
    for segment in key.split("/"):
        if segment in {"", ".", ".."}:
            return f"holds the segment {segment!r}"
        if len(segment) > SEGMENT_BYTES_MAX or len(segment.encode()) > SEGMENT_BYTES_MAX:
            return f"holds a segment of more than {SEGMENT_BYTES_MAX} bytes"
    return None
