"""Trimming the feed: no reader misses an entry, and no receipt loses or changes its position."""

import asyncio
import contextlib
import hashlib

import msgspec
import pytest

from sandur.errors import BadRequest, Trimmed
from sandur.operations.feed import AUDIT_BATCHES, STATE, Entry, Feed, TrimMark, entry_key
from sandur.operations.feed_readers import FeedReaders, TrimReport, trim_feed
from sandur.operations.lake import Lake
from sandur.operations.receipts import date_of
from sandur.storage.contract import ABSENT, ObjectStore, list_all
from sandur.storage.memory import MemoryStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.yielding_store import YieldingStore
from tests.operations.hooked_store import HookedStore
from tests.operations.lakes import make_lake

DAY_MS = 86_400_000
DATES = ("2026-01-01", "2026-01-02")


class Log:
    """A store with a feed: three old entries of two dates, half of whose receipts are collected, and a young one."""

    def __init__(self) -> None:
        self.clock = FixedClock()
        self.store = MemoryStore(clock=self.clock)
        self.lake = make_lake(self.store, self.clock)

    async def fill(self) -> "Log":
        for date, names in ((DATES[0], "ab"), (DATES[0], "c"), (DATES[1], "de")):
            await self.put(date, *names)
            await Feed(self.lake).advance()
        self.clock.advance(91 * DAY_MS)
        await self.put("2026-04-01", "young")
        await Feed(self.lake).advance()
        for date, name in ((DATES[0], "b"), (DATES[0], "c"), (DATES[1], "e")):
            await self.collect(date, name)
        return self

    def key(self, date: str, name: str) -> str:
        return self.lake.layout.receipt(date, "iceberg", hashlib.sha256(name.encode()).hexdigest())

    async def put(self, date: str, *names: str) -> None:
        for name in names:
            await self.store.put(self.key(date, name), b"{}", expected=ABSENT)

    async def collect(self, date: str, name: str) -> None:
        found = await self.store.head(self.key(date, name))
        assert found
        await self.store.delete(found.key, expected=found.version)

    def other(self, store: ObjectStore) -> Lake:
        return make_lake(store, self.clock)

    async def mark(self) -> TrimMark:
        held = await Feed(self.lake).mark_cell.read()
        return held.value if held else TrimMark()

    async def entries(self) -> list[Entry]:
        """The entries after the mark."""
        found: list[Entry] = []
        sequence = (await self.mark()).trimmed + 1
        while stored := await self.store.get(entry_key(self.lake.layout, sequence)):
            found.append(msgspec.json.decode(stored.data, type=Entry))
            sequence += 1
        return found

    async def receipts(self) -> set[str]:
        folder = self.lake.layout.events_folder()
        return {one.key.removeprefix(folder) for one in await list_all(self.store, folder)}

    async def check(self) -> None:
        """Every receipt has a position that is known, and the next advance finds nothing that had one."""
        await Feed(self.lake).advance()
        entries = await self.entries()
        known = {receipt for entry in entries for receipt in entry.receipts}
        news = [receipt for entry in entries for receipt in entry.news]
        places = [entry.first_position for entry in entries if entry.news]

        assert await self.receipts() <= known
        assert len(news) == len(set(news))
        assert places == sorted(set(places))
        assert (await Feed(self.lake).advance()).sequence == entries[-1].sequence


async def test_old_entries_go_once_every_reader_has_read_them() -> None:
    log = await Log().fill()
    readers = FeedReaders(log.lake)
    await readers.register("slow", after=1)
    await readers.register("fast", after=4)

    first = await trim_feed(log.lake)
    await readers.report("slow", 4)
    second = await trim_feed(log.lake)
    third = await trim_feed(log.lake)

    assert first == TrimReport(1, 1, 1, slowest="slow", slowest_position=1)
    assert (second.trimmed, second.entries_removed, second.receipts_carried) == (3, 2, 1)
    assert (third.trimmed, third.entries_removed) == (3, 0)
    assert [(entry.sequence, len(entry.news)) for entry in await log.entries()] == [(4, 1), (5, 0), (6, 0)]
    assert [entry.carried_upto for entry in await log.entries()] == [0, 1, 3]
    await log.check()


async def test_the_next_receipt_gets_the_next_position_also_without_a_state() -> None:
    log = await Log().fill()
    await trim_feed(log.lake)
    state = await log.store.get(log.lake.layout.operational("feed", STATE))
    assert state

    await log.store.delete(log.lake.layout.operational("feed", STATE), expected=state.version)
    await log.put(DATES[0], "late")
    after = await Feed(log.lake).advance()

    assert (after.sequence, after.next_position) == (6, 7)
    assert {date: day.count for date, day in after.days.items()} == {DATES[0]: 2, DATES[1]: 1, "2026-04-01": 1}
    await log.check()


async def test_a_late_receipt_of_a_trimmed_date_is_found_and_the_others_are_not_read_again() -> None:
    log = await Log().fill()
    await trim_feed(log.lake)
    await log.put(DATES[0], "late")
    await log.put(DATES[1], "later")

    state = await Feed(log.lake).advance()

    assert [len(entry.news) for entry in await log.entries()] == [1, 0, 2]
    assert {date: day.count for date, day in state.days.items()} == {DATES[0]: 2, DATES[1]: 2, "2026-04-01": 1}
    passed = await Feed(log.lake).passed([*await log.receipts()], 4)
    assert {date_of(receipt) for receipt in passed} == {*DATES, "2026-04-01"}
    assert len(passed) == 3, "carried receipts count where they were"
    await log.check()


async def test_nothing_goes_before_its_time_or_while_its_receipts_exist() -> None:
    young, existing = Log(), Log()
    for log, days in ((young, 89), (existing, 91)):
        await log.put(DATES[0], "a", "b")
        await Feed(log.lake).advance()
        log.clock.advance(days * DAY_MS)
    await young.collect(DATES[0], "a")
    await young.collect(DATES[0], "b")

    assert (await trim_feed(young.lake)).trimmed == 0
    assert (await trim_feed(existing.lake)).trimmed == 0
    assert await existing.mark() == msgspec.structs.replace(await existing.mark(), planned=0)
    await existing.check()


async def test_the_published_watermark_is_a_reader() -> None:
    log = await Log().fill()
    layout = log.lake.layout
    manifest = layout.core_snapshot("attempt", "manifest.json")
    await log.store.put(manifest, b'{"datasets": {"commits": {"watermark": {"feed": 2}}}}', expected=ABSENT)
    await log.store.put(layout.core_manifest(), msgspec.json.encode({"manifest": manifest}), expected=ABSENT)

    report = await trim_feed(log.lake)

    assert (report.trimmed, report.slowest, report.slowest_position) == (2, "pipeline", 2)


async def test_a_reader_that_is_not_seen_is_forgotten_and_learns_what_to_do_when_it_returns() -> None:
    log = await Log().fill()
    readers = FeedReaders(log.lake)
    await readers.register("gone", after=1)
    await readers.register("idle", after=3)
    log.clock.advance(29 * DAY_MS)
    await readers.touch("idle")
    log.clock.advance(2 * DAY_MS)

    report = await trim_feed(log.lake)

    assert (report.trimmed, report.readers_forgotten) == (3, ("gone",))
    assert [reader.name for reader in await readers.read_all()] == ["idle"]
    with pytest.raises(Trimmed, match=r"entries up to 3 were removed, and this reader is at entry 1.*new checkpoint"):
        await readers.report("gone", 1)
    with pytest.raises(Trimmed, match="entries up to 3"):
        await Feed(log.lake).receipts_of(2)
    assert await readers.register("new") == 3
    assert (await readers.remove("new"), await readers.remove("new")) == (True, False)


async def test_polls_without_news_write_a_record_now_and_then() -> None:
    log = Log()
    readers = FeedReaders(log.lake)
    key = log.lake.layout.operational("feed-readers", "idle")
    await readers.register("idle")
    versions = set()

    for _ in range(24):
        log.clock.advance(DAY_MS // 2)
        await readers.report("idle", 0)
        found = await log.store.head(key)
        assert found
        versions.add(found.version)

    assert len(versions) == 2


@pytest.mark.parametrize("name", ["", "../x", "a/b", "x" * 129, ".hidden", "a\n"])
async def test_a_name_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(BadRequest, match="a name has up to 128"):
        await FeedReaders(make_lake()).register(name)


async def test_a_position_that_is_none_is_refused() -> None:
    with pytest.raises(BadRequest, match="number of a feed entry"):
        await FeedReaders(make_lake()).register("reader", after=-1)


async def test_the_feed_of_the_audit_trail_is_trimmed_by_its_own_retention() -> None:
    clock = FixedClock()
    lake = make_lake(clock=clock, audit_retention="P1D")
    await lake.store.put(f"{lake.layout.audit_folder('2026-01-01')}batch.json", b"{}", expected=ABSENT)
    await Feed(lake, AUDIT_BATCHES).advance()
    clock.advance(2 * DAY_MS)
    for one in await list_all(lake.store, lake.layout.audit_folder()):
        await lake.store.delete(one.key, expected=one.version)

    assert (await trim_feed(lake, AUDIT_BATCHES)).entries_removed == 1
    assert (await trim_feed(lake)).entries_removed == 0


async def test_damaged_entries_are_removed_after_their_receipts_got_new_positions() -> None:
    log = await Log().fill()
    key = entry_key(log.lake.layout, 1)
    held = await log.store.get(key)
    assert held
    await log.store.put(key, b"rubbish", expected=held.version)
    log.clock.advance(91 * DAY_MS)

    report = await trim_feed(log.lake)

    assert report.trimmed == 4
    await log.check()


async def test_a_process_that_slept_while_the_log_was_trimmed_appends_behind_its_end() -> None:
    log = await Log().fill()
    asleep = Feed(log.lake)
    await asleep.advance()
    log.clock.advance(91 * DAY_MS)
    await log.put("2026-07-01", "newer")
    await Feed(log.lake).advance()
    await log.collect("2026-04-01", "young")
    await log.collect(DATES[1], "d")
    log.clock.advance(91 * DAY_MS)
    await log.collect("2026-07-01", "newer")
    trimmed = (await trim_feed(log.lake)).trimmed

    await log.put("2026-07-02", "newest")
    state = await asleep.advance()

    assert (trimmed, state.sequence) == (5, 7)
    assert [entry.sequence for entry in await log.entries()] == [6, 7]
    await log.check()


async def test_an_append_into_the_place_of_a_removed_entry_is_repeated() -> None:
    log = await Log().fill()
    store = HookedStore(log.store)
    await log.put("2026-04-01", "slow")

    async def trim_beyond() -> None:
        await log.collect("2026-04-01", "slow")  # The other writer listed receipts before this one was written.
        await log.put("2026-04-02", "first")
        await Feed(log.lake).advance()
        log.clock.advance(91 * DAY_MS)
        await log.collect("2026-04-02", "first")
        await log.collect("2026-04-01", "young")
        assert (await trim_feed(log.lake)).trimmed == 5
        await log.put("2026-04-01", "slow")

    store.before("put", entry_key(log.lake.layout, 5), trim_beyond)
    state = await Feed(log.other(store)).advance()

    assert not store.hooks
    assert log.key("2026-04-01", "slow").endswith((await log.entries())[-1].news)
    assert state.sequence > (await log.mark()).trimmed
    await log.check()
    assert (await trim_feed(log.lake)).entries_removed == 1, "the entry that no one reads is removed"


async def read_all(lake: Lake, name: str, rounds: int) -> set[str]:
    """A reader that registers and reads entry by entry; returns what it found."""
    readers, feed = FeedReaders(lake), Feed(lake)
    position, found = await readers.register(name), set[str]()
    for _ in range(rounds):
        state = await feed.advance()
        for sequence in range(position + 1, state.sequence + 1):
            found.update((await feed.receipts_of(sequence)).news)
        position = state.sequence
        await readers.report(name, position)
    return found


@pytest.mark.parametrize("seed", range(40))
async def test_trimmers_writers_and_readers_at_the_same_time_lose_nothing(seed: int) -> None:
    log = await Log().fill()
    known = {receipt for entry in await log.entries() for receipt in entry.news if entry.sequence > 3}

    async def write(lake: Lake) -> None:
        for number in range(4):
            await log.put(DATES[number % 2], f"more {number}")
            await Feed(lake).advance()

    lakes = [log.other(YieldingStore(log.store, seed=seed * 5 + number)) for number in range(5)]
    results = await asyncio.gather(
        trim_feed(lakes[0]),
        trim_feed(lakes[1]),
        write(lakes[2]),
        read_all(lakes[3], "one", 3),
        read_all(lakes[4], "two", 3),
    )
    rest = await read_all(log.lake, "one", 1)
    await trim_feed(log.lake)

    assert (await log.mark()).trimmed == 3
    everything = {log.key(DATES[number % 2], f"more {number}") for number in range(4)}
    prefix = log.lake.layout.events_folder()
    expected = known | {key.removeprefix(prefix) for key in everything}
    assert isinstance(results[3], set)
    assert expected <= results[3] | rest
    await log.check()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("dies_at", range(1, 45))
async def test_the_next_trim_finishes_the_work_of_one_that_died(dies_at: int, *, after: bool) -> None:
    log = await Log().fill()
    readers = FeedReaders(log.lake)
    await readers.register("reader", after=3)
    await readers.register("gone", after=0)
    log.clock.advance(20 * DAY_MS)
    await readers.report("reader", 4)
    log.clock.advance(11 * DAY_MS)

    dying = DyingStore(log.store, dies_at=dies_at, after=after)
    with contextlib.suppress(Died):
        await trim_feed(log.other(dying))
    await log.check()
    await trim_feed(log.lake)

    assert (await log.mark()).trimmed == 3
    assert [one.name for one in await readers.read_all()] == ["reader"]
    keys = [one.key for one in await list_all(log.store, log.lake.layout.operational_folder("feed"))]
    assert entry_key(log.lake.layout, 3) not in keys
    assert entry_key(log.lake.layout, 4) in keys
    await log.check()
