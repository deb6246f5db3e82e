"""Create, change and drop principals, their client secrets and their API keys.

Every change is one swap of the manifest; the right to make it is checked on the version that is swapped (A11). A secret
is returned only when that swap is known to have happened (A13), and only its hash is stored, also for replays.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from sandur.catalog.records import Request
from sandur.catalog.security.manifest import Authority, Caller, Group, Principal, StoredSecret
from sandur.catalog.security.principals import (
    CredentialInfo,
    PrincipalInfo,
    check_new_name,
    check_pipeline,
    credential_info,
    principal_info,
    principal_not_found,
    require_principal,
    with_api_key,
    with_memberships,
    with_pipeline_mark,
    with_secret,
    with_tokens_revoked,
)
from sandur.catalog.security.tokens import RingKeys
from sandur.errors import Invalid, NotFound
from sandur.operations.access import Security, require
from sandur.operations.identity.credentials import new_api_key, new_secret, stored_api_key, stored_secret
from sandur.operations.lake import Lake
from sandur.operations.security import SecurityChange, SecurityEdit, current_authority, without_subject

OTHERS: Final = "others"
"""The situation of a request about another principal than the caller's own."""

_HIDDEN: Final = NotFound("not found", subject="metastore")  # Every caller sees the metastore: this is never raised.
_SELECTED_MAX: Final = 1_000


class NewCredential(NamedTuple):
    """A credential that was made. `secret` is None for a replay: it was shown to the first request only."""

    info: CredentialInfo
    secret: str | None


def require_administrator(lake: Lake, authority: Authority, *, situation: str = "") -> None:
    """Raise Forbidden unless the request may manage the metastore, as its route declares."""
    require(lake, authority, (authority.metastore,), missing=_HIDDEN, situation=situation)


def administrator_check(lake: Lake) -> Callable[[Authority], Awaitable[None]]:
    """The check of an administrator for a change: on the manifest that is swapped (A11), also before a replay (A9)."""

    async def check(authority: Authority) -> None:
        require_administrator(lake, authority)

    return check


def require_self_or_administrator(lake: Lake, authority: Authority, principal: Principal) -> None:
    """Raise Forbidden unless the principal is the caller's own, or the caller manages the metastore."""
    caller = lake.access.caller if lake.access else None
    is_self = caller is not None and _is_self(caller, authority, principal)
    require_administrator(lake, authority, situation="" if is_self else OTHERS)


def _is_self(caller: Caller, authority: Authority, principal: Principal) -> bool:
    # An engine that acts for a user may use the user's rights, but not make credentials for the user.
    own = authority.user_of(caller) if caller.is_external else authority.principal(caller.id)
    return caller.actor is None and own is not None and own.id == principal.id and authority.accepts(caller)


async def create_principal(
    lake: Lake,
    name: str,
    kind: Literal["user", "service"],
    groups: Sequence[str],
    request: Request,
    *,
    is_pipeline: bool = False,
) -> PrincipalInfo:
    """Create a principal; a service principal gets its first client secret."""
    if is_pipeline:
        check_pipeline(kind)
    secret, now_ms = new_secret(), lake.clock.now_ms()
    stored = await stored_secret(secret, lake.clock) if kind == "service" else None
    made = Principal(
        id=lake.clock.new_uuid(),
        name=name,
        kind=kind,
        is_pipeline=is_pipeline,
        secrets=(stored,) if stored else (),
        created_ms=now_ms,
        created_by=request.source.principal,
        changed_ms=now_ms,
    )
    group_ids = [lake.clock.new_uuid() for _ in groups]

    def decide(authority: Authority) -> SecurityEdit:
        check_new_name(name, authority, kind)
        joined = with_memberships(made.id, groups, authority, group_ids, now_ms)
        return SecurityEdit(principals={made.id: made}, groups=joined, answer=principal_info(made, joined.values()))

    info = msgspec.json.decode(
        await SecurityChange(lake, request, "create-principal", decide, administrator_check(lake)).run(),
        type=PrincipalInfo,
    )
    is_ours = stored is not None and [one.id for one in info.secrets] == [stored.id]
    return replace(info, client_secret=secret if is_ours else None)  # A13


async def list_principals(lake: Lake) -> Sequence[PrincipalInfo]:
    authority = await current_authority(lake)
    require_administrator(lake, authority)
    memberships: dict[str, list[Group]] = {}
    for group in authority.groups.values():
        for member in group.members:
            memberships.setdefault(member, []).append(group)
    return [principal_info(one, memberships.get(one.id, ())) for one in authority.principals()]


async def load_principal(lake: Lake, name: str) -> PrincipalInfo:
    authority = await current_authority(lake)
    principal = _require_reachable(lake, authority, name)
    return principal_info(principal, authority.groups.values())


def _require_reachable(lake: Lake, authority: Authority, name: str) -> Principal:
    """The principal, if it is the caller's own or the caller is an administrator."""
    found = authority.principal_named(name) or authority.principal(name)
    if found is None:
        require_administrator(lake, authority, situation=OTHERS)  # Others do not learn which principals exist.
        raise principal_not_found(name)
    require_self_or_administrator(lake, authority, found)
    return found


async def drop_principal(lake: Lake, name: str, request: Request) -> None:
    """Drop a principal with its grants and memberships, by one swap."""

    def decide(authority: Authority) -> SecurityEdit:
        return drop_edit(authority, require_principal(authority, name))

    await SecurityChange(lake, request, "drop-principal", decide, administrator_check(lake)).run()


def drop_edit(authority: Authority, principal: Principal) -> SecurityEdit:
    """The edit that drops a principal; Invalid for the owner of the metastore."""
    if principal.id == authority.manifest.owner:
        raise Invalid(f"Principal {principal.name} owns the metastore and cannot be dropped")
    return without_subject(authority, principal.id)


async def set_groups(lake: Lake, name: str, groups: Sequence[str], request: Request) -> PrincipalInfo:
    """Make the principal a direct member of exactly these groups; those that do not exist are made."""
    group_ids = [lake.clock.new_uuid() for _ in groups]

    def decide(authority: Authority) -> SecurityEdit:
        principal = require_principal(authority, name)
        changed = with_memberships(principal.id, groups, authority, group_ids, lake.clock.now_ms())
        after = {**authority.groups, **changed}
        return SecurityEdit(groups=changed, answer=principal_info(principal, after.values()))

    change = SecurityChange(lake, request, "set-groups", decide, administrator_check(lake))
    return msgspec.json.decode(await change.run(), type=PrincipalInfo)


async def update_principal(
    lake: Lake, name: str, request: Request, *, is_disabled: bool | None = None, is_pipeline: bool | None = None
) -> PrincipalInfo:
    """Disable or enable a principal, and trust it as a pipeline or no longer; None leaves it as it is.

    Disabling ends all its tokens for good; a later login gets new ones.
    """

    def change(before: Principal) -> Principal:
        now_ms = lake.clock.now_ms()
        if is_pipeline is not None:
            before = with_pipeline_mark(before, now_ms, is_pipeline=is_pipeline)
        if is_disabled is None or before.disabled == is_disabled:
            return before
        ended = with_tokens_revoked(before, now_ms) if is_disabled else before
        return replace(ended, disabled=is_disabled, changed_ms=now_ms)

    return await _change_principal(lake, name, request, "update-principal", change)


async def revoke_tokens(lake: Lake, name: str, request: Request) -> PrincipalInfo:
    """End all tokens of a principal. Its secrets and API keys stay."""
    return await _change_principal(
        lake, name, request, "revoke-tokens", lambda before: with_tokens_revoked(before, lake.clock.now_ms())
    )


async def add_secret(lake: Lake, name: str, request: Request, *, lifetime_seconds: int | None) -> NewCredential:
    """Give a service principal a further client secret. At most two are live: a third ends the oldest."""
    secret = new_secret()
    stored = await stored_secret(secret, lake.clock, expires_ms=_expires_ms(lake, lifetime_seconds))
    return await _add_credential(
        lake, name, request, "add-secret", stored, secret, lambda one: with_secret(one, stored, lake.clock.now_ms())
    )


async def add_api_key(
    lake: Lake, name: str, request: Request, keys: RingKeys, *, lifetime_seconds: int | None
) -> NewCredential:
    """Give a principal an API key, which works as a bearer token until it expires or is removed."""
    key = new_api_key(keys, lake.layout)
    stored = stored_api_key(key, lake.clock, expires_ms=_expires_ms(lake, lifetime_seconds))
    return await _add_credential(
        lake, name, request, "add-api-key", stored, str(key), lambda one: with_api_key(one, stored, lake.clock.now_ms())
    )


async def remove_credential(
    lake: Lake, name: str, kind: Literal["secret", "API key"], credential_id: str, request: Request
) -> PrincipalInfo:
    """Remove a client secret or an API key; it no longer counts for any request that begins after the answer."""

    def change(before: Principal) -> Principal:
        held = before.secrets if kind == "secret" else before.api_keys
        kept = tuple(one for one in held if one.id != credential_id)
        if len(kept) == len(held):
            raise NotFound(f"Principal {before.name}: {kind} does not exist: {credential_id[:100]}", subject=kind)
        now_ms = lake.clock.now_ms()
        if kind == "API key":
            return replace(before, api_keys=kept, changed_ms=now_ms)
        # Tokens that were issued for the removed secret must end, too.
        return replace(with_tokens_revoked(before, now_ms), secrets=kept)

    return await _change_principal(lake, name, request, "remove-credential", change, is_for_self=True)


def _expires_ms(lake: Lake, lifetime_seconds: int | None) -> int:
    if lifetime_seconds is None:
        return 0
    if lifetime_seconds < 1:
        raise Invalid("Invalid lifetime: expected at least one second")
    return lake.clock.now_ms() + lifetime_seconds * 1_000


async def _add_credential(
    lake: Lake,
    name: str,
    request: Request,
    operation: str,
    stored: StoredSecret,
    secret: str,
    change: Callable[[Principal], Principal],
) -> NewCredential:
    async def authorize(authority: Authority) -> None:
        _require_reachable(lake, authority, name)

    def decide(authority: Authority) -> SecurityEdit:
        principal = require_principal(authority, name)
        return SecurityEdit(principals={principal.id: change(principal)}, answer=credential_info(stored))

    answer = await SecurityChange(lake, request, operation, decide, authorize).run()
    info = msgspec.json.decode(answer, type=CredentialInfo)
    return NewCredential(info, secret if info.id == stored.id else None)  # A13


async def _change_principal(
    lake: Lake,
    name: str,
    request: Request,
    operation: str,
    change: Callable[[Principal], Principal],
    *,
    is_for_self: bool = False,
) -> PrincipalInfo:
    async def authorize(authority: Authority) -> None:
        if is_for_self:
            _require_reachable(lake, authority, name)
        else:
            require_administrator(lake, authority)

    def decide(authority: Authority) -> SecurityEdit:
        before = require_principal(authority, name)
        after = change(before)
        changed = {} if after == before else {after.id: after}
        return SecurityEdit(principals=changed, answer=principal_info(after, authority.groups.values()))

    answer = await SecurityChange(lake, request, operation, decide, authorize).run()
    return msgspec.json.decode(answer, type=PrincipalInfo)


async def describe_caller(lake: Lake) -> tuple[Principal | None, Sequence[str]]:
    """The registered principal of the caller, None if it is not registered, and the names of its groups and roles."""
    if lake.access is None:
        return None, ()
    authority = await lake.feature(Security).read()
    require(lake, authority, (authority.metastore,), missing=_HIDDEN)
    caller = lake.access.caller
    subjects = authority.subjects(caller)
    names = sorted(group.name for group in authority.groups.values() if group.id in subjects)
    return authority.user_of(caller) if caller.is_external else authority.principal(caller.id), names
