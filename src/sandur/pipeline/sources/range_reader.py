"""Read objects by ranges of keys: the driver plans the ranges, executors read them; `sandur_files` lists objects."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sandur.errors import BadRequest
from sandur.pipeline.blocking_lake import BlockingLake, open_lake
from sandur.pipeline.tables import Shape, clamped_ms, shape
from sandur.storage.contract import Listed, ObjectStore

RANGES_MAX: Final = 256
LEVELS_MAX: Final = 16
SMALL: Final = 1_000
"""A folder with fewer objects than this is read by one task."""
LISTED_AT_ONCE: Final = 20_000
_HEX: Final = "0123456789abcdef"
# In the order of bytes, `0` is what follows `/`: it comes behind everything in a folder.
_BEHIND_FOLDER: Final = "0"


class KeyRange(NamedTuple):
    """The objects below the folder `prefix` whose keys come behind `after` and not behind `until`; None: no bound."""

    prefix: str
    after: str | None = None
    until: str | None = None


def hex_ranges(folder: str) -> Sequence[KeyRange]:
    """A folder whose names begin with hex digits (uuids, hashes), in sixteen parts; together they hold every name."""
    bounds = [f"{folder}{digit}" for digit in _HEX[1:]]
    return [KeyRange(folder, after, until) for after, until in zip([None, *bounds], [*bounds, None], strict=True)]


async def hashed_ranges(store: ObjectStore, folder: str) -> Sequence[KeyRange]:
    """As `hex_ranges`, but one range while there is little in the folder."""
    return [KeyRange(folder)] if await _is_small(store, folder) else hex_ranges(folder)


async def _is_small(store: ObjectStore, prefix: str) -> bool:
    return len(await store.list(prefix, limit=SMALL)) < SMALL


async def folder_ranges(store: ObjectStore, prefix: str, *, ranges_max: int = RANGES_MAX) -> Sequence[KeyRange]:
    """A folder by the folders in it, one listing of one object for each; a folder with one folder in it by that one's.

    Beyond `ranges_max` folders the last range holds the rest. A folder without folders, or with little in it, is one
    range.
    """
    if await _is_small(store, prefix):
        return [KeyRange(prefix)]
    folders: Sequence[str] = ()
    for _ in range(LEVELS_MAX):
        folders = await _folders(store, prefix, ranges_max)
        if len(folders) != 1:
            break
        alone = folders[0]
        behind = await store.list(prefix, after=f"{alone[:-1]}{_BEHIND_FOLDER}", limit=1)
        first = await store.list(prefix, limit=1)
        if behind or not first or not first[0].key.startswith(alone):
            break  # Files lie beside it.
        prefix = alone
    bounds = [f"{folder[:-1]}{_BEHIND_FOLDER}" for folder in folders]
    return [KeyRange(prefix, after, until) for after, until in zip([None, *bounds], [*bounds, None], strict=True)]


async def _folders(store: ObjectStore, prefix: str, count_max: int) -> Sequence[str]:
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


async def listed_in(store: ObjectStore, keys: KeyRange) -> AsyncIterator[Sequence[Listed]]:
    """The objects of a range, in order, some at a time."""
    after = keys.after
    while True:
        page = await store.list(keys.prefix, after=after, limit=LISTED_AT_ONCE)
        inside = [listed for listed in page if keys.until is None or listed.key <= keys.until]
        if inside:
            yield inside
        if len(page) < LISTED_AT_ONCE or len(inside) < len(page):
            return
        after = page[-1].key


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
    async def ranges(self, open_store: BlockingLake) -> Sequence[KeyRange]:
        """Which ranges of keys there are; asked on the driver."""

    @abstractmethod
    async def rows(self, open_store: BlockingLake, listed: Sequence[Listed]) -> Sequence[Row]:
        """The rows of some objects; asked in executors."""

    def partitions(self) -> Sequence[RangePartition]:
        with open_lake(self.options) as open_store:
            return [RangePartition(keys) for keys in open_store.wait(self.ranges(open_store))]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        if partition is None:  # There are no ranges.
            return
        keys = KeyRange(*partition.value)
        with open_lake(self.options) as open_store:
            for page in each(open_store, listed_in(open_store.store, keys)):
                for some in portions(page, OBJECTS_AT_ONCE):
                    yield batch_of(self.shape, open_store.wait(self.rows(open_store, some)))


def portions(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (values[start : start + size] for start in range(0, len(values), size))


def each(open_store: BlockingLake, values: AsyncIterator[Any]) -> Iterator[Any]:
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


FILES: Final = shape("files", "key string!\nversion string!\nsize_bytes long!\nmodified_at timestamptz!\n", key="key")


class SandurFiles(ShapedSource):
    """One row for every object: `key`, `version`, `size_bytes`, `modified_at`.

    Option `prefix`: a folder of the store, ending in `/`; empty for all of it. Tasks share it out by the folders in it.
    """

    shape = FILES

    @classmethod
    def name(cls) -> str:
        return "sandur_files"

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema  # It is declared.
        return FilesReader(self.options)


class FilesReader(RangeReader):
    shape = FILES

    async def ranges(self, open_store: BlockingLake) -> Sequence[KeyRange]:
        prefix = self.options.get("prefix", "")
        if prefix and not prefix.endswith("/"):
            raise BadRequest(f"option prefix: {prefix!r} is no folder, which ends in /")
        return await folder_ranges(open_store.store, prefix)

    async def rows(self, open_store: BlockingLake, listed: Sequence[Listed]) -> Sequence[Row]:
        del open_store  # Everything asked for is in the listing.
        return [
            {
                "key": one.key,
                "version": one.version,
                "size_bytes": one.size_bytes,
                "modified_at": one.modified_ms,
            }
            for one in listed
        ]
