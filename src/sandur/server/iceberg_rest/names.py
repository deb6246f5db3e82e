"""Names and pages of the Iceberg REST API, as paths and queries give them."""

import re
from typing import Final, NamedTuple
from urllib.parse import quote

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.server.context import Call, whole_number
from sandur.server.http import decode_segment

SEPARATOR: Final = "%1F"
"""Joins the levels of a namespace in a path; `config` announces it to clients."""

_ENCODED_SEPARATOR: Final = re.compile(rb"%1[Ff]|\x1f")


class PageRequest(NamedTuple):
    """The requested page of a list. Without a token it is the whole list, with an empty one the first page."""

    token: str | None
    size: int | None


def catalog_of(call: Call) -> str:
    """The prefix names the catalog; the router fills in the default."""
    return call.value("prefix")


def namespace_of(call: Call) -> Namespace:
    return Namespace(catalog_of(call), decode_levels(call.encoded_value("namespace")))


def table_of(call: Call) -> Identifier:
    return _identifier(call, "table")


def view_of(call: Call) -> Identifier:
    return _identifier(call, "view")


def function_of(call: Call) -> Identifier:
    return _identifier(call, "function")


def page_of(call: Call) -> PageRequest:
    size = call.query.get("pageSize")
    return PageRequest(call.query.get("pageToken"), whole_number(size, "pageSize", at_least=1) if size else None)


def decode_levels(raw: bytes) -> tuple[str, ...]:
    """The levels of a namespace in a path: split while still encoded, then decoded one by one."""
    if b"%" not in raw and b"\x1f" not in raw:
        return (decode_segment(raw),)
    return tuple(decode_segment(level) for level in _ENCODED_SEPARATOR.split(raw))


def encode_segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")


def parent_levels(parent: str, *, is_encoded_twice: bool) -> tuple[str, ...]:
    """The levels of the query parameter `parent`, which has been decoded once.

    Java joins plain levels with 0x1F. PyIceberg joins encoded levels, and the result is encoded again.
    """
    if is_encoded_twice or ("\x1f" not in parent and SEPARATOR in parent.upper()):
        return decode_levels(parent.encode())
    return tuple(parent.split("\x1f"))


def _identifier(call: Call, parameter: str) -> Identifier:
    catalog, levels = namespace_of(call)
    return Identifier(catalog, levels, call.value(parameter))
