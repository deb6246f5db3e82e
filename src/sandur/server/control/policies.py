"""Handlers for maintenance: policies, the health of tables, the plan of a run, and what runs did."""

from collections.abc import Sequence
from typing import Any

import msgspec

from sandur.catalog.identifiers import parse_full_name
from sandur.catalog.maintenance.policies import Field, PolicyEdit, from_polaris
from sandur.catalog.security.privileges import SecurableType, parse_securable_type
from sandur.errors import BadRequest
from sandur.operations import policies as operations
from sandur.operations import table_health
from sandur.operations.maintenance import reports, requests
from sandur.server.context import Call, whole_number
from sandur.server.http import NO_STORE, Answer, json_answer


class NewPolicy(msgspec.Struct, frozen=True):
    """A whole policy: its fields in sections and its locks, or a policy in the form of Polaris by `type`."""

    values: dict[str, Any] = {}
    locked: tuple[Field, ...] = ()
    type: str | None = None
    content: dict[str, Any] | None = None


async def load_policy(call: Call) -> Answer:
    """The policy of a scope, and every field of the merged one with its origin."""
    type_, name = _securable(call)
    found = await operations.load_policy(call.lake, type_, name)
    fields = [
        {"field": one.field, "value": one.value, "origin": one.origin, "locked_by": one.locked_by or None}
        for one in found.merged.origins
    ]
    answer = {
        "securable_type": type_,
        "full_name": name,
        "values": found.values,
        "locked": found.locked,
        "effective": fields,
    }
    return json_answer(msgspec.json.encode(answer), NO_STORE)


async def replace_policy(call: Call) -> Answer:
    """Set a whole policy. One in the form of Polaris sets its own section only, as Polaris has one policy per type."""
    body = call.body(NewPolicy, "policy")
    if body.type is None and body.content is None:
        return await _change(call, PolicyEdit(set=body.values, lock=body.locked), replaces=True)
    if body.type is None or body.content is None or body.values or body.locked:
        raise BadRequest("a policy of Polaris needs type and content, and neither values nor locked")
    values, ignored = from_polaris(body.type, body.content)
    return await _change(call, PolicyEdit(set=dict(values)), ignored=ignored)


async def load_table_health(call: Call) -> Answer:
    """What the tables in the worst health need, as the pipeline measured it last."""
    worst = min(whole_number(call.query.get("worst") or "20", "worst", at_least=1), table_health.TABLES_MAX)
    return json_answer(msgspec.json.encode(await table_health.load_table_health(call.lake, worst=worst)), NO_STORE)


async def load_plan(call: Call) -> Answer:
    """What a maintenance run would do now, and what it would skip."""
    within, limit = _within(call)
    found = await reports.load_plan(call.lake, within=within, limit=limit)
    return json_answer(msgspec.json.encode(found), NO_STORE)


async def load_operations(call: Call) -> Answer:
    """What the latest maintenance runs did."""
    within, limit = _within(call)
    found = await reports.load_operations(call.lake, within=within, limit=limit)
    return json_answer(msgspec.json.encode(found), NO_STORE)


async def list_requests(call: Call) -> Answer:
    """The latest request for the maintenance of each table."""
    within, limit = _within(call)
    found = await reports.load_requests(call.lake, within=within, limit=limit)
    return json_answer(msgspec.json.encode(found), NO_STORE)


async def request_maintenance(call: Call) -> Answer:
    """Let the next run maintain a table, before what the policies schedule."""
    identifier = parse_full_name(call.value("full_name"))
    made = await requests.request_maintenance(call.lake, identifier, call.request())
    return json_answer(msgspec.json.encode(reports.request_row(made)), NO_STORE)


def _within(call: Call) -> tuple[str, int]:
    limit = min(whole_number(call.query.get("limit") or "100", "limit", at_least=1), reports.ROWS_MAX)
    return call.query.get("name") or "", limit


async def update_policy(call: Call) -> Answer:
    return await _change(call, call.body(PolicyEdit, "change of a policy"))


async def remove_policy(call: Call) -> Answer:
    return await _change(call, PolicyEdit(), replaces=True)


async def _change(call: Call, edit: PolicyEdit, *, replaces: bool = False, ignored: Sequence[str] = ()) -> Answer:
    type_, name = _securable(call)
    changed = await operations.change_policy(call.lake, type_, name, edit, call.request(), replaces=replaces)
    answer = {"values": changed.values, "locked": changed.locked, "ignored": list(ignored)}
    return json_answer(msgspec.json.encode(answer), NO_STORE)


def _securable(call: Call) -> tuple[SecurableType, str]:
    return parse_securable_type(call.value("securable_type")), call.value("full_name")
