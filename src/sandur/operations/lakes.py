"""The lakes of all tenants on one store."""

from collections.abc import Sequence
from typing import Final

from sandur.clock import Clock
from sandur.operations.containers.catalogs import ensure_default_catalog
from sandur.operations.lake import Background, Lake, LruCache
from sandur.operations.tables.documents import DocumentCache
from sandur.settings import Settings, seconds_of
from sandur.storage.contract import ObjectStore
from sandur.storage.layout import Layout
from sandur.storage.locations import Locations, address_of
from sandur.storage.open import open_store
from sandur.storage.probe import verify_store
from sandur.storage.retry import RetryingStore

LAKES_MAX: Final = 1_000


class Lakes:
    """The lakes of one process on one store. Use it between `start` and `close`."""

    def __init__(self, settings: Settings, clock: Clock, store: ObjectStore) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._background = Background()
        self._lakes: LruCache[tuple[str, str], Lake] = LruCache(LAKES_MAX)
        self._locations = Locations(
            address_of(settings.store), store, others=settings.allowed_locations, open_store=self._open_store
        )

    async def start(self) -> None:
        """Check the store (raises Unfit) and create the default catalog."""
        await verify_store(self._store, self._clock)
        tenant, lake = self._settings.tenant or "default", self._settings.workspace or "default"
        await ensure_default_catalog(self.lake(tenant, lake))

    async def close(self) -> None:
        """Finish background work within the shutdown timeout, then close the store."""
        for lake in self.lakes:
            await lake.close()
        await self._background.drain(within_seconds=seconds_of(self._settings.shutdown_timeout))
        await self._locations.close()
        await self._store.close()

    def lake(self, tenant: str, lake: str) -> Lake:
        """The lake of a tenant's workspace. The most recently used lakes keep their caches."""
        found = self._lakes.get((tenant, lake))
        if found is None:
            found = self._lakes[tenant, lake] = self.fresh_lake(Layout(tenant, lake))
        return found

    def fresh_lake(self, layout: Layout) -> Lake:
        """A lake with empty caches that is not cached itself, for work that would only fill the caches."""
        return Lake(
            store=self._store,
            layout=layout,
            clock=self._clock,
            settings=self._settings,
            locations=self._locations,
            background=self._background,
        )

    @property
    def lakes(self) -> Sequence[Lake]:
        """The most recently used lakes."""
        # A lookup changes their order, so iterate over a copy of the keys.
        return [self._lakes[key] for key in tuple(self._lakes)]

    def document_cache_counts(self) -> tuple[int, int]:
        """Hits and misses of the document caches since the start."""
        features = [lake.feature(DocumentCache) for lake in self.lakes]
        documents = [cache for feature in features for cache in (feature.tables, feature.views)]
        return sum(cache.hits for cache in documents), sum(cache.misses for cache in documents)

    def _open_store(self, url: str) -> ObjectStore:
        return RetryingStore(open_store(url, self._settings), self._clock, self._settings.retry)
