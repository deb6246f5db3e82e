"""Published datasets: the manifest that names their files, and `sandur_dataset`, which reads them."""

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import InputPartition

from sandur.catalog.record_versions import Record
from sandur.errors import BadRequest, Unavailable
from sandur.operations.lake import Lake
from sandur.pipeline.blocking_lake import open_lake
from sandur.pipeline.sources.range_reader import ShapedSource
from sandur.pipeline.tables import SHAPES, Shape

ROWS_PER_BATCH: Final = 20_000
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


class SandurDataset(ShapedSource):
    """The rows of a published dataset.

    Option `dataset`: its name. Option `manifest`: the key of the manifest to read; empty for no rows. Without it, the
    current manifest.
    """

    source_name = "sandur_dataset"

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        name = options.get("dataset", "")
        if name not in SHAPES:
            raise BadRequest(f"option dataset: expected one of {', '.join(sorted(SHAPES))}, found {name!r}")
        self.shape = SHAPES[name]

    def partitions(self) -> Sequence[InputPartition]:
        with open_lake(self.options) as blocking:
            manifest = self.options.get("manifest")
            if manifest is None:
                manifest = blocking.wait(_current_manifest(blocking.lake))
            if not manifest:
                return []
            decoded = msgspec.json.decode(blocking.wait(_read(blocking.lake, manifest)), type=CoreManifest)
            dataset = decoded.datasets.get(self.shape.name)
            return [InputPartition(file.key) for file in dataset.files] if dataset else []

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        if partition is None:  # There are no files.
            return
        with open_lake(self.options) as blocking:
            data = blocking.wait(_read(blocking.lake, str(partition.value)))
            for batch in pq.ParquetFile(io.BytesIO(data)).iter_batches(ROWS_PER_BATCH):
                yield _shaped(batch, self.shape)


def _shaped(batch: pa.RecordBatch, shape: Shape) -> pa.RecordBatch:
    """The batch with every column of the shape; a column that is newer than the file is null."""
    names = set(batch.schema.names)
    arrays = [
        batch.column(field.name).cast(field.type) if field.name in names else pa.nulls(batch.num_rows, field.type)
        for field in shape.plain_arrow_schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=shape.plain_arrow_schema)


async def _current_manifest(lake: Lake) -> str:
    found = await lake.store.get(lake.layout.core_manifest())
    return msgspec.json.decode(found.data, type=CorePointer).manifest if found else ""


async def _read(lake: Lake, key: str) -> bytes:
    found = await lake.store.get(key)
    if found is None:
        raise Unavailable(f"object {key} does not exist")
    return found.data
