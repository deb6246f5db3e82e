"""The feed: every receipt gets exactly one position, whenever it is written and found."""

import asyncio
import contextlib
import hashlib

import msgspec
import pytest

from sandur.errors import Unavailable
from sandur.operations.feed import ENTRY_RECEIPTS_MAX, STATE, Entry, Feed, entry_key
from sandur.operations.lake import Lake
from sandur.storage.contract import ABSENT, ObjectStore
from sandur.storage.memory import MemoryStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.yielding_store import YieldingStore
from tests.operations.lakes import make_lake


async def put_receipts(lake: Lake, date: str, *names: str) -> None:
    for name in names:
        key = lake.layout.receipt(date, "iceberg", hashlib.sha256(name.encode()).hexdigest())
        await lake.store.put(key, b"{}", expected=ABSENT)


async def positions(lake: Lake) -> dict[str, int]:
    """The position of every receipt in the feed; fails for a receipt with two."""
    found: dict[str, int] = {}
    sequence = 1
    while stored := await lake.store.get(entry_key(lake.layout, sequence)):
        entry = msgspec.json.decode(stored.data, type=Entry)
        for number, receipt in enumerate(entry.receipts):
            assert receipt not in found
            found[receipt] = entry.first_position + number
        sequence += 1
    assert sorted(found.values()) == list(range(len(found)))
    return found


async def test_every_receipt_gets_one_position_and_keeps_it() -> None:
    lake = make_lake()
    await put_receipts(lake, "2026-01-01", "a", "b", "c")

    await Feed(lake).advance()
    first = await positions(lake)
    await put_receipts(lake, "2026-01-02", "d")
    state = await Feed(lake).advance()

    assert len(first) == 3
    assert first.items() <= (await positions(lake)).items()
    assert (state.sequence, state.next_position) == (2, 4)


async def test_without_new_receipts_nothing_is_appended() -> None:
    lake = make_lake()
    await put_receipts(lake, "2026-01-01", "a")

    before = await Feed(lake).advance()
    again = await Feed(lake).advance()

    assert again.sequence == before.sequence == 1


async def test_a_late_receipt_between_older_ones_is_found() -> None:
    lake = make_lake()
    await put_receipts(lake, "2026-01-01", *(f"early {number}" for number in range(20)))
    await put_receipts(lake, "2026-03-01", "later")
    feed = Feed(lake)
    await feed.advance()

    await put_receipts(lake, "2026-01-01", "late")
    await put_receipts(lake, "2025-12-31", "very late")
    await feed.advance()

    assert len(await positions(lake)) == 23


async def test_a_receipt_in_place_of_one_that_was_collected_is_found() -> None:
    lake = make_lake()
    await put_receipts(lake, "2026-01-01", "a", "b")
    await Feed(lake).advance()
    gone = (await lake.store.list(lake.layout.events_folder()))[0]

    await lake.store.delete(gone.key, expected=gone.version)
    await put_receipts(lake, "2026-01-01", "c")
    await Feed(lake).advance()

    assert len(await positions(lake)) == 3


async def test_entries_are_of_a_bounded_size() -> None:
    lake = make_lake()
    names = [f"receipt {number}" for number in range(2 * ENTRY_RECEIPTS_MAX + 1)]
    await put_receipts(lake, "2026-01-01", *names)

    state = await Feed(lake).advance()

    assert state.sequence == 3
    assert len(await positions(lake)) == len(names)


async def test_the_state_is_only_a_shortcut() -> None:
    lake = make_lake()
    await put_receipts(lake, "2026-01-01", "a", "b")
    known = await Feed(lake).advance()
    held = await lake.store.get(lake.layout.operational("feed", STATE))
    assert held

    await lake.store.delete(lake.layout.operational("feed", STATE), expected=held.version)
    await put_receipts(lake, "2026-01-01", "c")
    state = await Feed(lake).advance()

    assert (known.next_position, state.next_position) == (2, 3)
    assert len(await positions(lake)) == 3


@pytest.mark.parametrize("seed", range(20))
async def test_concurrent_writers_give_each_receipt_one_position(seed: int) -> None:
    store = MemoryStore()
    lakes = [make_lake(YieldingStore(store, seed=seed * 3 + number)) for number in range(3)]
    await put_receipts(lakes[0], "2026-01-01", *(f"{number}" for number in range(7)))

    await asyncio.gather(*(Feed(lake).advance() for lake in lakes), _put_more_receipts(lakes[0]))
    await Feed(lakes[1]).advance()

    assert len(await positions(lakes[0])) == 12


async def _put_more_receipts(lake: Lake) -> None:
    for number in range(5):
        await put_receipts(lake, f"2025-01-0{number + 1}", "more")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("dies_at", range(1, 8))
async def test_the_next_writer_finishes_the_feed_of_one_that_died(dies_at: int, *, after: bool) -> None:
    store: ObjectStore = MemoryStore()
    lake = make_lake(store)
    await put_receipts(lake, "2026-01-01", "a", "b")
    await Feed(lake).advance()
    await put_receipts(lake, "2026-01-01", "c")
    await put_receipts(lake, "2026-01-02", "d")

    dying = DyingStore(store, dies_at=dies_at, after=after)
    with contextlib.suppress(Died):
        await Feed(make_lake(dying)).advance()
    await Feed(make_lake(store)).advance()

    assert dying.has_died
    assert len(await positions(lake)) == 4


async def test_a_skipped_receipt_is_appended_again_and_counts_once() -> None:
    lake = make_lake()
    await put_receipts(lake, "2026-01-01", "a", "b")
    await put_receipts(lake, "2026-01-02", "c")
    read = await Feed(lake).advance()
    await put_receipts(lake, "2026-01-02", "d", "e")
    await Feed(lake).advance()
    found = await entries(lake)
    lost, unread = found[0].receipts[0], found[1].receipts[0]
    feed = Feed(lake)

    passed = await feed.passed([lost, unread, "2026-01-02/nobody.json"], read.sequence)
    await feed.append_again(passed)
    again = await Feed(lake).passed([lost], read.sequence)
    state = await Feed(lake).advance()

    assert (passed, again) == ([lost], [])
    added = (await entries(lake))[2:]
    assert [(entry.first_position, entry.receipts, entry.is_again) for entry in added] == [(5, (lost,), True)]
    assert (state.sequence, state.next_position) == (3, 6)
    assert {date: day.count for date, day in state.days.items()} == {"2026-01-01": 2, "2026-01-02": 3}


async def entries(lake: Lake) -> list[Entry]:
    found: list[Entry] = []
    while stored := await lake.store.get(entry_key(lake.layout, len(found) + 1)):
        found.append(msgspec.json.decode(stored.data, type=Entry))
    return found


@pytest.mark.parametrize("rubbish", [b"rubbish", b"\xff", b'{"sequence": "many"}'])
async def test_a_damaged_state_is_reported_and_rebuilt_from_the_log(rubbish: bytes) -> None:
    lake = make_lake()
    await put_receipts(lake, "2026-01-01", "a", "b")
    before = await Feed(lake).advance()
    key = lake.layout.operational("feed", STATE)
    held = await lake.store.get(key)
    assert held
    await lake.store.put(key, rubbish, expected=held.version)
    await put_receipts(lake, "2026-01-01", "c")
    feed = Feed(lake)

    state = await feed.advance()
    again = Feed(lake)
    known = await again.advance()

    assert (before.next_position, state.next_position, known.days) == (2, 3, state.days)
    assert [problem.split(":")[0] for problem in feed.problems] == [f"object {key}"]
    assert again.problems == ()
    assert len(await positions(lake)) == 3


async def _damage(lake: Lake, key: str) -> None:
    held = await lake.store.get(key)
    assert held
    await lake.store.put(key, b"rubbish", expected=held.version)


async def _three_entries() -> Lake:
    """A feed of three entries with one receipt each, of two dates."""
    lake = make_lake()
    for date, name in (("2026-01-01", "a"), ("2026-01-01", "b"), ("2026-01-02", "c")):
        await put_receipts(lake, date, name)
        await Feed(lake).advance()
    return lake


async def _readable(lake: Lake, upto: int) -> list[tuple[str, int]]:
    """The receipts that a reader of all entries finds, with their positions."""
    found = [await Feed(lake).receipts_of(sequence) for sequence in range(1, upto + 1)]
    return [
        (receipt, entry.first_position + number) for entry in found for number, receipt in enumerate(entry.receipts)
    ]


async def _check_complete(lake: Lake, upto: int) -> None:
    """Every receipt has one position that can be read, and no position is given twice."""
    found = await _readable(lake, upto)
    folder = lake.layout.events_folder()
    assert sorted(receipt for receipt, _ in found) == [
        one.key.removeprefix(folder) for one in await lake.store.list(folder)
    ]
    assert len({position for _, position in found}) == len(found)


@pytest.mark.parametrize("sequence", [1, 2, 3])
async def test_the_receipts_of_a_damaged_entry_get_new_positions(sequence: int) -> None:
    lake = await _three_entries()
    before = await _readable(lake, 3)
    key = entry_key(lake.layout, sequence)
    await _damage(lake, key)
    feed, later = Feed(lake), Feed(lake)

    state = await feed.advance(unread_after=0)
    again = await later.advance(unread_after=0)

    assert (state.sequence, state.damaged) == (4, (sequence,))
    assert [key in problem for problem in feed.problems] == [True]
    await _check_complete(lake, 4)
    del before[sequence - 1]
    assert set(before) < set(await _readable(lake, 4))
    assert (again.sequence, again.days, later.problems) == (4, state.days, ())


async def test_a_damaged_entry_that_the_state_does_not_cover_is_passed() -> None:
    lake = await _three_entries()
    state_key = lake.layout.operational("feed", STATE)
    await _damage(lake, state_key)
    await _damage(lake, entry_key(lake.layout, 3))
    feed = Feed(lake)

    state = await feed.advance()

    assert (state.sequence, state.damaged) == (4, (3,))
    assert len(feed.problems) == 2
    assert (await feed.receipts_of(4)).first_position > 2, "the position of the damaged entry is used again"
    await _check_complete(lake, 4)
    assert (await Feed(lake).advance()).sequence == 4


async def test_a_reader_that_is_already_open_does_not_hide_the_damage_again() -> None:
    lake = await _three_entries()
    open_before = Feed(lake)
    await open_before.advance()
    await _damage(lake, entry_key(lake.layout, 2))
    await Feed(lake).recover(0)
    await put_receipts(lake, "2026-01-02", "d")

    await open_before.advance()
    state = await Feed(lake).advance()

    assert (state.sequence, state.damaged) == (4, (2,))
    await _check_complete(lake, 4)


async def test_recovery_that_dies_is_repeated() -> None:
    for dies_at in range(1, 12):
        lake = await _three_entries()
        await _damage(lake, entry_key(lake.layout, 2))
        with contextlib.suppress(Died):
            await Feed(make_lake(DyingStore(lake.store, dies_at=dies_at, after=True))).advance(unread_after=0)

        state = await Feed(lake).advance(unread_after=0)

        assert state.damaged == (2,)
        await _check_complete(lake, state.sequence)


async def test_a_missing_entry_is_named() -> None:
    lake = await _three_entries()

    with pytest.raises(Unavailable, match="entry 4 does not exist"):
        await Feed(lake).receipts_of(4)
