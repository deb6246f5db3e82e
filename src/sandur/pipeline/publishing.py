"""Publishing: executors write aside, the driver checks, writes an immutable manifest, and swaps `core/manifest.json`.

A run that dies before the swap leaves files in a folder of its own that nobody refers to; one that dies after it has
published. There is nothing in between: a reader takes the manifest that is swapped in, and all it names.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace
from pyspark.sql import DataFrame, Row

from sandur.catalog.records import Record
from sandur.errors import Busy, Conflict, SwapLost, Unavailable
from sandur.pipeline.executor_tasks.write import (
    ROWS_PER_FILE_MAX,
    SMALL_BYTES_MAX,
    WRITTEN,
    PublishedFile,
    file_checker,
    file_writer,
    problems_of,
)
from sandur.pipeline.job import JobContext
from sandur.pipeline.sources.datasets import DatasetReader
from sandur.pipeline.tables import SHAPES, Shape
from sandur.pipeline.tasks import frame_of, one_task_each, without_rows
from sandur.storage.cell import Cell, Versioned
from sandur.storage.contract import ABSENT

MANIFEST: Final = "manifest.json"
FILES_MAX: Final = 64
FULL_FILE_BYTES: Final = 4 << 20
"""What is left of a file that was full by its bytes, compressed well."""
SWAPS_MAX: Final = 8
MANIFESTS_MAX: Final = 100_000


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

    @property
    def is_scattered(self) -> bool:
        """Whether it has so many more files than its rows and bytes need that they should be written anew."""
        size_bytes = sum(file.size_bytes for file in self.files)
        needed = max(2 * self.rows // ROWS_PER_FILE_MAX, 2 * size_bytes // FULL_FILE_BYTES)
        return len(self.files) >= FILES_MAX + needed


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
        self.attempt = context.clock.new_id()
        self._cell = manifest_cell(context)
        self._held, self.base = context.wait(self._read())
        self._written: list[tuple[str, PublishedFile]] = []
        self.manifest_key: str | None = None
        """The manifest that this run published; None while it has not."""

    def watermark(self, dataset: str, name: str) -> int:
        """How far an input is in a dataset; 0 when nothing of it is."""
        found = self.base.datasets.get(dataset)
        return found.watermark.get(name, 0) if found else 0

    def rows(self, shape: Shape) -> int:
        """How many rows a dataset had when this run began."""
        found = self.base.datasets.get(shape.name)
        return found.rows if found else 0

    def read(self, shape: Shape) -> DataFrame:
        """A dataset as it was when this run began; without rows when it was not published yet."""
        if not self.rows(shape):
            return without_rows(self._context.spark, shape.spark_schema)
        manifest = self._held.value.manifest if self._held else ""
        told = {**self._context.source_options, "dataset": shape.name, "manifest": manifest}
        return frame_of(self._context.spark, DatasetReader(told), shape.spark_schema)

    def write(self, rows: DataFrame, shape: Shape) -> Sequence[PublishedFile]:
        """Write rows aside, in executors, sorted by the key of the shape within each file."""
        options = dict(self._context.source_options)
        sorted_rows = rows.select(*shape.column_names).sortWithinPartitions(*shape.key)
        written = sorted_rows.mapInArrow(file_writer(options, self.attempt, shape.name), WRITTEN).collect()
        return self.written(written).get(shape.name, ())

    def written(self, rows: Sequence[Row]) -> Mapping[str, Sequence[PublishedFile]]:
        """The files that tasks of this attempt say they wrote, by dataset; they are checked before they count."""
        found: dict[str, list[PublishedFile]] = {}
        for row in sorted(rows, key=lambda row: str(row.key)):
            told = row.asDict()
            found.setdefault(told.pop("dataset"), []).append(PublishedFile(**told))
        self._written += [(name, file) for name, files in found.items() for file in files]
        return found

    def publish(self, changes: Mapping[str, Change]) -> CoreManifest:
        """Check what was written, then make it count. Conflict when another run changed one of the datasets.

        What is swapped is read before the files are looked at: who collects garbage bumps it before files go that it
        does not name, so that either they are missed here, or the swap is lost and all is asked again (G5).
        """
        for number in range(SWAPS_MAX):
            held, current = self._context.wait(self._read())
            self._check_unchanged(current, changes)
            self._verify()
            self._context.check_fence()
            manifest = self._next(held, current, changes)
            if self._context.wait(self._is_swapped(held, manifest, number)):
                return manifest
        raise Busy("publishing: others keep publishing")

    def _verify(self) -> None:
        """Every file is read back from the store: its bytes, its rows, its columns. By executors, if it is much."""
        if sum(file.size_bytes for _, file in self._written) <= SMALL_BYTES_MAX:
            wrong = self._context.wait(problems_of(self._context.open_store.store, self._written))
        else:
            check = file_checker(dict(self._context.source_options))
            rows = one_task_each(self._context.spark, self._written, check, "problem string").collect()
            wrong = [row.problem for row in rows]
        if wrong:
            raise Unavailable(f"publishing: {len(wrong)} files are not as they were written: {wrong[0]}")

    async def _is_swapped(self, held: Versioned[CorePointer] | None, manifest: CoreManifest, number: int) -> bool:
        """Write the manifest and let it count; False when the swap was lost."""
        key = self._layout.core_snapshot(self.attempt, MANIFEST if not number else f"manifest-{number}.json")
        await self._context.open_store.store.put(key, msgspec.json.encode(manifest), expected=ABSENT)
        pointer = CorePointer(sequence=manifest.sequence, manifest=key, published_ms=manifest.published_ms)
        try:
            await self._cell.swap(pointer, expected=held.version if held else ABSENT)  # It happens here.
        except SwapLost:
            found = await self._cell.read()
            if found is None or found.value.manifest != key:
                return False
        self.manifest_key = key
        return True

    def _check_unchanged(self, current: CoreManifest, changes: Mapping[str, Change]) -> None:
        for name in changes:
            before, now = self.base.datasets.get(name), current.datasets.get(name)
            if before != now:
                raise Conflict(f"publishing {name}: another run has published it meanwhile; this one stops")

    def _next(
        self, held: Versioned[CorePointer] | None, current: CoreManifest, changes: Mapping[str, Change]
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

    async def _read(self) -> tuple[Versioned[CorePointer] | None, CoreManifest]:
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


async def referenced_files(context: JobContext, *, followed_after_ms: int) -> Sequence[str]:
    """The keys of all that counts, and of all that counted until another followed it after that time.

    Who has begun to read a manifest goes on to read the files it names. One key that is none when nothing is published.
    """
    held = await manifest_cell(context).read()
    key = held.value.manifest if held else ""
    manifest = await read_manifest(context, key) if key else CoreManifest()
    named: set[str] = set()
    for _ in range(MANIFESTS_MAX):
        named.update((key, *(file.key for dataset in manifest.datasets.values() for file in dataset.files)))
        if manifest.previous is None or manifest.published_ms <= followed_after_ms:
            return sorted(named)
        key, found = manifest.previous, await _manifest(context, manifest.previous)
        if found is None:
            return sorted(named)  # It was collected, and those before it.
        manifest = found
    raise Unavailable(f"publishing: more than {MANIFESTS_MAX} manifests counted lately")


async def bump_manifest(context: JobContext) -> None:
    """Let every run that has not published yet lose its swap, and look after its files again (GC1)."""
    cell = manifest_cell(context)
    held = await cell.read()
    if held is None:
        return  # Who publishes first has checked its files, and a day is long for that.
    with contextlib.suppress(SwapLost):  # Whoever swapped it meanwhile has done the same.
        await cell.swap(held.value, expected=held.version)


def manifest_cell(context: JobContext) -> Cell[CorePointer]:
    return Cell(context.open_store.store, context.layout.core_manifest(), CorePointer, context.clock)


async def read_manifest(context: JobContext, key: str) -> CoreManifest:
    """An immutable manifest by its key."""
    found = await _manifest(context, key)
    if found is None:
        raise Unavailable(f"manifest {key}: is not there")
    return found


async def _manifest(context: JobContext, key: str) -> CoreManifest | None:
    """A manifest; None when it is not there."""
    found = await context.open_store.store.get(key)
    try:
        return msgspec.json.decode(found.data, type=CoreManifest) if found else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable(f"manifest {key}: is damaged: {error}") from error
