"""Create, change and drop groups and roles. Their members are principals, groups and roles."""

from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from sandur.catalog.records import Request
from sandur.catalog.security.manifest import EVERYONE, Authority, Group
from sandur.catalog.security.principals import (
    GROUPS_MAX,
    MEMBERS_MAX,
    GroupInfo,
    check_new_name,
    group_info,
    require_group,
    subject_named,
)
from sandur.errors import Invalid, NotFound
from sandur.operations.identity.principals import administrator_check, require_administrator
from sandur.operations.lake import Lake
from sandur.operations.security import SecurityChange, SecurityEdit, current_authority, without_subject

Kind = Literal["group", "role"]
MembersBy = Literal["name", "id"]
"""How a request names the members of a group: our own API by name, SCIM by id."""

_LEVELS_MAX: Final = 16


async def create_group(
    lake: Lake,
    name: str,
    members: Sequence[str],
    request: Request,
    *,
    kind: Kind = "group",
    members_by: MembersBy = "name",
    external_id: str | None = None,
) -> GroupInfo:
    now_ms = lake.clock.now_ms()
    plain = Group(
        id=lake.clock.new_uuid(), name=name, kind=kind, external_id=external_id, created_ms=now_ms, changed_ms=now_ms
    )

    def decide(authority: Authority) -> SecurityEdit:
        check_new_name(name, authority, kind)
        if len(authority.groups) >= GROUPS_MAX:
            raise Invalid(f"Too many groups: at most {GROUPS_MAX} are allowed")
        made = replace(plain, members=_member_ids(authority, members, members_by))
        return SecurityEdit(groups={made.id: made}, answer=group_info(made, authority))

    return await _changed(lake, request, "create-group", decide)


async def list_groups(lake: Lake) -> Sequence[GroupInfo]:
    """All groups and roles, sorted by name."""
    authority = await current_authority(lake)
    require_administrator(lake, authority)
    groups = sorted(authority.groups.values(), key=lambda group: group.name)
    return [group_info(group, authority) for group in groups]


async def load_group(lake: Lake, name: str) -> GroupInfo:
    """The group or role with that name or id."""
    authority = await current_authority(lake)
    require_administrator(lake, authority)
    return group_info(require_group(authority, name), authority)


Members = Callable[[Sequence[str]], Sequence[str]]
"""From the members of a group to its new members."""


async def change_group(
    lake: Lake,
    name: str,
    request: Request,
    *,
    members: Members | None = None,
    members_by: MembersBy = "name",
    new_name: str | None = None,
    external_id: str | None = None,
) -> GroupInfo:
    """Change the members, the name and the external id of a group or role; None leaves one as it is."""

    def decide(authority: Authority) -> SecurityEdit:
        before = require_group(authority, name)
        after = before
        if members is not None:
            listed = members(before.members)
            after = replace(after, members=_member_ids(authority, listed, members_by, inside=before.id))
        if new_name not in {None, before.name}:
            check_new_name(new_name or "", authority, before.kind)
            after = replace(after, name=new_name or "")
        if external_id is not None:
            after = replace(after, external_id=external_id)
        if after == before:
            return SecurityEdit(answer=group_info(before, authority))
        after = replace(after, changed_ms=lake.clock.now_ms())
        return SecurityEdit(groups={after.id: after}, answer=group_info(after, authority))

    return await _changed(lake, request, "change-group", decide)


async def change_members(
    lake: Lake, name: str, request: Request, *, add: Sequence[str], remove: Sequence[str]
) -> GroupInfo:
    """Add and remove members by name; members that others change at the same time stay."""

    def decide(authority: Authority) -> SecurityEdit:
        before = require_group(authority, name)
        removed = set(_member_ids(authority, remove, "name"))
        kept = [one for one in before.members if one not in removed]
        members = tuple(dict.fromkeys((*kept, *_member_ids(authority, add, "name", inside=before.id))))
        if len(members) > MEMBERS_MAX:
            raise Invalid(f"Too many members: at most {MEMBERS_MAX} are allowed")
        if members == before.members:
            return SecurityEdit(answer=group_info(before, authority))
        after = replace(before, members=members, changed_ms=lake.clock.now_ms())
        return SecurityEdit(groups={after.id: after}, answer=group_info(after, authority))

    return await _changed(lake, request, "change-group", decide)


async def drop_group(lake: Lake, name: str, request: Request) -> None:
    """Drop a group or role with its grants and memberships, by one swap."""

    def decide(authority: Authority) -> SecurityEdit:
        group = require_group(authority, name)
        if group.id == authority.manifest.owner:
            raise Invalid(f"Group {group.name} owns the metastore and cannot be dropped")
        return without_subject(authority, group.id)

    await SecurityChange(lake, request, "drop-group", decide, administrator_check(lake)).run()


async def _changed(
    lake: Lake, request: Request, operation: str, decide: Callable[[Authority], SecurityEdit]
) -> GroupInfo:
    answer = await SecurityChange(lake, request, operation, decide, administrator_check(lake)).run()
    return msgspec.json.decode(answer, type=GroupInfo)


def _member_ids(authority: Authority, members: Sequence[str], by: MembersBy, *, inside: str = "") -> tuple[str, ...]:
    """The ids of the members; NotFound for one that does not exist, Invalid for a group inside itself."""
    if len(members) > MEMBERS_MAX:
        raise Invalid(f"Too many members: at most {MEMBERS_MAX} are allowed")
    ids: dict[str, None] = {}
    for member in members:
        id_ = subject_named(member, authority) if by == "name" else _known_id(member, authority)
        if id_ is None or id_ == EVERYONE:
            raise NotFound(f"Member does not exist: {member[:255]}", subject="principal")
        ids[id_] = None
    if inside and _reaches(inside, ids, authority):
        raise Invalid("A group cannot be a member of itself, not even through other groups")
    return tuple(ids)


def _known_id(id_: str, authority: Authority) -> str | None:
    return id_ if authority.principal(id_) or id_ in authority.groups else None


def _reaches(group_id: str, members: dict[str, None], authority: Authority) -> bool:
    level = set(members)
    for _ in range(_LEVELS_MAX):
        if group_id in level:
            return True
        level = {one for id_ in level if (group := authority.groups.get(id_)) for one in group.members}
    return False
