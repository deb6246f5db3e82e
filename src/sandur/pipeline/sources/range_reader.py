"""Read objects by ranges of keys: the driver plans the ranges, executors read them; `sandur_files` lists objects."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sandur.errors import BadRequest
from sandur.operations.lake import Lake
from sandur.pipeline.blocking_lake import open_lake
from sandur.pipeline.tables import Shape, clamped_ms, shape
from sandur.pipeline.tasks import empty_frame, run_per_item
from sandur.storage.contract import Listed, ObjectStore, list_pages, portions

S = TypeVar("S")
T = TypeVar("T")

RANGES_MAX: Final = 256
LEVELS_MAX: Final = 16
SMALL: Final = 1_000
"""One task reads a folder with fewer objects than this."""
LISTED_AT_ONCE: Final = 20_000
OBJECTS_AT_ONCE: Final = 2_000
LOOKUPS_AT_ONCE: Final = 64
_HEX: Final = "0123456789abcdef"
# In byte order `0` follows `/`, so this suffix sorts after everything in a folder.
_BEHIND_FOLDER: Final = "0"

Row = Mapping[str, object]
"""A row by column name; a missing column is null."""


class KeyRange(NamedTuple):
    """The objects below the folder `prefix` with `after` < key <= `until`; None is no bound."""

    prefix: str
    after: str | None = None
    until: str | None = None


def hex_ranges(folder: str) -> Sequence[KeyRange]:
    """A folder of names that start with a hex digit (uuids, hashes) as sixteen ranges that cover every name."""
    return ranges_between(folder, [f"{folder}{digit}" for digit in _HEX[1:]])


def ranges_between(folder: str, bounds: Sequence[str]) -> Sequence[KeyRange]:
    """The whole folder, split at the bounds."""
    return [KeyRange(folder, after, until) for after, until in zip([None, *bounds], [*bounds, None], strict=True)]


async def hashed_ranges(store: ObjectStore, folder: str) -> Sequence[KeyRange]:
    """As `hex_ranges`, but one range for a small folder."""
    return [KeyRange(folder)] if await _is_small(store, folder) else hex_ranges(folder)


async def _is_small(store: ObjectStore, prefix: str) -> bool:
    return len(await store.list(prefix, limit=SMALL)) < SMALL


async def folder_ranges(store: ObjectStore, prefix: str, *, ranges_max: int = RANGES_MAX) -> Sequence[KeyRange]:
    """A folder, split by its subfolders; each costs one listing of one object.

    A folder whose only content is one subfolder is split by that one's subfolders. After `ranges_max` subfolders the
    last range holds the rest. A small folder, or one without subfolders, is one range.
    """
    if await _is_small(store, prefix):
        return [KeyRange(prefix)]
    folders: Sequence[str] = ()
    for _ in range(LEVELS_MAX):
        folders = await _subfolders(store, prefix, ranges_max)
        if len(folders) != 1:
            break
        alone = folders[0]
        behind = await store.list(prefix, after=f"{alone[:-1]}{_BEHIND_FOLDER}", limit=1)
        first = await store.list(prefix, limit=1)
        if behind or not first or not first[0].key.startswith(alone):
            break  # There are files beside the subfolder.
        prefix = alone
    return ranges_between(prefix, [f"{folder[:-1]}{_BEHIND_FOLDER}" for folder in folders])


async def _subfolders(store: ObjectStore, prefix: str, count_max: int) -> Sequence[str]:
    found: list[str] = []
    after: str | None = None
    for _ in range(count_max):
        page = await store.list(prefix, after=after, limit=1)
        if not page:
            break
        name, slash, _ = page[0].key[len(prefix) :].partition("/")
        if slash:
            found.append(f"{prefix}{name}/")
            after = f"{prefix}{name}{_BEHIND_FOLDER}"
        else:
            after = page[0].key
    return found


async def list_range(store: ObjectStore, keys: KeyRange) -> AsyncIterator[Sequence[Listed]]:
    """The objects of a range in order, page by page."""
    async for page in list_pages(store, keys.prefix, after=keys.after, limit=LISTED_AT_ONCE):
        inside = [listed for listed in page if keys.until is None or listed.key <= keys.until]
        if inside:
            yield inside
        if len(inside) < len(page):
            return


async def gather_bounded(items: Sequence[S], work: Callable[[S], Awaitable[T]]) -> Sequence[T]:
    """The results in order; at most LOOKUPS_AT_ONCE run at the same time."""
    slots = asyncio.Semaphore(LOOKUPS_AT_ONCE)

    async def one(item: S) -> T:
        async with slots:
            return await work(item)

    return await asyncio.gather(*(one(item) for item in items))


class ShapedSource(DataSource, DataSourceReader):
    """A data source of rows with a declared shape, which is its own reader. Those for users have a name."""

    source_name: str
    shape: Shape

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))

    @classmethod
    def name(cls) -> str:
        return cls.source_name

    def schema(self) -> StructType:
        return self.shape.spark_schema

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema  # The source declares its own.
        return self


def read_frame(spark: SparkSession, source: ShapedSource) -> DataFrame:
    """The rows of a data source; the driver plans the partitions."""
    partitions = list(source.partitions())
    if not partitions:
        return empty_frame(spark, source.schema())
    return run_per_item(spark, partitions, lambda partition: iter(source.read(partition)), source.schema())


class RangeSource(ShapedSource):
    """Reads objects range by range. Subclasses plan the ranges, and convert one object or some objects to rows."""

    objects_at_once = OBJECTS_AT_ONCE
    """How many objects become one batch of rows."""

    @abstractmethod
    async def ranges(self, lake: Lake) -> Sequence[KeyRange]:
        """The ranges of keys to read; runs on the driver."""

    async def row(self, lake: Lake, key: str) -> Row | None:
        """The row of an object; None if it has none. Runs in executors."""
        raise NotImplementedError

    async def rows(self, lake: Lake, listed: Sequence[Listed]) -> Sequence[Row]:
        """The rows of some objects; runs in executors."""
        return [row for row in await gather_bounded(listed, lambda one: self.row(lake, one.key)) if row]

    def partitions(self) -> Sequence[InputPartition]:
        with open_lake(self.options) as blocking:
            return [InputPartition(tuple(keys)) for keys in blocking.wait(self.ranges(blocking.lake))]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        if partition is None:  # There are no ranges.
            return
        keys = KeyRange(*partition.value)
        with open_lake(self.options) as blocking:
            for page in blocking.iterate(list_range(blocking.lake.store, keys)):
                for some in portions(page, self.objects_at_once):
                    yield shaped_batch(self.shape, blocking.wait(self.rows(blocking.lake, some)))


def shaped_batch(shape: Shape, rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows as a record batch of the shape; a timestamp in a row is milliseconds since 1970."""
    arrays = []
    for column, field in zip(shape.columns, shape.plain_arrow_schema, strict=True):
        values = [row.get(column.name) for row in rows]
        if column.kind == "timestamptz":
            values = [clamped_ms(value) * 1_000 if isinstance(value, int) else None for value in values]
        arrays.append(pa.array(values, type=field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=shape.plain_arrow_schema)


FILES: Final = shape("files", "key string!, version string!, size_bytes long!, modified_at timestamptz!", key="key")


class SandurFiles(RangeSource):
    """One row per object: `key`, `version`, `size_bytes`, `modified_at`.

    Option `prefix`: a folder of the store that ends in `/`; empty for the whole store. Its subfolders become tasks.
    """

    source_name = "sandur_files"
    shape = FILES

    async def ranges(self, lake: Lake) -> Sequence[KeyRange]:
        prefix = self.options.get("prefix", "")
        if prefix and not prefix.endswith("/"):
            raise BadRequest(f"option prefix: expected a folder that ends in /, found {prefix!r}")
        return await folder_ranges(lake.store, prefix)

    async def rows(self, lake: Lake, listed: Sequence[Listed]) -> Sequence[Row]:
        del lake  # The listing has every column.
        return [{**one._asdict(), "modified_at": one.modified_ms} for one in listed]
