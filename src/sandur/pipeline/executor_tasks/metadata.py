"""Executor task: read changed metadata files and write their rows into files to publish.

What a file says goes straight from the task that reads it into the files of the datasets: rows of six shapes need not
take the way through Spark, which has nothing to add to them.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from sandur.errors import SandurError
from sandur.operations.lake import Lake
from sandur.pipeline.blocking_lake import open_lake
from sandur.pipeline.executor_tasks.write import Batches, FileWriter, file_row
from sandur.pipeline.sources.metadata import rows_of_table
from sandur.pipeline.sources.range_reader import batch_of, portions
from sandur.pipeline.tables import OF_METADATA, TABLES

FILES_AT_ONCE: Final = 64
PROBLEMS_TOLD_MAX: Final = 10
PROBLEM: Final = "problem"
"""In place of a dataset: `rows` tables have files that cannot be read, and `key` says of one of them why."""

Table = Mapping[str, Any]
Row = Mapping[str, object]


def metadata_reader(options: Mapping[str, str], attempt: str) -> Callable[[Batches], Iterator[Any]]:
    """What each task does with tables: what their files say is written, and which files that made is yielded."""

    def opened(batches: Batches) -> Iterator[Any]:
        with open_lake(options) as open_store:
            writers = {shape.name: FileWriter(open_store, attempt, shape) for shape in OF_METADATA}
            problems: list[str] = []
            for batch in batches:
                for some in portions(batch.to_pylist(), FILES_AT_ONCE):
                    found = open_store.wait(_opened(open_store.lake, some))
                    problems += [_told(row) for rows in found for row in rows[TABLES.name] if row.get(PROBLEM)]
                    for shape in OF_METADATA:
                        rows = [row for one in found for row in one.get(shape.name, ())]
                        yield from writers[shape.name].add(batch_of(shape, rows))
            for writer in writers.values():
                yield from writer.rest()
            for number, text in enumerate(problems[:PROBLEMS_TOLD_MAX]):
                yield file_row(PROBLEM, text, rows=0 if number else len(problems))

    return opened


def readability_check(options: Mapping[str, str]) -> Callable[[Batches], Iterator[Any]]:
    """What each task does with tables whose files could not be read: the `uuid` of those that can be read now."""

    def tested(batches: Batches) -> Iterator[Any]:
        with open_lake(options) as open_store:
            for batch in batches:
                for some in portions(batch.to_pylist(), FILES_AT_ONCE):
                    found = open_store.wait(_opened(open_store.lake, some))
                    uuids = [row["uuid"] for rows in found for row in rows[TABLES.name] if not row.get(PROBLEM)]
                    yield pa.RecordBatch.from_arrays([pa.array(uuids, type=pa.string())], names=["uuid"])

    return tested


async def _opened(lake: Lake, tables: Sequence[Table]) -> Sequence[Mapping[str, Sequence[Row]]]:
    return await asyncio.gather(*(_opened_one(lake, table) for table in tables))


async def _opened_one(lake: Lake, table: Table) -> Mapping[str, Sequence[Row]]:
    """The rows of every shape, under the name of the table; one row that says so when its file cannot be read."""
    try:
        rows = await rows_of_table(lake, table)
    except SandurError as error:
        return {TABLES.name: [{**table, PROBLEM: str(error)}]}
    named = {name: [{**table, **row} for row in some] for name, some in rows.items()}
    return {TABLES.name: [table], **named}


def _told(row: Row) -> str:
    return f"{row['catalog']}.{row['namespace']}.{row['name']}: {row[PROBLEM]}"
