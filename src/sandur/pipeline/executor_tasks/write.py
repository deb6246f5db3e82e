"""Executor tasks: write the Parquet files to publish, and verify them before they are published."""

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from sandur.pipeline.blocking_lake import BlockingLake, open_lake
from sandur.pipeline.tables import SHAPES, Shape
from sandur.storage.contract import ABSENT, ObjectStore, get_many

ROWS_PER_FILE_MAX: Final = 200_000
BYTES_PER_FILE_MAX: Final = 64 << 20
"""So much a task holds of one dataset before it writes it: a schema or a summary may be of any length."""
SMALL_BYTES_MAX: Final = 32 << 20
"""So much the driver reads by itself: to hand it to executors takes longer."""
FILES_AT_ONCE: Final = 8
WRITTEN: Final = "dataset string, key string, rows long, size_bytes long, sha256 string"
"""A row for every file that a task wrote."""

_NAMES: Final = [field.split()[0] for field in WRITTEN.split(", ")]

Batches = Iterable[Any]
"""Record batches, as Spark passes them to a function in an executor."""


class PublishedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file of a dataset, known by its bytes."""

    key: str
    rows: int
    size_bytes: int
    sha256: str


class FileWriter:
    """Gathers the rows of one dataset in a task, and writes them in files of a bounded size.

    Files have names that no other attempt has, so that a task that is run again is in nobody's way.
    """

    def __init__(self, open_store: BlockingLake, attempt: str, shape: Shape) -> None:
        self._open_store = open_store
        self._attempt = attempt
        self._shape = shape
        self._gathered: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take some rows more; what was written for it is yielded."""
        if batch.num_rows:
            self._gathered.append(batch)
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
        if self._rows >= ROWS_PER_FILE_MAX or self._bytes >= BYTES_PER_FILE_MAX:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Write what is left, if anything is."""
        if not self._gathered:
            return
        table = pa.Table.from_batches(self._gathered).cast(self._shape.arrow_schema)
        self._gathered, self._rows, self._bytes = [], 0, 0
        data = parquet_of(table)
        nonce = self._open_store.clock.new_uuid()
        key = self._open_store.layout.core_snapshot(self._attempt, f"{self._shape.name}-{nonce}.parquet")
        self._open_store.wait(self._open_store.store.put(key, data, expected=ABSENT))
        yield file_row(self._shape.name, key, table.num_rows, len(data), hashlib.sha256(data).hexdigest())


def file_row(dataset: str, key: str, rows: int = 0, size_bytes: int = 0, sha256: str = "") -> pa.RecordBatch:
    """What a task says to the driver about one file."""
    values = (dataset, key, rows, size_bytes, sha256)
    return pa.RecordBatch.from_arrays([pa.array([value]) for value in values], names=_NAMES)


def file_writer(options: Mapping[str, str], attempt: str, dataset: str) -> Callable[[Batches], Iterator[Any]]:
    """What each task does with its rows."""

    def write(batches: Batches) -> Iterator[Any]:
        with open_lake(options) as open_store:
            writer = FileWriter(open_store, attempt, SHAPES[dataset])
            for batch in batches:
                yield from writer.add(batch)
            yield from writer.rest()

    return write


def parquet_of(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def file_checker(options: Mapping[str, str]) -> Callable[[tuple[str, PublishedFile]], Iterator[Any]]:
    """What a task does with a file it is to check; a row says what is wrong with it."""

    def check(written: tuple[str, PublishedFile]) -> Iterator[Any]:
        dataset, file = written
        with open_lake(options) as open_store:
            found = open_store.wait(open_store.store.get(file.key))
        if problem := problem_of(dataset, file, found.data if found else None):
            yield pa.RecordBatch.from_arrays([pa.array([problem])], names=["problem"])

    return check


async def problems_of(store: ObjectStore, written: Sequence[tuple[str, PublishedFile]]) -> Sequence[str]:
    """What is wrong with files that were written, a few of them read at a time."""
    found: list[str | None] = []
    for start in range(0, len(written), FILES_AT_ONCE):
        some = written[start : start + FILES_AT_ONCE]
        stored = await get_many(store, [file.key for _, file in some])
        pairs = zip(some, stored, strict=True)
        found += [problem_of(dataset, file, one.data if one else None) for (dataset, file), one in pairs]
    return [problem for problem in found if problem]


def problem_of(dataset: str, file: PublishedFile, data: bytes | None) -> str | None:
    """What is wrong with a file that was written; None when it is as it should be."""
    if data is None:
        return f"{file.key}: it is not there"
    if hashlib.sha256(data).hexdigest() != file.sha256:
        return f"{file.key}: it holds other bytes"
    footer = pq.read_metadata(io.BytesIO(data))
    names = footer.schema.to_arrow_schema().names
    if footer.num_rows != file.rows or names != SHAPES[dataset].column_names:
        return f"{file.key}: {footer.num_rows} rows of {names}"
    return None
