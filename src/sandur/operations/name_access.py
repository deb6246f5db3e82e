"""Authorize requests of the Unity Catalog and Delta APIs: their 404 names the first part of a name that is missing.

A part that the caller must not see reads as missing. Otherwise a request for `secret.x.y` would reveal whether the
catalog `secret` exists.
"""

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TypeVar

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.locations import is_within, normalize_location
from sandur.catalog.records import BoundRecord, Pointer
from sandur.catalog.security.manifest import Authority
from sandur.catalog.security.privileges import Chain, Link
from sandur.errors import Busy, Hidden, NotFound
from sandur.operations.access import (
    READS_MAX,
    Versions,
    Wanted,
    authorize_location,
    may_see,
    read_authority,
    require,
    resolve_authorized,
)
from sandur.operations.containers.catalogs import load_catalog
from sandur.operations.containers.records import catalog_not_found
from sandur.operations.lake import Lake
from sandur.operations.securable_chains import TYPES, catalog_chain, namespace_chain, object_id_of
from sandur.operations.tables.names import (
    ResolvedName,
    follow_renames,
    is_alive,
    namespace_not_found,
    resolve_namespace,
)
from sandur.storage.cell import Cell, Versioned, gather_all
from sandur.storage.contract import Version

B = TypeVar("B", bound=BoundRecord)


async def find_allowed(
    lake: Lake, identifier: Identifier, is_wanted: Wanted, *, missing: NotFound, situation: str = ""
) -> ResolvedName:
    """The object under a name, if the caller may do with it what the route declares (A2, A4).

    Raises `missing`, or NotFound for the first part of the name that is missing or hidden.
    """
    async with naming_missing_parent(lake, identifier.namespace):
        return await resolve_authorized(lake, identifier, is_wanted, missing=missing, situation=situation)


async def visible_chain(lake: Lake, authority: Authority | None, namespace: Namespace) -> Chain:
    """The chain of a schema; NotFound for its first part that does not exist or that the caller must not see."""
    program = lake.acting_for(None)
    levels = [Namespace(namespace.catalog, namespace.levels[: depth + 1]) for depth in range(len(namespace.levels))]
    catalog, records = await gather_all(
        (
            load_catalog(program, namespace.catalog),
            gather_all([resolve_namespace(program, level) for level in levels]),
        )
    )
    chain = catalog_chain(authority, catalog) if authority else ()
    if authority and not may_see(lake, authority, chain):
        require(lake, authority, chain, missing=catalog_not_found(namespace.catalog))
    for level, found in zip(levels, records, strict=True):
        if found is None:
            raise namespace_not_found(namespace)
        chain = (*chain, Link(found.value.id, "schema", str(level), found.value.owner_id))
        if authority and not may_see(lake, authority, chain):
            require(lake, authority, chain, missing=namespace_not_found(namespace))
    return chain


async def check_parents(lake: Lake, namespace: Namespace) -> None:
    """Raise NotFound if the catalog or the schema of a name is missing or hidden, which tells clients that part."""
    await visible_chain(lake, await read_authority(lake), namespace)


@contextlib.asynccontextmanager
async def naming_missing_parent(lake: Lake, namespace: Namespace) -> AsyncIterator[None]:
    """Look for the missing part of a name only after a failure: a success has read both parents."""
    try:
        yield
    except NotFound:
        await check_parents(lake, namespace)
        raise


@contextlib.contextmanager
def missing_as(missing: NotFound) -> Iterator[None]:
    """Raise `missing` in place of any other NotFound, so that a hidden object and a missing one get the same answer."""
    try:
        yield
    except Hidden:
        raise Hidden(str(missing), subject=missing.subject) from None
    except NotFound:
        raise missing from None


async def authorize_schema(lake: Lake, namespace: Namespace, *, situation: str = "") -> None:
    """Check what the route declares on a schema; NotFound for its first part that is missing or hidden.

    Without a caller to check, nothing is read.
    """
    if authority := await read_authority(lake):
        chain = await visible_chain(lake, authority, namespace)
        require(lake, authority, chain, missing=namespace_not_found(namespace), situation=situation)


async def read_allowed(lake: Lake, cell: Cell[B], *, missing: NotFound, situation: str = "") -> Versioned[B]:
    """The record that a client names by its id, if the caller may do with it what the route declares (A2).

    Raises `missing` if there is no such record, and for one that the caller must not see, whatever part of its name is
    hidden.
    """
    for _ in range(READS_MAX):
        before = _seen(lake, cell)
        authority, held = await gather_all((read_authority(lake), cell.read()))
        if held is None or not is_alive(held):
            raise missing
        if authority is None:
            return held
        require(
            lake,
            authority,
            await record_chain(lake, authority, held.value, missing),
            missing=missing,
            situation=situation,
        )
        now = ((lake.layout.security_manifest(), Version(authority.version)), (cell.key, held.version))
        if now == before or await lake.store.are_current(now):
            return held
    raise Busy(f"{cell.key}: it or the grants keep changing")


def _seen(lake: Lake, cell: Cell[B]) -> Versions | None:
    """The versions of the grants and of a record that this process saw last."""
    grants, record = lake.security().last_seen, cell.last_seen
    if grants is None or record is None:
        return None
    return ((lake.layout.security_manifest(), grants.version), (cell.key, record.version))


async def record_chain(lake: Lake, authority: Authority, record: BoundRecord, missing: NotFound) -> Chain:
    """The chain of an object that was found by its id; raises `missing` if its schema no longer exists.

    Objects of the Unity Catalog API never leave the schema that they were created in. An Iceberg table may: its old
    names say where it went, until a janitor removes them.
    """
    place = record.made_for
    if place and isinstance(record, Pointer):
        place = await follow_renames(lake, place, record.uuid)
    if place is None:
        raise missing
    chain = await namespace_chain(lake, authority, place.namespace, missing=missing)
    return (*chain, Link(object_id_of(record), TYPES[record.kind], str(place), record.owner_id))


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


async def authorize_files(lake: Lake, catalog: str, named: Iterable[str]) -> None:
    """Check that the caller may read what lies at these locations, to make a table of it.

    Below the root of the catalog by a right on the catalog: a dropped table may have left the files, so the right to
    create a table does not suffice.
    """
    authority = await read_authority(lake)
    if authority is None:
        return
    found = await load_catalog(lake, catalog)
    root = normalize_location(found.root)
    for location in named:
        if not is_within(normalize_location(location), root):
            await authorize_location(lake, location, situation="files")
        else:
            missing = catalog_not_found(catalog)
            require(lake, authority, catalog_chain(authority, found), missing=missing, situation="files")
