"""The maintenance of one table: what the plan of a dry run says about it, and the command that runs it."""

from functools import partial
from typing import Final

from sandur.catalog.identifiers import full_name_of
from sandur.catalog.privileges import Needs
from sandur.catalog.records import Request
from sandur.errors import Unsupported
from sandur.operations.table_health import TABLES_MAX, HealthReport, HealthRow, load_table_health
from sandur.server.context import Call
from sandur.server.ui.actions.objects import allowed, identifier_at, object_place
from sandur.server.ui.actions.steps import Action, Change, Field, Preview, Sent
from sandur.server.ui.renderer import lake_for
from sandur.server.ui.texts import bytes_text, time_text


async def _plan(call: Call) -> tuple[HealthReport, tuple[HealthRow, ...]]:
    """What the pipeline measured last, and the part of the plan that is about this table."""
    await allowed(call, "table")
    report = await load_table_health(lake_for(call, Needs("metastore")), worst=TABLES_MAX)
    name = full_name_of(identifier_at(call))
    return report, tuple(row for row in report.rows if row.name == name)


async def _fields(call: Call, sent: Sent) -> tuple[Field, ...]:
    del sent
    await _plan(call)
    return ()


def _work(row: HealthRow) -> Change:
    if row.skipped:
        return Change(row.operation or "nothing", "skipped", row.skipped)
    return Change(row.operation, row.reason, f"rewrites about {bytes_text(row.cost_bytes)}")


async def _preview(call: Call, sent: Sent) -> Preview:
    del sent
    report, rows = await _plan(call)
    name = full_name_of(identifier_at(call))
    if not report.published_ms:
        sentence = "Nothing is measured yet: run the pipeline first, and then this plan shows what the table needs."
    elif not rows:
        sentence = f"{name} needs nothing, as it was measured at {time_text(report.published_ms)}."
    else:
        sentence = f"This is a dry run: what maintenance would do to {name}, as measured at "
        sentence += f"{time_text(report.published_ms)}. Nothing is changed here."
    return Preview(
        sentence=sentence,
        changes=tuple(map(_work, rows)),
        command="sandur run project\nsandur health --worst 20",
        is_possible=False,
    )


async def _run(call: Call, sent: Sent, request: Request) -> str:
    """Maintenance needs Spark, which no server has."""
    del call, sent, request
    raise Unsupported("This server has no Spark: run maintenance by the command that the preview shows")


MAINTAIN: Final = Action(
    title=lambda call: f"Maintenance of {full_name_of(identifier_at(call))}",
    verb="Run",
    done="maintained",
    place=partial(object_place, "table"),
    fields=_fields,
    preview=_preview,
    apply=_run,
)
