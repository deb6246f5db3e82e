"""Who makes a request, and in which workspace: what the token, the headers and the settings say."""

import re
from typing import Final, Literal, NamedTuple

from sandur.catalog.events import Source
from sandur.catalog.security.manifest import ANONYMOUS, Caller
from sandur.errors import BadRequest
from sandur.server.http import HttpRequest, Refused
from sandur.settings import Settings
from sandur.trace_context import current_trace

DEFAULT_TENANT: Final = "default"
DEFAULT_WORKSPACE: Final = "default"
TENANT_HEADER: Final = b"x-sandur-tenant"
WORKSPACE_HEADER: Final = b"x-sandur-workspace"

_SCOPE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_TEXT_CHARS_MAX: Final = 200


class Bearer(NamedTuple):
    """The holder of a token. Where tenant or workspace is None, the headers choose it.

    `issuer` issued the token, and `token_id` is its id there. It is not accepted after `expires_ms`. `is_on_store`: an
    administrator who works on the store itself, without a token.
    """

    caller: Caller
    tenant: str | None = None
    workspace: str | None = None
    issuer: str = ""
    token_id: str = ""
    expires_ms: int = 0
    is_on_store: bool = False


ANONYMOUS_BEARER: Final = Bearer(ANONYMOUS)


def bearer_on_store(user: str) -> Bearer:
    """The user of the operating system who works on the store itself, and may do everything there."""
    return Bearer(Caller("", user), is_on_store=True)


class Identity(NamedTuple):
    """Who makes a request, and in which workspace."""

    tenant: str
    workspace: str
    principal: str
    caller: Caller = ANONYMOUS
    issuer: str = ""
    token_id: str = ""
    expires_ms: int = 0
    is_on_store: bool = False


def identity_of(request: HttpRequest, settings: Settings, bearer: Bearer) -> Identity:
    """The identity of a request with a verified bearer.

    Raises BadRequest for a bad tenant or workspace, Refused for one that the token is not for.
    """
    tenant = _scope_name(request, TENANT_HEADER, bearer.tenant, settings.tenant, DEFAULT_TENANT)
    workspace = _scope_name(request, WORKSPACE_HEADER, bearer.workspace, settings.workspace, DEFAULT_WORKSPACE)
    return Identity(tenant, workspace, bearer.caller.name, bearer.caller, *bearer[3:])


def source_of(request: HttpRequest, identity: Identity) -> Source:
    """The origin of a change, for its receipt. Its kind follows the principal, never a header.

    What a client says about its run is a mere declaration, unless an administrator marked its principal as a pipeline.
    """
    kind: Literal["rest", "pipeline", "admin"] = "pipeline" if identity.caller.is_pipeline else "rest"
    trace = current_trace.get()
    return Source(
        kind="admin" if identity.is_on_store else kind,
        principal=identity.principal,
        principal_id="" if identity.caller is ANONYMOUS else identity.caller.id,
        client=_text(request, b"user-agent"),
        run_id=_text(request, b"x-sandur-run-id"),
        task_id=_text(request, b"x-sandur-task-id"),
        trace_id=trace.trace_id if trace else "",
        span_id=trace.span_id if trace and trace.is_sampled else "",
    )


def validate_scope_name(what: str, text: str) -> str:
    """The name of a tenant or workspace; BadRequest when it is not valid."""
    if not _SCOPE_NAME.match(text):
        raise BadRequest(
            f"Invalid {what} {text[:_TEXT_CHARS_MAX]!r}: expected up to 63 letters, digits, dots, dashes or underscores"
        )
    return text


def _scope_name(request: HttpRequest, header: bytes, claimed: str | None, fixed: str, default: str) -> str:
    """The tenant or workspace of the settings, of the token, or of the header, in this order.

    Refused when the token is for another one than the settings or the header name.
    """
    if fixed:
        if claimed not in {None, fixed}:
            raise Refused(403, f"The token is for {claimed}, but this server serves only {fixed}")
        return fixed
    sent = request.header(header)
    requested = None if sent is None else validate_scope_name(header.decode(), sent)
    if claimed is None:
        return requested or default
    if requested not in {None, claimed}:
        raise Refused(403, f"{header.decode()} is {requested}, but the token is for {claimed}")
    return validate_scope_name("claim", claimed)


def _text(request: HttpRequest, header: bytes) -> str:
    value = request.headers.get(header)
    if value is None:
        return ""
    # Invalid UTF-8 is escaped, so that every log and file can hold it.
    return value.decode("utf-8", "backslashreplace")[:_TEXT_CHARS_MAX]
