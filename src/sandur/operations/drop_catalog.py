"""A catalog as something to be dropped: as a namespace is, and emptied first when that is asked for."""

from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from sandur.catalog.index import CATALOGS, Place
from sandur.catalog.records import Catalog, LastChange
from sandur.catalog.sources import Request
from sandur.errors import Invalid, NotFound
from sandur.operations.drop_home import drop_home, first_child_namespace
from sandur.operations.emptying import empty_catalog
from sandur.operations.lake import Lake
from sandur.operations.namespace_changes import missing_catalog
from sandur.operations.tables.names import catalog_exists
from sandur.storage.cell import Cell

OPERATION: Final = "drop-catalog"


async def drop_catalog(lake: Lake, name: str, *, force: bool, request: Request) -> None:
    """When this returns the catalog is gone; NotFound, or NotEmpty when it holds something and `force` is not set."""
    if name == lake.settings.default_catalog:
        raise Invalid(f"Catalog {name} cannot be dropped: it is the default catalog of this server")
    await drop_home(lake, _CatalogHome(lake, name, request, force), request)


@dataclass(frozen=True)
class _CatalogHome:
    lake: Lake
    name: str
    request: Request
    force: bool
    operation: str = OPERATION

    @property
    def text(self) -> str:
        return f"Catalog {self.name}"

    @property
    def cell(self) -> Cell[Catalog]:
        return self.lake.catalog(self.name)

    @property
    def place(self) -> Place:
        return Place(CATALOGS, self.name)

    def missing(self) -> NotFound:
        return missing_catalog(self.name)

    async def is_there(self, record: Catalog) -> bool:
        return catalog_exists(record)

    async def is_emptied(self) -> bool:
        if self.force:
            await empty_catalog(self.lake, self.name, self.request.source)
        return self.force

    async def first_child(self, home_id: str) -> str | None:
        return await first_child_namespace(self.lake, self.name, None, home_id)

    def gone(self, record: Catalog, change: LastChange, now_ms: int) -> Catalog:
        return replace(record, state="dropped", properties={}, change=change, updated_ms=now_ms)
