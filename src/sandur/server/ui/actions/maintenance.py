"""The maintenance of one table: the plan of a dry run, then a request that the next run of the pipeline takes up."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from sandur.catalog.identifiers import full_name_of
from sandur.catalog.maintenance.requests import MaintenanceRequest
from sandur.catalog.records import Request
from sandur.operations.maintenance.reports import load_request_plan
from sandur.operations.maintenance.requests import request_cell, request_maintenance
from sandur.server.context import Call
from sandur.server.ui.actions.objects import allowed, object_place
from sandur.server.ui.actions.steps import Action, Change, Field, Preview, Sent
from sandur.server.ui.actions.texts import command_text, typed_name
from sandur.server.ui.links import object_link
from sandur.server.ui.pages.objects import identifier_of
from sandur.server.ui.texts import bytes_text, time_text
from sandur.storage.cell import Versioned, gather_all


async def _fields(call: Call, sent: Sent) -> tuple[Field, ...]:
    """There is nothing to fill in: the preview follows at once, and decides whether the caller may act."""
    del call, sent
    return ()


def _work(row: Mapping[str, Any]) -> Change:
    if reason := row.get("skipped"):
        return Change(row["operation"] or "all operations", "", f"skipped for now: {reason}")
    return Change(row["operation"], row["reason"], f"reads and writes about {bytes_text(row['cost_bytes'])}")


async def _latest(call: Call) -> tuple[str, Versioned[MaintenanceRequest] | None]:
    """The uuid of the table, which the caller may change, and its latest request."""
    uuid = (await allowed(call, "table")).uuid
    return uuid, await request_cell(call.lake, uuid).read()


async def _preview(call: Call, sent: Sent) -> Preview:
    del sent
    identifier = identifier_of(call)
    (uuid, held), plan = await gather_all((_latest(call), load_request_plan(call.lake, identifier)))
    rows = [row for row in plan.rows if row["uuid"] == uuid]
    name, measured = full_name_of(identifier), f"as it was measured at {time_text(plan.published_ms)}"
    if held and held.value.is_open:
        sentence = f"The maintenance of {name} is already {held.value.state}. Nothing has to be requested again."
    elif not plan.published_ms:
        sentence = f"{name} was not measured yet. The next run of the pipeline measures it, then does what it needs."
    elif not rows:
        sentence = f"{name} needs nothing, {measured}. The next run measures it again, then does what it needs."
    else:
        sentence = f"This is a dry run, {measured}. The next run of the pipeline does this first, before other tables."
    return Preview(
        sentence=sentence,
        changes=tuple(map(_work, rows)),
        command=command_text("maintain", typed_name(identifier), "--request"),
        is_possible=not (held and held.value.is_open),
    )


async def _request(call: Call, sent: Sent, request: Request) -> str:
    del sent
    await request_maintenance(call.lake, identifier_of(call), request)
    return object_link(identifier_of(call), "table", "health")


MAINTAIN: Final = Action(
    title=lambda call: f"Maintenance of {full_name_of(identifier_of(call))}",
    verb="Request maintenance",
    done="requested",
    place=partial(object_place, "table"),
    fields=_fields,
    preview=_preview,
    apply=_request,
)
