"""Cells: typed, unique, and changed only by swap."""

import json

import msgspec
import pytest

from sandur.errors import SwapLost, Unavailable
from sandur.storage.cell import Cell, Versioned
from sandur.storage.contract import ABSENT, UNCHANGED
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock

KEY = "a/cell"


class Count(msgspec.Struct, frozen=True, kw_only=True):
    event_id: str = ""
    count: int


def cell(store: MemoryStore) -> Cell[Count]:
    return Cell(store, KEY, Count, FixedClock())


async def test_an_empty_cell_reads_as_none() -> None:
    assert await cell(MemoryStore()).read() is None


async def test_what_was_swapped_in_is_read_back() -> None:
    counts = cell(MemoryStore())

    created = await counts.create(Count(count=1))
    swapped = await counts.swap(Count(count=2), expected=created.version)

    assert await counts.read() == swapped
    assert swapped.value.count == 2


async def test_a_swap_from_a_version_that_is_gone_is_lost() -> None:
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


async def test_a_conditional_read_tells_unchanged_from_changed_and_empty() -> None:
    counts = cell(MemoryStore())
    first = await counts.create(Count(count=1))

    assert await counts.read_if_changed(seen=first.version) is UNCHANGED
    second = await counts.swap(Count(count=2), expected=first.version)
    assert await counts.read_if_changed(seen=first.version) == Versioned(second.value, second.version)
    await counts.empty(expected=second.version)
    assert await counts.read_if_changed(seen=second.version) is None


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"count": "x"}', b"\xff\xfe"])
async def test_a_body_that_is_not_of_the_type_is_told_by_key(body: bytes) -> None:
    store = MemoryStore()
    await store.put(KEY, body, expected=ABSENT)

    with pytest.raises(Unavailable, match="object a/cell: is not a Count"):
        await cell(store).read()
