"""Create, load, list and update catalogs."""

import contextlib
from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from sandur.catalog.identifiers import checked_catalog
from sandur.catalog.index import CATALOGS, Place
from sandur.catalog.locations import Address, Realm, canonical_address, named_address
from sandur.catalog.property_keys import check_new_keys
from sandur.catalog.records import Catalog, Request
from sandur.catalog.security.manifest import Authority
from sandur.catalog.security.privileges import Chain
from sandur.errors import AlreadyExists, Busy, Hidden, SandurError
from sandur.operations.access import authorize_catalog, authorize_location, authorize_metastore, may_see, read_authority
from sandur.operations.containers.records import RecordChange, catalog_not_found
from sandur.operations.events import catalog_subject
from sandur.operations.index.lists import Container, read_page
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import LocationClaims, Places
from sandur.operations.locations.owners import catalog_places
from sandur.operations.locations.placement import catalog_home, realm_of, root_holder
from sandur.operations.securable_chains import catalog_chain
from sandur.operations.security import look_again
from sandur.operations.tables.names import catalog_exists
from sandur.storage.cell import Attempts, gather_all

T = TypeVar("T")


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
    return Catalog(name=name, id="", root=catalog_home(lake, name))


async def load_stored_catalog(lake: Lake, name: str) -> Catalog:
    """Load a catalog that has an id; NotFound if it does not exist, also for the default catalog."""
    found = await load_catalog(lake, name)
    if not found.id:
        raise catalog_not_found(name)
    return found


async def load_allowed_catalog(lake: Lake, name: str) -> Catalog:
    """Load a catalog that has an id, if the caller may do with it what the route declares; otherwise NotFound."""
    found = await load_stored_catalog(lake, name)
    await authorize_catalog(lake, found, missing=catalog_not_found(name))
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
    named = _named_root(lake, name, root) if root else None
    wanted = Catalog(
        name=name,
        id=lake.clock.new_uuid(),
        root=root.rstrip("/") if root and named else catalog_home(lake, name),
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

    async def authorize(found: Catalog | None) -> None:
        await gather_all((authorize_metastore(lake), look_again(lake, is_fenced=found is not None and found.is_fenced)))
        if root is not None:
            await authorize_location(lake, root, situation="location")

    claims = LocationClaims(lake)

    async def secure(record: Catalog) -> None:
        if named:
            await _claim_root(claims, record, {named: record.root}, request, began_ms=now_ms)

    place = Place(CATALOGS, name)
    change = RecordChange(
        lake,
        lake.catalog(name),
        request,
        "create-catalog",
        decide,
        place=place,
        write_aside=secure,
        authorize=authorize,
        subject=catalog_subject,
    )
    return await _or_withdraw(claims, change.run())


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

    return await RecordChange(
        lake,
        lake.catalog(name),
        request,
        "update-catalog",
        decide,
        place=Place(CATALOGS, name),
        authorize=authorize,
        subject=catalog_subject,
    ).run()


async def find_catalog(lake: Lake, name: str) -> Container:
    """The catalog as the container of a list; NotFound if it does not exist."""
    catalog = await load_catalog(lake, name)

    async def chain(authority: Authority) -> Chain:
        return catalog_chain(authority, catalog)

    return Container(chain, catalog_not_found(name))


def _named_root(lake: Lake, name: str, root: str) -> Address | None:
    """The address of a root that a client names; None if it is the default one, which needs no claim (P1).

    Invalid outside of the folder of the catalog in the own store, and of what the settings allow.
    """
    home = canonical_address(catalog_home(lake, name))
    if canonical_address(root) == home:
        return None
    realm = Realm(canonical_address(lake.locations.own), home, (lake.area, *lake.locations.others))
    return named_address(root.rstrip("/"), realm, may_be_root=True)


async def add_root(lake: Lake, name: str, location: str, request: Request) -> None:
    """P9: make a place the root of a namespace. The catalog owns it, because tables are renamed out of namespaces.

    It stays with the catalog: tables may lie there that were made while the namespace had it. Invalid or Busy if the
    place is not free.
    """
    cell, claims, now_ms = lake.catalog(name), LocationClaims(lake), lake.clock.now_ms()
    async for _ in Attempts(lake.clock):
        found = await cell.read()
        if found is None or not catalog_exists(found.value):
            raise catalog_not_found(name)
        address = named_address(location, realm_of(lake, found.value))
        if str(address) in catalog_places(found.value):
            return
        claiming = _claim_root(claims, found.value, {address: location}, request, began_ms=now_ms)
        await _or_withdraw(claims, claiming)
        grown = replace(found.value, places=(*found.value.places, str(address)))
        if await cell.try_swap(grown, expected=found.version):
            return
    raise Busy(f"catalog {name} keeps changing")


async def _claim_root(
    claims: LocationClaims, catalog: Catalog, places: Places, request: Request, *, began_ms: int
) -> None:
    me = root_holder(claims.lake, catalog, request, began_ms=began_ms)
    if unfree := await claims.write(me, places) or await claims.look():
        raise unfree.error


async def _or_withdraw(claims: LocationClaims, work: Awaitable[T]) -> T:
    """What the work returns; if it fails, its location claims are withdrawn."""
    try:
        return await work
    except SandurError:
        await claims.lake.background.run("withdraw location claims", claims.withdraw())
        raise
