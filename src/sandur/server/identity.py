"""Who asks, and in which tenant's workspace: from the headers of a request and what the settings fix."""

import re
from typing import Final, NamedTuple

from sandur.catalog.sources import Source
from sandur.errors import BadRequest
from sandur.server.messages import WWW_AUTHENTICATE, HttpRequest, Refused
from sandur.server.tokens import Bearer, bearer_of
from sandur.settings import Settings

DEFAULT_TENANT: Final = "default"
DEFAULT_WORKSPACE: Final = "default"

ANONYMOUS: Final = "anonymous"

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


def identified(request: HttpRequest, settings: Settings, *, needs_token: bool) -> Identity:
    """Who asks and where; Refused without a good token where one is needed, BadRequest for a bad scope."""
    bearer = _bearer(request, settings) if needs_token else _NOBODY
    return Identity(
        settings.tenant or _place(request, b"x-sandur-tenant", bearer.tenant, DEFAULT_TENANT),
        settings.workspace or _place(request, b"x-sandur-workspace", bearer.workspace, DEFAULT_WORKSPACE),
        bearer.principal,
    )


def is_good_token(token: str, settings: Settings) -> bool:
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


def checked_scope_name(what: str, text: str) -> str:
    """A tenant's or workspace's name; BadRequest when it is none."""
    if not _SCOPE_NAME.match(text):
        raise BadRequest(
            f"Invalid {what} {text[:_TEXT_CHARS_MAX]!r}: expected up to 63 letters, digits, dots, dashes or underscores"
        )
    return text


def _place(request: HttpRequest, header: bytes, claimed: str | None, default: str) -> str:
    """What the token says, else the header; a header that asks for another place than the token's is refused."""
    sent = request.header(header)
    asked = None if sent is None else checked_scope_name(header.decode(), sent)
    if claimed is None:
        return asked or default
    if asked not in {None, claimed}:
        raise Refused(_FORBIDDEN, f"{header.decode()} is {asked}, and the token is for {claimed}")
    return checked_scope_name("claim", claimed)


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
