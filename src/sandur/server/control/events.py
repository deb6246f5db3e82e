"""Handlers for events: pages on request, and a stream of server-sent events."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

import msgspec

from sandur.catalog.event_feed.events import EventFilter, encode_position, event_json, filter_of
from sandur.errors import BadRequest
from sandur.operations.audit.search import time_of
from sandur.operations.event_feed.reader import pull_events
from sandur.operations.event_feed.streams import StreamPart, follow, open_stream
from sandur.server.context import Call, whole_number
from sandur.server.control.principals import answer_with
from sandur.server.http import CONTENT_TYPE, NO_STORE, Answer, header_name

_FILTERS: Final = ("catalog", "namespace", "table", "kind", "object_type", "since")
_PULL: Final = frozenset({*_FILTERS, "page_size", "page_token"})
_STREAM: Final = frozenset({*_FILTERS, "page_token"})
_EVENT_STREAM: Final = (CONTENT_TYPE, b"text/event-stream; charset=utf-8")
# A proxy that gathers the answer before it passes it on would hold back every event.
_UNBUFFERED: Final = (header_name("X-Accel-Buffering"), b"no")
_RETRY: Final = b"retry: 2000\n\n"
_encode: Final = msgspec.json.Encoder().encode


async def load_events(call: Call) -> Answer:
    """Events in the order of the feed. A page may have few events, or none, and still have a next one."""
    size = call.query.get("page_size")
    page, token = await pull_events(
        call.lake,
        _filter(call, _PULL),
        token=call.query.get("page_token") or None,
        page_size=None if size is None else whole_number(size, "page_size", at_least=1),
    )
    events = [event_json(placed.event) for placed in page.events]
    return answer_with({"events": events, "next_page_token": token, "has_more": page.has_more})


async def stream_events(call: Call) -> Answer:
    """Server-sent events: from `Last-Event-ID` on, from `since` on, or from now on."""
    token = call.http.header(b"last-event-id") or call.query.get("page_token")
    position, wanted = await open_stream(call.lake, _filter(call, _STREAM), token or None)
    stream = follow(call.lake, wanted, position, expires_ms=call.identity.expires_ms)
    first = await anext(stream)  # From here on it counts as open.
    return Answer(
        200, _RETRY + _encoded(first, wanted), (_EVENT_STREAM, NO_STORE, _UNBUFFERED), parts=_Parts(stream, wanted)
    )


class _Parts:
    """The parts of a stream as bytes."""

    def __init__(self, stream: AsyncGenerator[StreamPart, None], wanted: EventFilter) -> None:
        self._stream = stream
        self._wanted = wanted

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            yield _encoded(part, self._wanted)

    async def aclose(self) -> None:
        await self._stream.aclose()


def _encoded(part: StreamPart, wanted: EventFilter) -> bytes:
    """The events of a part, each with the token behind it as its id; then a heartbeat, or the end."""
    lines = [
        b"id: %s\nevent: %s\ndata: %s\n\n"
        % (
            encode_position(placed.behind, wanted).encode(),
            placed.event.type.encode(),
            _encode(event_json(placed.event)),
        )
        for placed in part.page.events
    ]
    token = encode_position(part.page.position, wanted).encode()
    if part.end:
        lines.append(b"id: %s\nevent: end\ndata: %s\n\n" % (token, _encode({"reason": part.end})))
    else:
        lines.append(b"id: %s\nevent: heartbeat\ndata: {}\n\n" % token)
    return b"".join(lines)


def _filter(call: Call, known: frozenset[str]) -> EventFilter:
    query = call.query
    if unknown := sorted(query.keys() - known):
        raise BadRequest(f"Unknown query parameter {unknown[0][:40]!r}: expected one of {', '.join(sorted(known))}")
    since = query.get("since")
    return filter_of(
        catalogs=_several(query.get("catalog")),
        namespaces=_several(query.get("namespace")),
        tables=_several(query.get("table")),
        kinds=_several(query.get("kind")),
        object_types=_several(query.get("object_type")),
        since_ms=time_of(since, call.lake.clock.now_ms()) if since else 0,
    )


def _several(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip()) if text else ()
