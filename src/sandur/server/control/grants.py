"""Handlers for grants with every privilege, also those that Unity Catalog's API does not know."""

import msgspec

from sandur.catalog.grants import Assignments, GrantChange
from sandur.catalog.privileges import SecurableType, parse_securable_type
from sandur.operations.unity import grants as operations
from sandur.operations.unity import owners
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


def _securable(call: Call) -> tuple[SecurableType, str]:
    return parse_securable_type(call.value("securable_type")), call.value("full_name")


def _answer(type_: SecurableType, name: str, assignments: Assignments) -> Answer:
    grants = [{"principal": subject, "privileges": held} for subject, held in assignments.items()]
    return json_answer(msgspec.json.encode({"securable_type": type_, "full_name": name, "grants": grants}), NO_STORE)
