"""Executor task: read changed metadata files and write their rows into files to publish.

Rows of six shapes go from the task that reads a metadata file straight into Parquet. Passing them through Spark would
add nothing.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sandur.errors import SandurError
from sandur.operations.lake import Lake
from sandur.pipeline.blocking_lake import BlockingLake, open_lake
from sandur.pipeline.executor_tasks.write import FileWriter, file_row
from sandur.pipeline.sources.metadata import rows_of_table
from sandur.pipeline.sources.range_reader import Row, shaped_batch
from sandur.pipeline.tables import OF_METADATA, TABLES
from sandur.pipeline.tasks import ArrowTask, Batches, lake_task, portions, record_batch

FILES_AT_ONCE: Final = 64
PROBLEMS_REPORTED_MAX: Final = 10
PROBLEM: Final = "problem"
"""Instead of a dataset name: `rows` tables have unreadable files, and `key` explains one of them."""
READABLE: Final = "uuid string"

Table = Mapping[str, Any]


def metadata_task(options: Mapping[str, str], attempt: str) -> ArrowTask:
    """A task over tables: it writes the rows of their metadata files and returns the written files."""

    def run(batches: Batches) -> Iterator[Any]:
        with open_lake(options) as blocking:
            writers = {shape.name: FileWriter(blocking, attempt, shape) for shape in OF_METADATA}
            problems: list[str] = []
            for batch in batches:
                for tables in portions(batch.to_pylist(), FILES_AT_ONCE):
                    found = blocking.wait(_read_tables(blocking.lake, tables))
                    problems += [_problem_text(row) for rows in found for row in rows[TABLES.name] if row.get(PROBLEM)]
                    for shape in OF_METADATA:
                        rows = [row for one in found for row in one.get(shape.name, ())]
                        yield from writers[shape.name].add(shaped_batch(shape, rows))
            for writer in writers.values():
                yield from writer.flush()
            for number, text in enumerate(problems[:PROBLEMS_REPORTED_MAX]):
                yield file_row(PROBLEM, text, rows=0 if number else len(problems))

    return run


def readability_task(options: Mapping[str, str]) -> ArrowTask:
    """A task over tables whose files could not be read: it returns the `uuid` of those that can be read now."""
    return lake_task(options, _readable_tables, rows_at_once=FILES_AT_ONCE)


def _readable_tables(blocking: BlockingLake, tables: Sequence[Table]) -> Any:  # noqa: ANN401 - Arrow has no types
    found = blocking.wait(_read_tables(blocking.lake, tables))
    uuids = [(row["uuid"],) for rows in found for row in rows[TABLES.name] if not row.get(PROBLEM)]
    return record_batch(READABLE, uuids)


async def _read_tables(lake: Lake, tables: Sequence[Table]) -> Sequence[Mapping[str, Sequence[Row]]]:
    return await asyncio.gather(*(_read_table(lake, table) for table in tables))


async def _read_table(lake: Lake, table: Table) -> Mapping[str, Sequence[Row]]:
    """The rows of every shape with the table's name; one row with a problem if the file cannot be read."""
    try:
        rows = await rows_of_table(lake, table)
    except SandurError as error:
        return {TABLES.name: [{**table, PROBLEM: str(error)}]}
    named = {name: [{**table, **row} for row in some] for name, some in rows.items()}
    return {TABLES.name: [table], **named}


def _problem_text(row: Row) -> str:
    return f"{row['catalog']}.{row['namespace']}.{row['name']}: {row[PROBLEM]}"
