"""The store for dry runs: its writes are visible through it and nowhere else."""

import random  # noqa: TID251 - seeded, so that a run can be repeated
from collections.abc import Awaitable
from typing import Final

import pytest

from sandur.errors import SwapLost
from sandur.operations.dry_run import DryRunStore
from sandur.storage.contract import ABSENT, UNCHANGED, ObjectStore, list_all
from sandur.storage.memory import MemoryStore

KEYS: Final = [f"f/{letter}{number}" for letter in "abc" for number in range(6)]


async def _filled() -> MemoryStore:
    store = MemoryStore()
    for key in KEYS[::2]:
        await store.put(key, key.encode(), expected=ABSENT)
    return store


async def _content(store: ObjectStore) -> dict[str, bytes | None]:
    found = {listed.key: await store.get(listed.key) for listed in await list_all(store, "")}
    return {key: stored.data if stored else None for key, stored in found.items()}


async def test_writes_are_visible_only_through_the_dry_run_store() -> None:
    behind = await _filled()
    before = await _content(behind)
    store = DryRunStore(behind)
    first = await store.get(KEYS[0])
    assert first is not None

    version = await store.put(KEYS[0], b"new", expected=first.version)
    await store.put(KEYS[1], b"more", expected=ABSENT)
    other = await store.head(KEYS[2])
    assert other is not None
    await store.delete(KEYS[2], expected=other.version)

    assert await store.get(KEYS[0]) == (b"new", version)
    assert await store.get_if_changed(KEYS[0], seen=version) is UNCHANGED
    assert await store.get_if_changed(KEYS[0], seen=first.version) == (b"new", version)
    assert (await store.get(KEYS[2]), await store.head(KEYS[2])) == (None, None)
    assert await _content(behind) == before
    store.forget()
    assert await _content(store) == before


@pytest.mark.parametrize("is_written", [False, True])
async def test_a_swap_from_another_version_is_lost(*, is_written: bool) -> None:
    store = DryRunStore(await _filled())
    found = await store.get(KEYS[0])
    assert found is not None
    if is_written:
        await store.put(KEYS[0], b"new", expected=found.version)

    lost: list[Awaitable[object]] = [
        store.put(KEYS[0], b"x", expected=ABSENT),
        store.put(KEYS[1], b"x", expected=found.version),
        store.delete(KEYS[1], expected=found.version),
    ]
    if is_written:
        lost.append(store.put(KEYS[0], b"x", expected=found.version))
    for write in lost:
        with pytest.raises(SwapLost):
            await write


async def test_a_version_never_repeats() -> None:
    store = DryRunStore(MemoryStore())
    versions = []
    for _ in range(3):
        version = await store.put("k", b"same", expected=ABSENT)
        versions.append(version)
        await store.delete("k", expected=version)

    assert len(set(versions)) == 3


@pytest.mark.parametrize("seed", range(30))
async def test_listings_equal_those_of_a_real_store(seed: int) -> None:
    chance = random.Random(seed)
    real, behind = await _filled(), await _filled()
    pretending = DryRunStore(behind)
    stores: tuple[ObjectStore, ...] = (real, pretending)
    for _ in range(chance.randint(0, 20)):
        key, is_delete = chance.choice(KEYS), chance.random() < 0.5
        for store in stores:
            found = await store.head(key)
            if not is_delete:
                await store.put(key, b"new", expected=found.version if found else ABSENT)
            elif found:
                await store.delete(key, expected=found.version)

    for limit in (1, 2, 3, 7, 100):
        for after in (None, "f/a", "f/b3", "f/c5"):
            pages = [await store.list("f/", after=after, limit=limit) for store in stores]
            assert [listed.key for listed in pages[1]] == [listed.key for listed in pages[0]]
