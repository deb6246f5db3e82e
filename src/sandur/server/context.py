"""The context of one call: the caller's identity, and path, query, headers and body, decoded on first use.

A signed token is a JWT (HS256) with `sub` and `exp`. With `tenant` and `workspace` it is bound to one workspace.
"""

import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar, assert_never

import jwt
import msgspec
import rfc8785

from sandur.catalog.records import Request, Source
from sandur.catalog.security import ANONYMOUS as NO_CALLER
from sandur.catalog.security import Access, Caller
from sandur.errors import BadRequest, Incomplete
from sandur.operations.lake import Lake, Lakes
from sandur.server.http import WWW_AUTHENTICATE, HttpRequest, Refused, decode_query, decode_segment
from sandur.settings import Settings
from sandur.splicing import malformed_error

SECRET_HOLDER: Final = "token"  # noqa: S105 - the name of a principal, not a secret
ALGORITHM: Final = "HS256"
SECRET_BYTES_MIN: Final = 32
"""The shortest key that the algorithm allows. With a shorter secret, signed tokens are not accepted."""

DEFAULT_TENANT: Final = "default"
DEFAULT_WORKSPACE: Final = "default"

ANONYMOUS: Final = "anonymous"

# OAuth 2, for clients that request a token first.
CLIENT_CREDENTIALS: Final = "client_credentials"
TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - a name, not a secret
ACCESS_TOKEN_TYPE: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a name, not a secret
TOKEN_LIFETIME_SECONDS: Final = 3600

_SCOPE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_TEXT_CHARS_MAX: Final = 200


class Bearer(NamedTuple):
    """The holder of a token. Where tenant or workspace is None, the headers choose it."""

    principal: str
    tenant: str | None = None
    workspace: str | None = None


_ANONYMOUS_BEARER: Final = Bearer(ANONYMOUS)


def bearer_of(token: str, settings: Settings) -> Bearer | None:
    """The holder of the token; None when the token is not valid."""
    if hmac.compare_digest(token.encode(), settings.token.encode()):
        return Bearer(SECRET_HOLDER)
    if len(settings.token.encode()) < SECRET_BYTES_MIN:
        return None
    try:
        claims = jwt.decode(token, settings.token, algorithms=[ALGORITHM], options={"require": ["exp", "sub"]})
    except jwt.InvalidTokenError:
        return None
    places = [claims.get(name) for name in ("tenant", "workspace")]
    if not all(place is None or isinstance(place, str) for place in places):
        return None
    return Bearer(str(claims["sub"]), *places)


def signed_token(bearer: Bearer, *, secret: str, expires_at_seconds: int) -> str:
    """A token for the bearer, valid until the given time."""
    claims = {
        "sub": bearer.principal,
        "exp": expires_at_seconds,
        "tenant": bearer.tenant,
        "workspace": bearer.workspace,
    }
    return jwt.encode({name: value for name, value in claims.items() if value is not None}, secret, algorithm=ALGORITHM)


class Identity(NamedTuple):
    """Who makes a request, and in which workspace."""

    tenant: str
    workspace: str
    principal: str
    caller: Caller = NO_CALLER


def identify(request: HttpRequest, settings: Settings, *, needs_token: bool) -> Identity:
    """The identity of a request; Refused when a valid token is missing, BadRequest for a bad tenant or workspace."""
    bearer = _bearer(request, settings) if needs_token else _ANONYMOUS_BEARER
    return Identity(
        settings.tenant or _scope_name(request, b"x-sandur-tenant", bearer.tenant, DEFAULT_TENANT),
        settings.workspace or _scope_name(request, b"x-sandur-workspace", bearer.workspace, DEFAULT_WORKSPACE),
        bearer.principal,
    )


def is_valid_token(token: str, settings: Settings) -> bool:
    """Whether requests with this token are accepted."""
    return settings.authentication == "off" or bearer_of(token, settings) is not None


def source_of(request: HttpRequest, identity: Identity) -> Source:
    """The origin of a change, for its receipt. What a client says about its run is a mere declaration."""
    return Source(
        kind="rest",
        principal=identity.principal,
        principal_id="" if identity.caller is NO_CALLER else identity.caller.id,
        client=_text(request, b"user-agent"),
        run_id=_text(request, b"x-sandur-run-id"),
        task_id=_text(request, b"x-sandur-task-id"),
    )


def validate_scope_name(what: str, text: str) -> str:
    """The name of a tenant or workspace; BadRequest when it is not valid."""
    if not _SCOPE_NAME.match(text):
        raise BadRequest(
            f"Invalid {what} {text[:_TEXT_CHARS_MAX]!r}: expected up to 63 letters, digits, dots, dashes or underscores"
        )
    return text


def _scope_name(request: HttpRequest, header: bytes, claimed: str | None, default: str) -> str:
    """The tenant or workspace of the token, or else of the header; Refused when both are given and differ."""
    sent = request.header(header)
    requested = None if sent is None else validate_scope_name(header.decode(), sent)
    if claimed is None:
        return requested or default
    if requested not in {None, claimed}:
        raise Refused(403, f"{header.decode()} is {requested}, but the token is for {claimed}")
    return validate_scope_name("claim", claimed)


def _bearer(request: HttpRequest, settings: Settings) -> Bearer:
    if settings.authentication == "off":
        return _ANONYMOUS_BEARER
    scheme, _, token = (request.header(b"authorization") or "").strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        message = "Not authorized: the request has no bearer token; send the header Authorization: Bearer TOKEN"
        raise Refused(401, message, (WWW_AUTHENTICATE, b"Bearer"))
    found = bearer_of(token.strip(), settings)
    if found is None:
        message = "Not authorized: the bearer token is wrong or has expired"
        raise Refused(401, message, (WWW_AUTHENTICATE, b'Bearer error="invalid_token"'))
    return found


def _text(request: HttpRequest, header: bytes) -> str:
    value = request.headers.get(header)
    if value is None:
        return ""
    # Invalid UTF-8 is escaped, so that every log and file can hold it.
    return value.decode("utf-8", "backslashreplace")[:_TEXT_CHARS_MAX]


Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
S = TypeVar("S", bound=msgspec.Struct)

QUOTED_CHARS_MAX: Final = 40
_DIGITS_MAX: Final = 9
_BOOLEANS: Final = {"true": True, "false": False}
_UUID_V7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")


class Call(msgspec.Struct):
    """A request on its way to an operation. `_values` are the encoded parameters of the path, in their order."""

    _lakes: Lakes
    settings: Settings
    operation: str
    _values: Mapping[str, bytes]
    http: HttpRequest
    identity: Identity
    access: Access | None = None
    _query: Mapping[str, str] | None = None
    _body: "JsonBody | None" = None

    @property
    def lake(self) -> Lake:
        """The lake of the request's workspace; its operations check what the caller may do."""
        lake = self._lakes.lake(self.identity.tenant, self.identity.workspace)
        return lake if self.access is None else lake.acting_for(self.access)

    def value(self, parameter: str) -> str:
        """A parameter of the path."""
        return decode_segment(self._values[parameter])

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
