"""The audit record of a request: who made it, what it needed, what was decided and why, and how it ended."""

import functools
import hashlib
import re
from collections.abc import Hashable, Mapping
from typing import Final, Literal
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
from sandur.catalog.security.manifest import Access, Decision
from sandur.catalog.security.privileges import OPEN, Needs
from sandur.errors import Forbidden, Hidden, OutcomeUnknown, SandurError, Unauthenticated
from sandur.operations.audit.notes import NO_NOTES, Notes
from sandur.operations.audit.trail import AuditTrail, layout_of_workspace
from sandur.server.http import Refused, Scope
from sandur.server.identity import DEFAULT_TENANT, DEFAULT_WORKSPACE, Identity
from sandur.settings import Settings
from sandur.storage.keys import LEVEL_SEPARATOR
from sandur.storage.layout import Layout
from sandur.trace_context import parse_context

_READ_METHODS: Final = ("GET", "HEAD")
_READS: Final = frozenset(
    {"planTableScan", "fetchScanTasks", "cancelPlanning", "reportMetrics", "queryEvents", "preview"}
)
"""Operations that read, but are sent by another method than GET."""

_LOGINS: Final = frozenset({"getToken", "getUnityToken", "logout", "logIn", "endProviderLogin"})
_SECURITY: Final = frozenset(
    {"updatePermissions", "createUser", "updateUser", "deleteUser", "updateGrants", "changeOwner", "updateTags"}
)
_CREDENTIALS: Final = re.compile(r"(generateTemporary|get|load)\w*Credentials\Z|sign\w*Request\Z")
_LISTED_CREDENTIALS: Final = frozenset({"listCredentials", "getCredential"})
_SIGNATURES: Final = frozenset({"signRequest", "signS3Request"})
_CONTROL: Final = "sandur"
_CHANGES: Final = frozenset({"defineTable"})
"""Operations of Sandur's own API that change a catalog; all its other changes are about security."""

_RARE: Final = frozenset({b"idempotency-key", b"x-sandur-run-id", b"x-sandur-task-id"})
"""Headers that are recorded, and that few reads have."""

_TEXT_CHARS_MAX: Final = 200
_NAME_CHARS_MAX: Final = 1_000
_TEXTS_REMEMBERED_MAX: Final = 8_192
_QUOTED_CHARS_MIN: Final = 8
_NO_NAMES: Final = frozenset({"plan-id", "version"})
_DECISIONS_MAX: Final = 1_000
_CLIENT_GONE_STATUS: Final = 499
_UNAUTHENTICATED_STATUS: Final = 401
_FORBIDDEN_STATUS: Final = 403
_REFUSED_STATUS: Final = 400
_FAILED_STATUS: Final = 500
_SECRET: Final = re.compile(
    r"eyJ[\w-]*\.[\w-]*\.?[\w-]*|sdr_[\w-]+|(?i:bearer|basic)[\s:=-]+[\w.~+/=-]{8,}|(?i:secret|token|password)[=:]\S*"
)
_HIDDEN: Final = "(hidden)"


class Exchange(msgspec.Struct, eq=False):
    """A request, what is known about it so far, and how it ended: the status of the answer, and the error behind it."""

    scope: Scope
    headers: Mapping[bytes, bytes]
    request_id: str
    protocol: str
    operation: str
    needs: Needs
    values: Mapping[str, bytes]
    identity: Identity | None = None
    access: Access | None = None
    notes: Notes | None = None
    status: int = _CLIENT_GONE_STATUS
    error: BaseException | None = None
    time_ms: int = 0
    trace_id: str = ""
    """The trace in which this server recorded the request; empty if it recorded no span."""


class AllowedRead(msgspec.Struct, gc=False):
    """An allowed read that waits to be written: what its record is made of, without the parts that are large or secret.

    Most requests are such reads, and most of them differ from an earlier one only in their ids and times.
    """

    time_ms: int
    request_id: str
    declared_trace_id: str
    protocol: str
    operation: str
    status: int
    peer: str
    agent: bytes
    identity: Identity
    decision: Decision
    sampled: float
    kind: Literal["read"] = "read"

    @property
    def tenant(self) -> str:
        return self.identity.tenant

    @property
    def workspace(self) -> str:
        return self.identity.workspace

    def key(self) -> Hashable:
        # By their ids, which is quick: as long as this record waits, no other object gets the same id.
        ids = (id(self.decision), id(self.identity))
        return (*ids, self.protocol, self.operation, self.status, self.peer, self.agent, self.sampled)

    def build(self) -> AuditRecord:
        identity = self.identity
        ended = Exchange(
            {"client": (self.peer,)},
            {b"user-agent": self.agent},
            self.request_id,
            self.protocol,
            self.operation,
            OPEN,  # What the route needs is recorded only of requests without a decision.
            {},
            identity,
            Access(identity.caller, OPEN, [self.decision]),
            status=self.status,
            time_ms=self.time_ms,
        )
        record = _record(ended, layout_of_workspace(identity.tenant, identity.workspace), self.kind, self.sampled)
        return msgspec.structs.replace(record, declared_trace_id=self.declared_trace_id)


def record_request(trail: AuditTrail, settings: Settings, ended: Exchange) -> None:
    """Add the record of a request to the trail, if the trail wants it."""
    if trail.has_reads and (read := _allowed_read(ended, trail.sampled)):
        trail.add_read(read)
        return
    # Before a token is valid, nothing that the client sends may choose the workspace.
    identity = ended.identity
    tenant = identity.tenant if identity else settings.tenant or DEFAULT_TENANT
    workspace = identity.workspace if identity else settings.workspace or DEFAULT_WORKSPACE
    layout = layout_of_workspace(tenant, workspace)
    kind = kind_of(ended)
    if trail.wants(layout, kind, ended.time_ms):
        trail.add(layout, _record(ended, layout, kind, trail.sampled))


def _allowed_read(ended: Exchange, sampled: float) -> AllowedRead | None:
    """An allowed read whose record can be built later; None if there is more to record about the request."""
    access, identity, headers, scope = ended.access, ended.identity, ended.headers, ended.scope
    if ended.status >= _REFUSED_STATUS or ended.error or ended.notes or ended.trace_id:
        return None
    if access is None or identity is None or len(access.decisions) != 1 or not _RARE.isdisjoint(headers):
        return None
    agent, client = headers.get(b"user-agent", b""), scope.get("client")
    is_read = _kind_of_operation(scope["method"], ended.protocol, ended.operation) == "read"
    if not is_read or len(agent) > _TEXT_CHARS_MAX:
        return None
    return AllowedRead(
        ended.time_ms,
        _request_id(ended) if b"x-request-id" in headers else ended.request_id,
        trace_id_of(headers) if b"traceparent" in headers else "",
        ended.protocol,
        ended.operation,
        ended.status,
        client[0] if client else "",
        agent,
        identity,
        access.decisions[0],
        sampled,
    )


def kind_of(ended: Exchange) -> AuditKind:
    if ended.status >= _REFUSED_STATUS or ended.error:
        if ended.status == _UNAUTHENTICATED_STATUS:
            return "unauthenticated"
        if ended.status == _FORBIDDEN_STATUS or _denied(ended):
            return "denial"
    kind, notes = _kind_of_operation(ended.scope["method"], ended.protocol, ended.operation), ended.notes
    if notes and notes.credentials and kind in {"read", "credential"}:
        # Reads may be recorded in part; what gives away credentials is recorded always. But each signature is for one
        # request, so that of a read is a read.
        is_read = ended.operation in _SIGNATURES and notes.credentials.mode == "read"
        return "read" if is_read else "credential"
    return "security" if notes and notes.changes and kind == "change" else kind


@functools.lru_cache(_TEXTS_REMEMBERED_MAX)
def _kind_of_operation(method: str, protocol: str, operation: str) -> AuditKind:
    if operation in _LOGINS:
        return "login"
    if operation not in _LISTED_CREDENTIALS and _CREDENTIALS.match(operation):
        return "credential"
    if method in _READ_METHODS or operation in _READS:
        return "read"
    is_security = operation in _SECURITY or (protocol == _CONTROL and operation not in _CHANGES)
    return "security" if is_security else "change"


def _denied(ended: Exchange) -> bool:
    if isinstance(ended.error, Hidden):
        return True
    if ended.access is None or ended.status < _REFUSED_STATUS:
        return False
    return any(decision.verdict.outcome != "allowed" for decision in ended.access.decisions)


def _record(ended: Exchange, layout: Layout, kind: AuditKind, sampled: float) -> AuditRecord:
    headers, notes = ended.headers, ended.notes or NO_NOTES
    main, further = _decisions(ended)
    key = headers.get(b"idempotency-key")
    client = ended.scope.get("client")
    # By position: keyword arguments would cost ten times as much, and every request makes a record.
    return AuditRecord(
        ended.time_ms,
        kind,
        ended.operation,
        main.decision,
        ended.status,
        outcome_of(ended),
        _request_id(ended),
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
        declared(headers, b"user-agent"),
        trace_id_of(headers),
        declared(headers, b"x-sandur-run-id"),
        declared(headers, b"x-sandur-task-id"),
        further,
        notes.changes,
        notes.credentials,
        sampled if kind == "read" and sampled < 1 else None,
        ended.trace_id,
    )


def _request_id(ended: Exchange) -> str:
    return hide_secrets(ended.request_id) if b"x-request-id" in ended.headers else ended.request_id


def trace_id_of(headers: Mapping[bytes, bytes]) -> str:
    traced = headers.get(b"traceparent")
    found = parse_context(traced) if traced else None
    return found.trace_id if found else ""


def _who(ended: Exchange) -> tuple[str, str, str, str, str]:
    """The name and the id of the caller, for whom it acts, and the issuer and the id of its token."""
    identity = ended.identity
    caller = (ended.notes and ended.notes.logged_in) or (identity.caller if identity else None)
    issuer, token_id = (identity.issuer, identity.token_id) if identity else ("", "")
    if caller is None:
        return "", "", "", issuer, token_id
    return caller.name, caller.id if ended.access else "", caller.actor.name if caller.actor else "", issuer, token_id


def _decisions(ended: Exchange) -> tuple[AuditedDecision, tuple[AuditedDecision, ...]]:
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


def _with_reason(main: AuditedDecision, ended: Exchange) -> AuditedDecision:
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


def _undecided(ended: Exchange) -> AuditedDecision:
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


def _denial_text(ended: Exchange) -> str:
    """The text of the answer, without what it quotes of the request's headers."""
    text = str(ended.error) if ended.error else ended.notes.failed_login if ended.notes else ""
    for value in ended.headers.values():
        for part in value.decode("latin-1").split(" "):
            if len(part) >= _QUOTED_CHARS_MIN:
                text = text.replace(part, _HIDDEN)
    return hide_secrets(text)


def _reason(ended: Exchange) -> str:
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


def outcome_of(ended: Exchange) -> AuditOutcome:
    """How a request ended, for its audit record and its log line."""
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


def declared(headers: Mapping[bytes, bytes], name: bytes) -> str:
    value = headers.get(name)
    return _plain(value) if value else ""


@functools.lru_cache(_TEXTS_REMEMBERED_MAX)
def _plain(value: bytes) -> str:
    return hide_secrets(value.decode("utf-8", "backslashreplace"))


def hide_secrets(text: str) -> str:
    """The text, bounded, without what looks like a token or a password."""
    return _SECRET.sub(_HIDDEN, text[: 4 * _TEXT_CHARS_MAX])[:_TEXT_CHARS_MAX]
