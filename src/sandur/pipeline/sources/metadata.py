"""`sandur_metadata`: what the metadata files of tables say, opened up as far as is asked for."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from sandur.catalog.identifiers import Identifier
from sandur.errors import BadRequest
from sandur.operations.lake import Lake
from sandur.operations.tables.documents import TABLES as TABLE_FILES
from sandur.operations.tables.documents import VIEWS as VIEW_FILES
from sandur.operations.tables.documents import load_document
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.sources.catalog import gather_bounded, name_row
from sandur.pipeline.sources.metadata_rows import Rows, delta_rows, table_rows, view_rows
from sandur.pipeline.sources.range_reader import KeyRange, RangeReader, Row, ShapedSource, folder_ranges
from sandur.pipeline.tables import OF_METADATA, Shape
from sandur.pipeline.tables import TABLES as TABLES_SHAPE
from sandur.storage.contract import Listed

PARTS: Final = {shape.name: shape for shape in OF_METADATA}


class SandurMetadata(ShapedSource):
    """What is current of every table and view, one part of it.

    Option `part`: `tables` (the default), `columns`, `schema_history`, `partition_spec_history`, `snapshots` or `refs`.
    Option `table`: of that one only, as `catalog.namespace.name`. A name that cannot be read has a `problem` in
    `tables`, and nothing elsewhere.
    """

    @classmethod
    def name(cls) -> str:
        return "sandur_metadata"

    def schema(self) -> StructType:
        return part_of(self.options).spark_schema

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema  # It is declared.
        return MetadataReader(self.options)


class MetadataReader(RangeReader):
    """By the folders of names; each name leads to its metadata file as for a load."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.shape = part_of(options)

    async def ranges(self, open_store: BlockingLake) -> Sequence[KeyRange]:
        if "table" in self.options:
            key = open_store.layout.name(self._wanted())
            return [KeyRange(key.rpartition("/")[0] + "/", key[:-1], key)]
        return await folder_ranges(open_store.store, open_store.layout.all_names_folder())

    async def rows(self, open_store: BlockingLake, listed: Sequence[Listed]) -> Sequence[Row]:
        wanted = open_store.layout.name(self._wanted()) if "table" in self.options else None
        keys = [one for one in listed if wanted in {None, one.key}]
        found = await gather_bounded(keys, lambda one: self._rows_of(open_store.lake, one.key))
        return [row for rows in found for row in rows]

    async def _rows_of(self, lake: Lake, key: str) -> Sequence[Row]:
        about = await name_row(lake, key)
        if about and about.get("problem"):
            return [about] if self.shape.name == TABLES_SHAPE.name else []
        if not about or not about["is_shown"] or not about.get("metadata_location"):
            return []
        rows = await rows_of_table(lake, about)
        return [{**about, **row} for row in rows.get(self.shape.name, ())]

    def _wanted(self) -> Identifier:
        catalog, *levels, name = (*self.options["table"].split("."), "")[:-1] or ("",)
        if not levels:
            raise BadRequest(f"option table: catalog.namespace.name is expected, found {self.options['table']!r}")
        return Identifier(catalog, tuple(levels), name)


def part_of(options: Mapping[str, str]) -> Shape:
    name = options.get("part", TABLES_SHAPE.name)
    if name not in PARTS:
        raise BadRequest(f"option part: {name!r} is none of {', '.join(PARTS)}")
    return PARTS[name]


async def rows_of_table(lake: Lake, table: Mapping[str, Any]) -> Rows:
    """All that the metadata file of a table or view says; of a Delta table, what the catalog knows of it."""
    uuid, location = table["uuid"], table["metadata_location"]
    if table["format"] == "delta":
        held = await lake.delta_table(uuid).read()
        return delta_rows(uuid, held.value) if held else {}
    if table["kind"] == "view":
        return view_rows(uuid, (await load_document(lake, VIEW_FILES, location)).metadata)
    return table_rows(uuid, (await load_document(lake, TABLE_FILES, location)).metadata)
