"""What all data sources share: ranges of keys planned on the driver, objects read in executors, rows as Arrow."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sandur.pipeline.sources.options import open_store_of
from sandur.pipeline.sources.ranges import KeyRange, listed_in
from sandur.pipeline.tables import Shape, clamped_ms
from sandur.pipeline.waiting import OpenStore
from sandur.storage.contract import Listed

OBJECTS_AT_ONCE: Final = 2_000

Row = Mapping[str, object]
"""A row by the names of its columns; what is not there is null."""


class RangePartition(InputPartition):
    """A range of keys that one task reads."""

    def __init__(self, keys: KeyRange) -> None:
        super().__init__(tuple(keys))
        self.keys = keys


class ShapedSource(DataSource):
    """A data source whose rows have a declared shape."""

    shape: Shape

    def schema(self) -> StructType:
        return self.shape.spark_schema


class RangeReader(DataSourceReader):
    """Reads objects range by range. Subclasses say which ranges there are, and what rows an object makes."""

    shape: Shape

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)

    @abstractmethod
    async def ranges(self, open_store: OpenStore) -> Sequence[KeyRange]:
        """Which ranges of keys there are; asked on the driver."""

    @abstractmethod
    async def rows(self, open_store: OpenStore, listed: Sequence[Listed]) -> Sequence[Row]:
        """The rows of some objects; asked in executors."""

    def partitions(self) -> Sequence[RangePartition]:
        with open_store_of(self.options) as open_store:
            return [RangePartition(keys) for keys in open_store.wait(self.ranges(open_store))]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        if partition is None:  # There are no ranges.
            return
        keys = KeyRange(*partition.value)
        with open_store_of(self.options) as open_store:
            for page in each(open_store, listed_in(open_store.store, keys)):
                for some in portions(page, OBJECTS_AT_ONCE):
                    yield batch_of(self.shape, open_store.wait(self.rows(open_store, some)))


def portions(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (values[start : start + size] for start in range(0, len(values), size))


def each(open_store: OpenStore, values: AsyncIterator[Any]) -> Iterator[Any]:
    """The values of asynchronous work, one after the other."""

    async def following() -> tuple[bool, Any]:
        async for value in values:
            return True, value
        return False, None

    while True:
        is_there, value = open_store.wait(following())
        if not is_there:
            return
        yield value


def batch_of(shape: Shape, rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows as Spark takes them; times are whole milliseconds since 1970 in columns that end in `_at`."""
    arrays = []
    for column, field in zip(shape.columns, shape.plain_arrow_schema, strict=True):
        name = column.name
        values = [row.get(name) for row in rows]
        if column.kind == "timestamptz":
            values = [clamped_ms(value) * 1_000 if isinstance(value, int) else None for value in values]
        arrays.append(pa.array(values, type=field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=shape.plain_arrow_schema)
