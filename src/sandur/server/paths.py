"""Paths and queries of requests, decoded with one kind of error."""

import re
from typing import Final
from urllib.parse import parse_qsl, unquote_to_bytes

from sandur.errors import BadRequest

_BROKEN_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_SHOWN_BYTES_MAX: Final = 80
_QUERY_FIELDS_MAX: Final = 100


def decoded_segment(raw: bytes) -> str:
    """One name of a path: percent-decoded, `+` read as a space (Java encodes like a form); BadRequest when broken."""
    if b"%" not in raw and b"+" not in raw and raw.isascii():
        return raw.decode("ascii")
    if _BROKEN_ESCAPE.search(raw):
        raise BadRequest(f"Invalid path: broken percent escape in {_shown(raw)}")
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode()
    except UnicodeDecodeError:
        raise BadRequest(f"Invalid path: {_shown(raw)} is not UTF-8") from None


def decoded_query(raw: bytes) -> dict[str, str]:
    """The parameters of a query or form, the first of each name; BadRequest when it is broken."""
    if not raw:
        return {}
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX
        )
    except ValueError as error:
        raise BadRequest(f"Invalid query: {error}") from None
    parameters: dict[str, str] = {}
    for name, value in pairs:
        parameters.setdefault(name, value)
    return parameters


def _shown(raw: bytes) -> str:
    return repr(raw[:_SHOWN_BYTES_MAX].decode("latin-1"))
