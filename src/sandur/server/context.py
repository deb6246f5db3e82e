"""The context of one call: the caller's identity, and path, query, headers and body, decoded on first use."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar, assert_never

import msgspec
import rfc8785

from sandur.catalog.records import Request
from sandur.catalog.security.manifest import Access
from sandur.errors import BadRequest, Incomplete
from sandur.operations.access import with_current_names
from sandur.operations.lake import Lake, Lakes
from sandur.server.authentication.authenticator import Authenticator
from sandur.server.http import HttpRequest, decode_query, decode_segment
from sandur.server.identity import Identity, source_of
from sandur.settings import Settings
from sandur.splicing import malformed_error

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
S = TypeVar("S", bound=msgspec.Struct)
A = TypeVar("A")

QUOTED_CHARS_MAX: Final = 40
READS: Final = ("GET", "HEAD")
_READING: Final = frozenset(
    {
        "fetchScanTasks",
        "generateTemporaryModelVersionCredentials",
        "generateTemporaryPathCredentials",
        "generateTemporaryTableCredentials",
        "generateTemporaryVolumeCredentials",
        "planTableScan",
        "preview",
        "queryEvents",
        "reportMetrics",
        "signRequest",
        "signS3Request",
    }
)
"""The operations that change nothing by name, although their method is POST."""
_DIGITS_MAX: Final = 9
_BOOLEANS: Final = {"true": True, "false": False}
CAPABILITIES: Final = b"x-sandur-capabilities"
NO_CAPABILITIES: Final[frozenset[str]] = frozenset()
_STAGE_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")
_UUID_V7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")


class Call(msgspec.Struct):
    """A request on its way to an operation. `_values` are the encoded parameters of the path, in their order."""

    _lakes: Lakes
    authenticator: Authenticator
    settings: Settings
    operation: str
    _values: Mapping[str, bytes]
    http: HttpRequest
    identity: Identity
    access: Access | None = None
    _query: Mapping[str, str] | None = None
    _body: "JsonBody | None" = None
    _lake: Lake | None = None

    @property
    def lake(self) -> Lake:
        """The lake of the request's workspace; its operations check what the caller may do."""
        if self._lake is None:
            lake = self._lakes.lake(self.identity.tenant, self.identity.workspace)
            self._lake = lake if self.access is None else lake.acting_for(self.access)
        return self._lake

    async def with_current_names(self, handler: "Callable[[Call], Awaitable[A]]") -> A:
        """What the handler returns, by the names of catalogs and namespaces at a moment within the request."""

        def handle(lake: Lake) -> Awaitable[A]:
            self._lake = lake
            return handler(self)

        lake = self._lakes.lake(self.identity.tenant, self.identity.workspace)
        is_read = self.http.method in READS or self.operation in _READING
        return await with_current_names(lake, self.access, handle, is_read=is_read)

    def lake_of(self, tenant: str, workspace: str) -> Lake:
        """The lake of another workspace, for the program's own work: nothing is checked."""
        return self._lakes.lake(tenant, workspace)

    def value(self, parameter: str) -> str:
        """A parameter of the path."""
        return decode_segment(self._values[parameter])

    @property
    def values(self) -> Mapping[str, str]:
        """All parameters of the path."""
        return {parameter: self.value(parameter) for parameter in self._values}

    def encoded_value(self, parameter: str) -> bytes:
        """A parameter of the path, as it was sent."""
        return self._values[parameter]

    @property
    def query(self) -> Mapping[str, str]:
        if self._query is None:
            self._query = decode_query(self.http.query)
        return self._query

    def required(self, parameter: str) -> str:
        """A parameter of the query; Incomplete when it is missing."""
        value = self.query.get(parameter)
        if not value:
            raise Incomplete(f"Missing query parameter: {parameter}")
        return value

    def is_set(self, parameter: str) -> bool:
        """A boolean of the query, False when it is absent. Python clients send `True`."""
        text = self.query.get(parameter) or "false"
        if text.lower() not in _BOOLEANS:
            raise BadRequest(f"Invalid {parameter}: expected true or false, found {text[:QUOTED_CHARS_MAX]!r}")
        return _BOOLEANS[text.lower()]

    def body(self, wanted: type[S], what: str) -> S:
        """The body as `wanted`; BadRequest that names `what`."""
        try:
            return msgspec.convert(self._json.value, wanted)
        except msgspec.ValidationError as error:
            raise malformed_error(what, error) from error

    def body_or_list(self, wanted: type[S], what: str) -> S | list[str]:
        """The body as `wanted`, or a bare list of texts; BadRequest that names `what`."""
        if not isinstance(self._json.value, list):
            return self.body(wanted, what)
        try:
            return msgspec.convert(self._json.value, list[str])
        except msgspec.ValidationError as error:
            raise malformed_error(what, error) from error

    def request(self, *options: str) -> Request:
        """What a mutation carries: the idempotency key, the source, and the hash of all that it asks for."""
        key = self.http.header(b"idempotency-key")
        names = [decode_segment(value) for value in self._values.values()]
        canonical = self._json.canonical() if self.http.body else b""
        return Request(
            hash=request_hash(self.operation, [*names, *options], canonical),
            key=None if key is None else validate_key(key),
            source=source_of(self.http, self.identity),
        )

    @property
    def _json(self) -> "JsonBody":
        """The body, parsed once for its type and its hash."""
        if self._body is None:
            self._body = parse_json(self.http.body, depth_max=self.settings.request_depth_max)
        return self._body


def whole_number(text: str, what: str, *, at_least: int | None = None) -> int:
    """A whole number in a query; BadRequest otherwise, or when it is below `at_least`."""
    digits = text.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
    if not is_number or (at_least is not None and int(text) < at_least):
        expected = "a whole number" if at_least is None else f"a whole number of at least {at_least}"
        raise BadRequest(f"Invalid {what}: expected {expected}, found {text[:QUOTED_CHARS_MAX]!r}")
    return int(text)


def capabilities_of(request: HttpRequest) -> frozenset[str]:
    """What the client declares that it can do, in the header X-Sandur-Capabilities, separated by commas."""
    text = request.header(CAPABILITIES)
    return frozenset(part.strip().lower() for part in text.split(",") if part.strip()) if text else NO_CAPABILITIES


def validate_stage_id(text: str, what: str) -> str:
    """The id that a client gives its create transaction; empty if it gives none. BadRequest if it is not valid."""
    if text and not _STAGE_ID.match(text):
        raise BadRequest(f"Invalid {what}: expected up to 128 letters, digits and . _ : -")
    return text


def validate_key(text: str) -> str:
    """The idempotency key in canonical form; BadRequest unless it is a UUIDv7 (RFC 9562), in either case."""
    key = text.strip().lower()
    if not _UUID_V7.match(key):
        raise BadRequest(f"Invalid Idempotency-Key: expected a UUIDv7, found {text[:60]!r}")
    return key


def request_hash(operation: str, names: Sequence[str], canonical: bytes) -> str:
    """The SHA-256 of a request: its operation, the names in its path, and its body in canonical form."""
    head = msgspec.json.encode([operation, *names])
    return hashlib.sha256(head + b"\n" + canonical).hexdigest()


class JsonBody(NamedTuple):
    """A body and its value; `has_floats` says whether the value contains a number that is not an integer."""

    raw: bytes
    value: Json
    has_floats: bool

    def canonical(self) -> bytes:
        """The body after RFC 8785: spacing, the order of keys and the notation of numbers do not matter.

        One difference: RFC 8785 reads every number as a double, which makes snapshot ids beyond 2^53 equal to their
        neighbours. Here integers keep all their digits; within the range of the RFC that is the same text.
        """
        if self.has_floats or not self.raw.isascii() or b"\\u" in self.raw:
            return b"".join(_canonical_parts(self.value))
        # For ASCII the order by code points is that of the RFC, and so are the escapes. Fifteen times as fast.
        return msgspec.json.encode(self.value, order="deterministic")


class _FloatSeen(Exception):
    pass


def _refuse_float(text: str) -> float:
    raise _FloatSeen(text)


_without_floats: Final = msgspec.json.Decoder(float_hook=_refuse_float)
_with_floats: Final = msgspec.json.Decoder()


def parse_json(body: bytes, *, depth_max: int) -> JsonBody:
    """The value of a body; BadRequest when it is not JSON or nested more than `depth_max` levels deep."""
    try:
        body.decode()
        try:
            parsed = JsonBody(body, _without_floats.decode(body), has_floats=False)
        except _FloatSeen:
            parsed = JsonBody(body, _with_floats.decode(body), has_floats=True)
    except RecursionError:
        raise _too_deep(depth_max) from None
    except (msgspec.DecodeError, ValueError) as error:
        raise BadRequest(f"Invalid JSON: {error}") from None
    if body.count(b"[") + body.count(b"{") > depth_max:
        _check_depth(parsed.value, depth_max)
    return parsed


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
            for place, name in enumerate(sorted(value, key=lambda text: text.encode("utf-16be"))):
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
