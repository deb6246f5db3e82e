"""`sandur_metadata`: the metadata of tables and views as rows, one part per read."""

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
from sandur.pipeline.sources.catalog import gather_bounded, name_row
from sandur.pipeline.sources.metadata_rows import Rows, delta_rows, table_rows, view_rows
from sandur.pipeline.sources.range_reader import KeyRange, RangeReader, Row, ShapedSource, folder_ranges
from sandur.pipeline.tables import OF_METADATA, Shape
from sandur.pipeline.tables import TABLES as TABLES_SHAPE
from sandur.storage.contract import Listed

PARTS: Final = {shape.name: shape for shape in OF_METADATA}


class SandurMetadata(ShapedSource):
    """One part of the current metadata of every table and view.

    Option `part`: `tables` (the default), `columns`, `schema_history`, `partition_spec_history`, `snapshots` or `refs`.
    Option `table`: only that table, as `catalog.namespace.name`. A name that cannot be read has a row with a `problem`
    in `tables`, and no row in the other parts.
    """

    source_name = "sandur_metadata"

    def schema(self) -> StructType:
        return part_of(self.options).spark_schema

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema  # The source declares its own.
        return MetadataReader(self.options)


class MetadataReader(RangeReader):
    """One task per folder of names; each name is resolved as a load resolves it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.shape = part_of(options)

    async def ranges(self, lake: Lake) -> Sequence[KeyRange]:
        if "table" in self.options:
            key = lake.layout.name(self._wanted())
            return [KeyRange(key.rpartition("/")[0] + "/", key[:-1], key)]
        return await folder_ranges(lake.store, lake.layout.all_names_folder())

    async def rows(self, lake: Lake, listed: Sequence[Listed]) -> Sequence[Row]:
        wanted = lake.layout.name(self._wanted()) if "table" in self.options else None
        keys = [one for one in listed if wanted in {None, one.key}]
        found = await gather_bounded(keys, lambda one: self._rows_of(lake, one.key))
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
            raise BadRequest(f"option table: expected catalog.namespace.name, found {self.options['table']!r}")
        return Identifier(catalog, tuple(levels), name)


def part_of(options: Mapping[str, str]) -> Shape:
    name = options.get("part", TABLES_SHAPE.name)
    if name not in PARTS:
        raise BadRequest(f"option part: expected one of {', '.join(PARTS)}, found {name!r}")
    return PARTS[name]


async def rows_of_table(lake: Lake, table: Mapping[str, Any]) -> Rows:
    """The rows of all parts: from the metadata file of a table or view, from the record of a Delta table."""
    uuid, location = table["uuid"], table["metadata_location"]
    if table["format"] == "delta":
        held = await lake.delta_table(uuid).read()
        return delta_rows(uuid, held.value) if held else {}
    if table["kind"] == "view":
        return view_rows(uuid, (await load_document(lake, VIEW_FILES, location)).metadata)
    return table_rows(uuid, (await load_document(lake, TABLE_FILES, location)).metadata)
