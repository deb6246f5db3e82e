"""Bodies of answers: structs as JSON, and lists whose entries are spliced in as they lie in the index."""

from collections.abc import Sequence
from typing import Final

import msgspec
import structlog

from sandur.operations.unity.lists import Listed
from sandur.server.messages import JSON, Answer, json_answer
from sandur.server.unity_rest.call import Call

_encode: Final = msgspec.json.Encoder().encode

DONE: Final = Answer(200, b"{}", (JSON,))
"""What a deletion answers: clients decode the body, so there is one."""

log = structlog.get_logger()


def shown(value: msgspec.Struct) -> Answer:
    return json_answer(_encode(value))


def list_answer(call: Call, key: str, listed: Listed) -> Answer:
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
