"""Users, and the grants on securables: grants are stored by the id of the securable, so they survive a rename."""

import uuid
from collections.abc import Sequence
from typing import Final, assert_never

from msgspec.structs import replace

from sandur.catalog.grants import Grants, PermissionsChange, apply_permission_changes
from sandur.catalog.identifiers import parse_full_name, parse_schema_name
from sandur.catalog.privileges import SecurableType
from sandur.catalog.records import Record, Request
from sandur.catalog.storage_registry import credential_named, location_named
from sandur.catalog.users import User, UserResource, apply_resource, primary_email, user_id, user_not_found
from sandur.errors import AlreadyExists, BadRequest, NotFound
from sandur.operations.containers.catalogs import ensure_catalog, load_catalog
from sandur.operations.containers.records import RecordChange
from sandur.operations.index.truth import list_keys
from sandur.operations.lake import Lake
from sandur.operations.unity.registry import load_registry
from sandur.operations.unity.schemas import load_schema
from sandur.operations.unity.securables import load_securable
from sandur.operations.unity.tables import load_table
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

    return await RecordChange(lake, _user_cell(lake, lake.layout.user(wanted.id)), request, "create-user", decide).run()


async def load_user(lake: Lake, id_: str) -> User:
    found = await _user_cell(lake, lake.layout.user(id_)).read()
    return _require_live(found.value if found else None, id_)


async def list_users(lake: Lake) -> Sequence[User]:
    """All users, sorted by email address."""
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

    return await RecordChange(lake, _user_cell(lake, lake.layout.user(id_)), request, "update-user", decide).run()


async def drop_user(lake: Lake, id_: str, request: Request) -> None:
    def decide(found: User | None) -> User:
        return replace(_require_live(found, id_), state="dropped", changed_ms=lake.clock.now_ms())

    await RecordChange(lake, _user_cell(lake, lake.layout.user(id_)), request, "drop-user", decide).run()


def _user_cell(lake: Lake, key: str) -> Cell[User]:
    return Cell(lake.store, key, User, lake.clock)


def _require_live(user: User | None, id_: str) -> User:
    if user is None or user.state == "dropped":
        raise user_not_found(id_)
    return user


class Metastore(Record, frozen=True, kw_only=True):
    """The id of a lake as a metastore."""

    id: str


async def metastore_id(lake: Lake, *, keeps: bool = False) -> str:
    """The id of the lake as a metastore: the stored one, or else one made of its address, which `keeps` stores."""
    cell = Cell(lake.store, lake.layout.metastore(), Metastore, lake.clock)
    made = Metastore(id=str(uuid.uuid5(uuid.NAMESPACE_URL, lake.area)))
    if keeps:
        stored = await cell.update(lambda found: None if found else made, is_idempotent=True)
    else:
        stored = await cell.read()
    return stored.value.id if stored else made.id


async def load_grants(lake: Lake, securable_type: SecurableType, full_name: str) -> Grants | None:
    """The grants on a securable; None if there are no grants, NotFound if the securable does not exist."""
    securable_id = await _id_of(lake, securable_type, full_name)
    # A default catalog that nothing has created has no id.
    found = await _grants_cell(lake, securable_type, securable_id).read() if securable_id else None
    return found.value if found else None


async def update_grants(
    lake: Lake,
    securable_type: SecurableType,
    full_name: str,
    changes: Sequence[PermissionsChange],
    request: Request,
) -> Grants:
    """Change the grants on a securable; NotFound for a principal that is neither a user nor the caller."""
    if securable_type == "catalog":
        await ensure_catalog(lake, full_name)
    elif securable_type == "metastore":
        await metastore_id(lake, keeps=True)
    cell = _grants_cell(lake, securable_type, await _id_of(lake, securable_type, full_name))
    principals = sorted({change.principal for change in changes} - {request.source.principal})
    users = await gather_in_batches(
        principals, lambda email: _user_cell(lake, lake.layout.user(user_id(email))).read(), at_once=READS_AT_ONCE
    )
    live = {email for email, user in zip(principals, users, strict=True) if user and user.value.state == "live"}
    known = live | {request.source.principal}
    change = RecordChange(
        lake, cell, request, "update-permissions", lambda found: apply_permission_changes(found, changes, known)
    )
    return await change.run()


def _grants_cell(lake: Lake, securable_type: SecurableType, securable_id: str) -> Cell[Grants]:
    return Cell(lake.store, lake.layout.grants(securable_type, securable_id), Grants, lake.clock)


async def _id_of(lake: Lake, securable_type: SecurableType, full_name: str) -> str:  # noqa: PLR0911 - one line per type
    match securable_type:
        case "metastore":
            found = await metastore_id(lake)
            if full_name not in {found, "metastore"}:
                raise NotFound(f"Metastore does not exist: {full_name}", subject="metastore")
            return found
        case "catalog":
            return (await load_catalog(lake, full_name)).id
        case "schema":
            return (await load_schema(lake, parse_schema_name(full_name))).schema_id
        case "table":
            return (await load_table(lake, parse_full_name(full_name))).table_id
        case "function" | "volume":
            return (await load_securable(lake, parse_full_name(full_name), securable_type)).uuid
        case "registered_model":
            return (await load_securable(lake, parse_full_name(full_name), "model")).uuid
        case "external_location":
            return location_named(await load_registry(lake), full_name).id
        case "credential":
            return credential_named(await load_registry(lake), full_name).id
        case _:
            assert_never(securable_type)
