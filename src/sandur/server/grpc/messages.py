"""Names, pages and forms of the messages, and the fields that several services share."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message

from sandur.catalog.credentials.profiles import ClientAccess
from sandur.catalog.credentials.properties import credential_prefix, iceberg_properties
from sandur.catalog.identifiers import Identifier, Namespace
from sandur.errors import Invalid
from sandur.operations.credentials.table_access import Delegated
from sandur.server.context import Call
from sandur.v1.common_pb2 import Name, NamespaceName, Page, StorageCredential

M = TypeVar("M", bound=Message)

BATCH_MAX: Final = 1_000
"""Entries of a request that names many objects."""

ACCEPTED: Final[frozenset[ClientAccess]] = frozenset({"vend", "static"})
"""The access to files that these services give: credentials. Requests are signed over REST alone."""

_SEPARATOR: Final = "\x1f"
_QUOTED_CHARS_MAX: Final = 100

encode_json: Final = msgspec.json.Encoder().encode


class InvalidField(Invalid):
    """A field of a message is not valid; `field` is its path."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"Invalid {field}: {message}")
        self.field = field


class Form(NamedTuple):
    """A message as the request of the REST API for the same operation: the names of its path, its query and its body.

    The audit record, the veto and the hash of an idempotency key are made of it, so that they are the same over both.
    """

    values: Mapping[str, bytes] = {}
    query: bytes = b""
    body: bytes = b""


FormOf = Callable[[M, str], Form]
"""The form of a message, given the default catalog."""

Names = tuple[tuple[str, str], ...]


def form_of(names: Names, *, body: object = None, query: Mapping[str, str] | None = None) -> Form:
    """The form of these parameters of a path; a body in bytes is JSON already."""
    encoded = body if isinstance(body, bytes) else b"" if body is None else encode_json(body)
    return Form(
        {parameter: _quoted(value) for parameter, value in names}, urlencode(query or {}).encode("ascii"), encoded
    )


def _quoted(value: str) -> bytes:
    return quote(value, safe="").encode("ascii")


def path_of_namespace(name: NamespaceName, default_catalog: str) -> Names:
    return (("prefix", name.catalog or default_catalog), ("namespace", _SEPARATOR.join(name.levels)))


def path_of(name: Name, parameter: str, default_catalog: str) -> Names:
    levels = _SEPARATOR.join(name.namespace)
    return (("prefix", name.catalog or default_catalog), ("namespace", levels), (parameter, name.name))


def by_name(parameter: str) -> FormOf[Message]:
    """The form of messages with a name in the field `parameter`, and perhaps a body."""

    def form(sent: Message, default_catalog: str) -> Form:
        return form_of(path_of(getattr(sent, parameter), parameter, default_catalog), body=getattr(sent, "body", b""))

    return form


def in_namespace(sent: Message, default_catalog: str) -> Form:
    """The form of messages with the field `namespace`, and perhaps a body."""
    return form_of(path_of_namespace(sent.namespace, default_catalog), body=getattr(sent, "body", b""))


def catalog_of(call: Call, catalog: str) -> str:
    return catalog or call.settings.default_catalog


def namespace_of(call: Call, sent: NamespaceName, field: str) -> Namespace:
    """The namespace of a message; raises InvalidField if it has no levels or an invalid one."""
    if not sent.levels:
        raise InvalidField(f"{field}.levels", "name at least one level")
    _check_levels(sent.levels, f"{field}.levels")
    return Namespace(catalog_of(call, sent.catalog), tuple(sent.levels))


def identifier_of(call: Call, sent: Name, field: str) -> Identifier:
    """The table or view of a message; raises InvalidField if a part of its name is missing or invalid."""
    if not sent.name:
        raise InvalidField(f"{field}.name", "it is empty")
    if not sent.namespace:
        raise InvalidField(f"{field}.namespace", "name at least one level")
    _check_levels((*sent.namespace, sent.name), field)
    return Identifier(catalog_of(call, sent.catalog), tuple(sent.namespace), sent.name)


def _check_levels(levels: Iterable[str], field: str) -> None:
    """Refuse what no path of the REST APIs can say."""
    for level in levels:
        if not level or _SEPARATOR in level:
            raise InvalidField(field, f"a part of the name is empty or contains 0x1F: {level[:_QUOTED_CHARS_MAX]!r}")


class PageRequest(NamedTuple):
    """The requested page; an empty token is the first page, and a size of None is the choice of the server."""

    token: str
    size: int | None


def page_of(sent: Page) -> PageRequest:
    if sent.size < 0:
        raise InvalidField("page.size", f"expected at least 0, found {sent.size}")
    return PageRequest(sent.token, sent.size or None)


def masked_paths(mask: FieldMask, *, known: Callable[[str], bool], expected: str) -> list[str]:
    """The paths of a mask, each once; raises InvalidField if the mask is empty, or has an unknown path."""
    paths = list(dict.fromkeys(mask.paths))
    if not paths:
        raise InvalidField("update_mask", f"name what changes: {expected}")
    if len(paths) > BATCH_MAX:
        raise InvalidField("update_mask", f"{len(paths)} paths, at most {BATCH_MAX} are allowed")
    for path in paths:
        if not known(path):
            raise InvalidField("update_mask", f"unknown path {path[:_QUOTED_CHARS_MAX]!r}; expected {expected}")
    return paths


def name_message(identifier: Identifier) -> Name:
    return Name(catalog=identifier.catalog, namespace=identifier.levels, name=identifier.name)


def namespace_message(namespace: Namespace) -> NamespaceName:
    return NamespaceName(catalog=namespace.catalog, levels=namespace.levels)


def credential_messages(delegated: Delegated) -> list[StorageCredential]:
    """The credential of a client; none if it gets none."""
    credential = delegated.access.credential if delegated.access else None
    if credential is None:
        return []
    config = dict(iceberg_properties(credential))
    prefix = credential_prefix(credential)
    return [StorageCredential(prefix=prefix, config=config, expires_at_ms=credential.expires_ms)]
