"""Who makes a request, and in which workspace: bearer tokens, headers and settings.

A signed token is a JWT (HS256) with `sub` and `exp`. With `tenant` and `workspace` it is bound to one workspace.
"""

import hmac
import re
from typing import Final, NamedTuple

import jwt

from sandur.catalog.sources import Source
from sandur.errors import BadRequest
from sandur.server.http import WWW_AUTHENTICATE, HttpRequest, Refused
from sandur.settings import Settings

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
_BEARER: Final = "bearer "


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
    """The origin of a change, for its receipt: the run of a pipeline, or else the client."""
    run_id = _text(request, b"x-sandur-run-id")
    return Source(
        kind="pipeline" if run_id else "rest",
        principal=identity.principal,
        client=_text(request, b"user-agent"),
        run_id=run_id,
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
    value = request.header(b"authorization") or ""
    found = bearer_of(value[len(_BEARER) :].strip(), settings) if value[: len(_BEARER)].lower() == _BEARER else None
    if found is None:
        raise Refused(401, "Not authorized: a valid bearer token is required", (WWW_AUTHENTICATE, b"Bearer"))
    return found


def _text(request: HttpRequest, header: bytes) -> str:
    value = request.headers.get(header)
    if value is None:
        return ""
    # Invalid UTF-8 is escaped, so that every log and file can hold it.
    return value.decode("utf-8", "backslashreplace")[:_TEXT_CHARS_MAX]
