"""Users and grants that releases without a manifest stored one by one: the first manifest takes them over."""

from collections.abc import Sequence
from typing import Final

import msgspec

from sandur.catalog.record_versions import Record
from sandur.catalog.security.manifest import (
    ANONYMOUS,
    ObjectGrants,
    Principal,
    SecuritySegment,
    grants_shard,
    principals_shard,
)
from sandur.catalog.security.privileges import SECURABLE_TYPES, SecurableType
from sandur.catalog.security.users import User, user_id
from sandur.operations.index.truth import list_keys
from sandur.operations.lake import Lake
from sandur.storage.cell import gather_all, gather_in_batches
from sandur.storage.layout import Layout

_READS_AT_ONCE: Final = 64


class _Grants(Record, frozen=True, kw_only=True):
    """The privileges on one securable by the name of the principal."""

    assignments: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


async def imported_segments(lake: Lake) -> dict[str, SecuritySegment]:
    """The content of the first manifest, by shard: nothing for a store that no such release used."""
    users, granted = await gather_all((_read_users(lake), _read_grants(lake)))
    principals = {user.id: _principal(user) for user in users}
    known = {user.email: user.id for user in users} | {ANONYMOUS.name: ANONYMOUS.id}
    segments: dict[str, SecuritySegment] = {}
    for type_, object_id, stored in granted:
        for name in stored.assignments.keys() - known.keys():
            known[name] = user_id(name)
            principals[known[name]] = Principal(id=known[name], name=name, kind="user")
        subjects = {known[name]: privileges for name, privileges in stored.assignments.items()}
        shard = grants_shard(object_id)
        held = segments.setdefault(shard, SecuritySegment(grants={}))
        held.grants[object_id] = ObjectGrants(type=type_, subjects=subjects)
    for principal in principals.values():
        shard = principals_shard(principal.id)
        segments.setdefault(shard, SecuritySegment(principals={})).principals[principal.id] = principal
    return segments


def _principal(user: User) -> Principal:
    return Principal(
        id=user.id,
        name=user.email,
        kind="user",
        disabled=not user.active,
        display_name=user.display_name,
        external_id=user.external_id,
        photo=user.photo,
        created_ms=user.created_ms,
        changed_ms=user.changed_ms,
    )


async def _read_users(lake: Lake) -> Sequence[User]:
    keys = [key async for key in list_keys(lake, lake.layout.users_folder())]
    cells = [lake.uncached(key, User) for key in keys]
    found = await gather_in_batches(cells, lambda cell: cell.read(), at_once=_READS_AT_ONCE)
    return [held.value for held in found if held and held.value.state == "live"]


async def _read_grants(lake: Lake) -> Sequence[tuple[SecurableType, str, _Grants]]:
    keys = [key async for key in list_keys(lake, lake.layout.grants_folder())]
    cells = [lake.uncached(key, _Grants) for key in keys]
    found = await gather_in_batches(cells, lambda cell: cell.read(), at_once=_READS_AT_ONCE)
    named = [(_securable(lake.layout, key), held) for key, held in zip(keys, found, strict=True)]
    return [(*place, held.value) for place, held in named if place and held and held.value.assignments]


def _securable(layout: Layout, key: str) -> tuple[SecurableType, str] | None:
    text, object_id = layout.parse_grants(key)
    type_ = next((known for known in SECURABLE_TYPES if known == text), None)
    return (type_, object_id) if type_ else None
