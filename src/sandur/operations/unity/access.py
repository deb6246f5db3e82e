"""Users and groups of Unity Catalog's API (SCIM): they are the principals and groups of the manifest."""

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from sandur.catalog.records import Request
from sandur.catalog.security.manifest import Authority, Principal
from sandur.catalog.security.principals import check_new_name
from sandur.catalog.security.users import UserResource, apply_resource, primary_email, user_not_found
from sandur.errors import AlreadyExists, BadRequest
from sandur.operations.identity.principals import administrator_check, drop_edit, require_administrator
from sandur.operations.lake import Lake
from sandur.operations.security import SecurityChange, SecurityEdit, current_authority


async def create_user(lake: Lake, resource: UserResource, request: Request) -> Principal:
    email = primary_email(resource)
    now_ms = lake.clock.now_ms()
    plain = Principal(
        id=lake.clock.new_uuid(),
        name=email,
        kind="user",
        display_name=email,
        created_ms=now_ms,
        created_by=request.source.principal,
        changed_ms=now_ms,
    )
    made = apply_resource(plain, replace(resource, id=None), now_ms)

    def decide(authority: Authority) -> SecurityEdit:
        if authority.principal_named(email):
            raise AlreadyExists(f"User already exists: {email}", subject="user")
        check_new_name(email, authority, "user")
        return SecurityEdit(principals={made.id: made}, answer=_without_credentials(made))

    return await _changed(lake, request, "create-user", decide)


async def load_user(lake: Lake, id_: str) -> Principal:
    authority = await current_authority(lake)
    require_administrator(lake, authority)
    return _require_user(authority, id_)


async def find_own_user(lake: Lake, name: str) -> Principal | None:
    """The registered principal of the caller; without authentication, the user of that name. None if not registered."""
    authority = await current_authority(lake)
    if lake.access is None:
        return authority.principal_named(name)
    require_administrator(lake, authority)  # The route needs no more than a valid caller.
    caller = lake.access.caller
    return authority.user_of(caller) if caller.is_external else authority.principal(caller.id)


async def list_users(lake: Lake) -> Sequence[Principal]:
    """All users, sorted by email address."""
    authority = await current_authority(lake)
    require_administrator(lake, authority)
    return [principal for principal in authority.principals() if principal.kind == "user"]


async def update_user(lake: Lake, id_: str, resource: UserResource, request: Request) -> Principal:
    if resource.id not in {None, id_}:
        raise BadRequest(f"The body names user {resource.id}, the path user {id_}")

    def decide(authority: Authority) -> SecurityEdit:
        before = _require_user(authority, id_)
        after = apply_resource(before, resource, lake.clock.now_ms())
        return SecurityEdit(principals={} if after == before else {id_: after}, answer=_without_credentials(after))

    return await _changed(lake, request, "update-user", decide)


async def drop_user(lake: Lake, id_: str, request: Request) -> None:
    """Drop a user with its grants and memberships, by one swap."""

    def decide(authority: Authority) -> SecurityEdit:
        return drop_edit(authority, _require_user(authority, id_))

    await SecurityChange(lake, request, "drop-user", decide, administrator_check(lake)).run()


async def _changed(
    lake: Lake, request: Request, operation: str, decide: Callable[[Authority], SecurityEdit]
) -> Principal:
    answer = await SecurityChange(lake, request, operation, decide, administrator_check(lake)).run()
    return msgspec.json.decode(answer, type=Principal)


def _without_credentials(user: Principal) -> Principal:
    """The user for an answer, which is stored for replays: without the hashes of its API keys."""
    return replace(user, secrets=(), api_keys=())


def _require_user(authority: Authority, id_: str) -> Principal:
    found = authority.principal(id_)
    if found is None or found.kind != "user":
        raise user_not_found(id_)
    return found
