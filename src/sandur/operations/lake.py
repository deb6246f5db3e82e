"""Lakes: one per tenant and workspace on a store, with its layout, cells, caches and background work."""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from sandur.catalog.aliases import NO_ALIASES, Aliases
from sandur.catalog.credentials.registry import StorageRegistry
from sandur.catalog.identifiers import Format, Identifier, Namespace
from sandur.catalog.index import Manifest, Scope, Segment
from sandur.catalog.location_claims import LocationClaim, LocationsComplete
from sandur.catalog.locations import Address
from sandur.catalog.maintenance.orphans import CondemnedFiles, SweptFiles
from sandur.catalog.record_versions import NEWEST, Record, StoreFormat
from sandur.catalog.records import (
    BoundRecord,
    Catalog,
    Claim,
    DeltaStage,
    DeltaTable,
    NameRecord,
    NamespaceRecord,
    Pointer,
    PurgeOrder,
    Securable,
    Stage,
    Transaction,
)
from sandur.catalog.security.manifest import Access, SecurityManifest
from sandur.clock import Clock
from sandur.errors import Unfit
from sandur.operations.background import Background
from sandur.operations.caches import BytesLruCache, LruCache
from sandur.operations.incidents import LOGGED, Incidents
from sandur.settings import Settings, seconds_of
from sandur.storage.cell import Cell, Versioned
from sandur.storage.contract import ABSENT, ObjectStore
from sandur.storage.layout import LOCATIONS_COMPLETE, RESTORING, STORE_FORMAT, TENANT_PREFIX, Layout, location_claim
from sandur.storage.locations import Locations, address_of, connect
from sandur.storage.probe import verify_store
from sandur.storage.record_form import RecordForm

_INDEX_SHARE: Final = 1 / 4
_CONTAINERS_SHARE: Final = 4
_CONTAINERS_MIN: Final = 64

T = TypeVar("T", bound=Record)
F = TypeVar("F")


def _index_bytes(held: Versioned[Manifest] | Versioned[Segment]) -> int:
    return sum(entry.size_bytes for entry in held.value.entries)


class NamesCheck:
    """Whether a request has found that the names which it uses are current.

    A change acts on the containers that had these names when it checked them, so it checks once. A read checks always.
    `look` checks them by a read that begins now.
    """

    def __init__(self, look: "Callable[[Lake], Awaitable[object]]", *, is_read: bool) -> None:
        self.look = look
        self.is_read = is_read
        self.is_done = False


@dataclass(eq=False, kw_only=True)
class Lake:
    """The store, layout, clock, settings and locations of one tenant's workspace, and its cells by kind."""

    store: ObjectStore
    layout: Layout
    clock: Clock
    settings: Settings
    locations: Locations
    background: Background = field(default_factory=Background)
    incidents: Incidents = LOGGED
    form: RecordForm = field(default_factory=RecordForm)
    access: Access | None = None
    """The request that this lake acts for; None for the program's own work, which may do everything."""

    def __post_init__(self) -> None:
        self._shared = self
        self.names: NamesCheck | None = None
        self.known_aliases: Aliases | None = None
        self.reader: Lake | None = None
        self._features: dict[Callable[[Lake], Any], Any] = {}
        self.named_features: dict[Callable[[Lake], Any], Any] = {}
        self._closers: list[Callable[[], Awaitable[None]]] = []
        # One cache for cells of every kind: the methods below give each key to one kind only.
        self._seen: MutableMapping[str, Versioned[Any]] = LruCache(self.settings.cache_records_max)
        # A cache of their own: a request that creates reads them, and needs them again after others filled the cache.
        containers_max = max(_CONTAINERS_MIN, self.settings.cache_records_max // _CONTAINERS_SHARE)
        self._seen_containers: MutableMapping[str, Versioned[Any]] = LruCache(containers_max)
        # A cache of their own, because index cells are large.
        self._seen_index: MutableMapping[str, Versioned[Any]] = BytesLruCache(
            self.cache_bytes(_INDEX_SHARE), entries_max=self.settings.cache_records_max, size_of=_index_bytes
        )

    def feature(self, kind: Callable[["Lake"], F]) -> F:
        """The one instance of a feature's own class, such as its cache, for this lake.

        `kind` is the class, or a function that makes the instance. It is called with this lake on first use.
        """
        found: F | None = self._features.get(kind)  # Stored only under the class that made it.
        if found is None:
            found = self._features[kind] = kind(self._shared)
        return found

    def cache_bytes(self, share: float) -> int:
        """A share of the bytes that this lake may cache; the shares of all caches make at most one."""
        return int(self.settings.cache_bytes_max * share)

    def acting_for(self, access: Access | None) -> "Lake":
        """This lake with all its caches, for one request: its operations check what the request may do."""
        lake = object.__new__(Lake)  # Every request needs one, and `copy` costs six times as much.
        attributes = self.__dict__.copy()
        attributes["access"] = access
        lake.__dict__ = attributes
        return lake

    def named_feature(self, kind: Callable[["Lake"], F]) -> F:
        """As `feature`, for what is cached by names: it is forgotten when a container is renamed."""
        found: F | None = self.named_features.get(kind)
        if found is None:
            found = self.named_features[kind] = kind(self._shared.with_aliases(self.layout.aliases))
        return found

    def learn_aliases(self, aliases: Aliases) -> None:
        """Requests that begin from now on use these names."""
        shared = self._shared
        if (shared.known_aliases or NO_ALIASES).renames != aliases.renames:
            shared.named_features, shared.reader = {}, None
        shared.known_aliases = aliases

    def with_aliases(self, aliases: Aliases) -> "Lake":
        """This lake by the names of containers at one moment; no request checks them."""
        lake, shared = self.acting_for(self.access), self._shared
        lake.names, lake.layout = None, replace(self.layout, aliases=aliases)
        lake.named_features = shared.named_features if aliases is shared.known_aliases else {}
        return lake

    def by_known_names(self) -> "Lake":
        """This lake by the names of containers as this process read them last."""
        return self.with_aliases(self._shared.known_aliases or NO_ALIASES)

    def for_request(
        self, access: Access | None, look: "Callable[[Lake], Awaitable[object]]", *, is_read: bool
    ) -> "Lake":
        """This lake by the names of containers as this process read them last; the request checks them."""
        if access is None and is_read and self._shared.reader:
            return self._shared.reader  # Reads without a caller differ in nothing, and this is the warm load.
        lake, known = self.acting_for(access), self._shared.known_aliases
        lake.names, lake.named_features = NamesCheck(look, is_read=is_read), self._shared.named_features
        if known is not None and known.renames:
            lake.layout = replace(self.layout, aliases=known)
        if access is None and is_read:
            self._shared.reader = lake
        return lake

    @property
    def by_keys(self) -> "Lake":
        """This lake by the keys of containers, which no rename changes: for indexes, janitors and what is stored."""
        if not self.layout.aliases:
            return self
        lake = self.acting_for(self.access)
        lake.layout = replace(self.layout, aliases=NO_ALIASES)
        return lake

    def on_close(self, close: Callable[[], Awaitable[None]]) -> None:
        """Have `close` called before this lake's store is closed, for a feature with work in progress."""
        self._closers.append(close)

    async def close(self) -> None:
        """Close the features. The store stays open: it belongs to the caller."""
        for close in self._closers:
            await close()

    def in_workspace(self, layout: Layout) -> "Lake":
        """The lake of another workspace on the same store, with empty caches; this one if it is the same."""
        if layout == self.layout:
            return self
        return Lake(
            store=self.store,
            layout=layout,
            clock=self.clock,
            settings=self.settings,
            locations=self.locations,
            background=self.background,
            incidents=self.incidents,
            form=self.form,
        )

    @property
    def area(self) -> str:
        """The default address of the tables of this workspace."""
        return f"{self.locations.own.rstrip('/')}/{self.layout.tables_folder().rstrip('/')}"

    def security(self) -> Cell[SecurityManifest]:
        return self._cell(self.layout.security_manifest(), SecurityManifest)

    def catalog(self, name: str) -> Cell[Catalog]:
        return self._cell(self.layout.catalog(name), Catalog, self._seen_containers)

    def namespace(self, namespace: Namespace) -> Cell[NamespaceRecord]:
        return self._cell(self.layout.namespace(namespace), NamespaceRecord, self._seen_containers)

    def name(self, identifier: Identifier) -> Cell[NameRecord]:
        return self._cell(self.layout.name(identifier), NameRecord)

    def index(self, scope: Scope) -> Cell[Manifest]:
        return Cell(self.store, self.layout.list_index(scope), Manifest, self.clock, self._seen_index)

    def index_segment(self, scope: Scope, segment_id: str) -> Cell[Segment]:
        key = self.layout.index_segment(scope, segment_id)
        return Cell(self.store, key, Segment, self.clock, self._seen_index)

    def pointer(self, table_uuid: str) -> Cell[Pointer]:
        return self._cell(self.layout.pointer(table_uuid), Pointer)

    def bound_record(self, uuid: str, table_format: Format) -> Cell[BoundRecord]:
        """The record that a name of that format refers to; each format has its own cells."""
        match table_format:
            case "iceberg":
                return self._cell(self.layout.pointer(uuid), Pointer)
            case "delta":
                return self._cell(self.layout.delta_table(uuid), DeltaTable)
            case "unity":
                return self._cell(self.layout.securable(uuid), Securable)

    def delta_table(self, table_uuid: str) -> Cell[DeltaTable]:
        return self._cell(self.layout.delta_table(table_uuid), DeltaTable)

    def delta_stage(self, table_uuid: str) -> Cell[DeltaStage]:
        return self._cell(self.layout.delta_stage(table_uuid), DeltaStage, is_cached=False)

    def securable(self, uuid: str) -> Cell[Securable]:
        return self._cell(self.layout.securable(uuid), Securable)

    def commit_claim(self, table_uuid: str, key_hash: str) -> Cell[Claim]:
        return self._cell(self.layout.commit_claim(table_uuid, key_hash), Claim, is_cached=False)

    def claim(self, operation: str, key_hash: str) -> Cell[Claim]:
        return self._cell(self.layout.claim(operation, key_hash), Claim, is_cached=False)

    def transaction(self, transaction_id: str) -> Cell[Transaction]:
        return self._cell(self.layout.transaction(transaction_id), Transaction, is_cached=False)

    def stage(self, identifier: Identifier, table_uuid: str) -> Cell[Stage]:
        return self._cell(self.layout.stage(identifier, table_uuid), Stage, is_cached=False)

    def purge_order(self, table_uuid: str, drop: str) -> Cell[PurgeOrder]:
        return self._cell(self.layout.purge_order(table_uuid, drop), PurgeOrder, is_cached=False)

    def condemned_files(self, uuid: str) -> Cell[CondemnedFiles]:
        """The files of a table that a later run of maintenance deletes."""
        return self._cell(self.layout.condemned(uuid), CondemnedFiles, is_cached=False)

    def swept_files(self, list_id: str) -> Cell[SweptFiles]:
        """A list of files that maintenance deleted, by the uuid of their first table; cached, as commits read it."""
        return self._cell(self.layout.swept(list_id), SweptFiles)

    def storage_registry(self) -> Cell[StorageRegistry]:
        return self._cell(self.layout.storage_registry(), StorageRegistry)

    def location_claim(self, address: Address) -> Cell[LocationClaim]:
        """The claim of an address, which belongs to no tenant."""
        return self._cell(location_claim(address), LocationClaim, is_cached=False)

    def uncached(self, key: str, kind: type[T]) -> Cell[T]:
        """The cell under a key that was listed, or of a record that is read once or twice in its life."""
        return Cell(self.store, key, kind, self.clock, None, self.form, *self._named)

    @property
    def _named(self) -> tuple[Aliases, tuple[str, str]] | tuple[()]:
        layout = self.layout
        return (layout.aliases, (layout.tenant, layout.workspace)) if layout.aliases else ()

    def _cell(
        self, key: str, kind: type[T], seen: MutableMapping[str, Versioned[T]] | None = None, *, is_cached: bool = True
    ) -> Cell[T]:
        held = self._seen if seen is None else seen
        cell = Cell(self.store, key, kind, self.clock, held if is_cached else None, self.form)
        if self.layout.aliases:
            cell.aliases, cell.workspace = self._named or (None, ("", ""))
        return cell


async def complete_new_store(store: ObjectStore, clock: Clock) -> None:
    """On a store without a workspace, nothing is older than location claims (P13) or than the newest format (V3)."""
    cell = Cell(store, LOCATIONS_COMPLETE, LocationsComplete, clock)
    if await cell.read() is None:
        page = await store.list("", after=TENANT_PREFIX, limit=1)
        if not page or not page[0].key.startswith(TENANT_PREFIX):
            now_ms = clock.now_ms()
            newest = StoreFormat(major=NEWEST.major, minor=NEWEST.minor, state="steady", changed_ms=now_ms)
            # The format first: after a crash in between, the store is still new.
            await Cell(store, STORE_FORMAT, StoreFormat, clock).try_swap(newest, expected=ABSENT)
            await cell.try_swap(LocationsComplete(completed_ms=now_ms), expected=ABSENT)


LAKES_MAX: Final = 1_000


class Lakes:
    """The lakes of one process on one store. Use it between `start` and `close`."""

    def __init__(self, settings: Settings, clock: Clock, store: ObjectStore, *, incidents: Incidents = LOGGED) -> None:
        self._settings = settings
        self.clock = clock
        self.store = store
        self._incidents = incidents
        self._background = Background(incidents)
        self.form = RecordForm(store)
        self._lakes: LruCache[tuple[str, str], Lake] = LruCache(LAKES_MAX)
        self._locations = Locations(
            address_of(settings.store),
            store,
            others=settings.allowed_locations,
            open_store=partial(connect, settings, clock),
        )

    async def start(self) -> Lake:
        """Check the store, make a new one ready, and return the lake of the settings.

        Raises Unfit if the store lacks a guarantee, or if a newer Sandur upgraded it.
        """
        await verify_store(self.store, self.clock, f"store {self._settings.store}")
        if await self.store.head(RESTORING):
            raise Unfit(f"store {self._settings.store}: a restore is not finished; run the same `sandur restore` again")
        await complete_new_store(self.store, self.clock)
        await self.form.read()
        return self.lake(self._settings.tenant or "default", self._settings.workspace or "default")

    async def close(self) -> None:
        """Finish background work within the shutdown timeout, then close the store."""
        for lake in self.lakes:
            await lake.close()
        await self._background.drain(within_seconds=seconds_of(self._settings.shutdown_timeout))
        await self._locations.close()
        await self.store.close()

    def lake(self, tenant: str, lake: str) -> Lake:
        """The lake of a tenant's workspace. The most recently used lakes keep their caches."""
        found = self._lakes.get((tenant, lake))
        if found is None:
            found = self._lakes[tenant, lake] = self.fresh_lake(Layout(tenant, lake))
        return found

    def fresh_lake(self, layout: Layout) -> Lake:
        """A lake with empty caches that is not cached itself, for work that would only fill the caches."""
        return Lake(
            store=self.store,
            layout=layout,
            clock=self.clock,
            settings=self._settings,
            locations=self._locations,
            background=self._background,
            incidents=self._incidents,
            form=self.form,
        )

    @property
    def lakes(self) -> Sequence[Lake]:
        """The most recently used lakes."""
        # A lookup changes their order, so iterate over a copy of the keys.
        return [self._lakes[key] for key in tuple(self._lakes)]
