"""Handlers for grants with every privilege, owners and tags, also those that Unity Catalog's API does not know."""

import msgspec

from sandur.catalog.security.grants import Assignments, GrantChange
from sandur.catalog.security.privileges import SecurableType, parse_securable_type
from sandur.operations.unity import governance, owners
from sandur.operations.unity import grants as operations
from sandur.server.context import Call
from sandur.server.http import NO_CONTENT, NO_STORE, Answer, json_answer


class GrantsUpdate(msgspec.Struct, frozen=True):
    """Changes of the grants on one securable. `fenced` (A5) is for revocations on a table."""

    changes: tuple[GrantChange, ...]
    fenced: bool = False


async def load_grants(call: Call) -> Answer:
    type_, name = _securable(call)
    return _answer(type_, name, await operations.load_grants(call.lake, type_, name))


async def update_grants(call: Call) -> Answer:
    type_, name = _securable(call)
    body = call.body(GrantsUpdate, "grants")
    is_fenced = body.fenced or call.is_set("fenced")
    changed = await operations.update_grants(
        call.lake,
        type_,
        name,
        body.changes,
        call.request(f"fenced={is_fenced}"),
        is_fenced=is_fenced,
    )
    return _answer(type_, name, changed)


async def load_effective_privileges(call: Call) -> Answer:
    """What the caller, or the principal, group or role of the query, may do to a securable, and why."""
    type_, name = _securable(call)
    found = await operations.load_effective_privileges(call.lake, type_, name, call.query.get("principal"))
    return json_answer(msgspec.json.encode({"privileges": found}), NO_STORE)


class NewOwner(msgspec.Struct, frozen=True):
    owner: str


async def change_owner(call: Call) -> Answer:
    type_, name = _securable(call)
    body = call.body(NewOwner, "new owner")
    await owners.change_owner(call.lake, type_, name, body.owner, call.request())
    return NO_CONTENT


class TagChange(msgspec.Struct, frozen=True):
    """Tags to set and to remove, of the securable itself or of one of its columns."""

    set: dict[str, str] = {}
    remove: tuple[str, ...] = ()
    column: str | None = None


async def load_tags(call: Call) -> Answer:
    """The tags of a securable and its columns, with its owner, its comment, and who created and changed it."""
    return json_answer(msgspec.json.encode(await governance.load_governance(call.lake, *_securable(call))), NO_STORE)


async def update_tags(call: Call) -> Answer:
    body = call.body(TagChange, "tags")
    changed = await governance.change_tags(
        call.lake, *_securable(call), call.request(), set_=body.set, remove=body.remove, column=body.column
    )
    return json_answer(msgspec.json.encode(changed), NO_STORE)


def _securable(call: Call) -> tuple[SecurableType, str]:
    return parse_securable_type(call.value("securable_type")), call.value("full_name")


def _answer(type_: SecurableType, name: str, assignments: Assignments) -> Answer:
    grants = [{"principal": subject, "privileges": held} for subject, held in assignments.items()]
    return json_answer(msgspec.json.encode({"securable_type": type_, "full_name": name, "grants": grants}), NO_STORE)
