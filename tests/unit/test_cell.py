"""Cells: typed, unique, and changed only by swap."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from sandur.catalog.record_versions import Record
from sandur.errors import Busy, OutcomeUnknown, SwapLost, Unavailable
from sandur.storage.cell import TRIES_MAX, Cell, Versioned
from sandur.storage.contract import ABSENT, UNCHANGED, Version
from sandur.storage.local import LocalStore
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.fakes.yielding_store import YieldingStore

KEY = "a/cell"
T = TypeVar("T")


class Count(Record, frozen=True, kw_only=True):
    count: int


def cell(store: MemoryStore) -> Cell[Count]:
    return Cell(store, KEY, Count, FixedClock())


async def test_an_empty_cell_reads_as_none() -> None:
    assert await cell(MemoryStore()).read() is None


async def test_a_swapped_value_is_read_back() -> None:
    counts = cell(MemoryStore())

    created = await counts.create(Count(count=1))
    swapped = await counts.swap(Count(count=2), expected=created.version)

    assert await counts.read() == swapped
    assert swapped.value.count == 2


async def test_a_swap_from_a_stale_version_is_lost() -> None:
    counts = cell(MemoryStore())
    created = await counts.create(Count(count=1))
    await counts.swap(Count(count=2), expected=created.version)

    with pytest.raises(SwapLost):
        await counts.swap(Count(count=3), expected=created.version)
    with pytest.raises(SwapLost):
        await counts.create(Count(count=3))


async def test_equal_values_are_written_with_different_bytes() -> None:
    store = MemoryStore()
    counts = cell(store)
    first = await counts.create(Count(count=1))
    before = await store.get(KEY)

    second = await counts.swap(first.value, expected=first.version)
    after = await store.get(KEY)

    assert before
    assert after
    assert before.data != after.data
    assert (first.value.count, second.value.count) == (1, 1)
    assert first.value.event_id != second.value.event_id
    assert json.loads(after.data) == {"event_id": second.value.event_id, "count": 1}


async def test_a_conditional_read_distinguishes_unchanged_changed_and_empty() -> None:
    counts = cell(MemoryStore())
    first = await counts.create(Count(count=1))

    assert await counts.read_if_changed(seen=first.version) is UNCHANGED
    second = await counts.swap(Count(count=2), expected=first.version)
    assert await counts.read_if_changed(seen=first.version) == Versioned(second.value, second.version)
    await counts.empty(expected=second.version)
    assert await counts.read_if_changed(seen=second.version) is None


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"count": "x"}', b"\xff\xfe"])
async def test_a_body_of_another_type_raises_unavailable_with_its_key(body: bytes) -> None:
    store = MemoryStore()
    await store.put(KEY, body, expected=ABSENT)

    with pytest.raises(Unavailable, match="object a/cell: is not a Count"):
        await cell(store).read()


class Unsettled(WrappingStore):
    """Loses the first answer: the write is applied, then replaced by `other`, if there is one."""

    def __init__(self, inner: MemoryStore, other: Count | None) -> None:
        super().__init__(inner)
        self._other = other
        self._is_lost = False

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        result = await perform()
        if not call.is_write or self._is_lost:
            return result
        self._is_lost = True
        if self._other:
            counts = Cell(self._inner, KEY, Count, FixedClock(seed=1))
            found = await counts.read()
            await counts.swap(self._other, expected=found.version if found else ABSENT)
        raise SwapLost("the answer was lost", is_definite=False)


def increment(found: Count | None) -> Count:
    return Count(count=found.count + 1 if found else 1)


async def test_an_update_fills_an_empty_cell_and_changes_a_full_one() -> None:
    counts = cell(MemoryStore())

    first = await counts.update(increment, is_idempotent=False)
    second = await counts.update(increment, is_idempotent=False)

    assert first
    assert second
    assert (first.value.count, second.value.count) == (1, 2)
    assert await counts.read() == second


async def test_an_update_without_a_change_writes_nothing() -> None:
    counts = cell(MemoryStore())

    assert await counts.update(lambda _: None, is_idempotent=True) is None
    created = await counts.create(Count(count=1))
    assert await counts.update(lambda _: None, is_idempotent=True) == created


async def test_an_update_decides_again_after_a_faster_writer() -> None:
    counts = cell(MemoryStore())
    await counts.create(Count(count=1))
    decided_on: list[int] = []

    async def decide(found: Count | None) -> Count:
        assert found
        decided_on.append(found.count)
        if found.count == 1:
            await counts.swap(Count(count=10), expected=version_of(await counts.read()))
        return increment(found)

    updated = await counts.update(decide, is_idempotent=False)

    assert updated
    assert (decided_on, updated.value.count) == ([1, 10], 11)


async def test_concurrent_updates_lose_nothing() -> None:
    store = YieldingStore(MemoryStore(), seed=3)
    cells = [Cell(store, KEY, Count, FixedClock(seed=number)) for number in range(8)]

    await asyncio.gather(*(counts.update(increment, is_idempotent=False) for counts in cells))

    found = await cells[0].read()
    assert found
    assert found.value.count == len(cells)


async def test_an_update_that_always_loses_gives_up_after_growing_pauses() -> None:
    clock = FixedClock()
    counts = Cell(MemoryStore(), KEY, Count, clock)
    created = await counts.create(Count(count=0))
    version = created.version

    async def lose(found: Count | None) -> Count:
        nonlocal version
        version = (await counts.swap(increment(found), expected=version)).version
        return Count(count=-1)

    with pytest.raises(Busy, match="the counter keeps changing"):
        await counts.update(lose, is_idempotent=False, subject="the counter")

    found = await counts.read()
    assert found
    assert found.value.count == TRIES_MAX
    assert len(clock.slept_seconds) == TRIES_MAX - 3
    assert 0.02 < max(clock.slept_seconds) < 0.2


async def test_an_update_can_start_with_a_value_that_was_read_before() -> None:
    spy = SpyStore(MemoryStore())
    counts = Cell(spy, KEY, Count, FixedClock())
    stale = await counts.create(Count(count=1))
    await counts.swap(Count(count=5), expected=stale.version)
    spy.calls.clear()

    updated = await counts.update(increment, is_idempotent=False, found=stale)

    assert updated
    assert updated.value.count == 6
    assert [call.name for call in spy.calls] == ["put", "get", "put"]


async def test_an_update_whose_answer_was_lost_succeeds_if_the_cell_has_its_value() -> None:
    store = MemoryStore()
    counts = Cell(Unsettled(store, None), KEY, Count, FixedClock())

    updated = await counts.update(increment, is_idempotent=False)

    assert updated
    assert updated.value.count == 1


async def test_an_update_that_may_have_been_replaced_is_unknown() -> None:
    store = MemoryStore()
    counts = Cell(Unsettled(store, Count(count=7)), KEY, Count, FixedClock())

    with pytest.raises(OutcomeUnknown):
        await counts.update(increment, is_idempotent=False)

    found = await cell(store).read()
    assert found
    assert found.value.count == 7


async def test_an_idempotent_update_that_may_have_been_replaced_is_decided_again() -> None:
    store = MemoryStore()
    counts = Cell(Unsettled(store, Count(count=7)), KEY, Count, FixedClock())

    updated = await counts.update(lambda _: Count(count=3), is_idempotent=True)

    assert updated
    assert updated.value.count == 3


def version_of(found: Versioned[Count] | None) -> Version:
    assert found
    return found.version


async def test_two_cells_are_read_in_one_round() -> None:
    store = SpyStore(MemoryStore())
    seen: dict[str, Versioned[Count]] = {}
    one, other = (Cell(store, key, Count, FixedClock(), seen=seen) for key in ("one", "other"))
    first, second = await one.create(Count(count=1)), await other.create(Count(count=2))
    store.reset()

    assert await one.read_with(lambda _: other) == (first, second)
    assert store.rounds == 1


async def test_two_cells_of_a_folder_are_read_in_their_current_state(tmp_path: Path) -> None:
    seen: dict[str, Versioned[Count]] = {}
    store = LocalStore(tmp_path, fsync="never")
    one, other = (Cell(store, key, Count, FixedClock(), seen=seen) for key in ("one", "other"))
    first, second = await one.create(Count(count=1)), await other.create(Count(count=2))
    another_server = Cell(store, "other", Count, FixedClock())

    assert await one.read_with(lambda _: other) == (first, second)
    third = await another_server.swap(Count(count=3), expected=second.version)
    assert await one.read_with(lambda _: other) == (first, third)
    await another_server.empty(expected=third.version)
    assert await one.read_with(lambda _: other) == (first, None)
    assert (one.recall(), one.confirmed()) == (first, first)
    moved = await Cell(store, "one", Count, FixedClock()).swap(Count(count=4), expected=first.version)
    assert await one.read_with(lambda _: other) == (moved, None)


async def test_a_stale_value_is_recalled_unless_the_store_checks_versions_synchronously(tmp_path: Path) -> None:
    for store, expected in ((LocalStore(tmp_path, fsync="never"), False), (MemoryStore(), True)):
        seen: dict[str, Versioned[Count]] = {}
        counts = Cell(store, KEY, Count, FixedClock(), seen=seen)
        created = await counts.create(Count(count=1))
        await Cell(store, KEY, Count, FixedClock()).swap(Count(count=2), expected=created.version)

        assert (counts.recall() is not None) is expected
        assert counts.confirmed() is None
