"""`sandur_catalogs` and `sandur_namespaces`: what tables lie in, as every reader sees it."""

from collections.abc import Sequence
from typing import Final

import msgspec
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from sandur.errors import SandurError
from sandur.operations.homes import exists, look_up_namespace
from sandur.operations.lake import Lake
from sandur.operations.together import together
from sandur.pipeline.sources.ranges import KeyRange, folder_ranges
from sandur.pipeline.sources.reading import RangeReader, Row, ShapedSource
from sandur.pipeline.tables import CATALOGS, NAMESPACES, with_problem
from sandur.pipeline.waiting import OpenStore
from sandur.storage.contract import Listed

_CATALOGS: Final = with_problem(CATALOGS)
_NAMESPACES: Final = with_problem(NAMESPACES)


class SandurCatalogs(ShapedSource):
    """One row for every catalog that exists. One that cannot be read has its name and a `problem`."""

    shape = _CATALOGS

    @classmethod
    def name(cls) -> str:
        return "sandur_catalogs"

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema  # It is declared.
        return CatalogsReader(self.options)


class CatalogsReader(RangeReader):
    """Catalogs are few: one task reads them."""

    shape = _CATALOGS

    async def ranges(self, open_store: OpenStore) -> Sequence[KeyRange]:
        return [KeyRange(open_store.layout.catalogs_folder())]

    async def rows(self, open_store: OpenStore, listed: Sequence[Listed]) -> Sequence[Row]:
        rows = await together(_catalog_row(open_store.lake, one.key) for one in listed)
        return [row for row in rows if row]


class SandurNamespaces(ShapedSource):
    """One row for every namespace that exists. One that cannot be read has its name and a `problem`."""

    shape = _NAMESPACES

    @classmethod
    def name(cls) -> str:
        return "sandur_namespaces"

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        return NamespacesReader(self.options)


class NamespacesReader(RangeReader):
    """A task for each catalog."""

    shape = _NAMESPACES

    async def ranges(self, open_store: OpenStore) -> Sequence[KeyRange]:
        return await folder_ranges(open_store.store, open_store.layout.all_namespaces_folder())

    async def rows(self, open_store: OpenStore, listed: Sequence[Listed]) -> Sequence[Row]:
        rows = await together(_namespace_row(open_store.lake, one.key) for one in listed)
        return [row for row in rows if row]


async def _catalog_row(lake: Lake, key: str) -> Row | None:
    name = lake.layout.parse_catalog(key)
    try:
        found = await lake.catalog(name).read()
    except SandurError as error:
        return {"name": name, "problem": str(error)}
    if found is None or not exists(found.value):
        return None
    catalog = found.value
    return {
        "name": catalog.name,
        "id": catalog.id,
        "root": catalog.root,
        "comment": catalog.comment,
        "owner": catalog.owner,
        "properties_json": _json(catalog.properties),
        "created_at": catalog.created_ms,
        "updated_at": catalog.updated_ms,
        "created_by": catalog.created_by or None,
        "updated_by": catalog.updated_by or None,
    }


async def _namespace_row(lake: Lake, key: str) -> Row | None:
    namespace = lake.layout.parse_namespace(key)
    spelled = {"catalog": namespace.catalog, "namespace": str(namespace)}
    try:
        found = await look_up_namespace(lake, namespace)
    except SandurError as error:
        return {**spelled, "problem": str(error)}
    if found is None:
        return None
    record = found.value
    return {
        **spelled,
        "id": record.id,
        "depth": len(namespace.levels),
        "comment": record.comment,
        "owner": record.owner,
        "properties_json": _json(record.properties),
        "created_at": record.created_ms,
        "updated_at": record.updated_ms,
        "created_by": record.created_by or None,
        "updated_by": record.updated_by or None,
    }


def _json(properties: dict[str, str]) -> str:
    return msgspec.json.encode(properties, order="sorted").decode()
