"""HTTP/1.1 under uvicorn: upgrades are ignored, request heads are bounded, and errors have a JSON body."""

import asyncio
from typing import Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from sandur.server.errors import Problem, encode_problem

HEAD_BYTES_MAX: Final = 64 << 10

_HEAD_BEGIN: Final = b"HTTP/1.1 "
_HEAD_END: Final = b"\r\n\r\n"
_CONTINUE: Final = b"HTTP/1.1 100 "

_BAD_REQUEST: Final = 400
_HEAD_TOO_LARGE: Final = 431
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

    _head_bytes = 0
    _unfinished_bytes = 0
    _is_in_head = False
    _has_cycle = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # As uvicorn has it.
        self._joined = JoinedWrites(transport)
        super().connection_made(cast("asyncio.Transport", self._joined))  # It has all attributes of a transport.

    def on_response_complete(self) -> None:
        self._joined.flush()
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        while data:
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
                self._bound_unfinished_head(len(data))
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
        self._grow_head(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        if not self.parser.should_upgrade():
            super().on_headers_complete()
            self._has_cycle = True

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _bound_unfinished_head(self, received_bytes: int) -> None:
        """Bound a header that never ends: the parser reports a header only when it is complete."""
        if self._is_in_head:
            self._unfinished_bytes += received_bytes
            if self._unfinished_bytes > HEAD_BYTES_MAX:
                self._refuse(_HEAD_TOO_LARGE, _HEAD_TEXT)

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

    def _refuse(self, status: int, message: str) -> None:
        """Answer a broken request and close the connection: the start of the next request is unknown."""
        if self._has_cycle and not self.cycle.response_complete:
            # Another answer is in progress on this connection; the two would mix.
            self.transport.close()
            return
        body = encode_problem(Problem(status, "BadRequestException", message))
        self.transport.write(
            STATUS_LINE[status]
            + b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
            + body
        )
        self.transport.close()
