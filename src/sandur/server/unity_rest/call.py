"""A call of the Unity Catalog API: full names, page and body; and the encoding of its answers."""

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec
import structlog

from sandur.catalog.identifiers import Identifier, Namespace, parse_full_name, parse_schema_name
from sandur.errors import BadRequest
from sandur.operations.lakes import Lakes
from sandur.operations.unity.lists import ListPage
from sandur.server.context import SHOWN_CHARS_MAX, Asked, decoded_json
from sandur.server.http import JSON, Answer, json_answer
from sandur.settings import Settings
from sandur.splicing import check_utf8, decode

S = TypeVar("S", bound=msgspec.Struct)

Comment = Annotated[str, msgspec.Meta(max_length=65_536)]

PAGE_SIZE_DEFAULT: Final = 1_000
"""How many entries a page has when the client leaves that to the server (`max_results=0`)."""
PAGE_SIZE_MAX: Final = 1_000

_DIGITS_MAX: Final = 9


class Service(NamedTuple):
    """What every call can reach."""

    lakes: Lakes
    settings: Settings


class PageAsked(NamedTuple):
    """Which part of a list is wanted: what comes behind the token, and at most so many; None means all."""

    token: str | None
    size: int | None


class Call(Asked[Service]):
    """A request on its way to an operation of this protocol."""

    def schema(self, parameter: str) -> Namespace:
        """A parameter of the path that is the full name of a schema: `catalog.schema`."""
        return parse_schema_name(self.value(parameter))

    def identifier(self, parameter: str) -> Identifier:
        """A parameter of the path that is a full name: `catalog.schema.name`."""
        return parse_full_name(self.value(parameter))

    def wanted(self, parameter: str) -> str:
        """A parameter of the query that has to be there."""
        value = self.query.get(parameter)
        if not value:
            raise BadRequest(f"Missing parameter: {parameter}")
        return value

    @property
    def page(self) -> PageAsked:
        """Without `max_results` everything: clients that never ask for a second page then miss nothing."""
        text = self.query.get("max_results")
        token = self.query.get("page_token") or None
        if text is None:
            return PageAsked(token, None)
        size = whole(text, "max_results")
        if size < 0:
            raise BadRequest(f"Invalid max_results: expected at least 0, found {size}")
        return PageAsked(token, min(size or PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX))

    def body(self, wanted: type[S], what: str) -> S:
        """The body as `wanted`; BadRequest that names `what`."""
        body = self.http.body
        check_utf8(body, what)
        decoded_json(body, depth_max=self.settings.request_depth_max)  # Not nested too deep.
        return decode(body, wanted, what)


def whole(text: str, what: str) -> int:
    """A whole number in a query; BadRequest otherwise."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _DIGITS_MAX:
        raise BadRequest(f"Invalid {what}: expected a whole number, found {text[:SHOWN_CHARS_MAX]!r}")
    return int(text)


_encode: Final = msgspec.json.Encoder().encode

DONE: Final = Answer(200, b"{}", (JSON,))
"""What a deletion answers: clients decode the body, so there is one."""

log = structlog.get_logger()


def shown(value: msgspec.Struct) -> Answer:
    return json_answer(_encode(value))


def list_answer(call: Call, key: str, listed: ListPage) -> Answer:
    """A page of a list, told to the log with what it was served from."""
    log.info(
        "list",
        tenant=call.identity.tenant,
        workspace=call.identity.workspace,
        request_id=call.http.request_id,
        collection=listed.collection,
        index_path=listed.index_path,
        fallback_used=listed.is_fallback,
    )
    return json_answer(list_body(key, listed.infos, listed.next_token))


def list_body(key: str, infos: Sequence[memoryview | bytes], next_token: str | None) -> bytes:
    ending = b"]}" if next_token is None else b'],"next_page_token":' + _encode(next_token) + b"}"
    return b"".join((b'{"', key.encode(), b'":[', b",".join(infos), ending))
