"""Which places of a new or changed table need a claim, and where its catalog may put them (P1, P2)."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from sandur.catalog.identifiers import Format, Identifier, Kind, Namespace
from sandur.catalog.location_claims import Holder, Owner
from sandur.catalog.locations import (
    Address,
    Realm,
    canonical_address,
    check_own_store,
    checked_location,
    folder_name,
    generated_location,
    named_address,
    normalize_location,
    outermost,
    paths_of,
)
from sandur.catalog.records import BoundRecord, Catalog, NamespaceRecord, Pointer, Request
from sandur.errors import Busy, Invalid, NotFound
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import LocationClaims, Places
from sandur.operations.locations.owners import catalog_places, has_open_order, kill_orphan
from sandur.operations.tables.documents import request_id
from sandur.operations.tables.names import catalog_exists, is_alive, resolve_namespace
from sandur.storage.cell import Attempts, Cell, Versioned, gather_all
from sandur.storage.contract import ABSENT


def locations_of(metadata: TableMetadata | ViewMetadata) -> Sequence[str]:
    """The folders of a table or view: its location, and the paths in its properties."""
    return (metadata.location, *paths_of(metadata.properties))


def catalog_home(lake: Lake, name: str) -> str:
    """The folder of a catalog in its own store: its root, unless it has one elsewhere. No rename changes it."""
    (key,) = lake.layout.aliases.key_path((name,))
    return f"{lake.area}/{folder_name(key)}"


def realm_of(lake: Lake, catalog: Catalog) -> Realm:
    """Where the places of a catalog may lie."""
    home = catalog_home(lake, catalog.name)
    return Realm(canonical_address(lake.locations.own), canonical_address(home), (catalog.root, *lake.locations.others))


def seen_catalog(lake: Lake, name: str) -> Catalog:
    """The catalog that the caller has read in this request, or that this server has read before."""
    found = lake.catalog(name).last_seen
    if found is None:
        raise Busy(f"catalog {name}: it was not read")
    return found.value


async def allowed_roots(lake: Lake, catalog: str) -> tuple[str, ...]:
    """The addresses below which the tables of a catalog may lie: its own root, and those that the settings allow.

    A cached record suffices: a named place is claimed (P3), and a generated one is below the root of the catalog that
    the namespace belongs to (P2). So it does not matter here that the catalog may have been created again elsewhere.
    """
    cell = lake.catalog(catalog)
    found = cell.last_seen or await cell.read()
    if found is None or not catalog_exists(found.value):
        raise NotFound(f"Catalog does not exist: {catalog}", subject="catalog")
    return (normalize_location(found.value.root), *lake.locations.others)


def default_location(lake: Lake, identifier: Identifier, uuid: str) -> str:
    """A location of its own for every table: a table that reuses a name does not find the old files (P1).

    It is below the `location` of the namespace, or below the root of the catalog; the caller has read both in the same
    request (`resolve_placed_namespace`). Raises Invalid if the settings no longer allow the location of the namespace.
    """
    namespace, catalog = lake.namespace(identifier.namespace).last_seen, lake.catalog(identifier.catalog).last_seen
    if catalog is None:
        raise NotFound(f"Catalog does not exist: {identifier.catalog}", subject="catalog")
    parent = namespace.value.properties.get("location") if namespace else None
    location = generated_location(parent or catalog.value.root, identifier, uuid)
    roots = (normalize_location(catalog.value.root), *lake.locations.others)
    return checked_location(location, roots) if parent else location


def places_to_claim(
    lake: Lake,
    identifier: Identifier,
    uuid: str,
    locations: Iterable[str],
    *,
    table_uuid: str | None = None,
    is_registered: bool = False,
) -> Places:
    """P1, P2: the claims that something new needs; Invalid if it may not lie there.

    A place that was generated for its own uuid, below a root of its catalog, needs none. `table_uuid` is the uuid in
    its metadata: if its record has another one, because that was in use before, it claims exactly the place that was
    generated for `table_uuid`. So does a registration, which may come after others, or from another deployment.
    """
    catalog = seen_catalog(lake, identifier.catalog)
    realm, roots = realm_of(lake, catalog), _roots_of(lake, catalog, identifier.namespace)
    covered: list[Address] = []
    claimed: dict[Address, str] = {}
    for location in locations:
        address = canonical_address(location)
        if any(address.is_within(outer) for outer in covered):
            continue
        made_for = address.generated_for if address.root in roots else None
        if made_for == uuid.lower() and not is_registered:
            covered.append(address)
        elif made_for and made_for == (table_uuid or "").lower():
            claimed[address] = location
        else:
            generated_for = table_uuid if is_registered else None
            claimed[named_address(location, realm, generated_for=generated_for)] = location
    return {one: claimed[one] for one in outermost(claimed)}


def named_early(lake: Lake, identifier: Identifier, locations: Iterable[str]) -> Places:
    """The places to claim in the first round; Invalid if one may not be named.

    They need a claim whatever the namespace says: they lie outside the folders of generated places. If the caller needs
    a right, nothing is claimed before the right is checked.
    """
    locations = list(locations)
    if not locations:
        return {}
    realm = realm_of(lake, seen_catalog(lake, identifier.catalog))
    found = {canonical_address(one): one for one in locations}
    named = {one: text for one, text in found.items() if not one.is_managed and named_address(text, realm)}
    return {one: named[one] for one in outermost(named)} if lake.access is None else {}


def added_places(lake: Lake, catalog: str, record: BoundRecord, before: Iterable[str], after: Iterable[str]) -> Places:
    """P9: the places that a change adds to a table; Invalid if they may not be added."""
    realm = realm_of(lake, seen_catalog(lake, catalog))
    known = [canonical_address(one) for one in (*before, *record.places)]
    added = {
        named_address(one, realm): one
        for one in after
        if not any(canonical_address(one).is_within(outer) for outer in known)
    }
    return {one: added[one] for one in outermost(added)}


def _roots_of(lake: Lake, catalog: Catalog, namespace: Namespace) -> set[Address]:
    """The roots that generated places of a catalog may lie below: its own, and those of its namespaces."""
    found = lake.namespace(namespace).last_seen
    own = found.value.properties.get("location") if found else None
    return {*map(canonical_address, catalog_places(catalog)), *([canonical_address(own)] if own else [])}


def holder_of(
    lake: Lake, identifier: Identifier, uuid: str, record: Format, kind: Kind, request: Request, *, began_ms: int
) -> Holder:
    """The holder of the places of a table, view, volume or model."""
    owner = Owner(
        tenant=lake.layout.tenant, workspace=lake.layout.workspace, record=record, uuid=uuid, identifier=identifier
    )
    home, made_by = seen_catalog(lake, identifier.catalog).id, request_id(request)
    return Holder(kind="place", owner=owner, home=home, began_ms=began_ms, made_by=made_by, what=kind)


def root_holder(lake: Lake, catalog: Catalog, request: Request, *, began_ms: int) -> Holder:
    """The holder of a catalog's roots, also of the roots of its namespaces: tables are renamed out of namespaces."""
    owner = Owner(
        tenant=lake.layout.tenant,
        workspace=lake.layout.workspace,
        record="catalog",
        uuid=catalog.id,
        name=catalog.name,
    )
    made_by = request_id(request)
    return Holder(kind="root", owner=owner, home=catalog.id, began_ms=began_ms, made_by=made_by, what="catalog")


def remembered_placed_namespace(lake: Lake, namespace: Namespace) -> Versioned[NamespaceRecord] | None:
    """The namespace that this process remembers, if the catalog that it remembers is its parent."""
    seen = lake.namespace(namespace).last_seen
    return seen if seen and _is_parent(lake.catalog(namespace.catalog).last_seen, namespace, seen.value) else None


async def resolve_placed_namespace(lake: Lake, namespace: Namespace) -> Versioned[NamespaceRecord] | None:
    """P2: the namespace, and its catalog as it is now: a root that this server remembers may be a stranger's by now.

    The catalog is read in the same round, unless the one that is remembered is the namespace's parent.
    """
    catalog = lake.catalog(namespace.catalog)
    if remembered_placed_namespace(lake, namespace):
        found = await resolve_namespace(lake, namespace)
    else:
        found, _ = await gather_all((resolve_namespace(lake, namespace), catalog.read()))
    if found is None:
        return None
    if not catalog_id_of(namespace, found.value) or _is_parent(catalog.last_seen, namespace, found.value):
        return found
    if not _is_parent(await catalog.read(), namespace, found.value):
        raise Busy(f"namespace {namespace}: its catalog {namespace.catalog} is being created again")
    return found


def _is_parent(catalog: Versioned[Catalog] | None, namespace: Namespace, record: NamespaceRecord) -> bool:
    return catalog is not None and catalog.value.id == catalog_id_of(namespace, record)


def catalog_id_of(namespace: Namespace, record: NamespaceRecord) -> str:
    """The id of the catalog of a namespace; empty for an older one that is not on the first level."""
    return record.catalog_id or ("" if namespace.parent else record.parent_id)


_FORMATS: Final[tuple[Format, ...]] = ("iceberg", "delta", "unity")


async def end_generated(lake: Lake, address: Address, authorize: Callable[[], Awaitable[None]]) -> None:
    """P2: end the dropped table that a generated place was made for, so that another one may have the place.

    Its record keeps the address, and stays as long as the address is claimed: otherwise its uuid could come back.
    `authorize` checks that the caller may read the files that a dropped table has left there.
    Invalid unless it was dropped in this workspace; Busy while its files wait for deletion.
    """
    uuid = address.generated_for or ""
    if await lake.delta_stage(uuid).read():
        raise Invalid(f"Invalid location {address}: it was generated for a staged table")
    for one in _FORMATS:
        await _end_record(lake, lake.bound_record(uuid, one), address, authorize, is_made=one == "iceberg")


async def _end_record(
    lake: Lake, cell: Cell[BoundRecord], address: Address, authorize: Callable[[], Awaitable[None]], *, is_made: bool
) -> None:
    """End the record of a dropped table. `is_made`: one that does not exist is created, so that none can be."""
    uuid = address.generated_for or ""
    async for _ in Attempts(lake.clock):
        found = await cell.read()
        if found is None and not is_made:
            return
        if found and found.value.state in {"unbound", "condemned"}:  # A creation that may never be finished.
            if await kill_orphan(lake, cell, found) is False:
                raise _exists(address, found.value)
            continue
        ended = await _ended(lake, found.value if found else None, uuid, address)
        if found is None or found.value.state != "killed" or str(address) in found.value.places:
            await authorize()
        if ended is None or await cell.try_swap(ended, expected=found.version if found else ABSENT):
            return
    raise Busy(f"table {uuid}: other requests keep changing its record")


async def _ended(lake: Lake, record: BoundRecord | None, uuid: str, address: Address) -> BoundRecord | None:
    """The record of a table whose place another one takes over; None if it is ended already."""
    if record is None:
        return Pointer(uuid=uuid, table_uuid=uuid, state="killed", places=(str(address),))
    if record.state not in {"dropped", "purging", "killed"}:
        raise _exists(address, record)
    if record.state != "killed" and await has_open_order(lake, record):
        raise Busy(f"{record.kind} {uuid}: it was dropped, and its files are being purged")
    places = tuple(dict.fromkeys((*record.places, str(address))))
    return None if places == record.places else replace(record, is_ended=record.state != "killed", places=places)


def _exists(address: Address, record: BoundRecord) -> Invalid:
    return Invalid(f"Invalid location {address}: it was generated for the {record.kind} {record.uuid}, which exists")


async def is_uuid_taken(lake: Lake, uuid: str) -> bool:
    """P2: whether something of another format has the uuid of a new Iceberg table, and so the place of it.

    Only for a uuid that the client chose: the catalog never gives one twice.
    """
    delta, unity, stage = await gather_all(
        (lake.delta_table(uuid).read(), lake.securable(uuid).read(), lake.delta_stage(uuid).read())
    )
    return bool(delta or unity or stage)


def uuid_taken(uuid: str) -> Invalid:
    return Invalid(f"Invalid uuid {uuid}: something else has it, and the location that was generated for it")


async def check_place(lake: Lake, catalog: str, location: str) -> None:
    """Raise Invalid or Busy if a place is not free that gets no owner: that of a Delta table without a name."""
    address = named_address(location, realm_of(lake, seen_catalog(lake, catalog)))
    if refusal := await LocationClaims(lake).find_overlap(_guest(lake, catalog), address, location):
        raise refusal.error


async def check_not_anothers(lake: Lake, catalog: str, location: str, own: str | None) -> None:
    """Raise Invalid if a file or folder that is used without a claim lies in the place of another table that lives.

    `own` is the uuid of the record that may have the place. The uuid in a metadata file will not do: its writer chose
    it.
    """
    address = canonical_address(location)
    check_own_store(location, address, realm_of(lake, seen_catalog(lake, catalog)))
    generated = address.generated_place
    uuid = generated.generated_for if generated else None
    if uuid and uuid != own and await _is_living(lake, uuid):
        raise Invalid(f"Invalid location {location}: it lies in the location of another table")
    me = _guest(lake, catalog, own)
    refusal = await LocationClaims(lake).find_overlap(me, address, location, with_below=False)
    if refusal and isinstance(refusal.error, Invalid):
        raise refusal.error


def _guest(lake: Lake, catalog: str, uuid: str | None = None) -> Holder:
    """The holder of a place that is only compared with the places of others."""
    layout = lake.layout
    owner = Owner(
        tenant=layout.tenant, workspace=layout.workspace, record="iceberg", uuid=uuid or lake.clock.new_uuid()
    )
    home = seen_catalog(lake, catalog).id
    return Holder(kind="place", owner=owner, home=home, began_ms=lake.clock.now_ms(), what="table")


async def _is_living(lake: Lake, uuid: str) -> bool:
    found = await gather_all(lake.bound_record(uuid, one).read() for one in _FORMATS)
    return any(map(is_alive, found))
