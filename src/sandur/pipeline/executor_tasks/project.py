"""Executor tasks of `project`: read changed metadata files, and check again tables that seem to be dropped.

Rows of six shapes go from the task that reads a metadata file straight into Parquet. Passing them through Spark would
add nothing.

A table that is missing from the listing may have been renamed between the reads of its old and its new name, or
its record is damaged, or the store did not answer. A table counts as dropped only if its pointer or its name says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sandur.catalog.identifiers import Identifier
from sandur.errors import Busy, SandurError
from sandur.operations.lake import Lake
from sandur.operations.tables.names import is_alive, resolve_name
from sandur.pipeline.blocking_lake import BlockingLake, open_lake
from sandur.pipeline.executor_tasks.write import FileWriter, file_row
from sandur.pipeline.sources.catalog import visible_row
from sandur.pipeline.sources.metadata import rows_of_table
from sandur.pipeline.sources.range_reader import Row, gather_bounded, shaped_batch
from sandur.pipeline.tables import NAMES, OF_METADATA, TABLES
from sandur.pipeline.tasks import ArrowTask, Batches, record_batch
from sandur.storage.cell import gather_all
from sandur.storage.contract import portions

FILES_AT_ONCE: Final = 64
PROBLEMS_REPORTED_MAX: Final = 10
PROBLEM: Final = "problem"
"""Instead of a dataset name: `rows` tables have unreadable files, and `key` explains one of them."""
READABLE: Final = "uuid string"
MOVES_MAX: Final = 16

Table = Mapping[str, Any]


def metadata_task(options: Mapping[str, str], attempt: str) -> ArrowTask:
    """A task over tables: it writes the rows of their metadata files and returns the written files."""

    def run(batches: Batches) -> Iterator[Any]:
        with open_lake(options) as blocking:
            writers = {shape.name: FileWriter(blocking, attempt, shape) for shape in OF_METADATA}
            problems: list[str] = []
            for batch in batches:
                for tables in portions(batch.to_pylist(), FILES_AT_ONCE):
                    found = blocking.wait(gather_all(_read_table(blocking.lake, table) for table in tables))
                    bad = [row for rows in found for row in rows[TABLES.name] if row.get(PROBLEM)]
                    problems += ["{catalog}.{namespace}.{name}: {problem}".format_map(row) for row in bad]
                    for shape in OF_METADATA:
                        rows = [row for one in found for row in one.get(shape.name, ())]
                        yield from writers[shape.name].add(shaped_batch(shape, rows))
            for writer in writers.values():
                yield from writer.flush()
            for number, text in enumerate(problems[:PROBLEMS_REPORTED_MAX]):
                yield file_row(PROBLEM, text, rows=0 if number else len(problems))

    return run


def readable_tables(blocking: BlockingLake, tables: Sequence[Table]) -> Any:  # noqa: ANN401 - Arrow has no types
    """Of tables whose files could not be read, the `uuid` of those that can be read now."""
    found = blocking.wait(gather_all(_read_table(blocking.lake, table) for table in tables))
    uuids = [(row["uuid"],) for rows in found for row in rows[TABLES.name] if not row.get(PROBLEM)]
    return record_batch(READABLE, uuids)


async def _read_table(lake: Lake, table: Table) -> Mapping[str, Sequence[Row]]:
    """The rows of every shape with the table's name; one row with a problem if the file cannot be read."""
    try:
        rows = await rows_of_table(lake, table)
    except SandurError as error:
        return {TABLES.name: [{**table, PROBLEM: str(error)}]}
    named = {name: [{**table, **row} for row in some] for name, some in rows.items()}
    return {TABLES.name: [table], **named}


def recheck_tables(blocking: BlockingLake, tables: Sequence[Table]) -> Any:  # noqa: ANN401 - Arrow has no types
    """Of some published tables, rows of names for those that still exist."""
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
