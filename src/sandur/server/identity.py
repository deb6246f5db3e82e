"""Who asks, and in which tenant's workspace: from the headers of a request and what the settings fix."""

import hmac
import re
from typing import Final, NamedTuple

from sandur.catalog.sources import Source
from sandur.errors import BadRequest
from sandur.server.messages import WWW_AUTHENTICATE, HttpRequest, Refused
from sandur.settings import Settings

DEFAULT_TENANT: Final = "default"
DEFAULT_WORKSPACE: Final = "default"

ANONYMOUS: Final = "anonymous"
TOKEN_HOLDER: Final = "token"  # noqa: S105 - the name of a principal, not a secret

_SCOPE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_TEXT_CHARS_MAX: Final = 200
_BEARER: Final = "bearer "
_UNAUTHORIZED: Final = 401


class Identity(NamedTuple):
    """Who asks, and where."""

    tenant: str
    workspace: str
    principal: str


def identified(request: HttpRequest, settings: Settings, *, needs_token: bool) -> Identity:
    """Who asks and where; Refused without a good token where one is needed, BadRequest for a bad scope."""
    return Identity(
        settings.tenant or _scope_name(request, b"x-sandur-tenant", DEFAULT_TENANT),
        settings.workspace or _scope_name(request, b"x-sandur-workspace", DEFAULT_WORKSPACE),
        _principal(request, settings) if needs_token else ANONYMOUS,
    )


def is_good_token(token: str, settings: Settings) -> bool:
    """Whether the token lets somebody in; compared in constant time."""
    if settings.authentication == "off":
        return True
    return hmac.compare_digest(token.encode(), settings.token.encode())


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


def checked_scope_name(what: str, text: str) -> str:
    """A tenant's or workspace's name; BadRequest when it is none."""
    if not _SCOPE_NAME.match(text):
        raise BadRequest(
            f"Invalid {what} {text[:_TEXT_CHARS_MAX]!r}: expected up to 63 letters, digits, dots, dashes or underscores"
        )
    return text


def _scope_name(request: HttpRequest, header: bytes, default: str) -> str:
    text = request.header(header)
    return default if text is None else checked_scope_name(header.decode(), text)


def _principal(request: HttpRequest, settings: Settings) -> str:
    if settings.authentication == "off":
        return ANONYMOUS
    value = request.header(b"authorization") or ""
    if value[: len(_BEARER)].lower() != _BEARER or not is_good_token(value[len(_BEARER) :].strip(), settings):
        raise Refused(_UNAUTHORIZED, "Not authorized: a bearer token is needed", (WWW_AUTHENTICATE, b"Bearer"))
    return TOKEN_HOLDER


def _text(request: HttpRequest, header: bytes) -> str:
    value = request.headers.get(header)
    if value is None:
        return ""
    # What is not text is told in a form that every log and file can hold.
    return value.decode("utf-8", "backslashreplace")[:_TEXT_CHARS_MAX]
