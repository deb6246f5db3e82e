"""The first administrator of a workspace, and the way back for an operator who has the store but no secret."""

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from sandur.catalog.events import Source
from sandur.catalog.records import Request
from sandur.catalog.security.manifest import Authority, Principal, StoredSecret
from sandur.catalog.security.principals import ADMIN, with_tokens_revoked
from sandur.errors import OutcomeUnknown, Unavailable
from sandur.operations.access import Security
from sandur.operations.audit.notes import NO_NOTES, OwnNotebook, current_notebook
from sandur.operations.audit.trail import record_own_change
from sandur.operations.identity.credentials import new_secret, stored_secret
from sandur.operations.lake import Lake
from sandur.operations.security import SecurityChange, SecurityEdit
from sandur.storage.cell import Attempts

_SERVER: Final = "sandur"
"""Who creates the first administrator: the server itself."""


class AdminSecret(NamedTuple):
    """The secret of the principal `admin`, which is now in force. `is_generated`: no setting contains it."""

    secret: str
    is_generated: bool


async def bootstrap(lake: Lake, given_secret: str) -> AdminSecret | None:
    """Make the principal `admin` the owner of a workspace that has no owner yet.

    Of several servers that start at once, one wins; the others get None, as does every later start. The secret is
    returned only when it is known to be in force (A13).
    """
    if (await lake.feature(Security).read()).manifest.owner:
        return None
    secret = given_secret or new_secret()
    stored = await stored_secret(secret, lake.clock)

    def decide(authority: Authority) -> SecurityEdit:
        if authority.manifest.owner:
            return SecurityEdit(answer=False)
        return _administered(lake, authority, stored, _SERVER)

    if await _swap_until_known(lake, "bootstrap", stored, _SERVER, decide):
        return AdminSecret(secret, is_generated=not given_secret)
    return None


async def recover(lake: Lake, user: str) -> str:
    """Give the principal `admin` a new secret, the only one, and end its tokens; it owns the metastore again.

    Works on the store itself, also for a workspace without a manifest. `user` is the operator who does it. Returns the
    secret once it is in force (A13).
    """
    secret = new_secret()
    stored = await stored_secret(secret, lake.clock)
    notebook = OwnNotebook()
    current_notebook.set(notebook)
    await _swap_until_known(lake, "recover", stored, user, lambda found: _administered(lake, found, stored, user))
    await record_own_change(lake, "recoverAdmin", user, (notebook.notes or NO_NOTES).changes)
    return secret


async def _swap_until_known(
    lake: Lake, operation: str, stored: StoredSecret, user: str, decide: Callable[[Authority], SecurityEdit]
) -> bool:
    """Make the change, and return whether it gave `admin` the secret. An unknown outcome is read, then repeated."""

    def decide_again(authority: Authority) -> SecurityEdit:
        return SecurityEdit(answer=True) if _has_secret(authority, stored) else decide(authority)

    request = Request(hash="", source=Source(kind="admin", principal=user, client="sandur"))
    async for _ in Attempts(lake.clock):
        try:
            return msgspec.json.decode(await SecurityChange(lake, request, operation, decide_again).run(), type=bool)
        except OutcomeUnknown:
            continue
    raise Unavailable("the store did not answer whether the administrator was created")


def _has_secret(authority: Authority, stored: StoredSecret) -> bool:
    owner = authority.principal(authority.manifest.owner)
    return owner is not None and stored in owner.secrets


def _administered(lake: Lake, authority: Authority, stored: StoredSecret, user: str) -> SecurityEdit:
    """The edit that makes `admin` the owner, with this as its only secret."""
    now_ms = lake.clock.now_ms()
    found = authority.principal_named(ADMIN)
    if found is None:
        found = Principal(id=lake.clock.new_uuid(), name=ADMIN, created_ms=now_ms, created_by=user)
    ended = with_tokens_revoked(found, now_ms)
    admin = replace(ended, kind="service", disabled=False, secrets=(stored,), api_keys=())
    return SecurityEdit(principals={admin.id: admin}, owner=admin.id, answer=True)
