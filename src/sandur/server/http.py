"""HTTP messages: requests, answers, and the decoding of paths, queries and bodies."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from sandur.errors import BadRequest

Headers = tuple[tuple[bytes, bytes], ...]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class _CasedName(bytes):
    """A header name that keeps its case.

    uvicorn writes `name.lower()`, and Iceberg's Java client looks for exactly `ETag` and `Cache-Control`.
    """

    __slots__ = ()

    def lower(self) -> "_CasedName":
        return self


def header_name(text: str) -> bytes:
    """A header name that is sent in the given case."""
    return _CasedName(text.encode("ascii"))


ALLOW: Final = header_name("Allow")
CACHE_CONTROL: Final = header_name("Cache-Control")
ETAG: Final = header_name("ETag")
REQUEST_ID: Final = header_name("X-Request-Id")
RETRY_AFTER: Final = header_name("Retry-After")
VARY: Final = header_name("Vary")
WWW_AUTHENTICATE: Final = header_name("WWW-Authenticate")

# uvicorn compares these names, so they are in lower case.
CONTENT_LENGTH: Final = b"content-length"
CONTENT_TYPE: Final = b"content-type"
CONNECTION: Final = b"connection"

JSON: Final = (CONTENT_TYPE, b"application/json")
CLOSE: Final = (CONNECTION, b"close")
NO_STORE: Final = (CACHE_CONTROL, b"no-store")
NO_SNIFFING: Final = (header_name("X-Content-Type-Options"), b"nosniff")

BODY_SECONDS_MAX: Final = 60.0
PART_SECONDS_MAX: Final = 30.0
"""How long a client may take to read a part of a streamed answer."""

_ENCODED_SEPARATOR: Final = re.compile(rb"%1[Ff]|\x1f")

# A client that is still sending does not read: an early answer would be lost with the connection.
_DISCARDED_FACTOR_MAX: Final = 4

# The rest of a body of this size is discarded after an early answer; the connection stays open.
_UNREAD_BYTES_MAX: Final = 64 << 10

_BROKEN_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_QUOTED_BYTES_MAX: Final = 80
_QUERY_FIELDS_MAX: Final = 100
_STATUSES_WITHOUT_BODY: Final = frozenset({204, 304})


class HttpRequest(msgspec.Struct, frozen=True):
    """A request with its whole body. Header names are in lower case; `path` and `query` are as sent.

    `peer` is the address that the connection comes from. `form_token` must be in every form that the browser sends;
    None for a client that is no browser.
    """

    method: str
    path: bytes
    query: bytes
    headers: Mapping[bytes, bytes]
    body: bytes
    request_id: str
    peer: str = ""
    form_token: str | None = None

    def header(self, name: bytes) -> str | None:
        """The value of a header, decoded as Latin-1, which accepts all bytes; None when it was not sent."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")


class Parts(Protocol):
    """The parts of a body that arrive over time. Their owner closes them, even if it read nothing."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def aclose(self) -> None: ...


class Answer(msgspec.Struct, frozen=True):
    """A response; `send_answer` adds the content length. With `parts`, they follow the body as they arrive."""

    status: int
    body: bytes = b""
    headers: Headers = ()
    parts: Parts | None = None


NO_CONTENT: Final = Answer(204)


class Refused(Exception):
    """The server refuses a request before any operation begins; each dialect renders it with its own error body."""

    def __init__(self, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


def json_answer(body: bytes, *headers: tuple[bytes, bytes], status: int = 200) -> Answer:
    return Answer(status, body, (JSON, *headers))


async def send_answer(answer: Answer, send: Send, *headers: tuple[bytes, bytes], method: str) -> None:
    body = answer.body
    sent = [*answer.headers, *headers, NO_SNIFFING]
    if method == "HEAD":
        body = b""
    elif answer.status not in _STATUSES_WITHOUT_BODY:
        sent.append((CONTENT_LENGTH, b"%d" % len(body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": sent})
    await send({"type": "http.response.body", "body": body})


async def send_parts(answer: Answer, parts: Parts, receive: Receive, send: Send, *headers: tuple[bytes, bytes]) -> None:
    """Send an answer part by part, until the parts end or the client is gone. Nothing is buffered here.

    A client that does not read a part in time is left: the connection ends without the end of the answer.
    """
    sent = [*answer.headers, *headers, NO_SNIFFING, CLOSE]
    sending = asyncio.ensure_future(_send_each(answer, parts, sent, send))
    gone = asyncio.ensure_future(_wait_until_gone(receive))
    try:
        await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            await sending
    finally:
        for task in (sending, gone):
            task.cancel()
        await asyncio.gather(sending, gone, return_exceptions=True)
        await parts.aclose()


async def _send_each(answer: Answer, parts: Parts, headers: list[tuple[bytes, bytes]], send: Send) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    async for part in parts:
        try:
            async with asyncio.timeout(PART_SECONDS_MAX):
                await send({"type": "http.response.body", "body": part, "more_body": True})
        except TimeoutError:
            return
    await send({"type": "http.response.body", "body": b""})


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def is_large(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the body is not worth reading after its request was refused: it is large, or its length is unknown."""
    length = headers.get(CONTENT_LENGTH, b"")
    if not length.isdigit():
        return b"transfer-encoding" in headers
    return int(length[:20]) > _UNREAD_BYTES_MAX


def has_body(headers: Mapping[bytes, bytes]) -> bool:
    return CONTENT_LENGTH in headers or b"transfer-encoding" in headers


async def read_body(
    receive: Receive, headers: Mapping[bytes, bytes], bytes_max: int, hold: Callable[[int], None] | None = None
) -> bytes:
    """The whole body; Refused when it is too large or too slow, ClientGone when the client disconnects."""
    if not has_body(headers):
        return b""
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            return await _read_parts(receive, bytes_max, hold)
    except TimeoutError:
        raise Refused(408, f"The request did not arrive within {BODY_SECONDS_MAX:g} seconds", CLOSE) from None


async def _read_parts(receive: Receive, bytes_max: int, hold: Callable[[int], None] | None) -> bytes:
    parts: list[bytes] = []
    size_bytes = 0
    while size_bytes <= bytes_max * _DISCARDED_FACTOR_MAX:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size_bytes += len(part)
        if size_bytes <= bytes_max:
            if hold:  # Raises if there is no room for what has arrived.
                hold(size_bytes)
            parts.append(part)
        if not message.get("more_body", False):
            break
    if size_bytes > bytes_max:
        raise Refused(413, f"The request body is larger than {bytes_max} bytes", CLOSE)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def decode_segment(raw: bytes) -> str:
    """One segment of a path, percent-decoded; `+` is a space, as Java encodes it. BadRequest when it is invalid."""
    if b"%" not in raw and b"+" not in raw and raw.isascii():
        return raw.decode("ascii")
    if _BROKEN_ESCAPE.search(raw):
        raise BadRequest(f"Invalid path: broken percent escape in {_quote(raw)}")
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode()
    except UnicodeDecodeError:
        raise BadRequest(f"Invalid path: {_quote(raw)} is not UTF-8") from None


def decode_query(raw: bytes) -> dict[str, str]:
    """The parameters of a query or form, the first of each name; BadRequest when it is invalid."""
    if not raw:
        return {}
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX
        )
    except ValueError as error:
        raise BadRequest(f"Invalid query: {error}") from None
    return dict(reversed(pairs))


def _quote(raw: bytes) -> str:
    return repr(raw[:_QUOTED_BYTES_MAX].decode("latin-1"))


def decode_levels(raw: bytes) -> tuple[str, ...]:
    """The levels of a namespace in a path: split while still encoded, then decoded one by one."""
    if b"%" not in raw and b"\x1f" not in raw:
        return (decode_segment(raw),)
    return tuple(decode_segment(level) for level in _ENCODED_SEPARATOR.split(raw))
