"""`sandur_dataset`: published datasets, read from the catalog's store."""

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sandur.errors import BadRequest, Unavailable
from sandur.operations.lake import Lake
from sandur.pipeline.blocking_lake import open_lake
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
    """The rows of a published dataset.

    Option `dataset`: its name. Option `manifest`: the key of the manifest to read; empty for no rows. Without it, the
    current manifest.
    """

    @classmethod
    def name(cls) -> str:
        return "sandur_dataset"

    def schema(self) -> StructType:
        return _shape(self.options).spark_schema

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema  # The source declares its own.
        return DatasetReader(self.options)


class DatasetReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)

    def partitions(self) -> Sequence[InputPartition]:
        with open_lake(self.options) as blocking:
            manifest = self.options.get("manifest")
            if manifest is None:
                manifest = blocking.wait(_current_manifest(blocking.lake))
            if not manifest:
                return []
            decoded = msgspec.json.decode(blocking.wait(_read(blocking.lake, manifest)), type=_Manifest)
            dataset = decoded.datasets.get(self.options["dataset"])
            return [InputPartition(file.key) for file in dataset.files] if dataset else []

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        if partition is None:  # There are no files.
            return
        shape = _shape(self.options)
        with open_lake(self.options) as blocking:
            data = blocking.wait(_read(blocking.lake, str(partition.value)))
            for batch in pq.ParquetFile(io.BytesIO(data)).iter_batches(ROWS_PER_BATCH):
                yield _shaped(batch, shape)


def _shaped(batch: pa.RecordBatch, shape: Shape) -> pa.RecordBatch:
    """The batch with every column of the shape; a column that is newer than the file is null."""
    names = set(batch.schema.names)
    arrays = [
        batch.column(field.name).cast(field.type) if field.name in names else pa.nulls(batch.num_rows, field.type)
        for field in shape.plain_arrow_schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=shape.plain_arrow_schema)


def _shape(options: Mapping[str, str]) -> Shape:
    name = options.get("dataset", "")
    if name not in SHAPES:
        raise BadRequest(f"option dataset: expected one of {', '.join(sorted(SHAPES))}, found {name!r}")
    return SHAPES[name]


async def _current_manifest(lake: Lake) -> str:
    found = await lake.store.get(lake.layout.core_manifest())
    return msgspec.json.decode(found.data, type=_Pointer).manifest if found else ""


async def _read(lake: Lake, key: str) -> bytes:
    found = await lake.store.get(key)
    if found is None:
        raise Unavailable(f"object {key} does not exist")
    return found.data
