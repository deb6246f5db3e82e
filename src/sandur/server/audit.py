"""The audit record of a request: who made it, what it needed, what was decided and why, and how it ended."""

import functools
import hashlib
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from sandur.catalog.audit import (
    AuditDecision,
    AuditedDecision,
    AuditKind,
    AuditOutcome,
    AuditRecord,
    audited_decision,
    privilege_text,
)
from sandur.catalog.privileges import Needs
from sandur.catalog.security import Access
from sandur.errors import Forbidden, Hidden, OutcomeUnknown, SandurError, Unauthenticated
from sandur.operations.audit.notes import Notes
from sandur.operations.audit.trail import AuditTrail
from sandur.server.http import Refused, Scope
from sandur.server.identity import DEFAULT_TENANT, DEFAULT_WORKSPACE, Identity
from sandur.settings import Settings
from sandur.storage.layout import LEVEL_SEPARATOR, Layout

_READ_METHODS: Final = ("GET", "HEAD")
_READS: Final = frozenset({"planTableScan", "fetchScanTasks", "cancelPlanning", "reportMetrics"})
"""Operations that read, but are sent by another method than GET."""

_LOGINS: Final = frozenset({"getToken", "getUnityToken", "logout"})
_SECURITY: Final = frozenset({"updatePermissions", "createUser", "updateUser", "deleteUser"})
_CREDENTIALS: Final = re.compile(r"(generateTemporary|get|load)\w*Credentials\Z|sign\w*Request\Z")
_LISTED_CREDENTIALS: Final = frozenset({"listCredentials", "getCredential"})
_SIGNATURES: Final = frozenset({"signRequest", "signS3Request"})
_CONTROL: Final = "sandur"

_TEXT_CHARS_MAX: Final = 200
_NAME_CHARS_MAX: Final = 1_000
_TEXTS_REMEMBERED_MAX: Final = 8_192
_QUOTED_CHARS_MIN: Final = 8
_NO_NAMES: Final = frozenset({"plan-id", "version"})
_DECISIONS_MAX: Final = 1_000
_UNAUTHENTICATED_STATUS: Final = 401
_FORBIDDEN_STATUS: Final = 403
_REFUSED_STATUS: Final = 400
_FAILED_STATUS: Final = 500
_TRACE: Final = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_SECRET: Final = re.compile(
    r"eyJ[\w-]*\.[\w-]*\.?[\w-]*|sdr_[\w-]+|(?i:bearer|basic)[\s:=-]+[\w.~+/=-]{8,}|(?i:secret|token|password)[=:]\S*"
)
_HIDDEN: Final = "(hidden)"


class Ended(msgspec.Struct, gc=False):
    """A request that has ended: its parts, its answer, and the error behind the answer, if any."""

    scope: Scope
    headers: Mapping[bytes, bytes]
    request_id: str
    protocol: str
    operation: str
    needs: Needs
    values: Mapping[str, bytes]
    identity: Identity | None
    access: Access | None
    notes: Notes
    status: int
    error: BaseException | None
    time_ms: int


def record_request(trail: AuditTrail, settings: Settings, ended: Ended) -> None:
    """Add the record of a request to the trail, if the trail wants it."""
    # Before a token is valid, nothing that the client sends may choose the workspace.
    tenant = ended.identity.tenant if ended.identity else settings.tenant or DEFAULT_TENANT
    workspace = ended.identity.workspace if ended.identity else settings.workspace or DEFAULT_WORKSPACE
    layout = _layout(tenant, workspace)
    kind = kind_of(ended)
    if trail.wants(layout, kind, ended.time_ms):
        trail.add(layout, _record(ended, layout, kind, trail.sampled))


@functools.lru_cache(_TEXTS_REMEMBERED_MAX)
def _layout(tenant: str, workspace: str) -> Layout:
    return Layout(tenant, workspace)


def kind_of(ended: Ended) -> AuditKind:  # noqa: PLR0911 - one line per kind
    method, operation = ended.scope["method"], ended.operation
    if ended.status == _UNAUTHENTICATED_STATUS:
        return "unauthenticated"
    if ended.status == _FORBIDDEN_STATUS or _denied(ended):
        return "denial"
    if operation in _LOGINS:
        return "login"
    if operation not in _LISTED_CREDENTIALS and _CREDENTIALS.match(operation):
        # Each signature is for one request, so that of a read is a read, which may be sampled.
        given = ended.notes.credentials if operation in _SIGNATURES else None
        return "read" if given and given.mode == "read" else "credential"
    if method in _READ_METHODS or operation in _READS:
        # Reads may be recorded in part. What gives away credentials is recorded always.
        return "credential" if ended.notes.credentials else "read"
    if operation in _SECURITY or ended.protocol == _CONTROL or ended.notes.changes:
        return "security"
    return "change"


def _denied(ended: Ended) -> bool:
    if isinstance(ended.error, Hidden):
        return True
    if ended.access is None or ended.status < _REFUSED_STATUS:
        return False
    return any(decision.verdict.outcome != "allowed" for decision in ended.access.decisions)


def _record(ended: Ended, layout: Layout, kind: AuditKind, sampled: float) -> AuditRecord:
    headers, notes = ended.headers, ended.notes
    main, further = _decisions(ended)
    key = headers.get(b"idempotency-key")
    client = ended.scope.get("client")
    traced = headers.get(b"traceparent")
    trace = _TRACE.match(traced) if traced else None
    # By position: keyword arguments would cost ten times as much, and every request makes a record.
    return AuditRecord(
        ended.time_ms,
        kind,
        ended.operation,
        main.decision,
        ended.status,
        _outcome(ended),
        hide_secrets(ended.request_id) if b"x-request-id" in headers else ended.request_id,
        layout.tenant,
        layout.workspace,
        *_who(ended),
        client[0] if client else "",
        ended.protocol,
        main.securable_type,
        main.securable_name,
        main.securable_id,
        main.privilege,
        main.reason,
        main.detail,
        main.manifest_number,
        notes.is_replay,
        hashlib.sha256(key.strip().lower()).hexdigest() if key else "",
        _declared(headers, b"user-agent"),
        trace[1].decode() if trace else "",
        _declared(headers, b"x-sandur-run-id"),
        _declared(headers, b"x-sandur-task-id"),
        further,
        notes.changes,
        notes.credentials,
        sampled if kind == "read" and sampled < 1 else None,
    )


def _who(ended: Ended) -> tuple[str, str, str, str, str]:
    """The name and the id of the caller, for whom it acts, and the issuer and the id of its token."""
    identity = ended.identity
    caller = ended.notes.logged_in or (identity.caller if identity else None)
    issuer, token_id = (identity.issuer, identity.token_id) if identity else ("", "")
    if caller is None:
        return "", "", "", issuer, token_id
    return caller.name, caller.id if ended.access else "", caller.actor.name if caller.actor else "", issuer, token_id


def _decisions(ended: Ended) -> tuple[AuditedDecision, tuple[AuditedDecision, ...]]:
    """The decision that settled the request, and the others: of a refused request the first denial, else the first."""
    made = ended.access.decisions if ended.access else ()
    if not made:
        return _undecided(ended), ()
    settled = 0
    if ended.status >= _REFUSED_STATUS:
        denials = (place for place, one in enumerate(made) if one.verdict.outcome != "allowed")
        settled = next(denials, 0)
    main = audited_decision(made[settled])
    if main.decision == "allowed" and ended.error:
        main = _with_reason(main, ended)
    others = [one for place, one in enumerate(made) if place != settled]
    return main, tuple(map(audited_decision, others[:_DECISIONS_MAX])) if others else ()


def _with_reason(main: AuditedDecision, ended: Ended) -> AuditedDecision:
    return AuditedDecision(
        securable_type=main.securable_type,
        securable_name=main.securable_name,
        securable_id=main.securable_id,
        privilege=main.privilege,
        decision=main.decision,
        reason=_reason(ended),
        detail=_denial_text(ended) if ended.status == _FORBIDDEN_STATUS else "",
        manifest_number=main.manifest_number,
    )


def _undecided(ended: Ended) -> AuditedDecision:
    """What is known about a request without a decision: the names in its path, and why it was refused."""
    is_denied = ended.status in {_UNAUTHENTICATED_STATUS, _FORBIDDEN_STATUS} or isinstance(ended.error, Hidden)
    decision: AuditDecision = "denied" if is_denied else "none"
    is_about_one = bool(ended.values) and ended.needs.on not in {"nothing", "caller"}
    return AuditedDecision(
        securable_type=ended.needs.on if is_about_one else "",
        securable_name=_names(ended.values) if is_about_one else "",
        securable_id="",
        privilege=privilege_text(ended.needs.rule) if is_about_one else "",
        decision=decision,
        reason=_reason(ended),
        detail=_denial_text(ended) if is_denied else "",
    )


def _denial_text(ended: Ended) -> str:
    """The text of the answer, without what it quotes of the request's headers."""
    text = str(ended.error)
    for value in ended.headers.values():
        for part in value.decode("latin-1").split(" "):
            if len(part) >= _QUOTED_CHARS_MIN:
                text = text.replace(part, _HIDDEN)
    return hide_secrets(text)


def _reason(ended: Ended) -> str:
    """Why a request was not done, as one word. Texts of other errors may quote the body of the request."""
    error = ended.error
    if ended.status == _UNAUTHENTICATED_STATUS or isinstance(error, Unauthenticated):
        return "unauthenticated"
    if ended.status == _FORBIDDEN_STATUS or isinstance(error, Forbidden):
        return "forbidden"
    if isinstance(error, Hidden):
        return "hidden"
    if isinstance(error, Refused):
        return "refused"
    return type(error).__name__ if error else ""


def _outcome(ended: Ended) -> AuditOutcome:
    if isinstance(ended.error, OutcomeUnknown) or (ended.error and not isinstance(ended.error, Exception)):
        return "unknown"
    if ended.status >= _FAILED_STATUS:
        # An unexpected error may have come after a write.
        return "failed" if isinstance(ended.error, SandurError) else "unknown"
    return "refused" if ended.status >= _REFUSED_STATUS else "done"


def _names(values: Mapping[str, bytes]) -> str:
    """The names in a path, joined by dots."""
    return _name(b".".join([value for parameter, value in values.items() if parameter not in _NO_NAMES]))


@functools.lru_cache(_TEXTS_REMEMBERED_MAX)
def _name(raw: bytes) -> str:
    text = unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8", "backslashreplace")
    return text.replace(LEVEL_SEPARATOR, ".")[:_NAME_CHARS_MAX]


def _declared(headers: Mapping[bytes, bytes], name: bytes) -> str:
    value = headers.get(name)
    return _plain(value) if value else ""


@functools.lru_cache(_TEXTS_REMEMBERED_MAX)
def _plain(value: bytes) -> str:
    return hide_secrets(value.decode("utf-8", "backslashreplace"))


def hide_secrets(text: str) -> str:
    """The text, bounded, without what looks like a token or a password."""
    return _SECRET.sub(_HIDDEN, text[: 4 * _TEXT_CHARS_MAX])[:_TEXT_CHARS_MAX]
