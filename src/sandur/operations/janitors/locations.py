"""Janitors of location claims: those of owners that are over are removed (P12), older tables get theirs (P13)."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from sandur.catalog.location_claims import Holder, LocationClaim, Owner
from sandur.catalog.locations import Address, canonical_address, outermost
from sandur.catalog.record_versions import Record, in_place_of
from sandur.catalog.records import BoundRecord, Catalog, DeltaTable, Pointer, Request, Securable
from sandur.errors import Conflict, Invalid, NotFound, SandurError
from sandur.operations.janitors.sweep import Janitor, OnError, Outcome, Swept, list_layouts, read_listed
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import Completeness, find_living, tidy_claim
from sandur.operations.locations.owners import catalog_places, has_open_order
from sandur.operations.locations.placement import catalog_home, locations_of, root_holder
from sandur.operations.tables.documents import load_head
from sandur.operations.tables.names import catalog_exists
from sandur.operations.transactions.resolution import effective_record
from sandur.operations.unity.registry import external_holder
from sandur.settings import Settings, seconds_of
from sandur.storage.cell import Versioned
from sandur.storage.contract import LIST_LIMIT_MAX, Listed, Version, list_pages
from sandur.storage.layout import LOCATION_CLAIMS, parse_location_claim

MIGRATE: Final = "locations"

_FAILED: Final = "!"
"""Begins the position of a pass in which a record could not be read: such a pass does not end the migration."""

_NO_REQUEST: Final = Request(hash="")


async def visit_location_claim(lake: Lake, listed: Listed) -> Outcome:
    """P12: remove the holders of this workspace that neither live, nor are staged, nor wait for their purge."""
    address = parse_location_claim(listed.key)
    found = await read_listed(lake.location_claim(address), listed)
    own = (lake.layout.tenant, lake.layout.workspace)
    gone = await tidy_claim(lake, address, found, [one for one in found.value.holders if one.workspace == own])
    if not gone:
        return "kept"
    return "removed" if len(gone) == len(found.value.holders) else "settled"


def _claim_age_ms(settings: Settings) -> int:
    return seconds_of(settings.orphan_retention) * 1_000


CLAIMS = Janitor("location_claims", lambda _: LOCATION_CLAIMS, _claim_age_ms, visit_location_claim)


class WorkspaceMigrated(Record, frozen=True, kw_only=True):
    """P13: everything in the workspace that is older than location claims has its claims."""

    migrated_ms: int


async def migrate_locations(lake: Lake, *, position: str, on_error: OnError) -> Swept:
    """P13: claim the places of everything that is older than claims; the last workspace completes the store.

    It claims places that overlap too, and reports them: both owners are protected from then on. A run handles about
    `janitor_objects_max` records, and the next one continues.
    """
    if await lake.feature(Completeness).is_complete():
        return Swept({}, "")
    migrated = lake.uncached(lake.layout.operational(MIGRATE, "migrated"), WorkspaceMigrated)
    swept = Swept({}, "")
    if await migrated.read() is None:
        swept = await _Migration(lake, on_error).run(position)
        if swept.position or swept.counts.get("failed"):
            return swept
        await migrated.create(WorkspaceMigrated(migrated_ms=lake.clock.now_ms()))
    await _complete(lake)
    return swept


async def _complete(lake: Lake) -> None:
    """Note that the store is complete, if every workspace is migrated."""
    async for layout in list_layouts(lake.store, Settings()):
        if await lake.store.head(layout.operational(MIGRATE, "migrated")) is None:
            return
    await lake.feature(Completeness).complete(lake.clock.now_ms())


class _Migration:
    """One run over the records of a workspace, in the order of their keys."""

    def __init__(self, lake: Lake, on_error: OnError) -> None:
        self._lake = lake
        self._on_error = on_error
        self._counts: Counter[str] = Counter()

    async def run(self, position: str) -> Swept:
        """Handle the records behind the position. It counts `migrated` records, `overlaps` and `failed` ones."""
        has_failed, after = position.startswith(_FAILED), position.removeprefix(_FAILED)
        if not after:
            await self._guard(self._lake.layout.storage_registry(), self._migrate_registry())
        room = self._lake.settings.janitor_objects_max
        for folder, visit in sorted(self._folders().items()):
            if after > folder and not after.startswith(folder):
                continue
            begin = after if after.startswith(folder) else None
            async for page in list_pages(self._lake.store, folder, after=begin, limit=LIST_LIMIT_MAX):
                for listed in page:
                    await self._guard(listed.key, visit(listed.key))
                room -= len(page)
                if page and room <= 0:
                    has_failed |= self._counts["failed"] > 0
                    return Swept(self._counts, f"{_FAILED if has_failed else ''}{page[-1].key}")
        if has_failed:
            self._counts["failed"] += 1
        return Swept(self._counts, "")

    def _folders(self) -> Mapping[str, Callable[[str], Awaitable[None]]]:
        layout = self._lake.layout
        return {
            layout.catalogs_folder(): self._migrate_catalog,
            layout.all_namespaces_folder(): self._migrate_namespace,
            layout.pointers_folder(): partial(self._migrate_record, kind=Pointer),
            layout.delta_tables_folder(): partial(self._migrate_record, kind=DeltaTable),
            layout.securables_folder(): partial(self._migrate_record, kind=Securable),
        }

    async def _guard(self, key: str, work: Awaitable[None]) -> None:
        """Report a record that cannot be read: it may have any place, so the migration does not end without it."""
        try:
            await work
        except SandurError as error:
            self._counts["failed"] += 1
            self._on_error(key, error)

    async def _migrate_registry(self) -> None:
        found = await self._lake.storage_registry().read()
        for location in found.value.locations.values() if found else ():
            holder = external_holder(self._lake, location, _NO_REQUEST, began_ms=0)
            for address in self._addresses([location.url]):
                await self._claim(address, holder)

    async def _migrate_catalog(self, key: str) -> None:
        """Claim a root that is not the default one."""
        name = self._lake.layout.parse_catalog(key)
        found = await self._lake.catalog(name).read()
        if found is None or not catalog_exists(found.value):
            return
        home = canonical_address(catalog_home(self._lake, name))
        for address in self._addresses([found.value.root]):
            if address != home:
                await self._claim(address, root_holder(self._lake, found.value, _NO_REQUEST, began_ms=0))

    async def _migrate_namespace(self, key: str) -> None:
        """Claim the location of a namespace for its catalog, and add it to the catalog's places."""
        namespace = self._lake.layout.parse_namespace(key)
        found = await self._lake.namespace(namespace).read()
        location = found.value.properties.get("location") if found and found.value.state != "dropped" else None
        for address in self._addresses([location] if location else []):
            await self._add_root(namespace.catalog, address)

    async def _add_root(self, catalog: str, address: Address) -> None:
        async def add(found: Catalog | None) -> Catalog | None:
            if found is None or not catalog_exists(found) or str(address) in catalog_places(found):
                return None
            await self._claim(address, root_holder(self._lake, found, _NO_REQUEST, began_ms=0))
            return replace(found, places=(*found.places, str(address)))

        await self._lake.catalog(catalog).update(add, is_idempotent=True)

    async def _migrate_record(self, key: str, *, kind: type[BoundRecord]) -> None:
        """Claim the places of a table, view, volume or model that lives or waits for its purge; then record them."""
        cell = self._lake.uncached(key, kind)

        async def add(found: BoundRecord | None) -> BoundRecord | None:
            record = await self._effective(found) if found else None
            if found is None or record is None:
                return None
            located = self._addresses((*await self._locations(record), *record.places))
            places = [one for one in outermost(located) if one.generated_for != record.uuid]
            holder = await self._holder(record)
            for address in places:
                await self._claim(address, holder)
            self._counts["migrated"] += bool(places)
            added = [text for text in map(str, places) if text not in record.places]
            return replace(found, places=(*found.places, *added)) if added else None

        await cell.update(add, is_idempotent=True)

    async def _effective(self, found: BoundRecord) -> BoundRecord | None:
        """The record as a reader sees it; None if its files need no protection."""
        record = (await effective_record(self._lake, Versioned(found, Version("")))).value
        if record.state == "killed" or record.is_ended:
            return None
        if record.state in {"dropped", "purging"} and not await has_open_order(self._lake, record):
            return None
        return record

    async def _locations(self, record: BoundRecord) -> Sequence[str]:
        if not isinstance(record, Pointer):
            return [record.location] if record.location else []
        if record.head is None:
            return []
        try:
            return locations_of((await load_head(self._lake, record.kind, record.head)).metadata)
        except NotFound:  # Its files are gone, or not reachable: the folder of the metadata file is all that is known.
            return [record.head.metadata_location.rpartition("/")[0].removesuffix("/metadata")]

    def _addresses(self, locations: Iterable[str]) -> Sequence[Address]:
        """The addresses of locations; one that has none is reported, and stays without a claim."""
        found = []
        for location in locations:
            try:
                found.append(canonical_address(location))
            except Invalid as error:
                self._counts["unclaimed"] += 1
                self._on_error(location, error)
        return found

    async def _holder(self, record: BoundRecord) -> Holder:
        layout, identifier = self._lake.layout, record.made_for
        catalog = await self._lake.catalog(identifier.catalog).read() if identifier else None
        owner = Owner(
            tenant=layout.tenant,
            workspace=layout.workspace,
            record=record.format,
            uuid=record.uuid,
            identifier=identifier,
        )
        home = catalog.value.id if catalog else ""
        return Holder(kind="place", owner=owner, home=home, began_ms=0, what=record.kind)

    async def _claim(self, address: Address, holder: Holder) -> None:
        """Add a holder to a claim, overlapping or not, and report what it overlaps."""

        def add(found: LocationClaim | None) -> LocationClaim | None:
            holders = found.holders if found else ()
            if any(one.is_of(holder) for one in holders):
                return None
            return in_place_of(found, LocationClaim(holders=(*holders, holder)))

        await self._lake.location_claim(address).update(add, is_idempotent=True)
        if other := await find_living(self._lake, holder, address):
            self._counts["overlaps"] += 1
            text = f"{holder.what} {holder.owner} overlaps the {other.what} {other.owner}; neither is purged"
            self._on_error(str(address), Conflict(text))
