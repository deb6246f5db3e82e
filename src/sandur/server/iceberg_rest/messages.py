"""Names, pages and bodies of Iceberg REST requests and answers. Metadata is spliced in as stored, never re-encoded."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol
from urllib.parse import quote

import msgspec

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.iceberg.requests import TableIdentifier
from sandur.server.context import Call, whole_number
from sandur.server.http import decode_segment

SEPARATOR: Final = "%1F"
"""Joins the levels of a namespace in a path; `config` announces it to clients."""

_ENCODED_SEPARATOR: Final = re.compile(rb"%1[Ff]|\x1f")

encode: Final = msgspec.json.Encoder().encode
_NO_CONFIG: Final = b',"config":{}}'


class PageRequest(NamedTuple):
    """The requested page of a list. Without a token it is the whole list, with an empty one the first page."""

    token: str | None
    size: int | None


class Loaded(Protocol):
    """A table or view with its metadata as JSON; without a location it is staged."""

    @property
    def metadata_location(self) -> str | None: ...

    @property
    def metadata(self) -> bytes: ...


class Named(Protocol):
    """An entry of a list; only its name is sent."""

    @property
    def name(self) -> str: ...


class CreateNamespaceBody(msgspec.Struct, frozen=True):
    namespace: tuple[str, ...]
    properties: dict[str, str] | None = None


class UpdatePropertiesBody(msgspec.Struct, frozen=True):
    removals: tuple[str, ...] | None = None
    updates: dict[str, str] | None = None


class RenameBody(msgspec.Struct, frozen=True):
    source: TableIdentifier
    destination: TableIdentifier


class ReportBody(msgspec.Struct, frozen=True, rename="kebab"):
    """A report of any type: clients may send types that this server does not know."""

    report_type: str


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


def loaded_body(loaded: Loaded, config: Mapping[str, str]) -> bytes:
    """The answer to a load: the metadata, its location unless it is staged, and the configuration of the client."""
    end = b',"config":' + encode(config) + b"}" if config else _NO_CONFIG
    return b"".join((_beginning(loaded), loaded.metadata, end))


def committed_body(loaded: Loaded) -> bytes:
    """The answer to a commit: the metadata and its location."""
    return b"".join((_beginning(loaded), loaded.metadata, b"}"))


def namespaces_body(namespaces: Sequence[Namespace], next_token: str | None) -> bytes:
    return encode({"namespaces": [namespace.levels for namespace in namespaces], "next-page-token": next_token})


def identifiers_body(namespace: Namespace, entries: Sequence[Named], next_token: str | None) -> bytes:
    """A page of identifiers, all of one namespace.

    All names are encoded at once, one per line, and the text between two names is replaced. No encoded name contains a
    line break.
    """
    ending = b'],"next-page-token":' + encode(next_token) + b"}"
    if not entries:
        return b'{"identifiers":[' + ending
    opening = b'{"namespace":' + encode(namespace.levels) + b',"name":'
    lines = msgspec.json.format(encode([entry.name for entry in entries]), indent=1)
    names = lines[len(b"[\n ") : -len(b"\n]")]
    return b"".join((b'{"identifiers":[', opening, names.replace(b",\n ", b"}," + opening), b"}", ending))


def _beginning(loaded: Loaded) -> bytes:
    if loaded.metadata_location is None:
        return b'{"metadata":'
    return b'{"metadata-location":' + encode(loaded.metadata_location) + b',"metadata":'
