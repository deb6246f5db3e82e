"""`sandur_dataset`: the rows of a published dataset."""

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import InputPartition

from sandur.errors import BadRequest, Unavailable
from sandur.operations.lake import Lake
from sandur.operations.published import CoreManifest, CorePointer
from sandur.pipeline.blocking_lake import open_lake
from sandur.pipeline.sources.range_reader import ShapedSource
from sandur.pipeline.tables import SHAPES, Shape

ROWS_PER_BATCH: Final = 20_000


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
