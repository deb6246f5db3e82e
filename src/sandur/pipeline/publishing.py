"""Publishing: executors write aside, the driver checks, writes an immutable manifest, and swaps `core/manifest.json`.

A run that dies before the swap leaves files in a folder of its own that nobody refers to; one that dies after it has
published. There is nothing in between: a reader takes the manifest that is swapped in, and all it names.
"""

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace
from pyspark.sql import DataFrame

from sandur.catalog.records import Record
from sandur.errors import Busy, Conflict, SwapLost, Unavailable
from sandur.pipeline.job import JobContext
from sandur.pipeline.sources.datasets import DatasetReader
from sandur.pipeline.sources.options import open_store_of
from sandur.pipeline.tables import SHAPES, Shape
from sandur.pipeline.tasks import frame_of, one_task_each
from sandur.storage.cell import Cell, Held
from sandur.storage.object_store import ABSENT

MANIFEST: Final = "manifest.json"
ROWS_PER_FILE_MAX: Final = 200_000
SWAPS_MAX: Final = 8
_WRITTEN: Final = "key string, rows long, size_bytes long, sha256 string"


class PublishedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file of a dataset, known by its bytes."""

    key: str
    rows: int
    size_bytes: int
    sha256: str


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """A published table: its files, and how far what they were made of goes.

    `sequence` is that of the manifest that changed it last. `watermark` says up to where the input is in it: positions,
    never times.
    """

    sequence: int
    files: tuple[PublishedFile, ...] = ()
    columns: tuple[str, ...] = ()
    watermark: dict[str, int] = {}

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


class CoreManifest(msgspec.Struct, frozen=True, kw_only=True):
    """All that is published, at one moment. It never changes; `previous` is the one before."""

    version: int = 1
    sequence: int = 0
    previous: str | None = None
    run_id: str = ""
    published_ms: int = 0
    datasets: dict[str, Dataset] = {}


class CorePointer(Record, frozen=True, kw_only=True):
    """`core/manifest.json`: which manifest counts."""

    sequence: int
    manifest: str
    published_ms: int


@dataclass(frozen=True)
class Change:
    """What becomes of a dataset: `files` in place of those before, or behind them."""

    files: Sequence[PublishedFile]
    watermark: Mapping[str, int]
    appends: bool = False


class Publication:
    """One run's view of what is published: what it reads stays the same until it publishes, once."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._layout = context.layout
        self._attempt = context.clock.new_id()
        self._cell = Cell(context.open_store.store, context.layout.core_manifest(), CorePointer, context.clock)
        self._held, self.base = context.wait(self._read())
        self._written: list[tuple[str, PublishedFile]] = []
        self.manifest_key: str | None = None
        """The manifest that this run published; None while it has not."""

    def watermark(self, dataset: str, name: str) -> int:
        """How far an input is in a dataset; 0 when nothing of it is."""
        found = self.base.datasets.get(dataset)
        return found.watermark.get(name, 0) if found else 0

    def read(self, shape: Shape) -> DataFrame:
        """A dataset as it was when this run began; without rows when it was not published yet."""
        manifest = self._held.value.manifest if self._held else ""
        told = {**self._context.source_options, "dataset": shape.name, "manifest": manifest}
        return frame_of(self._context.spark, DatasetReader(told), shape.spark_schema)

    def write(self, rows: DataFrame, shape: Shape) -> Sequence[PublishedFile]:
        """Write rows aside, in executors, sorted by the key of the shape within each file."""
        options, attempt = dict(self._context.source_options), self._attempt
        sorted_rows = rows.select(*shape.column_names).sortWithinPartitions(*shape.key)
        written = sorted_rows.mapInArrow(file_writer(options, attempt, shape.name), _WRITTEN).collect()
        files = sorted((PublishedFile(**row.asDict()) for row in written), key=lambda file: file.key)
        self._written += [(shape.name, file) for file in files]
        return files

    def publish(self, changes: Mapping[str, Change]) -> CoreManifest:
        """Check what was written, then make it count. Conflict when another run changed one of the datasets."""
        self._verify()
        self._context.check_fence()
        return self._context.wait(self._swap(changes))

    def _verify(self) -> None:
        """Every file is read back from the store, in executors: its bytes, its rows, its columns."""
        if not self._written:
            return
        check = file_checker(dict(self._context.source_options))
        wrong = one_task_each(self._context.spark, self._written, check, "problem string").collect()
        if wrong:
            raise Unavailable(f"publishing: {len(wrong)} files are not as they were written: {wrong[0].problem}")

    async def _swap(self, changes: Mapping[str, Change]) -> CoreManifest:
        for number in range(SWAPS_MAX):
            held, current = await self._read()
            self._check_unchanged(current, changes)
            manifest = self._next(held, current, changes)
            key = self._layout.core_snapshot(self._attempt, MANIFEST if not number else f"manifest-{number}.json")
            await self._context.open_store.store.put(key, msgspec.json.encode(manifest), expected=ABSENT)
            pointer = CorePointer(sequence=manifest.sequence, manifest=key, published_ms=manifest.published_ms)
            try:
                await self._cell.swap(pointer, expected=held.version if held else ABSENT)  # It happens here.
            except SwapLost:
                found = await self._cell.read()
                if found is None or found.value.manifest != key:
                    continue
            self.manifest_key = key
            return manifest
        raise Busy("publishing: others keep publishing")

    def _check_unchanged(self, current: CoreManifest, changes: Mapping[str, Change]) -> None:
        for name in changes:
            before, now = self.base.datasets.get(name), current.datasets.get(name)
            if before != now:
                raise Conflict(f"publishing {name}: another run has published it meanwhile; this one stops")

    def _next(
        self, held: Held[CorePointer] | None, current: CoreManifest, changes: Mapping[str, Change]
    ) -> CoreManifest:
        sequence = current.sequence + 1
        changed = {
            name: _changed(sequence, name, current.datasets.get(name), change) for name, change in changes.items()
        }
        return replace(
            current,
            sequence=sequence,
            previous=held.value.manifest if held else None,
            run_id=self._context.run_id,
            published_ms=self._context.clock.now_ms(),
            datasets={**current.datasets, **changed},
        )

    async def _read(self) -> tuple[Held[CorePointer] | None, CoreManifest]:
        held = await self._cell.read()
        if held is None:
            return None, CoreManifest()
        return held, await read_manifest(self._context, held.value.manifest)


def _changed(sequence: int, name: str, before: Dataset | None, change: Change) -> Dataset:
    kept = before.files if before and change.appends else ()
    return Dataset(
        sequence=sequence,
        files=(*kept, *change.files),
        columns=tuple(SHAPES[name].column_names),
        watermark=dict(change.watermark),
    )


async def read_manifest(context: JobContext, key: str) -> CoreManifest:
    """An immutable manifest by its key."""
    found = await context.open_store.store.get(key)
    if found is None:
        raise Unavailable(f"manifest {key}: is not there")
    try:
        return msgspec.json.decode(found.data, type=CoreManifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable(f"manifest {key}: is damaged: {error}") from error


Batches = Iterable[Any]
"""Record batches, as Spark passes them to a function in an executor."""


def file_writer(options: Mapping[str, str], attempt: str, dataset: str) -> Callable[[Batches], Iterator[Any]]:
    """What each task does with its rows: Parquet files under names that no other attempt has."""

    def write(batches: Batches) -> Iterator[Any]:
        shape = SHAPES[dataset]
        with open_store_of(options) as open_store:
            for table in _tables(batches, shape):
                data = parquet_of(table)
                nonce = open_store.clock.new_uuid()
                key = open_store.layout.core_snapshot(attempt, f"{dataset}-{nonce}.parquet")
                open_store.wait(open_store.store.put(key, data, expected=ABSENT))
                row = [key, table.num_rows, len(data), hashlib.sha256(data).hexdigest()]
                yield pa.RecordBatch.from_arrays(
                    [pa.array([value]) for value in row], names=["key", "rows", "size_bytes", "sha256"]
                )

    return write


def parquet_of(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def _tables(batches: Batches, shape: Shape) -> Iterator[pa.Table]:
    """The rows in tables of a bounded size; none when there are no rows."""
    gathered: list[Any] = []
    count = 0
    for batch in batches:
        if batch.num_rows:
            gathered.append(batch)
            count += batch.num_rows
        if count >= ROWS_PER_FILE_MAX:
            yield pa.Table.from_batches(gathered).cast(shape.arrow_schema)
            gathered, count = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered).cast(shape.arrow_schema)


def file_checker(options: Mapping[str, str]) -> Callable[[tuple[str, PublishedFile]], Iterator[Any]]:
    """What a task does with a file it is to check; a row says what is wrong with it."""

    def check(written: tuple[str, PublishedFile]) -> Iterator[Any]:
        dataset, file = written
        with open_store_of(options) as open_store:
            found = open_store.wait(open_store.store.get(file.key))
        if problem := problem_of(dataset, file, found.data if found else None):
            yield pa.RecordBatch.from_arrays([pa.array([problem])], names=["problem"])

    return check


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
