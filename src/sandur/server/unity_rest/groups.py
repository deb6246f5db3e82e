"""Handlers for groups (SCIM). Roles are managed by Sandur's own API."""

import functools
from collections.abc import Sequence

from sandur.catalog.security.principals import GroupInfo, group_not_found
from sandur.catalog.security.users import GroupResource, Member, Meta, filter_group_infos, patched_members
from sandur.errors import BadRequest
from sandur.operations.identity import groups as operations
from sandur.server.context import Call
from sandur.server.http import Answer, json_answer
from sandur.server.unity_rest.access import Patch, answer_page, scim_time
from sandur.server.unity_rest.bodies import answer_with


async def create_group(call: Call) -> Answer:
    body = call.body(GroupResource, "group")
    if not body.display_name:
        raise BadRequest("Invalid group: it needs a displayName")
    made = await operations.create_group(
        call.lake,
        body.display_name,
        _ids(body),
        call.request(),
        members_by="id",
        external_id=body.external_id,
    )
    return answer_with(_resource(made))


async def list_groups(call: Call) -> Answer:
    groups = [group for group in await operations.list_groups(call.lake) if group.kind == "group"]
    return answer_page(call, filter_group_infos(groups, call.query.get("filter")), _resource)


async def load_group(call: Call) -> Answer:
    return answer_with(_resource(await _load(call)))


async def update_group(call: Call) -> Answer:
    body = call.body(GroupResource, "group")
    await _load(call)
    changed = await operations.change_group(
        call.lake,
        call.value("id"),
        call.request(),
        members=None if body.members is None else lambda _before: _ids(body),
        members_by="id",
        new_name=body.display_name,
        external_id=body.external_id,
    )
    return answer_with(_resource(changed))


async def patch_group(call: Call) -> Answer:
    patch = call.body(Patch, "patch").operations
    await _load(call)
    changed = await operations.change_group(
        call.lake,
        call.value("id"),
        call.request(),
        members=functools.partial(patched_members, patch),
        members_by="id",
    )
    return answer_with(_resource(changed))


async def delete_group(call: Call) -> Answer:
    await _load(call)
    await operations.drop_group(call.lake, call.value("id"), call.request())
    return json_answer(b"{}")


async def _load(call: Call) -> GroupInfo:
    """The group of the path, by its id; a role is not a group of this API."""
    id_ = call.value("id")
    found = await operations.load_group(call.lake, id_)
    if found.id != id_ or found.kind != "group":
        raise group_not_found(id_)
    return found


def _ids(body: GroupResource) -> Sequence[str]:
    return [member.value for member in body.members or ()]


def _resource(group: GroupInfo) -> GroupResource:
    return GroupResource(
        id=group.id,
        display_name=group.name,
        external_id=group.external_id,
        members=tuple(Member(id_) for id_ in group.member_ids),
        meta=Meta(scim_time(group.created_at), scim_time(group.changed_at), "Group"),
    )
