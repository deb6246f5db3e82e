"""The feed: one position for every receipt, whenever it comes and whoever finds it."""

import asyncio
import contextlib
import hashlib

import msgspec
import pytest

from sandur.errors import Unavailable
from sandur.operations.workspace import Workspace
from sandur.pipeline.feed import ENTRY_RECEIPTS_MAX, STATE, Entry, Feed, entry_key
from sandur.storage.memory import MemoryStore
from sandur.storage.object_store import ABSENT, ObjectStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.yielding_store import YieldingStore
from tests.operations.making import make_workspace


async def put_receipts(workspace: Workspace, date: str, *names: str) -> None:
    for name in names:
        key = workspace.layout.receipt(date, "iceberg", "committed", hashlib.sha256(name.encode()).hexdigest())
        await workspace.store.put(key, b"{}", expected=ABSENT)


async def positions(workspace: Workspace) -> dict[str, int]:
    """The position of every receipt in the feed; a receipt that has two fails."""
    found: dict[str, int] = {}
    sequence = 1
    while stored := await workspace.store.get(entry_key(workspace.layout, sequence)):
        entry = msgspec.json.decode(stored.data, type=Entry)
        for number, receipt in enumerate(entry.receipts):
            assert receipt not in found
            found[receipt] = entry.first_position + number
        sequence += 1
    assert sorted(found.values()) == list(range(len(found)))
    return found


async def test_every_receipt_gets_one_position_and_keeps_it() -> None:
    workspace = make_workspace()
    await put_receipts(workspace, "2026-01-01", "a", "b", "c")

    await Feed(workspace).advance()
    first = await positions(workspace)
    await put_receipts(workspace, "2026-01-02", "d")
    state = await Feed(workspace).advance()

    assert len(first) == 3
    assert first.items() <= (await positions(workspace)).items()
    assert (state.sequence, state.next_position) == (2, 4)


async def test_without_new_receipts_nothing_is_appended() -> None:
    workspace = make_workspace()
    await put_receipts(workspace, "2026-01-01", "a")

    before = await Feed(workspace).advance()
    again = await Feed(workspace).advance()

    assert again.sequence == before.sequence == 1


async def test_a_receipt_that_comes_late_lies_in_the_midst_of_others_and_is_found() -> None:
    workspace = make_workspace()
    await put_receipts(workspace, "2026-01-01", *(f"early {number}" for number in range(20)))
    await put_receipts(workspace, "2026-03-01", "later")
    feed = Feed(workspace)
    await feed.advance()

    await put_receipts(workspace, "2026-01-01", "late")
    await put_receipts(workspace, "2025-12-31", "very late")
    await feed.advance()

    assert len(await positions(workspace)) == 23


async def test_a_receipt_in_place_of_one_that_was_collected_is_found() -> None:
    workspace = make_workspace()
    await put_receipts(workspace, "2026-01-01", "a", "b")
    await Feed(workspace).advance()
    gone = (await workspace.store.list(workspace.layout.events_folder()))[0]

    await workspace.store.delete(gone.key, expected=gone.version)
    await put_receipts(workspace, "2026-01-01", "c")
    await Feed(workspace).advance()

    assert len(await positions(workspace)) == 3


async def test_pending_receipts_have_no_position() -> None:
    workspace = make_workspace()
    key = workspace.layout.receipt("2026-01-01", "iceberg", "pending", "0" * 64)
    await workspace.store.put(key, b"{}", expected=ABSENT)

    assert (await Feed(workspace).advance()).sequence == 0


async def test_entries_are_of_a_bounded_size() -> None:
    workspace = make_workspace()
    names = [f"receipt {number}" for number in range(2 * ENTRY_RECEIPTS_MAX + 1)]
    await put_receipts(workspace, "2026-01-01", *names)

    state = await Feed(workspace).advance()

    assert state.sequence == 3
    assert len(await positions(workspace)) == len(names)


async def test_the_state_is_only_a_shortcut() -> None:
    workspace = make_workspace()
    await put_receipts(workspace, "2026-01-01", "a", "b")
    known = await Feed(workspace).advance()
    held = await workspace.store.get(workspace.layout.operational("feed", STATE))
    assert held

    await workspace.store.delete(workspace.layout.operational("feed", STATE), expected=held.version)
    await put_receipts(workspace, "2026-01-01", "c")
    state = await Feed(workspace).advance()

    assert (known.next_position, state.next_position) == (2, 3)
    assert len(await positions(workspace)) == 3


@pytest.mark.parametrize("seed", range(20))
async def test_of_those_who_advance_at_the_same_time_each_receipt_gets_one_position(seed: int) -> None:
    store = MemoryStore()
    workspaces = [make_workspace(YieldingStore(store, seed=seed * 3 + number)) for number in range(3)]
    await put_receipts(workspaces[0], "2026-01-01", *(f"{number}" for number in range(7)))

    await asyncio.gather(*(Feed(workspace).advance() for workspace in workspaces), _more(workspaces[0]))
    await Feed(workspaces[1]).advance()

    assert len(await positions(workspaces[0])) == 12


async def _more(workspace: Workspace) -> None:
    for number in range(5):
        await put_receipts(workspace, f"2025-01-0{number + 1}", "more")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("dies_at", range(1, 8))
async def test_whoever_dies_leaves_a_feed_that_the_next_one_ends(dies_at: int, *, after: bool) -> None:
    store: ObjectStore = MemoryStore()
    workspace = make_workspace(store)
    await put_receipts(workspace, "2026-01-01", "a", "b")
    await Feed(workspace).advance()
    await put_receipts(workspace, "2026-01-01", "c")
    await put_receipts(workspace, "2026-01-02", "d")

    dying = DyingStore(store, dies_at=dies_at, after=after)
    with contextlib.suppress(Died):
        await Feed(make_workspace(dying)).advance()
    await Feed(make_workspace(store)).advance()

    assert dying.has_died
    assert len(await positions(workspace)) == 4


async def test_what_was_read_in_vain_is_told_again_and_counts_once() -> None:
    workspace = make_workspace()
    await put_receipts(workspace, "2026-01-01", "a", "b")
    await put_receipts(workspace, "2026-01-02", "c")
    read = await Feed(workspace).advance()
    await put_receipts(workspace, "2026-01-02", "d", "e")
    await Feed(workspace).advance()
    found = await entries(workspace)
    lost, unread = found[0].receipts[0], found[1].receipts[0]
    feed = Feed(workspace)

    passed = await feed.passed([lost, unread, "2026-01-02/nobody.json"], read.sequence)
    await feed.tell_again(passed)
    again = await Feed(workspace).passed([lost], read.sequence)
    state = await Feed(workspace).advance()

    assert (passed, again) == ([lost], [])
    told = (await entries(workspace))[2:]
    assert [(entry.first_position, entry.receipts, entry.is_again) for entry in told] == [(5, (lost,), True)]
    assert (state.sequence, state.next_position) == (3, 6)
    assert {date: day.count for date, day in state.days.items()} == {"2026-01-01": 2, "2026-01-02": 3}


async def entries(workspace: Workspace) -> list[Entry]:
    found: list[Entry] = []
    while stored := await workspace.store.get(entry_key(workspace.layout, len(found) + 1)):
        found.append(msgspec.json.decode(stored.data, type=Entry))
    return found


@pytest.mark.parametrize("rubbish", [b"rubbish", b"\xff", b'{"sequence": "many"}'])
async def test_a_state_that_is_damaged_is_told_and_made_anew_from_the_log(rubbish: bytes) -> None:
    workspace = make_workspace()
    await put_receipts(workspace, "2026-01-01", "a", "b")
    before = await Feed(workspace).advance()
    key = workspace.layout.operational("feed", STATE)
    held = await workspace.store.get(key)
    assert held
    await workspace.store.put(key, rubbish, expected=held.version)
    await put_receipts(workspace, "2026-01-01", "c")
    feed = Feed(workspace)

    state = await feed.advance()
    again = Feed(workspace)
    known = await again.advance()

    assert (before.next_position, state.next_position, known.days) == (2, 3, state.days)
    assert [problem.split(":")[0] for problem in feed.problems] == [f"object {key}"]
    assert again.problems == ()
    assert len(await positions(workspace)) == 3


async def test_an_entry_that_is_damaged_is_named() -> None:
    workspace = make_workspace()
    await put_receipts(workspace, "2026-01-01", "a")
    await Feed(workspace).advance()
    key = entry_key(workspace.layout, 1)
    held = await workspace.store.get(key)
    assert held
    await workspace.store.put(key, b"rubbish", expected=held.version)

    with pytest.raises(Unavailable, match=key):
        await Feed(workspace).receipts_of(1)
