"""Authorize requests of the Unity Catalog and Delta APIs: their 404 names the first part of a name that is missing.

A part that the caller must not see reads as missing. Otherwise a request for `secret.x.y` would reveal whether the
catalog `secret` exists.
"""

from collections.abc import Iterable
from typing import Final

from sandur.catalog.identifiers import Namespace
from sandur.catalog.locations import is_within, normalize_location
from sandur.catalog.privileges import Chain, Link
from sandur.catalog.records import BoundRecord
from sandur.catalog.security import Authority
from sandur.catalog.storage_registry import StorageRegistry, location_covering
from sandur.errors import NotFound
from sandur.operations.access import (
    TYPES,
    catalog_chain,
    may_see,
    namespace_chain,
    object_id_of,
    read_authority,
    require,
)
from sandur.operations.containers.catalogs import load_catalog
from sandur.operations.containers.records import catalog_not_found
from sandur.operations.lake import Lake
from sandur.operations.tables.names import namespace_not_found, resolve_namespace
from sandur.storage.cell import Cell


async def visible_chain(lake: Lake, authority: Authority | None, namespace: Namespace) -> Chain:
    """The chain of a schema; NotFound for its first part that does not exist or that the caller must not see."""
    program = lake.acting_for(None)
    catalog = await load_catalog(program, namespace.catalog)
    chain = catalog_chain(authority, catalog) if authority else ()
    if authority and not may_see(lake, authority, chain):
        require(lake, authority, chain, missing=catalog_not_found(namespace.catalog))
    for depth in range(len(namespace.levels)):
        level = Namespace(namespace.catalog, namespace.levels[: depth + 1])
        found = await resolve_namespace(program, level)
        if found is None:
            raise namespace_not_found(namespace)
        chain = (*chain, Link(found.value.id, "schema", str(level), found.value.owner_id))
        if authority and not may_see(lake, authority, chain):
            require(lake, authority, chain, missing=namespace_not_found(namespace))
    return chain


async def authorize_schema(lake: Lake, namespace: Namespace, *, situation: str = "") -> None:
    """Check what the route declares on a schema; NotFound for its first part that is missing or hidden."""
    authority = await read_authority(lake)
    chain = await visible_chain(lake, authority, namespace)
    require(lake, authority, chain, missing=namespace_not_found(namespace), situation=situation)


async def authorize_record(lake: Lake, record: BoundRecord, *, missing: NotFound, situation: str = "") -> None:
    """Check what the route declares on an object that the client names by its id.

    Objects of the Unity Catalog API never leave the schema that they were created in. Raises `missing` for an object
    that the caller must not see, whatever part of its name is hidden.
    """
    if authority := await read_authority(lake):
        chain = await record_chain(lake, authority, record, missing)
        require(lake, authority, chain, missing=missing, situation=situation)


async def record_chain(lake: Lake, authority: Authority, record: BoundRecord, missing: NotFound) -> Chain:
    """The chain of an object that was found by its id; raises `missing` if its schema no longer exists."""
    if record.made_for is None:
        raise missing
    chain = await namespace_chain(lake, authority, record.made_for.namespace, missing=missing)
    return (*chain, Link(object_id_of(record), TYPES[record.kind], str(record.made_for), record.owner_id))


def registry_cell(lake: Lake) -> Cell[StorageRegistry]:
    """Storage credentials and external locations."""
    return Cell(lake.store, lake.layout.storage_registry(), StorageRegistry, lake.clock)


async def authorize_location(lake: Lake, location: str, *, situation: str = "") -> None:
    """Check what the route declares for a location that the client named, on the external location that covers it.

    Where no external location covers it, or only one that the caller must not see, the right on the metastore counts.
    """
    authority = await read_authority(lake)
    if authority is None:
        return
    found = await registry_cell(lake).read()
    covering = location_covering(found.value, location) if found else None
    chain: Chain = (authority.metastore,)
    if covering:
        below = (*chain, Link(covering.id, "external_location", covering.name, covering.owner_id))
        chain = below if may_see(lake, authority, below) else chain
    require(lake, authority, chain, missing=_METASTORE, situation=situation)


async def authorize_places(lake: Lake, catalog: str, places: Iterable[str]) -> None:
    """Check what the route declares for the locations that a client named for a table or view.

    Below the root of the catalog the right to create suffices: some engines name such a location for every table.
    """
    named = list(places)
    if lake.access is None or not named:
        return
    root = normalize_location((await load_catalog(lake, catalog)).root)
    for place in named:
        if not is_within(normalize_location(place), root):
            await authorize_location(lake, place, situation="location")


async def authorize_files(lake: Lake, catalog: str, location: str) -> None:
    """Check that the caller may read a file which it names, to register it: by a right on the catalog if it lies there.

    A dropped table may have left the file, so the right to create a table does not suffice.
    """
    authority = await read_authority(lake)
    if authority is None:
        return
    found = await load_catalog(lake, catalog)
    if is_within(normalize_location(location), normalize_location(found.root)):
        missing = catalog_not_found(catalog)
        require(lake, authority, catalog_chain(authority, found), missing=missing, situation="files")
    else:
        await authorize_location(lake, location, situation="files")


_METASTORE: Final = NotFound("Metastore does not exist", subject="metastore")  # Never raised: every caller sees it.
