"""HTTP/1.1 under uvicorn: upgrades are ignored, heads and connections are bounded, and errors have a JSON body."""

import asyncio
import sys
from typing import Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from sandur.server.errors import Problem, encode_problem

HEAD_BYTES_MAX: Final = 64 << 10
HEAD_SECONDS_MAX: Final = 20.0
"""How long a new connection, or a request that has begun, may take until its head is complete."""

SURPLUS_MAX: Final = 64
"""Connections above the limit that are still accepted, for the pages of health and metrics."""

_PAGES: Final = frozenset({b"/healthz", b"/readyz", b"/metrics"})

_HEAD_BEGIN: Final = b"HTTP/1.1 "
_HEAD_END: Final = b"\r\n\r\n"
_CONTINUE: Final = b"HTTP/1.1 100 "

_BAD_REQUEST: Final = 400
_HEAD_TOO_LARGE: Final = 431
_HEAD_TOO_SLOW: Final = 408
_UNAVAILABLE: Final = 503
_RETRY_SOON: Final = b"retry-after: 2\r\n"
_HEAD_TEXT: Final = f"The request head is larger than {HEAD_BYTES_MAX} bytes"


class JoinedWrites:
    """A transport that sends the head of an answer together with its body.

    The event loop sends the first write at once. The head alone would cost one more system call and packet per answer.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.writelines((head, data))
        elif data.endswith(_HEAD_END) and data.startswith(_HEAD_BEGIN) and not data.startswith(_CONTINUE):
            self._head = data
        else:
            self._transport.write(data)

    def flush(self) -> None:
        """Send a head that has no body."""
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all other attributes of a transport
        return getattr(self._transport, name)


class PlainHttpProtocol(HttpToolsProtocol):
    """Answers upgrade requests in plain HTTP/1.1, as the protocol allows.

    Java clients send `Upgrade: h2c` with their POSTs. The parser stops after the head of such a request and would lose
    its body. So the head is parsed again without that header, by a new parser that continues with the body. Requests
    without an upgrade cost nothing extra.
    """

    connections_max: int = sys.maxsize
    """Connections of one process; a subclass bounds them."""

    _head_timer: asyncio.TimerHandle | None = None
    _is_surplus = False
    _head_bytes = 0
    _unfinished_bytes = 0
    _is_in_head = False
    _body_bytes = 0
    """The bytes of bodies in the data that is parsed: they belong to no head."""
    _has_cycle = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # As uvicorn has it.
        self._joined = JoinedWrites(transport)
        super().connection_made(cast("asyncio.Transport", self._joined))  # It has all attributes of a transport.
        surplus = len(self.connections) - self.connections_max
        if surplus > SURPLUS_MAX:
            transport.abort()
            return
        self._is_surplus = surplus > 0
        self._head_timer = self.loop.call_later(HEAD_SECONDS_MAX, self._end_slow_head)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._joined.flush()
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        while data:
            self._body_bytes = 0
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as stopped:
                if self.parser.get_method() == b"CONNECT":
                    self._refuse(_BAD_REQUEST, "CONNECT is not supported")
                    return
                data = self._head_without_upgrade() + data[stopped.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
            except httptools.HttpParserError:
                self._refuse(*self._refusal())
                return
            else:
                self._bound_unfinished_head(len(data) - self._body_bytes)
                return

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._unfinished_bytes = 0
        self._is_in_head = True

    def on_url(self, url: bytes) -> None:
        self._grow_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)  # As `_grow_head`, without a call: every header passes here.
        if self._head_bytes > HEAD_BYTES_MAX:
            raise ValueError(_HEAD_TEXT)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        if self._head_timer:
            self._stop_head_timer()
        if self._is_surplus and self.url.partition(b"?")[0] not in _PAGES:
            self._refuse(_UNAVAILABLE, "Too many connections to this server; try again", _RETRY_SOON)
        elif not self.parser.should_upgrade():
            super().on_headers_complete()
            self._has_cycle = True

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _bound_unfinished_head(self, received_bytes: int) -> None:
        """Bound a header that never ends: the parser reports a header only when it is complete."""
        if self._is_in_head:
            self._unfinished_bytes += received_bytes
            if self._unfinished_bytes > HEAD_BYTES_MAX:
                self._refuse(_HEAD_TOO_LARGE, _HEAD_TEXT)
            elif self._head_timer is None:
                self._head_timer = self.loop.call_later(HEAD_SECONDS_MAX, self._end_slow_head)

    def _end_slow_head(self) -> None:
        """Close a connection whose client sends its head too slowly, or nothing at all."""
        self._head_timer = None
        if self._is_in_head:
            self._refuse(_HEAD_TOO_SLOW, f"The request head did not arrive within {HEAD_SECONDS_MAX:g} seconds")
        else:
            self.transport.close()

    def _stop_head_timer(self) -> None:
        timer, self._head_timer = self._head_timer, None
        if timer:
            timer.cancel()

    def _grow_head(self, size_bytes: int) -> None:
        self._head_bytes += size_bytes
        if self._head_bytes > HEAD_BYTES_MAX:
            # Any exception stops the parser; `_refusal` then finds the reason.
            raise ValueError(_HEAD_TEXT)

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def _refusal(self) -> tuple[int, str]:
        if self._head_bytes > HEAD_BYTES_MAX:
            return _HEAD_TOO_LARGE, _HEAD_TEXT
        return _BAD_REQUEST, "The request is not HTTP/1.1"

    def _refuse(self, status: int, message: str, headers: bytes = b"") -> None:
        """Answer a broken request and close the connection: the start of the next request is unknown."""
        if self._has_cycle and not self.cycle.response_complete:
            # Another answer is in progress on this connection; the two would mix.
            self.transport.close()
            return
        kind = "ServiceUnavailableException" if status == _UNAVAILABLE else "BadRequestException"
        body = encode_problem(Problem(status, kind, message))
        self.transport.write(
            STATUS_LINE[status]
            + headers
            + b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
            + body
        )
        self.transport.close()


def bounded_protocol(connections_max: int) -> type[PlainHttpProtocol]:
    """The protocol of a process with at most that many connections."""
    return type("BoundedHttpProtocol", (PlainHttpProtocol,), {"connections_max": connections_max})
