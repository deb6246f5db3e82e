"""Which commits of a Delta table are published, as far as somebody looked (L4): clients say so, and may be wrong."""

from sandur.catalog.records import DeltaCommit, DeltaTable
from sandur.delta.coordination import published_name, unpublished
from sandur.errors import Invalid
from sandur.operations.concurrency import gather_all
from sandur.operations.lake import Lake

LOG_FOLDER = "_delta_log"
STAGED_FOLDER = f"{LOG_FOLDER}/_staged_commits"


def published_location(table: DeltaTable, version: int) -> str:
    return f"{table.location}/{LOG_FOLDER}/{published_name(version)}"


def staged_location(table: DeltaTable, file_name: str) -> str:
    return f"{table.location}/{STAGED_FOLDER}/{file_name}"


def known_published(lake: Lake, table: DeltaTable) -> int:
    """Up to which version all commits are known to be published: as the record says, or as this server has seen."""
    seen = lake.delta_published.get(table.uuid, 0)
    return max(table.published, min(seen, table.last_version))


def unpublished_commits(lake: Lake, table: DeltaTable) -> tuple[DeltaCommit, ...]:
    """What readers are told of, newest first: the commits not known to be published."""
    return unpublished(table.commits, known_published(lake, table))


async def verify_published(lake: Lake, table: DeltaTable, reported: int) -> int:
    """L4: up to which version everything really is published, of what a client reports; this server remembers it.

    The files that are still tracked are looked for, all at once, and nothing behind the first missing one counts.
    Receipts of what will be trimmed are made certain (G6).
    """
    known = known_published(lake, table)
    rows = [row for row in table.commits if known < row.version <= reported]
    are_there = await gather_all(_is_published(lake, table, row) for row in rows)
    highest = known
    for row, is_there in zip(rows, are_there, strict=True):
        if not is_there:
            break
        highest = row.version
    if highest > known:
        lake.delta_published[table.uuid] = highest
    return highest


async def _is_published(lake: Lake, table: DeltaTable, row: DeltaCommit) -> bool:
    try:
        is_there, _ = await gather_all(
            [
                lake.locations.exists(published_location(table, row.version)),
                _receipted(lake, table, row),
            ]
        )
    except Invalid:  # The location is no longer one that this server may look at.
        return False
    return is_there


async def _receipted(lake: Lake, table: DeltaTable, row: DeltaCommit) -> bool:
    await lake.delta_receipts.ensure(table, row)
    return True
