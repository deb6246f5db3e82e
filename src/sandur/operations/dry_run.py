"""Dry runs: a lake and a store whose writes are visible through them and change nothing."""

from collections.abc import Sequence
from itertools import count

from sandur.errors import SwapLost
from sandur.operations.lake import Lake
from sandur.storage.contract import (
    ABSENT,
    LIST_LIMIT_MAX,
    UNCHANGED,
    Expected,
    Listed,
    ObjectStore,
    Stored,
    Unchanged,
    Version,
)
from sandur.storage.locations import Locations


class DryRunStore:
    """Keeps writes and deletes in memory. The inner store does not change.

    It keeps the contract of a store for its one user. Changes that others make to the inner store are visible, except
    in objects that were written here. It remembers every write: bound the work, or call `forget` from time to time.
    """

    has_instant_reads = False

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self._written: dict[str, tuple[Stored, int] | None] = {}
        self._versions = count(1)

    @property
    def written(self) -> Sequence[str]:
        """The keys of the objects that were written or deleted."""
        return list(self._written)

    def forget(self) -> None:
        """Drop all remembered writes."""
        self._written.clear()

    def version_now(self, key: str) -> Version | None:
        raise NotImplementedError(f"object {key}: reads of this store may wait")

    async def get(self, key: str) -> Stored | None:
        if key in self._written:
            written = self._written[key]
            return written[0] if written else None
        return await self._inner.get(key)

    async def get_if_changed(self, key: str, *, seen: Version) -> Stored | Unchanged | None:
        if key not in self._written:
            return await self._inner.get_if_changed(key, seen=seen)
        found = await self.get(key)
        return UNCHANGED if found and found.version == seen else found

    async def are_current(self, versions: Sequence[tuple[str, Version]]) -> bool:
        found = [await self.get_if_changed(key, seen=version) for key, version in versions]
        return all(one is UNCHANGED for one in found)

    async def head(self, key: str) -> Listed | None:
        return self._listed(key) if key in self._written else await self._inner.head(key)

    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
        await self._expect(key, expected)
        before = await self._inner.head(key)
        version = Version(f"dry-run-{next(self._versions)}")
        self._written[key] = Stored(bytes(data), version), before.modified_ms if before else 0
        return version

    async def delete(self, key: str, *, expected: Version) -> None:
        await self._expect(key, expected)
        self._written[key] = None

    async def list(self, prefix: str, *, after: str | None = None, limit: int = LIST_LIMIT_MAX) -> Sequence[Listed]:
        page: list[Listed] = []
        reached = after
        while len(page) < limit:
            found = await self._inner.list(prefix, after=reached, limit=limit)
            is_last = len(found) < limit
            until = None if is_last else found[-1].key
            there = [listed for listed in found if listed.key not in self._written]
            page += sorted([*there, *self._between(prefix, reached, until)])
            if is_last:
                break
            reached = until
        return page[:limit]

    async def close(self) -> None:
        await self._inner.close()

    def _between(self, prefix: str, after: str | None, until: str | None) -> Sequence[Listed]:
        """The objects written here below the prefix, behind `after` and up to `until`."""
        keys = (key for key in self._written if key.startswith(prefix))
        found = (self._listed(key) for key in keys if (not after or key > after) and (not until or key <= until))
        return [listed for listed in found if listed]

    def _listed(self, key: str) -> Listed | None:
        written = self._written[key]
        if written is None:
            return None
        stored, modified_ms = written
        return Listed(key, stored.version, len(stored.data), modified_ms)

    async def _expect(self, key: str, expected: Expected) -> None:
        found = await self.head(key)
        version = found.version if found else ABSENT
        if version != expected:
            raise SwapLost(f"object {key}: expected version {expected}, found {version}")


def open_dry_run(lake: Lake, store: DryRunStore | None = None) -> Lake:
    """A new lake over the same stores. Its writes are visible only in it. `store` stands for the lake's own store.

    It remembers everything that was written. It needs no close: the stores belong to the given lake.
    """
    store = store or DryRunStore(lake.store)

    def open_other(root: str) -> ObjectStore:
        holder, _ = lake.locations.holder(f"{root}/x")
        return DryRunStore(holder)

    own, others = lake.locations.own, lake.locations.others
    return Lake(
        store=store,
        layout=lake.layout,
        clock=lake.clock,
        settings=lake.settings,
        locations=Locations(own, store, others=others, open_store=open_other),
    )
