"""Who makes a request, and in which workspace: bearer tokens, headers and settings.

A signed token is a JWT (HS256) with `sub` and `exp`, and, to hold its bearer to one place, `tenant` and `workspace`.
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
"""What the algorithm asks of its key: tokens signed with a shorter one are not believed."""


class Bearer(NamedTuple):
    """Who holds a token; None where the token leaves the choice to the headers."""

    principal: str
    tenant: str | None = None
    workspace: str | None = None


def bearer_of(token: str, settings: Settings) -> Bearer | None:
    """Who holds the token; None when it lets nobody in."""
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
    """A token for the bearer; it is good until then."""
    claims = {
        "sub": bearer.principal,
        "exp": expires_at_seconds,
        "tenant": bearer.tenant,
        "workspace": bearer.workspace,
    }
    return jwt.encode({name: value for name, value in claims.items() if value is not None}, secret, algorithm=ALGORITHM)


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
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_NOBODY: Final = Bearer(ANONYMOUS)


class Identity(NamedTuple):
    """Who asks, and where."""

    tenant: str
    workspace: str
    principal: str


def identify(request: HttpRequest, settings: Settings, *, needs_token: bool) -> Identity:
    """Who asks and where; Refused without a good token where one is needed, BadRequest for a bad scope."""
    bearer = _bearer(request, settings) if needs_token else _NOBODY
    return Identity(
        settings.tenant or _place(request, b"x-sandur-tenant", bearer.tenant, DEFAULT_TENANT),
        settings.workspace or _place(request, b"x-sandur-workspace", bearer.workspace, DEFAULT_WORKSPACE),
        bearer.principal,
    )


def is_valid_token(token: str, settings: Settings) -> bool:
    """Whether the token lets somebody in."""
    return settings.authentication == "off" or bearer_of(token, settings) is not None


def source_of(request: HttpRequest, identity: Identity) -> Source:
    """What a receipt will say about the origin: a pipeline names its run, everybody else the client."""
    run_id = _text(request, b"x-sandur-run-id")
    return Source(
        kind="pipeline" if run_id else "rest",
        principal=identity.principal,
        client=_text(request, b"user-agent"),
        run_id=run_id,
        task_id=_text(request, b"x-sandur-task-id"),
    )


def validate_scope_name(what: str, text: str) -> str:
    """A tenant's or workspace's name; BadRequest when it is none."""
    if not _SCOPE_NAME.match(text):
        raise BadRequest(
            f"Invalid {what} {text[:_TEXT_CHARS_MAX]!r}: expected up to 63 letters, digits, dots, dashes or underscores"
        )
    return text


def _place(request: HttpRequest, header: bytes, claimed: str | None, default: str) -> str:
    """What the token says, else the header; a header that asks for another place than the token's is refused."""
    sent = request.header(header)
    asked = None if sent is None else validate_scope_name(header.decode(), sent)
    if claimed is None:
        return asked or default
    if asked not in {None, claimed}:
        raise Refused(_FORBIDDEN, f"{header.decode()} is {asked}, and the token is for {claimed}")
    return validate_scope_name("claim", claimed)


def _bearer(request: HttpRequest, settings: Settings) -> Bearer:
    if settings.authentication == "off":
        return _NOBODY
    value = request.header(b"authorization") or ""
    found = bearer_of(value[len(_BEARER) :].strip(), settings) if value[: len(_BEARER)].lower() == _BEARER else None
    if found is None:
        raise Refused(_UNAUTHORIZED, "Not authorized: a bearer token is needed", (WWW_AUTHENTICATE, b"Bearer"))
    return found


def _text(request: HttpRequest, header: bytes) -> str:
    value = request.headers.get(header)
    if value is None:
        return ""
    # What is not text is told in a form that every log and file can hold.
    return value.decode("utf-8", "backslashreplace")[:_TEXT_CHARS_MAX]
