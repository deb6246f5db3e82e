"""Publish datasets: executors write files, the driver verifies them, writes a manifest, and swaps `core/manifest.json`.

A run that dies before the swap leaves unreferenced files in its own folder; one that dies after it has published.
There is nothing in between: a reader takes the current manifest and the files that it names.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace
from pyspark.sql import DataFrame, Row

from sandur.errors import Busy, Conflict, SwapLost, Unavailable
from sandur.operations.published import CoreManifest, CorePointer, Dataset, PublishedFile
from sandur.pipeline.executor_tasks.write import (
    PROBLEMS,
    SMALL_BYTES_MAX,
    WRITTEN,
    find_problems,
    verify_task,
    write_task,
)
from sandur.pipeline.job import JobContext
from sandur.pipeline.sources.datasets import SandurDataset
from sandur.pipeline.sources.range_reader import read_frame
from sandur.pipeline.tables import SHAPES, Shape
from sandur.pipeline.tasks import empty_frame, run_per_item
from sandur.splicing import NOT_JSON
from sandur.storage.cell import Cell, Versioned
from sandur.storage.contract import ABSENT

MANIFEST: Final = "manifest.json"
SWAPS_MAX: Final = 8
MANIFESTS_MAX: Final = 100_000


@dataclass(frozen=True)
class DatasetUpdate:
    """New `files` of a dataset, in place of the old ones or in addition to them."""

    files: Sequence[PublishedFile]
    watermark: Mapping[str, int]
    appends: bool = False


class Publication:
    """One run's consistent view of the published datasets, which it may change once."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self.attempt = context.clock.new_id()
        self._cell = manifest_cell(context)
        self._held, self._base = context.wait(self._read())
        self._written: list[tuple[str, PublishedFile]] = []
        self.manifest = self._base
        """The manifest at the start of this run, and then the published one."""
        self.published: CorePointer | None = None
        """The pointer that this run swapped in; None before that."""

    def dataset(self, shape: Shape) -> Dataset:
        """A dataset at the start of this run; empty if it was never published."""
        return self._base.datasets.get(shape.name, Dataset(sequence=0))

    def read(self, shape: Shape) -> DataFrame:
        """The rows of a dataset at the start of this run."""
        if not self.dataset(shape).rows:
            return empty_frame(self._context.spark, shape.spark_schema)
        self._context.read_datasets.add(shape.name)
        manifest = self._held.value.manifest if self._held else ""
        source = SandurDataset({**self._context.source_options, "dataset": shape.name, "manifest": manifest})
        return read_frame(self._context.spark, source)

    def write(self, rows: DataFrame, shape: Shape) -> Sequence[PublishedFile]:
        """Write rows into unpublished files, in executors; each file is sorted by the key of the shape."""
        task = write_task(self._context.source_options, self.attempt, shape.name)
        sorted_rows = rows.select(*shape.column_names).sortWithinPartitions(*shape.key)
        return self.add_written(sorted_rows.mapInArrow(task, WRITTEN).collect()).get(shape.name, ())

    def add_written(self, rows: Sequence[Row]) -> Mapping[str, Sequence[PublishedFile]]:
        """The files that tasks of this attempt wrote, by dataset; `publish` verifies them."""
        found: dict[str, list[PublishedFile]] = {}
        for row in sorted(rows, key=lambda row: str(row.key)):
            fields = row.asDict()
            found.setdefault(fields.pop("dataset"), []).append(PublishedFile(**fields))
        self._written += [(name, file) for name, files in found.items() for file in files]
        return found

    def publish(self, changes: Mapping[str, DatasetUpdate]) -> None:
        """Verify the written files, then publish them; raises Conflict if another run changed one of the datasets.

        The pointer is read before the files are verified. The garbage collector bumps it before it deletes unreferenced
        files, so either the verification misses them, or the swap is lost and everything is verified again (G5).
        """
        for number in range(SWAPS_MAX):
            held, current = self._context.wait(self._read())
            for name in changes:
                if self._base.datasets.get(name) != current.datasets.get(name):
                    raise Conflict(f"publishing {name}: another run published it in the meantime; this run stops")
            self._verify()
            self._context.check_fence()
            manifest = self._next(held, current, changes)
            if self._context.wait(self._swap(held, manifest, number)):
                return
        raise Busy(f"publishing: lost {SWAPS_MAX} swaps to other runs")

    def _verify(self) -> None:
        """Read every file back and compare its bytes, rows and columns; in executors if the files are large."""
        if sum(file.size_bytes for _, file in self._written) <= SMALL_BYTES_MAX:
            problems = self._context.wait(find_problems(self._context.lake.store, self._written))
        else:
            task = verify_task(self._context.source_options)
            problems = [
                row.problem for row in run_per_item(self._context.spark, self._written, task, PROBLEMS).collect()
            ]
        if problems:
            raise Unavailable(f"publishing: {len(problems)} written files are damaged, for example {problems[0]}")

    async def _swap(self, held: Versioned[CorePointer] | None, manifest: CoreManifest, number: int) -> bool:
        """Write the manifest and make it current; returns False if the swap was lost."""
        key = self._context.layout.core_snapshot(self.attempt, MANIFEST if not number else f"manifest-{number}.json")
        await self._context.lake.store.put(key, msgspec.json.encode(manifest), expected=ABSENT)
        pointer = CorePointer(sequence=manifest.sequence, manifest=key, published_ms=manifest.published_ms)
        try:
            await self._cell.swap(pointer, expected=held.version if held else ABSENT)  # The publication happens here.
        except SwapLost:
            found = await self._cell.read()
            if found is None or found.value.manifest != key:
                return False
        self.manifest, self.published = manifest, pointer
        return True

    def _next(
        self, held: Versioned[CorePointer] | None, current: CoreManifest, changes: Mapping[str, DatasetUpdate]
    ) -> CoreManifest:
        datasets = dict(current.datasets)
        for name, change in changes.items():
            kept = datasets[name].files if change.appends and name in datasets else ()
            datasets[name] = Dataset(
                sequence=current.sequence + 1,
                files=(*kept, *change.files),
                columns=tuple(SHAPES[name].column_names),
                watermark=dict(change.watermark),
            )
        return replace(
            current,
            sequence=current.sequence + 1,
            previous=held.value.manifest if held else None,
            run_id=self._context.run_id,
            published_ms=self._context.clock.now_ms(),
            datasets=datasets,
        )

    async def _read(self) -> tuple[Versioned[CorePointer] | None, CoreManifest]:
        held = await self._cell.read()
        return held, await read_manifest(self._context, held.value.manifest) if held else CoreManifest()


async def referenced_files(context: JobContext, *, replaced_after_ms: int) -> Sequence[str]:
    """The keys of the current manifest, of manifests that were replaced after that time, and of all their files.

    Readers of a replaced manifest still need its files. The result is one empty key if nothing is published.
    """
    held = await manifest_cell(context).read()
    key = held.value.manifest if held else ""
    manifest = await read_manifest(context, key) if key else CoreManifest()
    named: set[str] = set()
    for _ in range(MANIFESTS_MAX):
        named.update((key, *(file.key for dataset in manifest.datasets.values() for file in dataset.files)))
        if manifest.previous is None or manifest.published_ms <= replaced_after_ms:
            return sorted(named)
        key, found = manifest.previous, await _manifest(context, manifest.previous)
        if found is None:
            return sorted(named)  # This manifest and all before it were collected.
        manifest = found
    raise Unavailable(f"publishing: more than {MANIFESTS_MAX} manifests were replaced within the retention")


async def bump_manifest(context: JobContext) -> None:
    """Make every pending publication lose its swap, so that it verifies its files again (GC1)."""
    cell = manifest_cell(context)
    held = await cell.read()
    if held is None:
        return  # A first publication verifies its files right before its swap, and they are younger than a day.
    with contextlib.suppress(SwapLost):  # Another swap has the same effect.
        await cell.swap(held.value, expected=held.version)


def manifest_cell(context: JobContext) -> Cell[CorePointer]:
    return Cell(context.lake.store, context.layout.core_manifest(), CorePointer, context.clock)


async def read_manifest(context: JobContext, key: str) -> CoreManifest:
    """A manifest by its key; raises Unavailable if it is missing or damaged."""
    found = await _manifest(context, key)
    if found is None:
        raise Unavailable(f"manifest {key} does not exist")
    return found


async def _manifest(context: JobContext, key: str) -> CoreManifest | None:
    found = await context.lake.store.get(key)
    try:
        return msgspec.json.decode(found.data, type=CoreManifest) if found else None
    except NOT_JSON as error:
        raise Unavailable(f"manifest {key} is damaged: {error}") from error
