"""The action on Delta tables: restore an earlier version, as a new version."""

from functools import partial
from typing import Final

from sandur.catalog.identifiers import full_name_of
from sandur.catalog.records import Request
from sandur.catalog.timeline import HistoryRow
from sandur.errors import BadRequest
from sandur.operations.delta.restore import preview_restore, restore_table
from sandur.operations.delta.tables import load_delta_table
from sandur.operations.delta.versions import delta_history
from sandur.server.context import Call, whole_number
from sandur.server.ui.actions.objects import object_place
from sandur.server.ui.actions.steps import Action, Change, Field, Preview, Sent
from sandur.server.ui.actions.texts import command_text, typed_name
from sandur.server.ui.links import object_link
from sandur.server.ui.pages.objects import identifier_of
from sandur.server.ui.texts import bytes_text, count_text, time_text

_VERSIONS_SHOWN: Final = 100


async def _fields(call: Call, sent: Sent) -> tuple[Field, ...]:
    table = await load_delta_table(call.lake, identifier_of(call))
    rows = await delta_history(call.lake, table, limit=_VERSIONS_SHOWN)
    return (
        Field(
            name="version",
            label="Restore the table to",
            kind="choice",
            value=sent.get("version", ""),
            options=tuple((str(row.version), _text(row)) for row in rows[1:]),
            hint="" if len(rows) > 1 else "The table has no earlier version.",
            required=True,
        ),
    )


def _text(row: HistoryRow) -> str:
    return f"{time_text(row.at_ms)} {row.operation} (version {row.version})"


def _number(sent: Sent, name: str) -> int:
    text = sent.get(name, "").strip()
    if not text:
        raise BadRequest("Choose a version.")
    return whole_number(text, name, at_least=0)


async def _preview(call: Call, sent: Sent) -> Preview:
    identifier, version = identifier_of(call), _number(sent, "version")
    planned = await preview_restore(call.lake, identifier, version)
    own = [Change(f"{one.area} {one.name}", one.before or "", one.after or "") for one in planned.changes]
    return Preview(
        sentence=f"Readers of {full_name_of(identifier)} see the rows, columns and properties of version {version} "
        "again, as a new version. The versions in between stay until the table is vacuumed.",
        changes=(
            Change("version", str(planned.base_version), f"{planned.base_version + 1}, like {version}"),
            Change("data files", f"-{count_text(planned.files_removed)}", f"+{count_text(planned.files_added)}"),
            Change("bytes", f"-{bytes_text(planned.bytes_removed)}", f"+{bytes_text(planned.bytes_added)}"),
            *own,
        ),
        warning="Commits that were based on the present version fail.",
        command=command_text("rollback", typed_name(identifier), "--to", str(version)),
        kept={"expected": str(planned.base_version)},
    )


async def _restore(call: Call, sent: Sent, request: Request) -> str:
    identifier = identifier_of(call)
    # What the preview showed, not what the table is at now: another commit in between is a conflict.
    expected = _number(sent, "expected")
    await restore_table(call.lake, identifier, _number(sent, "version"), expected=expected, request=request)
    return object_link(identifier, "table")


RESTORE_DELTA: Final = Action(
    title=lambda call: f"Restore {full_name_of(identifier_of(call))}",
    verb="Restore the table",
    done="restored",
    place=partial(object_place, "table"),
    fields=_fields,
    preview=_preview,
    apply=_restore,
)
