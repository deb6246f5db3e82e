"""Users of Unity Catalog's API."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from msgspec.structs import replace

from sandur.catalog.records import Request
from sandur.catalog.security import Authority
from sandur.catalog.users import User, UserResource, apply_resource, primary_email, user_id, user_not_found
from sandur.errors import AlreadyExists, BadRequest
from sandur.operations.access import Security, authorize_metastore
from sandur.operations.containers.records import RecordChange
from sandur.operations.index.truth import list_keys
from sandur.operations.lake import Lake
from sandur.operations.security import SecurityChange, SecurityEdit, without_subject
from sandur.storage.cell import Cell, gather_in_batches

READS_AT_ONCE: Final = 64


async def create_user(lake: Lake, resource: UserResource, request: Request) -> User:
    email = primary_email(resource)
    now_ms = lake.clock.now_ms()
    plain = User(id=user_id(email), email=email, display_name=email, created_ms=now_ms, changed_ms=now_ms)
    wanted = apply_resource(plain, resource)

    def decide(found: User | None) -> User:
        if found is not None and found.state == "live":
            raise AlreadyExists(f"User already exists: {email}", subject="user")
        return wanted

    cell = _user_cell(lake, lake.layout.user(wanted.id))
    return await RecordChange(lake, cell, request, "create-user", decide, authorize=_authorize(lake)).run()


async def load_user(lake: Lake, id_: str) -> User:
    await authorize_metastore(lake)
    found = await _user_cell(lake, lake.layout.user(id_)).read()
    return _require_live(found.value if found else None, id_)


async def list_users(lake: Lake) -> Sequence[User]:
    """All users, sorted by email address."""
    await authorize_metastore(lake)
    keys = [key async for key in list_keys(lake, lake.layout.users_folder())]
    found = await gather_in_batches(keys, lambda key: _user_cell(lake, key).read(), at_once=READS_AT_ONCE)
    users = [held.value for held in found if held and held.value.state == "live"]
    return sorted(users, key=lambda user: user.email)


async def update_user(lake: Lake, id_: str, resource: UserResource, request: Request) -> User:
    if resource.id not in {None, id_}:
        raise BadRequest(f"The body names user {resource.id}, the path user {id_}")

    def decide(found: User | None) -> User:
        before = _require_live(found, id_)
        changed = apply_resource(before, resource)
        return before if changed == before else replace(changed, changed_ms=lake.clock.now_ms())

    cell = _user_cell(lake, lake.layout.user(id_))
    return await RecordChange(lake, cell, request, "update-user", decide, authorize=_authorize(lake)).run()


async def find_users(lake: Lake, emails: Collection[str]) -> Collection[str]:
    """Those of the addresses that belong to a user."""
    keys = [lake.layout.user(user_id(email)) for email in emails]
    found = await gather_in_batches(keys, lambda key: _user_cell(lake, key).read(), at_once=READS_AT_ONCE)
    live = {user.value.email for user in found if user and user.value.state == "live"}
    return live.intersection(emails)


async def drop_user(lake: Lake, id_: str, request: Request) -> None:
    """Drop a user; its grants and memberships go first, so that no crash leaves them behind."""
    await authorize_metastore(lake)
    found = await _user_cell(lake, lake.layout.user(id_)).read()
    email = found.value.email if found else ""

    def forget(authority: Authority) -> SecurityEdit:
        principal = authority.principal_named(email)
        return without_subject(authority, principal.id) if principal else SecurityEdit()

    if (await lake.feature(Security).read()).principal_named(email):
        await SecurityChange(lake, request, "drop-principal", forget).run()

    def decide(found: User | None) -> User:
        return replace(_require_live(found, id_), state="dropped", changed_ms=lake.clock.now_ms())

    cell = _user_cell(lake, lake.layout.user(id_))
    await RecordChange(lake, cell, request, "drop-user", decide, authorize=_authorize(lake)).run()


def _authorize(lake: Lake) -> Callable[[object], Awaitable[None]]:
    """A6: only who manages the metastore changes users."""

    async def authorize(_user: object) -> None:
        await authorize_metastore(lake)

    return authorize


def _user_cell(lake: Lake, key: str) -> Cell[User]:
    return Cell(lake.store, key, User, lake.clock)


def _require_live(user: User | None, id_: str) -> User:
    if user is None or user.state == "dropped":
        raise user_not_found(id_)
    return user
