"""Bodies and pages of the Unity Catalog API."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import structlog

from sandur.operations.unity.lists import ListPage, ListRequest
from sandur.server.context import Call, whole_number
from sandur.server.http import JSON, Answer, json_answer

PAGE_SIZE_MAX: Final = 1_000
"""Also the size of a page if the client lets the server choose (`max_results=0`)."""

DONE: Final = Answer(200, b"{}", (JSON,))
"""The answer to a deletion. It has a body because clients decode one."""

_encode: Final = msgspec.json.Encoder().encode

log = structlog.get_logger()


def list_request(call: Call) -> ListRequest:
    """The requested page. Without `max_results` it is the whole list, for clients that never request a second page."""
    size = call.query.get("max_results")
    token = call.query.get("page_token") or None
    if size is None:
        return ListRequest(token, None)
    number = whole_number(size, "max_results", at_least=0)
    return ListRequest(token, min(number or PAGE_SIZE_MAX, PAGE_SIZE_MAX))


def answer_with(value: msgspec.Struct | Mapping[str, object]) -> Answer:
    return json_answer(_encode(value))


def answer_list(call: Call, key: str, page: ListPage) -> Answer:
    """A page of a list; the log says whether it came from the index."""
    log.info(
        "list",
        tenant=call.identity.tenant,
        workspace=call.identity.workspace,
        request_id=call.http.request_id,
        collection=page.collection,
        index_path=page.index_path,
        fallback_used=page.is_fallback,
    )
    return json_answer(list_body(key, page.infos, page.next_token))


def list_body(key: str, infos: Sequence[memoryview | bytes], next_token: str | None) -> bytes:
    """A list whose entries are encoded already."""
    ending = b"]}" if next_token is None else b'],"next_page_token":' + _encode(next_token) + b"}"
    return b"".join((b'{"', key.encode(), b'":[', b",".join(infos), ending))
