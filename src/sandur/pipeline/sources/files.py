"""`sandur_files`: the objects below a prefix, of the catalog's store or of any location it may use."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from sandur.errors import BadRequest
from sandur.pipeline.sources.ranges import KeyRange, folder_ranges
from sandur.pipeline.sources.reading import RangeReader, Row, ShapedSource
from sandur.pipeline.tables import shape
from sandur.pipeline.waiting import OpenStore
from sandur.storage.contract import Listed

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

    async def ranges(self, open_store: OpenStore) -> Sequence[KeyRange]:
        prefix = self.options.get("prefix", "")
        if prefix and not prefix.endswith("/"):
            raise BadRequest(f"option prefix: {prefix!r} is no folder, which ends in /")
        return await folder_ranges(open_store.store, prefix)

    async def rows(self, open_store: OpenStore, listed: Sequence[Listed]) -> Sequence[Row]:
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
