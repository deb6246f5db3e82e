"""Requests and answers as the dialects see them: bytes, and as little of anything else as possible."""

from collections.abc import Mapping
from typing import Final

import msgspec

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
