"""Create, load, list and update catalogs."""

import contextlib
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from sandur.catalog.identifiers import checked_catalog
from sandur.catalog.index import CATALOGS, Place
from sandur.catalog.locations import checked_location, folder_name, normalize_location
from sandur.catalog.privileges import Chain
from sandur.catalog.property_keys import check_new_keys
from sandur.catalog.records import Catalog, Request
from sandur.catalog.security import Authority
from sandur.errors import AlreadyExists, Hidden
from sandur.operations.access import (
    authorize_catalog,
    authorize_metastore,
    catalog_chain,
    may_see,
    read_authority,
)
from sandur.operations.containers.records import RecordChange, catalog_not_found
from sandur.operations.index.lists import Container, read_page
from sandur.operations.lake import Lake
from sandur.operations.tables.names import catalog_exists
from sandur.storage.cell import gather_all


async def load_catalog(lake: Lake, name: str) -> Catalog:
    """Load a catalog; NotFound if it does not exist or the caller may not see it.

    The default catalog always reads as if it existed. While nothing has created it, it is empty and has no id.
    """
    found, authority = await gather_all((lake.catalog(name).read(), read_authority(lake)))
    if found is not None and catalog_exists(found.value):
        if authority and not may_see(lake, authority, catalog_chain(authority, found.value)):
            raise Hidden(str(catalog_not_found(name)), subject="catalog")
        return found.value
    if name != lake.settings.default_catalog:
        raise catalog_not_found(name)
    return Catalog(name=name, id="", root=_checked_root(lake, name, None))


async def load_stored_catalog(lake: Lake, name: str) -> Catalog:
    """Load a catalog that has an id; NotFound if it does not exist, also for the default catalog."""
    found = await load_catalog(lake, name)
    if not found.id:
        raise catalog_not_found(name)
    return found


async def ensure_catalog(lake: Lake, name: str) -> Catalog:
    """Load a catalog for a change in it: the default catalog is created by the first one. NotFound for any other."""
    found = await load_catalog(lake, name)
    if found.id:
        return found
    with contextlib.suppress(AlreadyExists):  # Another request has created it.
        server = lake.acting_for(None)
        return await create_catalog(server, name, root=None, properties={}, request=Request(hash=""))
    return await load_stored_catalog(lake, name)


async def ensure_default_catalog(lake: Lake) -> Catalog:
    """Load the default catalog, or create it."""
    return await ensure_catalog(lake, lake.settings.default_catalog)


async def list_catalogs(lake: Lake) -> Sequence[Catalog]:
    """List all catalogs, sorted by name."""
    page = await read_page(lake, CATALOGS, last=None, wanted=None)
    found = await gather_all(lake.catalog(entry.name).read() for entry in page.entries)
    return [held.value for held in found if held and catalog_exists(held.value)]


async def create_catalog(
    lake: Lake,
    name: str,
    *,
    root: str | None,
    properties: Mapping[str, str],
    request: Request,
    comment: str | None = None,
) -> Catalog:
    """Create a catalog; AlreadyExists if the name is taken."""
    checked_catalog(name)
    check_new_keys(properties)
    now_ms = lake.clock.now_ms()
    principal = request.source.principal
    wanted = Catalog(
        name=name,
        id=lake.clock.new_uuid(),
        root=_checked_root(lake, name, root),
        asked_root=root or "",
        comment=comment,
        properties=dict(properties),
        owner=principal,
        owner_id=request.source.principal_id,
        created_ms=now_ms,
        created_by=principal,
        updated_ms=now_ms,
        updated_by=principal,
    )

    def decide(found: Catalog | None) -> Catalog:
        if found is not None and catalog_exists(found):
            raise AlreadyExists(f"Catalog already exists: {name}", subject="catalog")
        return wanted

    async def authorize(_: Catalog | None) -> None:
        await authorize_metastore(lake)
        if root is not None:
            await authorize_metastore(lake, situation="location")

    place = Place(CATALOGS, name)
    cell = lake.catalog(name)
    return await RecordChange(lake, cell, request, "create-catalog", decide, place=place, authorize=authorize).run()


async def update_catalog(
    lake: Lake, name: str, *, comment: str | None, properties: Mapping[str, str] | None, request: Request
) -> Catalog:
    """Replace the comment and all properties; None keeps the current ones."""
    check_new_keys(properties or {})

    def decide(found: Catalog | None) -> Catalog:
        if found is None or not catalog_exists(found):
            raise catalog_not_found(name)
        changed = replace(
            found,
            comment=found.comment if comment is None else comment,
            properties=found.properties if properties is None else dict(properties),
        )
        if changed == found:
            return found
        return replace(changed, updated_ms=lake.clock.now_ms(), updated_by=request.source.principal)

    async def authorize(found: Catalog | None) -> None:
        if found is not None and catalog_exists(found):
            await authorize_catalog(lake, found, missing=catalog_not_found(name))

    place = Place(CATALOGS, name)
    cell = lake.catalog(name)
    return await RecordChange(lake, cell, request, "update-catalog", decide, place=place, authorize=authorize).run()


async def find_catalog(lake: Lake, name: str) -> Container:
    """The catalog as the container of a list; NotFound if it does not exist."""
    catalog = await load_catalog(lake, name)

    async def chain(authority: Authority) -> Chain:
        return catalog_chain(authority, catalog)

    return Container(chain, catalog_not_found(name))


def _checked_root(lake: Lake, name: str, root: str | None) -> str:
    """The root of the catalog's tables; Invalid outside of the lake and of what the settings allow."""
    if root is None:
        return f"{lake.area}/{folder_name(name)}"
    if normalize_location(root) in lake.locations.others:
        return root.rstrip("/")
    return checked_location(root.rstrip("/"), (normalize_location(lake.area), *lake.locations.others))
