"""The handlers that take OpenLineage events: one, or an array of them, plain or compressed with gzip."""

from collections.abc import Sequence
from typing import Final

import msgspec

from sandur.catalog.lineage.events import EVENT_BYTES_MAX, EVENTS_PER_REQUEST_MAX
from sandur.errors import BadRequest
from sandur.operations.lineage.ingest import inflated, ingest_lineage
from sandur.server.context import Call
from sandur.server.http import Answer, Refused
from sandur.server.identity import source_of
from sandur.splicing import NOT_JSON

_PLAIN: Final = frozenset({"", "identity"})
_GZIP: Final = frozenset({"gzip", "x-gzip"})
_HOST_CHARS_MAX: Final = 255
_WHITESPACE: Final = b" \t\r\n"


async def post_events(call: Call) -> Answer:
    """Store the events, and answer when they are stored."""
    events = _events(_body(call))
    host = (call.http.header(b"host") or "")[:_HOST_CHARS_MAX]
    await ingest_lineage(call.lake, events, source=source_of(call.http, call.identity), host=host)
    return Answer(201)


def _body(call: Call) -> bytes:
    """The body without its compression; Refused if it is too large, or compressed in another way."""
    body, encoding = call.http.body, (call.http.header(b"content-encoding") or "").strip().lower()
    if encoding in _GZIP:
        plain = inflated(body)
    elif encoding in _PLAIN:
        plain = body if len(body) <= EVENT_BYTES_MAX else None
    else:
        raise Refused(415, f"Unsupported Content-Encoding {encoding[:40]!r}: expected gzip or none")
    if plain is None:
        raise Refused(413, f"The events are larger than {EVENT_BYTES_MAX} bytes, also after they are inflated")
    return plain


def _events(body: bytes) -> Sequence[bytes]:
    if not body.lstrip(_WHITESPACE).startswith(b"["):
        return [body]
    try:
        events = msgspec.json.decode(body, type=list[msgspec.Raw])
    except NOT_JSON as error:
        raise BadRequest(f"Invalid JSON: {error}") from None
    if not events or len(events) > EVENTS_PER_REQUEST_MAX:
        raise BadRequest(f"Invalid batch: {len(events)} events, expected 1 to {EVENTS_PER_REQUEST_MAX}")
    return [bytes(event) for event in events]
