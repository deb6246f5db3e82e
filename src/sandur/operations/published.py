"""Published datasets: the manifest that names their files, and their rows, read without Spark.

The pipeline publishes; servers read. A reader takes the current manifest and the files that it names, so what it reads
belongs to one moment. Files never change, so they are read once.
"""

import asyncio
import io
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from sandur.catalog.record_versions import Record
from sandur.errors import Unavailable
from sandur.extras import has_planning, pa, pq
from sandur.operations.caches import BytesLruCache
from sandur.operations.lake import Lake
from sandur.splicing import NOT_JSON
from sandur.storage.cell import Cell, gather_in_batches
from sandur.storage.contract import portions

ROWS_PER_FILE_MAX: Final = 200_000
FILES_MAX: Final = 64
FULL_FILE_BYTES: Final = 4 << 20
"""The compressed size of a file that was full by its bytes."""


class PublishedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file of a dataset, identified by the hash of its bytes."""

    key: str
    rows: int
    size_bytes: int
    sha256: str


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """A published dataset: its files, and how much of the input they contain.

    `sequence` is that of the last manifest that changed it. `watermark` has the last position of each input, never a
    time.
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
        """Whether it has enough small files to be rewritten."""
        size_bytes = sum(file.size_bytes for file in self.files)
        needed = max(2 * self.rows // ROWS_PER_FILE_MAX, 2 * size_bytes // FULL_FILE_BYTES)
        return len(self.files) >= FILES_MAX + needed


class CoreManifest(msgspec.Struct, frozen=True, kw_only=True):
    """All published datasets at one moment. It is immutable; `previous` is the key of the one before."""

    version: int = 1
    sequence: int = 0
    previous: str | None = None
    run_id: str = ""
    published_ms: int = 0
    datasets: dict[str, Dataset] = {}


class CorePointer(Record, frozen=True, kw_only=True):
    """`core/manifest.json`: the key of the current manifest."""

    sequence: int
    manifest: str
    published_ms: int


DATASET_BYTES_MAX: Final = 256 << 20
"""The compressed size up to which a server reads a dataset. Larger ones are for engines."""
BYTES_PER_PLACE: Final = 200
"""About what the id of a table takes in memory, with the number of its row."""
_FILES_AT_ONCE: Final = 8


class Sized(Protocol):
    """A value with the size that it takes in memory."""

    @property
    def nbytes(self) -> int: ...


P = TypeVar("P", bound=Sized)


class PublishedDatasets:
    """The published datasets of one lake, as tables in memory; they are cached until they are published again."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._cell = Cell(lake.store, lake.layout.core_manifest(), CorePointer, lake.clock)
        self._manifest: tuple[str, CoreManifest] = ("", CoreManifest())
        self._held: BytesLruCache[tuple[str, str, int, tuple[str, ...]], Sized] = BytesLruCache(
            lake.settings.published_cache_bytes_max, size_of=lambda value: max(value.nbytes, 1)
        )
        self._reading = asyncio.Lock()

    async def manifest(self) -> CoreManifest:
        """The current manifest; an empty one if nothing is published."""
        held = await self._cell.read()
        if held is None:
            return CoreManifest()
        key = held.value.manifest
        if key != self._manifest[0]:
            data = await _read(self._lake, key)
            try:
                self._manifest = (key, msgspec.json.decode(data, type=CoreManifest))
            except NOT_JSON as error:
                raise Unavailable(f"manifest {key} is damaged: {error}") from error
        return self._manifest[1]

    async def table(self, manifest: CoreManifest, name: str, columns: Sequence[str]) -> "pa.Table":
        """These columns of a dataset of a manifest; without rows if it was never published."""
        return await self._cached(manifest, name, columns, None)

    async def prepared(
        self, manifest: CoreManifest, name: str, columns: Sequence[str], prepare: "Callable[[pa.Table], P]"
    ) -> P:
        """What is made from these columns, in a thread, once for each publication. It counts as the table would."""
        made: P = await self._cached(manifest, name, columns, prepare)
        return made

    async def _cached(
        self, manifest: CoreManifest, name: str, columns: Sequence[str], prepare: "Callable[[pa.Table], Sized] | None"
    ) -> Any:  # noqa: ANN401 - a table, or what is made from one
        dataset = manifest.datasets.get(name, Dataset(sequence=0))
        use = prepare.__qualname__ if prepare else ""
        key = (name, use, dataset.sequence, tuple(columns))
        async with self._reading:  # A second request for the same dataset waits for the first one's table.
            if key in self._held:
                return self._held[key]
            value: Sized = await self._load(name, dataset, columns)
            if prepare:
                value = await asyncio.to_thread(prepare, value)
            self._held[key] = value
            for old in [one for one in self._held if (*one[:2], one[3]) == (name, use, key[3]) and one != key]:
                self._held.drop(old)
            return value

    async def _load(self, name: str, dataset: Dataset, columns: Sequence[str]) -> "pa.Table":
        size = sum(file.size_bytes for file in dataset.files)
        if size > DATASET_BYTES_MAX:
            raise Unavailable(
                f"dataset {name} has {size} bytes, and a server reads at most {DATASET_BYTES_MAX}; query the table "
                f"system.{name} with an engine"
            )
        parts: list[pa.Table] = []
        for some in portions(dataset.files, _FILES_AT_ONCE):
            read = await gather_in_batches(some, lambda file: _read(self._lake, file.key), at_once=_FILES_AT_ONCE)
            parts += await asyncio.to_thread(lambda data: [_columns_of(one, columns) for one in data], read)
        return pa.concat_tables(parts, promote_options="default") if parts else _empty(columns)


def _columns_of(data: bytes, columns: Sequence[str]) -> "pa.Table":
    """The columns of a file; a column that is newer than the file is null."""
    file = pq.ParquetFile(io.BytesIO(data))
    present = [name for name in columns if name in file.schema_arrow.names]
    table = file.read(columns=present)
    for name in columns:
        if name not in present:
            table = table.append_column(name, pa.nulls(table.num_rows))
    return table.select(list(columns)).replace_schema_metadata(None)


class NoRows:
    """An empty table on a server without pyarrow, for pages that can do without what is published."""

    num_rows = 0
    nbytes = 0

    def to_pylist(self) -> list[dict[str, object]]:
        return []


def _empty(columns: Sequence[str]) -> "pa.Table":
    if not has_planning():
        return NoRows()
    return pa.table({name: pa.array([], type=pa.string()) for name in columns})


async def _read(lake: Lake, key: str) -> bytes:
    found = await lake.store.get(key)
    if found is None:
        raise Unavailable(f"object {key} does not exist; the next try reads what is published then")
    return found.data
