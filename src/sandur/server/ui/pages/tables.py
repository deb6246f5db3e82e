"""The pages of a table's history and state."""

import asyncio
from typing import Final

from sandur.catalog.identifiers import Kind, full_name_of
from sandur.errors import BadRequest, NotFound, Unavailable
from sandur.operations.audit.search import time_of
from sandur.operations.explore.files import load_file_changes, load_files
from sandur.operations.lineage.graph import DEPTH_MAX, Question, load_lineage
from sandur.operations.preview import rows as previews
from sandur.operations.table_health import load_health_of
from sandur.operations.tables import timeline
from sandur.server.addresses import check_preview
from sandur.server.context import Call, whole_number
from sandur.server.http import Answer
from sandur.server.needs import SCAN_TABLE
from sandur.server.ui.links import page_link
from sandur.server.ui.pages.objects import identifier_of
from sandur.server.ui.renderer import lake_for, page
from sandur.server.ui.views.lineage import lineage_view
from sandur.server.ui.views.tables import (
    diff_view,
    files_view,
    health_view,
    no_diff_view,
    preview_view,
    snapshots_view,
    timeline_view,
    version_view,
)

TIMELINE_PAGE: Final = 50
SLOW_SECONDS_MAX: Final = 10.0
"""How long a slow part of a page may take; then it is cut, and says so."""


async def show_snapshots(call: Call) -> Answer:
    identifier = identifier_of(call)
    return page(
        call, "snapshots.html", snapshots_view(identifier, await timeline.load_snapshots(call.lake, identifier))
    )


async def show_timeline(call: Call) -> Answer:
    """The versions of a table or view; of a table, one version in full: the current one, or that of `at`."""
    identifier, at, before = identifier_of(call), number(call, "at"), number(call, "before")
    found = await timeline.load_timeline(call.lake, identifier, limit=TIMELINE_PAGE, before=before, at=at)
    view = timeline_view(identifier, found, limit=TIMELINE_PAGE, at=at, is_past=before is not None)
    return page(call, "timeline.html", view)


async def show_version(call: Call) -> Answer:
    """The part of the timeline that shows one version."""
    identifier, at = identifier_of(call), whole_number(call.value("version"), "version", at_least=0)
    try:
        found: timeline.TableVersion | str = await timeline.load_version(call.lake, identifier, at)
    except NotFound as error:
        if error.subject != "file":
            raise
        found = str(error)
    return page(call, "version.html", version_view(identifier, at, found))


async def show_diff(call: Call) -> Answer:
    identifier, before, after = identifier_of(call), number(call, "from"), number(call, "to")
    try:
        found = await timeline.load_difference(call.lake, identifier, before=before, after=after)
    except NotFound as error:
        if error.subject != "file":
            raise
        rows = await timeline.load_history(call.lake, identifier, limit=timeline.HISTORY_MAX)
        gone = no_diff_view(identifier, str(error), before=before, after=after, rows=rows)
        return page(call, "diff.html", gone, status=404)
    files = None
    if call.is_set("files"):
        old, new = (one or 0 for one in found.snapshots)
        files = await load_file_changes(lake_for(call, SCAN_TABLE), identifier, before=old, after=new)
    return page(call, "diff.html", diff_view(identifier, found, files))


async def show_files(call: Call) -> Answer:
    identifier = identifier_of(call)
    try:
        async with asyncio.timeout(SLOW_SECONDS_MAX):
            found = await load_files(call.lake, identifier)
    except TimeoutError:
        raise Unavailable(f"reading the manifests took more than {SLOW_SECONDS_MAX:g} seconds") from None
    return page(call, "files.html", files_view(identifier, found))


async def show_preview(call: Call) -> Answer:
    """The page that leads to the rows; with `run`, the rows, and with `only=rows` nothing else."""
    identifier = identifier_of(call)
    limit = min(number(call, "limit") or previews.ROWS_DEFAULT, previews.ROWS_MAX)
    check_preview(call.settings, wants_sql=False)
    if not call.is_set("run"):
        await previews.check_readable(call.lake, identifier)
        return page(call, "preview.html", preview_view(identifier, limit, None))
    found = await previews.preview_rows(call.lake, identifier, limit=limit)
    template = "rows.html" if call.query.get("only") == "rows" else "preview.html"
    return page(call, template, preview_view(identifier, limit, found))


async def show_health(call: Call) -> Answer:
    identifier = identifier_of(call)
    detail = await load_health_of(call.lake, identifier)
    policy_link = page_link("/policies", type="table", name=full_name_of(identifier))
    return page(call, "health.html", health_view(identifier, detail, policy_link=policy_link))


async def show_lineage(call: Call, kind: Kind) -> Answer:
    identifier, as_of = identifier_of(call), call.query.get("at", "")
    depth = number(call, "depth") or 1
    if depth > DEPTH_MAX:
        raise BadRequest(f"Invalid depth {depth}: expected 1 to {DEPTH_MAX}")
    as_of_ms = time_of(as_of, call.lake.clock.now_ms()) if as_of else None
    asked = Question(f"table:{full_name_of(identifier)}", "both", depth, None, as_of_ms)
    found = await load_lineage(call.lake, asked)
    return page(call, "lineage.html", lineage_view(identifier, kind, found, depth=depth, as_of=as_of))


def number(call: Call, name: str) -> int | None:
    """A number of the query; None if it is absent."""
    text = call.query.get(name)
    return None if not text else whole_number(text, name, at_least=0)
