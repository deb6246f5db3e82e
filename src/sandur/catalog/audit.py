"""Audit records: what the trail keeps about one request, which records matter most, and what a search selects."""

import functools
from collections.abc import Hashable, Mapping
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from sandur.catalog.credentials.profiles import ClientAccess
from sandur.catalog.security.manifest import Decision, Group, ObjectGrants, Principal
from sandur.catalog.security.privileges import Rule, Verdict
from sandur.catalog.security.restrictions import TableRestrictions

AuditKind = Literal["read", "change", "credential", "login", "security", "denial", "unauthenticated", "loss"]
"""`security`: a change of principals, groups, grants or owners. `login`: a token was requested. `loss`: records of this
process are missing."""

AuditDecision = Literal["allowed", "denied", "none"]
AuditOutcome = Literal["done", "refused", "unknown", "failed"]

PRIORITIES: Final[Mapping[AuditKind, int]] = {
    "read": 0,
    "change": 1,
    "credential": 1,
    "login": 1,
    "security": 2,
    "denial": 2,
    "unauthenticated": 2,
    "loss": 2,
}
"""When there is no room for a new record, a record of a lower priority gives way."""

PRIORITY_COUNT: Final = 3
LEVELS: Final[Mapping[str, int]] = {"off": PRIORITY_COUNT, "changes": 1, "all": 0}
"""The lowest priority that each value of the setting `audit` records."""


class AuditedDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One decision about one securable. `reason` is the true one, also where the answer hides it."""

    securable_type: str
    securable_name: str
    securable_id: str
    privilege: str
    decision: AuditDecision
    reason: str = ""
    detail: str = ""
    manifest_number: int = 0


ChangedObject = Literal["principal", "group", "grants", "restrictions", "owner", "subscription"]


class AuditedChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of who may do what. `before` of null: it was created; `after` of null: it was removed."""

    object: ChangedObject
    id: str
    name: str = ""
    before: msgspec.Raw = msgspec.Raw(b"null")
    after: msgspec.Raw = msgspec.Raw(b"null")


class AuditedCredentials(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Access to storage that was given out, without the credentials. `static` keys open the whole bucket."""

    prefixes: tuple[str, ...]
    mode: Literal["read", "write"]
    access: ClientAccess | Literal[""] = ""
    expires_ms: int = 0


class AuditRecord(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One request as the trail keeps it; empty fields are left out.

    What begins with `declared_` was chosen by the client and proves nothing. `sampled` is the fraction of such requests
    that is recorded. `lost` counts missing records by kind. The id is added when the record is written.
    """

    time_ms: int
    kind: AuditKind
    operation: str
    decision: AuditDecision
    status: int
    outcome: AuditOutcome
    request_id: str = ""
    tenant: str = ""
    workspace: str = ""
    principal: str = ""
    principal_id: str = ""
    actor: str = ""
    issuer: str = ""
    token_id: str = ""
    peer: str = ""
    protocol: str = ""
    securable_type: str = ""
    securable_name: str = ""
    securable_id: str = ""
    privilege: str = ""
    reason: str = ""
    detail: str = ""
    manifest_number: int = 0
    is_replay: bool = False
    idempotency_key_hash: str = ""
    declared_agent: str = ""
    declared_trace_id: str = ""
    declared_run_id: str = ""
    declared_task_id: str = ""
    further_decisions: tuple[AuditedDecision, ...] = ()
    changes: tuple[AuditedChange, ...] = ()
    credentials: AuditedCredentials | None = None
    sampled: float | None = None
    trace_id: str = ""
    lost: dict[str, int] = {}
    id: str = ""


class UnbuiltRead(Protocol):
    """A read whose record is built when it is written.

    Reads with the same key have the same record, except for these fields.
    """

    @property
    def time_ms(self) -> int: ...

    @property
    def request_id(self) -> str: ...

    @property
    def declared_trace_id(self) -> str: ...

    @property
    def kind(self) -> Literal["read"]: ...

    @property
    def tenant(self) -> str: ...

    @property
    def workspace(self) -> str: ...

    def key(self) -> Hashable:
        """Valid as long as the read waits."""

    def build(self) -> AuditRecord: ...


WaitingRecord = AuditRecord | UnbuiltRead

_encode: Final = msgspec.json.Encoder().encode
_NO_TIME: Final = b'{"time_ms":0,'


class LineEncoder:
    """Encodes the records of one batch. What unbuilt reads share is built and encoded once."""

    def __init__(self, batch_id: str) -> None:
        self._batch_id = batch_id.encode()
        self._shared: dict[Hashable, bytes] = {}

    def line(self, place: int, record: WaitingRecord) -> bytes:
        """A record as one line of JSON. Its id is that of the batch and its place."""
        if isinstance(record, AuditRecord):
            return b'{"id":"%s-%05d",%s\n' % (self._batch_id, place, _encode(record)[1:])
        key = record.key()
        shared = self._shared.get(key)
        if shared is None:
            built = msgspec.structs.replace(record.build(), time_ms=0, request_id="", declared_trace_id="")
            shared = self._shared[key] = _encode(built).removeprefix(_NO_TIME)
        if record.declared_trace_id:
            shared = b'"declared_trace_id":%s,%s' % (_encode(record.declared_trace_id), shared)
        own = (self._batch_id, place, record.time_ms, _encode(record.request_id))
        return b'{"id":"%s-%05d","time_ms":%d,"request_id":%s,%s\n' % (*own, shared)


def weight_of(record: WaitingRecord) -> int:
    """How much of the buffer a record takes: one that carries many decisions counts for as many records."""
    return 1 + len(record.further_decisions) + len(record.changes) if isinstance(record, AuditRecord) else 1


def audited_decision(decision: Decision) -> AuditedDecision:
    """A decision as the trail keeps it."""
    link, rule, verdict, number, catalog, _ = decision
    return AuditedDecision(
        securable_type=link.type,
        securable_name=f"{catalog}.{link.name}" if catalog else link.name,
        securable_id=link.id,
        privilege=privilege_text(rule),
        decision="allowed" if verdict.outcome == "allowed" else "denied",
        reason="" if verdict.outcome == "allowed" else verdict.outcome,
        detail=_detail(verdict),
        manifest_number=number,
    )


@functools.cache
def privilege_text(rule: Rule) -> str:
    """What a rule needs, in words. There are few rules, and every request has one."""
    return "visibility" if rule.is_visibility else str(rule)


def _detail(verdict: Verdict) -> str:
    if verdict.outcome == "forbidden":
        return f"needs {verdict.missing}"
    if verdict.outcome == "hidden" and verdict.link:
        return f"no right on {verdict.link.type} {verdict.link.name}, or on anything inside it"
    return ""


class _PlainSecret(msgspec.Struct, frozen=True, omit_defaults=True):
    """A secret or key without its hash."""

    id: str
    created_ms: int
    expires_ms: int = 0


def principal_json(principal: Principal | None) -> msgspec.Raw:
    """A principal for the trail: everything but the hashes of its secrets."""
    if principal is None:
        return msgspec.Raw(b"null")
    fields = {name: getattr(principal, name) for name in principal.__struct_fields__}
    for name in ("secrets", "api_keys"):
        fields[name] = [_PlainSecret(one.id, one.created_ms, one.expires_ms) for one in fields[name]]
    return msgspec.Raw(msgspec.json.encode({name: value for name, value in fields.items() if value}))


def record_json(value: Group | ObjectGrants | TableRestrictions | str | None) -> msgspec.Raw:
    """A group, the grants or restrictions of an object, or an owner, for the trail."""
    return msgspec.Raw(msgspec.json.encode(value))


class AuditFilter(NamedTuple):
    """What a search selects; an empty text selects everything. Times are inclusive."""

    since_ms: int
    until_ms: int
    principal: str = ""
    operation: str = ""
    securable: str = ""
    decision: str = ""
    kind: str = ""
    request_id: str = ""

    def matches(self, record: AuditRecord) -> bool:
        return (
            self.since_ms <= record.time_ms <= self.until_ms
            and self.principal in {"", record.principal, record.principal_id}
            and self.operation in {"", record.operation}
            and self.decision in {"", record.decision}
            and self.kind in {"", record.kind}
            and self.request_id in {"", record.request_id}
            and (not self.securable or _is_about(record, self.securable))
        )


def _is_about(record: AuditRecord, securable: str) -> bool:
    """Whether a decision is about this securable, by name or id, or about something inside it."""
    named = [(record.securable_name, record.securable_id)]
    named += [(one.securable_name, one.securable_id) for one in record.further_decisions]
    return any(securable in {name, id_} or name.startswith(f"{securable}.") for name, id_ in named)
