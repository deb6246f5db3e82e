"""Handlers for groups and roles."""

from typing import Final, Literal

import msgspec

from sandur.operations.identity import groups as operations
from sandur.server.context import Call
from sandur.server.control.principals import answer_with
from sandur.server.http import NO_CONTENT, Answer

_CREATED: Final = 201


class NewGroup(msgspec.Struct, frozen=True):
    name: str
    kind: Literal["group", "role"] = "group"
    members: tuple[str, ...] = ()


class MemberNames(msgspec.Struct, frozen=True):
    members: tuple[str, ...]


class MembersChange(msgspec.Struct, frozen=True):
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


async def create_group(call: Call) -> Answer:
    body = call.body(NewGroup, "group")
    made = await operations.create_group(call.lake, body.name, body.members, call.request(), kind=body.kind)
    return answer_with(made, status=_CREATED)


async def list_groups(call: Call) -> Answer:
    return answer_with({"groups": await operations.list_groups(call.lake)})


async def load_group(call: Call) -> Answer:
    return answer_with(await operations.load_group(call.lake, call.value("name")))


async def set_members(call: Call) -> Answer:
    """Accepts `{"members": […]}` and a bare list, of names."""
    body = call.body_or_list(MemberNames, "members")
    names = body.members if isinstance(body, MemberNames) else body
    changed = await operations.change_group(
        call.lake, call.value("name"), call.request(), members=lambda _before: names
    )
    return answer_with(changed)


async def change_members(call: Call) -> Answer:
    body = call.body(MembersChange, "members")
    name, request = call.value("name"), call.request()
    return answer_with(await operations.change_members(call.lake, name, request, add=body.add, remove=body.remove))


async def drop_group(call: Call) -> Answer:
    await operations.drop_group(call.lake, call.value("name"), call.request())
    return NO_CONTENT
