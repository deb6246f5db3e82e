"""Executor task: check again whether a table that is missing from the listing was really dropped.

That nothing was found has other reasons as well: the store did not answer, an object is damaged, or the table was
renamed between the moments at which its old and its new name were read.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from sandur.catalog.identifiers import Identifier
from sandur.errors import Busy, SandurError
from sandur.operations.lake import Lake
from sandur.operations.tables.names import is_alive, resolve_name
from sandur.pipeline.blocking_lake import open_lake
from sandur.pipeline.executor_tasks.write import Batches
from sandur.pipeline.sources.catalog import gather_bounded, visible_row
from sandur.pipeline.sources.range_reader import OBJECTS_AT_ONCE, Row, batch_of, portions
from sandur.pipeline.tables import NAMES

MOVES_MAX: Final = 16

Table = Mapping[str, Any]


def recheck_task(options: Mapping[str, str]) -> Callable[[Batches], Iterator[Any]]:
    """What each task does with tables as they were published: rows of names for those that are not gone."""

    def looked(batches: Batches) -> Iterator[Any]:
        with open_lake(options) as open_store:
            for batch in batches:
                for some in portions(batch.to_pylist(), OBJECTS_AT_ONCE):
                    rows = open_store.wait(gather_bounded(some, lambda was: recheck_table(open_store.lake, was)))
                    yield batch_of(NAMES, [row for row in rows if row])

    return looked


async def recheck_table(lake: Lake, was: Table) -> Row | None:
    """What a table is now that `was` published; None when it is gone: its pointer or its name says so.

    With a `problem` it is told as it was, since nobody can tell what became of it.
    """
    try:
        pointer = await lake.bound_record(was["uuid"], was["format"]).read()
        return await _followed(lake, was) if is_alive(pointer) else None
    except SandurError as error:
        return {**was, "state": "", "is_shown": True, "problem": str(error)}


async def _followed(lake: Lake, was: Table) -> Row | None:
    """From the name under which it was published to the one it was moved to, as often as it was."""
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
    raise Busy("its pointer lives, and no name was found that leads to it")
