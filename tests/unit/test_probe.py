"""The boot probe: a correct store passes and stays clean; a broken one is refused with the broken guarantee."""

import contextlib
import re
from collections.abc import Sequence

import pytest

from sandur.errors import SwapLost, Unavailable, Unfit
from sandur.storage.contract import ABSENT, UNCHANGED, Expected, Listed, ObjectStore, Stored, Unchanged, Version
from sandur.storage.memory import MemoryStore
from sandur.storage.probe import verify_store
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.fakes.wrapping_store import WrappingStore


async def test_a_correct_store_passes_and_stays_empty() -> None:
    store = MemoryStore(seed=1)

    proven = await verify_store(store, FixedClock())

    assert len(proven) == 10
    assert await store.list("") == []


async def test_the_checks_run_together() -> None:
    spy = SpyStore(MemoryStore(seed=1))

    await verify_store(spy, FixedClock())

    # Whether the store answers, eight races one after the other, then the list and the removal of what is left. One
    # check after the other, there were 48.
    assert spy.rounds < 20


class LosesWrites(WrappingStore):
    async def get(self, key: str) -> Stored | None:
        return None if key.endswith("/read") else await super().get(key)


class ListsLate(WrappingStore):
    async def list(self, prefix: str, *, after: str | None = None, limit: int = 1_000) -> Sequence[Listed]:
        return [] if after is None else await super().list(prefix, after=after, limit=limit)


class ListsFolderByFolder(WrappingStore):
    async def list(self, prefix: str, *, after: str | None = None, limit: int = 1_000) -> Sequence[Listed]:
        return sorted(await super().list(prefix, after=after, limit=limit), key=lambda listed: listed.key.split("/"))


class ListsOtherVersions(WrappingStore):
    async def list(self, prefix: str, *, after: str | None = None, limit: int = 1_000) -> Sequence[Listed]:
        found = await super().list(prefix, after=after, limit=limit)
        return [listed._replace(version=Version(f'"{listed.version}"')) for listed in found]


class Overwrites(WrappingStore):
    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
        found = await self._inner.get(key) if expected is ABSENT else None
        return await super().put(key, data, expected=found.version if found else expected)


class IgnoresVersions(WrappingStore):
    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
        found = await self._inner.get(key) if expected is not ABSENT else None
        return await super().put(key, data, expected=found.version if found else expected)


class SwapsAbsentObjects(WrappingStore):
    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
        is_there = await self._inner.get(key)
        return await super().put(key, data, expected=expected if is_there else ABSENT)


class NeverChanges(WrappingStore):
    async def get_if_changed(self, key: str, *, seen: Version) -> Stored | Unchanged | None:  # noqa: ARG002 - that is its fault
        return UNCHANGED


class DeletesAnything(WrappingStore):
    async def delete(self, key: str, *, expected: Version) -> None:
        found = await self._inner.get(key)
        await super().delete(key, expected=found.version if found else expected)


class CountsPerObject(WrappingStore):
    """Versions start again at 1 when an object is created again."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._real: dict[str, list[Version]] = {}

    async def get(self, key: str) -> Stored | None:
        found = await self._inner.get(key)
        return Stored(found.data, self._number(key)) if found else None

    def _number(self, key: str) -> Version:
        return Version(str(len(self._real[key])))

    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
        versions = self._real.get(key, [])
        real: Expected = expected if expected is ABSENT else Version("none")
        if expected is not ABSENT and expected == str(len(versions)) and versions:
            real = versions[-1]
        version = await self._inner.put(key, data, expected=real)
        self._real[key] = [version] if expected is ABSENT else [*versions, version]
        return self._number(key)

    async def get_if_changed(self, key: str, *, seen: Version) -> Stored | Unchanged | None:
        found = await self.get(key)
        return UNCHANGED if found and found.version == seen else found

    async def delete(self, key: str, *, expected: Version) -> None:
        real = self._real[key][-1] if expected == self._number(key) else Version("none")
        await self._inner.delete(key, expected=real)


class FoldsCase(WrappingStore):
    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
        return await super().put(key.replace("CASE", "case"), data, expected=expected)


class LetsTwoWin(WrappingStore):
    """Correct for one client; in a race, a writer that read before another write wins too."""

    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
        found = await self._inner.get(key)
        if (found.version if found else ABSENT) != expected:
            return await self._inner.put(key, data, expected=expected)
        for _ in range(100):
            found = await self._inner.get(key)
            with contextlib.suppress(SwapLost):
                return await self._inner.put(key, data, expected=found.version if found else ABSENT)
        raise AssertionError("starved")


class Down(WrappingStore):
    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:  # noqa: ARG002 - it is down
        raise Unavailable("down")


@pytest.mark.parametrize(
    ("broken", "guarantee"),
    [
        (LosesWrites, "a read shows what was written before it"),
        (ListsLate, "a listing shows what was written before it"),
        (ListsFolderByFolder, "a listing has the versions, in the byte order of the keys"),
        (ListsOtherVersions, "a listing has the versions, in the byte order of the keys"),
        (Overwrites, "an object is created only if it does not exist"),
        (IgnoresVersions, "an object is replaced only at the expected version"),
        (SwapsAbsentObjects, "an object is replaced only at the expected version"),
        (NeverChanges, "a conditional read detects whether an object changed"),
        (DeletesAnything, "an object is deleted only at the expected version"),
        (CountsPerObject, "a version never returns"),
        (FoldsCase, "keys that differ only in case are different objects"),
        (LetsTwoWin, "of 3 writers with the same expectation exactly one wins"),
        (Down, "the check that a read shows what was written before it failed: down"),
    ],
)
async def test_a_broken_store_is_refused_by_the_guarantee_it_breaks(
    broken: type[WrappingStore], guarantee: str
) -> None:
    with pytest.raises(Unfit, match=re.escape(guarantee)):
        await verify_store(broken(MemoryStore()), FixedClock())
