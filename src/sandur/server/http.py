"""HTTP messages: requests, answers, and the decoding of paths, queries and bodies."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from sandur.errors import BadRequest

Headers = tuple[tuple[bytes, bytes], ...]


class _Spelled(bytes):
    """A header name that keeps its spelling.

    uvicorn writes `name.lower()`, and Iceberg's Java client looks for exactly `ETag` and `Cache-Control`.
    """

    __slots__ = ()

    def lower(self) -> "_Spelled":
        return self


def header_name(text: str) -> bytes:
    """The name as it will stand on the wire, letter by letter."""
    return _Spelled(text.encode("ascii"))


ALLOW: Final = header_name("Allow")
CACHE_CONTROL: Final = header_name("Cache-Control")
ETAG: Final = header_name("ETag")
REQUEST_ID: Final = header_name("X-Request-Id")
RETRY_AFTER: Final = header_name("Retry-After")
VARY: Final = header_name("Vary")
WWW_AUTHENTICATE: Final = header_name("WWW-Authenticate")

# Compared by uvicorn, hence in lower case.
CONTENT_LENGTH: Final = b"content-length"
CONTENT_TYPE: Final = b"content-type"
CONNECTION: Final = b"connection"

JSON: Final = (CONTENT_TYPE, b"application/json")
CLOSE: Final = (CONNECTION, b"close")


class HttpRequest(msgspec.Struct, frozen=True):
    """A request whose body has arrived. Names of headers are in lower case; `path` and `query` are as sent."""

    method: str
    path: bytes
    query: bytes
    headers: Mapping[bytes, bytes]
    body: bytes
    request_id: str

    def header(self, name: bytes) -> str | None:
        """The value of a header; None when it was not sent. Latin-1, which no sequence of bytes breaks."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")


class Answer(msgspec.Struct, frozen=True):
    """What goes back; the length of the body is added when it is sent."""

    status: int
    body: bytes = b""
    headers: Headers = ()


NO_CONTENT: Final = Answer(204)


def json_answer(body: bytes, *headers: tuple[bytes, bytes], status: int = 200) -> Answer:
    return Answer(status, body, (JSON, *headers))


def retry_after(seconds: int) -> Headers:
    """When the client may come back."""
    return ((RETRY_AFTER, b"%d" % seconds),)


class Refused(Exception):
    """The server itself refuses, before any operation began; each dialect says so in its own words."""

    def __init__(self, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


class ClientGone(Exception):
    """The client hung up before its request had arrived: nobody waits for an answer."""


_BROKEN_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_SHOWN_BYTES_MAX: Final = 80
_QUERY_FIELDS_MAX: Final = 100


def decoded_segment(raw: bytes) -> str:
    """One name of a path: percent-decoded, `+` read as a space (Java encodes like a form); BadRequest when broken."""
    if b"%" not in raw and b"+" not in raw and raw.isascii():
        return raw.decode("ascii")
    if _BROKEN_ESCAPE.search(raw):
        raise BadRequest(f"Invalid path: broken percent escape in {_shown(raw)}")
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode()
    except UnicodeDecodeError:
        raise BadRequest(f"Invalid path: {_shown(raw)} is not UTF-8") from None


def decoded_query(raw: bytes) -> dict[str, str]:
    """The parameters of a query or form, the first of each name; BadRequest when it is broken."""
    if not raw:
        return {}
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX
        )
    except ValueError as error:
        raise BadRequest(f"Invalid query: {error}") from None
    parameters: dict[str, str] = {}
    for name, value in pairs:
        parameters.setdefault(name, value)
    return parameters


def _shown(raw: bytes) -> str:
    return repr(raw[:_SHOWN_BYTES_MAX].decode("latin-1"))


Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

BODY_SECONDS_MAX: Final = 60.0

# A client that is still sending does not read: an answer before the end would be lost with the connection.
_DISCARDED_FACTOR_MAX: Final = 4

_TIMEOUT: Final = 408
_TOO_LARGE: Final = 413


async def read_body(receive: Receive, headers: Mapping[bytes, bytes], bytes_max: int) -> bytes:
    """The whole body; Refused when it is too large or too slow, ClientGone when the client hangs up."""
    if b"content-length" not in headers and b"transfer-encoding" not in headers:
        return b""
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            return await _received(receive, bytes_max)
    except TimeoutError:
        raise Refused(_TIMEOUT, f"The request did not arrive within {BODY_SECONDS_MAX:g} seconds", CLOSE) from None


async def _received(receive: Receive, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    size_bytes = 0
    while size_bytes <= bytes_max * _DISCARDED_FACTOR_MAX:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size_bytes += len(part)
        if size_bytes <= bytes_max:
            parts.append(part)
        if not message.get("more_body", False):
            break
    if size_bytes > bytes_max:
        raise Refused(_TOO_LARGE, f"The body of the request has more than {bytes_max} bytes", CLOSE)
    return parts[0] if len(parts) == 1 else b"".join(parts)
