"""Bodies of requests and answers. Metadata stays the bytes it is: it is spliced in, never decoded and encoded again."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from sandur.catalog.identifiers import Namespace
from sandur.iceberg.requests import TableIdentifier
from sandur.splicing import check_utf8, decode

S = TypeVar("S", bound=msgspec.Struct)

_encode: Final = msgspec.json.Encoder().encode
_NO_CONFIG: Final = b',"config":{}}'


class Loaded(Protocol):
    """A table or view with its metadata as JSON; no location means that it is staged."""

    @property
    def metadata_location(self) -> str | None: ...

    @property
    def metadata(self) -> bytes: ...


class Named(Protocol):
    """Whatever a list shows by its name alone."""

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
    """A report of any type: clients may send types that are newer than this server."""

    report_type: str


def decoded_body(body: bytes, wanted: type[S], what: str) -> S:
    """The body as `wanted`; BadRequest that names `what`."""
    check_utf8(body, what)
    return decode(body, wanted, what)


def encoded(value: object) -> bytes:
    return _encode(value)


def loaded_body(loaded: Loaded, config: Mapping[str, str]) -> bytes:
    """What a load answers: the metadata, where it lies unless it is staged, and the client's settings."""
    end = b',"config":' + _encode(config) + b"}" if config else _NO_CONFIG
    return b"".join((_beginning(loaded), loaded.metadata, end))


def committed_body(loaded: Loaded) -> bytes:
    """What a commit answers: the metadata and where it lies."""
    return b"".join((_beginning(loaded), loaded.metadata, b"}"))


def namespaces_body(namespaces: Sequence[Namespace], next_token: str | None) -> bytes:
    return _encode({"namespaces": [namespace.levels for namespace in namespaces], "next-page-token": next_token})


def identifiers_body(namespace: Namespace, entries: Sequence[Named], next_token: str | None) -> bytes:
    """A page of identifiers, all of one namespace.

    Every name is encoded in one go, one a line, and what stands between two names is replaced: a line ends nowhere
    inside an encoded name.
    """
    ending = b'],"next-page-token":' + _encode(next_token) + b"}"
    if not entries:
        return b'{"identifiers":[' + ending
    opening = b'{"namespace":' + _encode(namespace.levels) + b',"name":'
    lines = msgspec.json.format(_encode([entry.name for entry in entries]), indent=1)
    names = lines[len(b"[\n ") : -len(b"\n]")]
    return b"".join((b'{"identifiers":[', opening, names.replace(b",\n ", b"}," + opening), b"}", ending))


def _beginning(loaded: Loaded) -> bytes:
    if loaded.metadata_location is None:
        return b'{"metadata":'
    return b'{"metadata-location":' + _encode(loaded.metadata_location) + b',"metadata":'
