"""`sandur_dataset`: what the pipeline has published, read from the catalog's store itself."""

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sandur.errors import BadRequest, Unavailable
from sandur.pipeline.blocking_lake import BlockingLake, open_lake
from sandur.pipeline.tables import SHAPES, Shape

ROWS_PER_BATCH: Final = 20_000


class _Pointer(msgspec.Struct):
    manifest: str


class _File(msgspec.Struct):
    key: str


class _Dataset(msgspec.Struct):
    files: list[_File]


class _Manifest(msgspec.Struct):
    datasets: dict[str, _Dataset]


class SandurDataset(DataSource):
    """The rows of a published table.

    Option `dataset`: which one. Option `manifest`: as an earlier manifest names it, by its key; empty for nothing at
    all. Without it, as it is now.
    """

    @classmethod
    def name(cls) -> str:
        return "sandur_dataset"

    def schema(self) -> StructType:
        return _shape(self.options).spark_schema

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema  # It is declared.
        return DatasetReader(self.options)


class DatasetReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)

    def partitions(self) -> Sequence[InputPartition]:
        with open_lake(self.options) as open_store:
            manifest = self.options.get("manifest")
            if manifest is None:
                manifest = open_store.wait(_current(open_store))
            if not manifest:
                return []
            decoded = msgspec.json.decode(open_store.wait(_bytes(open_store, manifest)), type=_Manifest)
            dataset = decoded.datasets.get(self.options["dataset"])
            return [InputPartition(file.key) for file in dataset.files] if dataset else []

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        if partition is None:  # There are no files.
            return
        shape = _shape(self.options)
        with open_lake(self.options) as open_store:
            data = open_store.wait(_bytes(open_store, str(partition.value)))
            for batch in pq.ParquetFile(io.BytesIO(data)).iter_batches(ROWS_PER_BATCH):
                yield _shaped(batch, shape)


def _shaped(batch: pa.RecordBatch, shape: Shape) -> pa.RecordBatch:
    """With every column of the shape: a file that was written before a column was added has nulls there."""
    names = set(batch.schema.names)
    arrays = [
        batch.column(field.name).cast(field.type) if field.name in names else pa.nulls(batch.num_rows, field.type)
        for field in shape.plain_arrow_schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=shape.plain_arrow_schema)


def _shape(options: Mapping[str, str]) -> Shape:
    name = options.get("dataset", "")
    if name not in SHAPES:
        raise BadRequest(f"option dataset: {name!r} is none of {', '.join(sorted(SHAPES))}")
    return SHAPES[name]


async def _current(open_store: BlockingLake) -> str:
    found = await open_store.store.get(open_store.layout.core_manifest())
    return msgspec.json.decode(found.data, type=_Pointer).manifest if found else ""


async def _bytes(open_store: BlockingLake, key: str) -> bytes:
    found = await open_store.store.get(key)
    if found is None:
        raise Unavailable(f"object {key}: is not there")
    return found.data
