"""Handlers for grants with every privilege, also those that Unity Catalog's API does not know."""

from typing import Final

import msgspec

from sandur.catalog.grants import Assignments, GrantChange
from sandur.catalog.privileges import SECURABLE_TYPES, SecurableType
from sandur.errors import BadRequest
from sandur.operations.unity import grants as operations
from sandur.server.context import Call
from sandur.server.http import NO_STORE, Answer, json_answer

_QUOTED_CHARS_MAX: Final = 40


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
    changed = await operations.update_grants(
        call.lake, type_, name, body.changes, call.request(), is_fenced=body.fenced
    )
    return _answer(type_, name, changed)


async def load_effective_privileges(call: Call) -> Answer:
    """What the caller, or the principal, group or role of the query, may do to a securable, and why."""
    type_, name = _securable(call)
    found = await operations.load_effective_privileges(call.lake, type_, name, call.query.get("principal"))
    return json_answer(msgspec.json.encode({"privileges": found}), NO_STORE)


def _securable(call: Call) -> tuple[SecurableType, str]:
    text = call.value("securable_type").lower()
    found = next((known for known in SECURABLE_TYPES if known == text), None)
    if found is None:
        expected = ", ".join(SECURABLE_TYPES)
        raise BadRequest(f"Invalid securable type {text[:_QUOTED_CHARS_MAX]!r}: expected one of {expected}")
    return found, call.value("full_name")


def _answer(type_: SecurableType, name: str, assignments: Assignments) -> Answer:
    grants = [{"principal": subject, "privileges": held} for subject, held in assignments.items()]
    return json_answer(msgspec.json.encode({"securable_type": type_, "full_name": name, "grants": grants}), NO_STORE)
