"""The context of one call: path, query, headers and body, decoded on first use."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar, assert_never

import msgspec
import rfc8785

from sandur.catalog.sources import Request
from sandur.errors import BadRequest
from sandur.operations.lake import Lake
from sandur.operations.lakes import Lakes
from sandur.server.http import HttpRequest, decoded_query, decoded_segment
from sandur.server.identity import Identity, source_of
from sandur.settings import Settings

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

_UUID_V7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
_SHOWN_CHARS_MAX: Final = 60


def checked_key(text: str) -> str:
    """The idempotency key in canonical form; BadRequest unless it is a UUIDv7 (RFC 9562), in either case."""
    key = text.strip().lower()
    if not _UUID_V7.match(key):
        raise BadRequest(f"Invalid Idempotency-Key: expected a UUIDv7, found {text[:_SHOWN_CHARS_MAX]!r}")
    return key


def request_hash(operation: str, asked: Sequence[str], body: bytes, *, depth_max: int) -> str:
    """The SHA-256 of what is asked: the operation, the things it names, and the body in canonical form."""
    canonical = canonical_json(body, depth_max=depth_max) if body else b""
    head = msgspec.json.encode([operation, *asked])
    return hashlib.sha256(head + b"\n" + canonical).hexdigest()


def canonical_json(body: bytes, *, depth_max: int) -> bytes:
    """The body after RFC 8785, so that spacing, the order of keys and the spelling of numbers do not matter.

    One difference: RFC 8785 takes every number for a double, which would make snapshot ids beyond 2^53 equal to their
    neighbours. Integers are written with all their digits here, whatever their size; within the range of the RFC that
    is the same text. BadRequest when the body is not JSON or nested more than `depth_max` deep.
    """
    value, has_floats = decoded_json(body, depth_max=depth_max)
    if has_floats or not body.isascii() or b"\\u" in body:
        return b"".join(_canonical_parts(value))
    # Sorted by code points, which for ASCII is the order of the RFC; the escapes are the same. Fifteen times as fast.
    return msgspec.json.encode(value, order="deterministic")


def decoded_json(body: bytes, *, depth_max: int) -> tuple[Json, bool]:
    """The value, and whether a number in it is no integer; BadRequest when it is not JSON or nested too deep."""
    try:
        body.decode()
        value, has_floats = _decoded(body)
    except RecursionError:
        raise _too_deep(depth_max) from None
    except (msgspec.DecodeError, ValueError) as error:
        raise BadRequest(f"Invalid JSON: {error}") from None
    if body.count(b"[") + body.count(b"{") > depth_max:
        _check_depth(value, depth_max)
    return value, has_floats


class _FloatSeen(Exception):
    pass


def _refuse_float(text: str) -> float:
    raise _FloatSeen(text)


_without_floats: Final = msgspec.json.Decoder(float_hook=_refuse_float)
_with_floats: Final = msgspec.json.Decoder()


def _decoded(body: bytes) -> tuple[Json, bool]:
    try:
        return _without_floats.decode(body), False
    except _FloatSeen:
        return _with_floats.decode(body), True


def _check_depth(value: Json, depth_max: int) -> None:
    level = [value]
    for _ in range(depth_max + 1):
        containers = [item for item in level if isinstance(item, (dict, list))]
        if not containers:
            return
        level = [inner for item in containers for inner in (item.values() if isinstance(item, dict) else item)]
    raise _too_deep(depth_max)


def _too_deep(depth_max: int) -> BadRequest:
    return BadRequest(f"Invalid JSON: it is nested more than {depth_max} levels deep")


def _canonical_parts(value: Json) -> Iterator[bytes]:
    match value:
        case bool() | None | str() | float():
            yield _canonical_scalar(value)
        case int():
            yield str(value).encode()
        case list():
            yield b"["
            for place, item in enumerate(value):
                yield b"," if place else b""
                yield from _canonical_parts(item)
            yield b"]"
        case dict():
            yield b"{"
            for place, name in enumerate(sorted(value, key=_utf_16)):
                yield b"," if place else b""
                yield _canonical_scalar(name) + b":"
                yield from _canonical_parts(value[name])
            yield b"}"
        case _:
            assert_never(value)


def _canonical_scalar(value: bool | float | str | None) -> bytes:  # noqa: FBT001 - any scalar of JSON
    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError as error:
        raise BadRequest(f"Invalid JSON: {error}") from None


def _utf_16(name: str) -> bytes:
    return name.encode("utf-16be")


SHOWN_CHARS_MAX: Final = 40
_TRUTH: Final = {"true": True, "false": False}


class Reachable(Protocol):
    """What every call can reach."""

    @property
    def lakes(self) -> Lakes: ...

    @property
    def settings(self) -> Settings: ...


R = TypeVar("R", bound=Reachable)


class Asked(Generic[R]):
    """A request on its way to an operation. `values` are the encoded parameters of the path, in their order."""

    def __init__(
        self, service: R, operation: str, values: Mapping[str, bytes], http: HttpRequest, identity: Identity
    ) -> None:
        self.service = service
        self.operation = operation
        self.http = http
        self.identity = identity
        self._values = values
        self._query: Mapping[str, str] | None = None

    @property
    def lake(self) -> Lake:
        return self.service.lakes.lake(self.identity.tenant, self.identity.workspace)

    @property
    def settings(self) -> Settings:
        return self.service.settings

    def value(self, parameter: str) -> str:
        """A parameter of the path."""
        return decoded_segment(self._values[parameter])

    @property
    def names(self) -> Sequence[str]:
        """What the path says the request is about."""
        return [decoded_segment(value) for value in self._values.values()]

    @property
    def query(self) -> Mapping[str, str]:
        if self._query is None:
            self._query = decoded_query(self.http.query)
        return self._query

    def is_set(self, parameter: str) -> bool:
        """A boolean of the query, false when absent. Python clients write `True`."""
        text = self.query.get(parameter) or "false"
        if text.lower() not in _TRUTH:
            raise BadRequest(f"Invalid {parameter}: expected true or false, found {text[:SHOWN_CHARS_MAX]!r}")
        return _TRUTH[text.lower()]

    def request(self, *asked: str) -> Request:
        """What a mutation carries: the key, the source, and the hash of everything that was asked."""
        key = self.http.header(b"idempotency-key")
        depth_max = self.settings.request_depth_max
        return Request(
            hash=request_hash(self.operation, [*self.names, *asked], self.http.body, depth_max=depth_max),
            key=None if key is None else checked_key(key),
            source=source_of(self.http, self.identity),
        )
