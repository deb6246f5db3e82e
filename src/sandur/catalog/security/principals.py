"""Principals and groups: valid names, their descriptions for administrators, and the changes that one request makes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from sandur.catalog.security.manifest import (
    EVERYONE,
    Authority,
    Group,
    Principal,
    StoredSecret,
    folded,
)
from sandur.errors import AlreadyExists, Invalid, NotFound

ADMIN: Final = "admin"
"""The name of the first administrator."""

SECRETS_MAX: Final = 2
API_KEYS_MAX: Final = 10
GROUPS_MAX: Final = 10_000
MEMBERS_MAX: Final = 100_000

_SERVICE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}\Z")
_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f/:,\"\\]([^\x00-\x1f\x7f/:,\"\\]{0,253}[^\s\x00-\x1f\x7f/:,\"\\])?\Z")
_RESERVED: Final = frozenset({EVERYONE, "anonymous", "token"})


class CredentialInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A client secret or an API key without its secret part."""

    id: str
    created_at: int
    expires_at: int | None = None


class PrincipalInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A principal for administrators. Times are milliseconds since 1970. `pipeline` is None in older answers."""

    id: str
    name: str
    kind: str
    disabled: bool
    pipeline: bool | None = None
    client_id: str | None = None
    client_secret: str | None = None
    groups: tuple[str, ...]
    secrets: tuple[CredentialInfo, ...]
    api_keys: tuple[CredentialInfo, ...]
    created_at: int
    created_by: str


class GroupInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A group or role for administrators, with the names of its direct members."""

    id: str
    name: str
    kind: str
    members: tuple[str, ...] = ()
    member_ids: tuple[str, ...] = ()
    external_id: str | None = None
    created_at: int = 0
    changed_at: int = 0


def credential_info(stored: StoredSecret) -> CredentialInfo:
    return CredentialInfo(id=stored.id, created_at=stored.created_ms, expires_at=stored.expires_ms or None)


def principal_info(principal: Principal, groups: Iterable[Group]) -> PrincipalInfo:
    is_service = principal.kind == "service"
    return PrincipalInfo(
        id=principal.id,
        name=principal.name,
        kind=principal.kind,
        disabled=principal.disabled,
        pipeline=principal.is_pipeline,
        client_id=principal.name if is_service else None,
        groups=tuple(sorted(group.name for group in groups if principal.id in group.members)),
        secrets=tuple(map(credential_info, principal.secrets)),
        api_keys=tuple(map(credential_info, principal.api_keys)),
        created_at=principal.created_ms,
        created_by=principal.created_by,
    )


def group_info(group: Group, authority: Authority) -> GroupInfo:
    names = [name_of_subject(member, authority) for member in group.members]
    return GroupInfo(
        id=group.id,
        name=group.name,
        kind=group.kind,
        members=tuple(sorted(filter(None, names))),
        member_ids=group.members,
        external_id=group.external_id,
        created_at=group.created_ms,
        changed_at=group.changed_ms,
    )


def name_of_subject(subject: str, authority: Authority) -> str | None:
    """The name of a principal, group or role, or `everyone`; None for an id that no longer exists."""
    found = authority.principal(subject) or authority.groups.get(subject)
    return found.name if found else (EVERYONE if subject == EVERYONE else None)


def subject_named(name: str, authority: Authority) -> str | None:
    """The id of the principal, group or role with that name, or of everyone; None if the name is unknown."""
    found = authority.principal_named(name) or authority.group_named(name)
    return found.id if found else (EVERYONE if folded(name) == EVERYONE else None)


def principal_not_found(name: str) -> NotFound:
    return NotFound(f"Principal does not exist: {name[:255]}", subject="principal")


def group_not_found(name: str) -> NotFound:
    return NotFound(f"Group does not exist: {name[:255]}", subject="group")


def require_principal(authority: Authority, name: str) -> Principal:
    """The principal with that name or id; raises NotFound."""
    found = authority.principal_named(name) or authority.principal(name)
    if found is None:
        raise principal_not_found(name)
    return found


def require_group(authority: Authority, name: str) -> Group:
    """The group or role with that name or id; raises NotFound."""
    found = authority.group_named(name) or authority.groups.get(name)
    if found is None:
        raise group_not_found(name)
    return found


def check_new_name(name: str, authority: Authority, kind: Literal["user", "service", "group", "role"]) -> None:
    """Raise Invalid for a name that the kind does not allow, AlreadyExists for one that is taken, in any case."""
    pattern = _SERVICE_NAME if kind == "service" else _NAME
    if not pattern.match(name) or folded(name) in _RESERVED:
        allowed = (
            "up to 128 letters, digits and . _ @ + -" if kind == "service" else "up to 255 characters without / : ,"
        )
        raise Invalid(f"Invalid name {name[:255]!r}: expected {allowed}, and none of {', '.join(sorted(_RESERVED))}")
    if authority.principal_named(name):
        raise AlreadyExists(f"Principal already exists: {name}", subject="principal")
    if authority.group_named(name):
        raise AlreadyExists(f"Group already exists: {name}", subject="group")


def with_secret(principal: Principal, stored: StoredSecret, now_ms: int) -> Principal:
    """The principal with a new client secret. Of two that are live, the older one ends."""
    if principal.kind != "service":
        raise Invalid(f"{principal.name} is a user: users log in at their identity provider and have no client secret")
    live = [one for one in principal.secrets if not one.expires_ms or one.expires_ms > now_ms]
    return replace(principal, secrets=(*live[-(SECRETS_MAX - 1) :], stored), changed_ms=now_ms)


def with_api_key(principal: Principal, stored: StoredSecret, now_ms: int) -> Principal:
    live = [one for one in principal.api_keys if not one.expires_ms or one.expires_ms > now_ms]
    if len(live) >= API_KEYS_MAX:
        raise Invalid(
            f"Principal {principal.name} has {len(live)} API keys, the most that are allowed: revoke one first"
        )
    return replace(principal, api_keys=(*live, stored), changed_ms=now_ms)


def with_pipeline_mark(principal: Principal, now_ms: int, *, is_pipeline: bool) -> Principal:
    """The principal, marked as a pipeline or no longer marked; Invalid for a user.

    Tokens that were issued while it was marked do not count without the mark.
    """
    if is_pipeline:
        check_pipeline(principal.kind)
    if principal.is_pipeline == is_pipeline:
        return principal
    return replace(principal, is_pipeline=is_pipeline, changed_ms=now_ms)


def check_pipeline(kind: str) -> None:
    """Raise Invalid unless a principal of that kind can be a pipeline."""
    if kind != "service":
        raise Invalid("Only a service principal can be a pipeline: a user acts in person")


def with_tokens_revoked(principal: Principal, now_ms: int) -> Principal:
    """The principal whose tokens, all issued before now, no longer count."""
    return replace(principal, token_epoch=principal.token_epoch + 1, revoked_ms=now_ms, changed_ms=now_ms)


def without_member(member: str, authority: Authority, now_ms: int) -> Mapping[str, Group]:
    """The groups that contain the member, without it."""
    return {
        group.id: replace(group, members=tuple(one for one in group.members if one != member), changed_ms=now_ms)
        for group in authority.groups.values()
        if member in group.members
    }


def with_memberships(
    member: str, names: Sequence[str], authority: Authority, new_ids: Sequence[str], now_ms: int
) -> Mapping[str, Group]:
    """The groups that change so that the member is directly in exactly the named ones.

    A group that does not exist is made, with the id of its place in `new_ids`.
    """
    wanted: dict[str, Group] = {}
    for name, new_id in zip(names, new_ids, strict=True):
        found = authority.group_named(name)
        if found is None:
            check_new_name(name, authority, "group")
            found = Group(id=new_id, name=name, created_ms=now_ms, changed_ms=now_ms)
        wanted.setdefault(folded(name), found)
    if len(authority.groups) + len(wanted) > GROUPS_MAX:
        raise Invalid(f"Too many groups: at most {GROUPS_MAX} are allowed")
    kept = {group.id for group in wanted.values()}
    left = {id_: group for id_, group in without_member(member, authority, now_ms).items() if id_ not in kept}
    joined = {
        group.id: replace(group, members=(*group.members, member), changed_ms=now_ms)
        for group in wanted.values()
        if member not in group.members
    }
    return {**left, **joined}
