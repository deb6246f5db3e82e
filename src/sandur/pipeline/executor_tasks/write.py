"""Executor tasks: write the Parquet files to publish, and verify them before they are published."""

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from sandur.operations.published import ROWS_PER_FILE_MAX, PublishedFile
from sandur.pipeline.blocking_lake import BlockingLake, open_lake
from sandur.pipeline.tables import SHAPES, Shape
from sandur.pipeline.tasks import ArrowTask, Batches, record_batch
from sandur.storage.contract import ABSENT, ObjectStore, get_many, portions

BYTES_PER_FILE_MAX: Final = 64 << 20
"""Bounds the memory of a task: a schema or a summary may be of any length."""
SMALL_BYTES_MAX: Final = 32 << 20
"""The driver reads up to this much itself, which is faster than starting tasks for it."""
FILES_AT_ONCE: Final = 8
WRITTEN: Final = "dataset string, key string, rows long, size_bytes long, sha256 string"
"""One row per written file."""
PROBLEMS: Final = "problem string"


class FileWriter:
    """Collects the rows of one dataset in a task, and writes them into files of bounded size.

    Every file gets a fresh name, so a task that runs again never meets the files of an earlier attempt.
    """

    def __init__(self, blocking: BlockingLake, attempt: str, shape: Shape) -> None:
        self._blocking = blocking
        self._attempt = attempt
        self._shape = shape
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Add rows; yield a row for the file that this filled, if any."""
        if batch.num_rows:
            self._batches.append(batch)
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
        if self._rows >= ROWS_PER_FILE_MAX or self._bytes >= BYTES_PER_FILE_MAX:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Write the collected rows, and yield a row for the file; nothing without rows."""
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches).cast(self._shape.arrow_schema)
        self._batches, self._rows, self._bytes = [], 0, 0
        data = parquet_of(table)
        lake = self._blocking.lake
        key = lake.layout.core_snapshot(self._attempt, f"{self._shape.name}-{lake.clock.new_uuid()}.parquet")
        self._blocking.wait(lake.store.put(key, data, expected=ABSENT))
        yield file_row(self._shape.name, key, table.num_rows, len(data), hashlib.sha256(data).hexdigest())


def file_row(dataset: str, key: str, rows: int = 0, size_bytes: int = 0, sha256: str = "") -> pa.RecordBatch:
    """The report of a task to the driver about one file."""
    return record_batch(WRITTEN, [(dataset, key, rows, size_bytes, sha256)])


def write_task(options: Mapping[str, str], attempt: str, dataset: str) -> ArrowTask:
    """A task that writes its rows into files of a dataset, and returns the written files."""

    def run(batches: Batches) -> Iterator[Any]:
        with open_lake(options) as blocking:
            writer = FileWriter(blocking, attempt, SHAPES[dataset])
            for batch in batches:
                yield from writer.add(batch)
            yield from writer.flush()

    return run


def parquet_of(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def verify_task(options: Mapping[str, str]) -> Callable[[tuple[str, PublishedFile]], Iterator[Any]]:
    """A task that verifies one file, and returns a row if something is wrong with it."""

    def run(written: tuple[str, PublishedFile]) -> Iterator[Any]:
        with open_lake(options) as blocking:
            problems = blocking.wait(find_problems(blocking.lake.store, [written]))
        yield record_batch(PROBLEMS, [(problem,) for problem in problems])

    return run


async def find_problems(store: ObjectStore, written: Sequence[tuple[str, PublishedFile]]) -> Sequence[str]:
    """Read written files back, a few at a time; return what is wrong with them."""
    found: list[str | None] = []
    for some in portions(written, FILES_AT_ONCE):
        stored = await get_many(store, [file.key for _, file in some])
        pairs = zip(some, stored, strict=True)
        found += [find_problem(dataset, file, one.data if one else None) for (dataset, file), one in pairs]
    return [problem for problem in found if problem]


def find_problem(dataset: str, file: PublishedFile, data: bytes | None) -> str | None:
    """What is wrong with the bytes of a written file; None if they are right."""
    if data is None:
        return f"{file.key}: the file is missing"
    if hashlib.sha256(data).hexdigest() != file.sha256:
        return f"{file.key}: the file has other bytes than were written"
    footer = pq.read_metadata(io.BytesIO(data))
    names = footer.schema.to_arrow_schema().names
    if footer.num_rows != file.rows or names != SHAPES[dataset].column_names:
        return f"{file.key}: the file has {footer.num_rows} rows of {names}"
    return None
