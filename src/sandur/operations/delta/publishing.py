"""Which commits of a Delta table are published, as far as somebody looked (L4): clients say so, and may be wrong."""

from sandur.catalog.records import DeltaCommit, DeltaTable
from sandur.delta.coordination import published_name, unpublished
from sandur.errors import Invalid
from sandur.operations.together import together
from sandur.operations.workspace import Workspace

LOG_FOLDER = "_delta_log"
STAGED_FOLDER = f"{LOG_FOLDER}/_staged_commits"


def published_location(table: DeltaTable, version: int) -> str:
    return f"{table.location}/{LOG_FOLDER}/{published_name(version)}"


def staged_location(table: DeltaTable, file_name: str) -> str:
    return f"{table.location}/{STAGED_FOLDER}/{file_name}"


def known_published(workspace: Workspace, table: DeltaTable) -> int:
    """Up to which version all commits are known to be published: as the record says, or as this server has seen."""
    seen = workspace.delta_published.get(table.uuid, 0)
    return max(table.published, min(seen, table.last_version))


def shown_commits(workspace: Workspace, table: DeltaTable) -> tuple[DeltaCommit, ...]:
    """What readers are told of, newest first: the commits not known to be published."""
    return unpublished(table.commits, known_published(workspace, table))


async def look_published(workspace: Workspace, table: DeltaTable, reported: int) -> int:
    """L4: up to which version everything really is published, of what a client reports; this server remembers it.

    The files that are still tracked are looked for, all at once, and nothing behind the first missing one counts.
    Receipts of what will be trimmed are made certain (G6).
    """
    known = known_published(workspace, table)
    rows = [row for row in table.commits if known < row.version <= reported]
    are_there = await together(_is_published(workspace, table, row) for row in rows)
    highest = known
    for row, is_there in zip(rows, are_there, strict=True):
        if not is_there:
            break
        highest = row.version
    if highest > known:
        workspace.delta_published[table.uuid] = highest
    return highest


async def _is_published(workspace: Workspace, table: DeltaTable, row: DeltaCommit) -> bool:
    try:
        is_there, _ = await together(
            [
                workspace.locations.exists(published_location(table, row.version)),
                _receipted(workspace, table, row),
            ]
        )
    except Invalid:  # The location is no longer one that this server may look at.
        return False
    return is_there


async def _receipted(workspace: Workspace, table: DeltaTable, row: DeltaCommit) -> bool:
    await workspace.delta_receipts.ensure(table, row)
    return True
