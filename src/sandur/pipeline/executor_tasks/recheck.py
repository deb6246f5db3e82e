"""Executor task: check again whether a table that is missing from the listing was really dropped.

A missing table may have other causes: the store does not answer, a record is damaged, or the table was renamed between
the reads of its old and its new name. A table counts as dropped only if its pointer or its name says so.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sandur.catalog.identifiers import Identifier
from sandur.errors import Busy, SandurError
from sandur.operations.lake import Lake
from sandur.operations.tables.names import is_alive, resolve_name
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.sources.catalog import visible_row
from sandur.pipeline.sources.range_reader import OBJECTS_AT_ONCE, Row, gather_bounded, shaped_batch
from sandur.pipeline.tables import NAMES
from sandur.pipeline.tasks import ArrowTask, lake_task

MOVES_MAX: Final = 16

Table = Mapping[str, Any]


def recheck_task(options: Mapping[str, str]) -> ArrowTask:
    """A task over published tables; it returns rows of names for those that still exist."""
    return lake_task(options, _recheck_tables, rows_at_once=OBJECTS_AT_ONCE)


def _recheck_tables(blocking: BlockingLake, tables: Sequence[Table]) -> Any:  # noqa: ANN401 - Arrow has no types
    rows = blocking.wait(gather_bounded(tables, lambda was: recheck_table(blocking.lake, was)))
    return shaped_batch(NAMES, [row for row in rows if row])


async def recheck_table(lake: Lake, was: Table) -> Row | None:
    """The current row of a table that was published as `was`; None if its pointer or name says that it is gone.

    A row with a `problem` repeats `was`: the table's state cannot be determined.
    """
    try:
        pointer = await lake.bound_record(was["uuid"], was["format"]).read()
        return await _follow_renames(lake, was) if is_alive(pointer) else None
    except SandurError as error:
        return {**was, "state": "", "is_shown": True, "problem": str(error)}


async def _follow_renames(lake: Lake, was: Table) -> Row | None:
    """Follow the renames of a table, from the name under which it was published."""
    at = Identifier(was["catalog"], tuple(was["namespace"].split(".")), was["name"])
    for _ in range(MOVES_MAX):
        found = await resolve_name(lake, at)
        if found and found.uuid == was["uuid"]:
            return await visible_row(lake, found)
        name = await lake.name(at).read()
        if name is None or name.value.uuid != was["uuid"]:
            break
        if name.value.state == "dropped":
            return None
        if name.value.other is None:
            break
        at = name.value.other
    raise Busy("the pointer is live, but no name leads to it")
