"""A store in memory, for tests and first trials: its content is lost when the process ends."""

import asyncio
import bisect
import random  # noqa: TID251 - seeded, so that interleavings are reproducible
from collections.abc import Sequence

from sandur.clock import Clock, SystemClock
from sandur.errors import SwapLost
from sandur.storage.contract import (
    ABSENT,
    LIST_LIMIT_MAX,
    UNCHANGED,
    Expected,
    Listed,
    Stored,
    Unchanged,
    Version,
    check_size,
)
from sandur.storage.keys import validate_key, validate_prefix

_YIELDS_MAX = 3


class MemoryStore:
    """Keeps the contract of a real store: it yields to other tasks, and a version never returns.

    With a seed, each call yields a random number of times before and after it takes effect: different seeds give
    different interleavings, and the same seed gives the same one.
    """

    has_instant_reads = False

    def __init__(self, *, seed: int | None = None, clock: Clock | None = None) -> None:
        self._objects: dict[str, tuple[Stored, int]] = {}
        self._sorted_keys: list[str] = []
        self._writes = 0
        self._chance = None if seed is None else random.Random(seed)
        self._clock = clock or SystemClock()

    def version_now(self, key: str) -> Version | None:
        raise NotImplementedError(f"object {key}: reads of this store may wait")

    async def get(self, key: str) -> Stored | None:
        found = await self.get_if_changed(key, seen=Version(""))
        return None if found is UNCHANGED else found

    async def get_if_changed(self, key: str, *, seen: Version) -> Stored | Unchanged | None:
        await self._yield()
        found, _ = self._objects.get(validate_key(key), (None, 0))
        await self._yield()
        if found and found.version == seen:
            return UNCHANGED
        if found:
            check_size(key, len(found.data))
        return found

    async def are_current(self, versions: Sequence[tuple[str, Version]]) -> bool:
        await self._yield()
        found = [self._objects.get(validate_key(key)) for key, _ in versions]
        await self._yield()
        return [stored and stored[0].version for stored in found] == [version for _, version in versions]

    async def head(self, key: str) -> Listed | None:
        await self._yield()
        return self._listed(key) if validate_key(key) in self._objects else None

    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
        await self._yield()
        self._expect(validate_key(key), expected)
        if key not in self._objects:
            bisect.insort(self._sorted_keys, key)
        self._writes += 1
        version = Version(str(self._writes))
        self._objects[key] = (Stored(bytes(data), version), self._clock.now_ms())
        await self._yield()
        return version

    async def delete(self, key: str, *, expected: Version) -> None:
        await self._yield()
        self._expect(validate_key(key), expected)
        del self._objects[key]
        del self._sorted_keys[bisect.bisect_left(self._sorted_keys, key)]
        await self._yield()

    async def list(self, prefix: str, *, after: str | None = None, limit: int = LIST_LIMIT_MAX) -> Sequence[Listed]:
        await self._yield()
        validate_prefix(prefix)
        start = bisect.bisect_left(self._sorted_keys, prefix)
        if after is not None:
            start = max(start, bisect.bisect_right(self._sorted_keys, after))
        page: list[Listed] = []
        for key in self._sorted_keys[start : start + limit]:
            if not key.startswith(prefix):
                break
            page.append(self._listed(key))
        await self._yield()
        return page

    async def close(self) -> None:
        self._objects.clear()
        self._sorted_keys.clear()

    def _listed(self, key: str) -> Listed:
        stored, modified_ms = self._objects[key]
        return Listed(key, stored.version, len(stored.data), modified_ms)

    def _expect(self, key: str, expected: Expected) -> None:
        found = self._objects.get(key)
        found_version = found[0].version if found else ABSENT
        if found_version != expected:
            raise SwapLost(f"object {key}: expected version {expected}, found {found_version}")

    async def _yield(self) -> None:
        times = 1 if self._chance is None else self._chance.randint(0, _YIELDS_MAX)
        for _ in range(times):
            await asyncio.sleep(0)
