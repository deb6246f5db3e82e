"""A lake: the store of one tenant's workspace with everything an operation needs to work on it."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar, cast

import msgspec

from sandur.catalog.identifiers import Format, Identifier, Namespace
from sandur.catalog.index import Manifest, Scope, Segment
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
from sandur.clock import Clock
from sandur.operations.background import Background
from sandur.operations.caches import CELLS_MAX, INDEX_BYTES_MAX, LruCache, WeighedLruCache
from sandur.settings import Settings
from sandur.storage.cell import Cell, Versioned
from sandur.storage.contract import ObjectStore
from sandur.storage.layout import Layout
from sandur.storage.locations import Locations

T = TypeVar("T", bound=msgspec.Struct)
F = TypeVar("F")


def _index_weight(held: Versioned[Manifest] | Versioned[Segment]) -> int:
    return sum(entry.size_bytes for entry in held.value.entries)


class Lake:
    """The store, layout, clock, settings and locations of one tenant's workspace, and its cells by kind."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        layout: Layout,
        clock: Clock,
        settings: Settings,
        locations: Locations,
        background: Background | None = None,
    ) -> None:
        self.store = store
        self.layout = layout
        self.clock = clock
        self.settings = settings
        self.locations = locations
        self.background = background or Background()
        self._features: dict[Callable[[Lake], Any], Any] = {}
        self._closers: list[Callable[[], Awaitable[None]]] = []
        # One cache for cells of every kind: the methods below give each key to one kind only.
        self._seen: MutableMapping[str, Versioned[Any]] = LruCache(CELLS_MAX)
        # A cache of their own, because index cells are large.
        self._seen_index: MutableMapping[str, Versioned[Any]] = WeighedLruCache(
            CELLS_MAX, weight_max=INDEX_BYTES_MAX, weigh=_index_weight
        )

    def feature(self, kind: Callable[["Lake"], F]) -> F:
        """The one instance of a feature's own class, such as its cache, for this lake.

        `kind` is the class, or a function that makes the instance. It is called with this lake on first use.
        """
        found = self._features.get(kind)
        if found is None:
            found = self._features[kind] = kind(self)
        return cast("F", found)  # Stored only under the class that made it.

    def on_close(self, close: Callable[[], Awaitable[None]]) -> None:
        """Have `close` called before this lake's store is closed, for a feature with work in progress."""
        self._closers.append(close)

    async def close(self) -> None:
        """Close the features. The store stays open: it belongs to the caller."""
        for close in self._closers:
            await close()

    @property
    def area(self) -> str:
        """The default address of the tables of this workspace."""
        return f"{self.locations.own.rstrip('/')}/{self.layout.tables_folder().rstrip('/')}"

    def catalog(self, name: str) -> Cell[Catalog]:
        return self._cell(self.layout.catalog(name), Catalog)

    def namespace(self, namespace: Namespace) -> Cell[NamespaceRecord]:
        return self._cell(self.layout.namespace(namespace), NamespaceRecord)

    def name(self, identifier: Identifier) -> Cell[NameRecord]:
        return self._cell(self.layout.name(identifier), NameRecord)

    def index(self, scope: Scope) -> Cell[Manifest]:
        return Cell(self.store, self.layout.list_index(scope), Manifest, self.clock, seen=self._seen_index)

    def index_segment(self, scope: Scope, segment_id: str) -> Cell[Segment]:
        key = self.layout.index_segment(scope, segment_id)
        return Cell(self.store, key, Segment, self.clock, seen=self._seen_index)

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
        return self._plain_cell(self.layout.delta_stage(table_uuid), DeltaStage)

    def securable(self, uuid: str) -> Cell[Securable]:
        return self._cell(self.layout.securable(uuid), Securable)

    def commit_claim(self, table_uuid: str, key_hash: str) -> Cell[Claim]:
        return self._plain_cell(self.layout.commit_claim(table_uuid, key_hash), Claim)

    def claim(self, operation: str, key_hash: str) -> Cell[Claim]:
        return self._plain_cell(self.layout.claim(operation, key_hash), Claim)

    def transaction(self, transaction_id: str) -> Cell[Transaction]:
        return self._plain_cell(self.layout.transaction(transaction_id), Transaction)

    def stage(self, identifier: Identifier, table_uuid: str) -> Cell[Stage]:
        return self._plain_cell(self.layout.stage(identifier, table_uuid), Stage)

    def purge_order(self, table_uuid: str, drop: str) -> Cell[PurgeOrder]:
        return self._plain_cell(self.layout.purge_order(table_uuid, drop), PurgeOrder)

    def _cell(self, key: str, kind: type[T]) -> Cell[T]:
        return Cell(self.store, key, kind, self.clock, seen=self._seen)

    def _plain_cell(self, key: str, kind: type[T]) -> Cell[T]:
        """A cell that is read once or twice in its life and is not cached."""
        return Cell(self.store, key, kind, self.clock)
