"""The readers of a feed, and the removal of the entries that none of them needs any more.

A reader that registers says how far it has read. The pipeline's job needs no record: its published watermark says it.
Entries are removed by mark, look, act: the mark comes before the look at the readers, and a reader looks at the mark
after it has registered. So either the trimmer waits for the reader, or the reader learns that it is too late.
"""

import asyncio
import contextlib
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from sandur.catalog.record_versions import Record, in_place_of
from sandur.errors import BadRequest, Busy, Damaged, Exhausted, SwapLost, Trimmed
from sandur.operations.feed import ENTRIES_AT_ONCE, RECEIPTS, Entry, Feed, Log, TrimMark, entry_key
from sandur.operations.lake import Lake
from sandur.operations.receipts import date_of
from sandur.settings import seconds_of
from sandur.storage.cell import TRIES_MAX, Cell, Versioned, gather_in_batches
from sandur.storage.contract import ABSENT, Listed, list_pages, portions
from sandur.storage.record_form import decode_record

READERS_MAX: Final = 10_000
ENTRIES_TRIMMED_MAX: Final = 10_000
RECEIPTS_TRIMMED_MAX: Final = 500_000
SEEN_AGAIN_PARTS: Final = 4
"""A reader without news says that it is there this often within the retention of readers."""
_AT_ONCE: Final = 16
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_ENTRY_NAME: Final = re.compile(r"(\d{20})\.json\Z")


class FeedReader(Record, frozen=True, kw_only=True):
    """A registered reader: it has read the entries up to `position`, and was seen last at `seen_ms`."""

    name: str
    position: int
    seen_ms: int


class FeedReaders:
    """The registered readers of one feed. A name belongs to one reader at a time."""

    def __init__(self, lake: Lake, log: Log = RECEIPTS) -> None:
        self._lake = lake
        self._folder = lake.layout.operational_folder(f"{log.name}-readers")
        self._kind = f"{log.name}-readers"
        self._mark = Feed(lake, log).mark_cell
        self._retention_ms = seconds_of(lake.settings.feed_reader_retention) * 1_000

    async def register(self, name: str, *, after: int | None = None) -> int:
        """Register a reader that has read the entries up to `after`; returns its position.

        Without `after`, a known reader continues where it was, and a new one reads everything that is kept. Raises
        Trimmed if entries after that position were removed.
        """
        if after is not None:
            await self.report(name, after)
            return after
        for _ in range(TRIES_MAX):
            held = await self._cell(name).read()
            position = held.value.position if held else (await self._current_mark()).start
            with contextlib.suppress(*() if held else (Trimmed,)):  # Trimmed meanwhile: a new reader starts later.
                await self.report(name, position)
                return position
        raise Busy(f"reader {name}: the feed was trimmed {TRIES_MAX} times while it was registered")

    async def report(self, name: str, position: int) -> None:
        """Say that the reader is there and does not need the entries up to `position` any more.

        Call it for every poll, also without news: most calls without news write nothing. A reader that was forgotten
        is registered again. Raises Trimmed if entries after the position were removed.
        """
        if position < 0:
            raise BadRequest(f"reader {name}: expected the number of a feed entry, found {position}")
        cell, now_ms = self._cell(name), self._lake.clock.now_ms()
        held = await cell.read()
        if held and held.value.position == position and self._is_recent(held.value, now_ms):
            return
        before: list[FeedReader | None] = []

        def decide(current: FeedReader | None) -> FeedReader:
            before.append(current)
            seen = FeedReader(name=name, position=position, seen_ms=now_ms)
            return in_place_of(current, seen)

        written = await cell.update(decide, is_idempotent=True, found=held)
        if any(one is None or one.position > position for one in before):
            # The trimmer may not wait for this position: look at the mark, now that the reader is registered.
            mark = await self._current_mark()
            if position < mark.start:
                if written:
                    await self.forget(written)  # A reader that cannot continue must not stop the trimmer.
                raise Trimmed(position, mark.start)

    async def touch(self, name: str) -> None:
        """Say that a registered reader is still there."""
        held = await self._cell(name).read()
        if held:
            await self.report(name, held.value.position)

    def _is_recent(self, reader: FeedReader, now_ms: int) -> bool:
        return now_ms - reader.seen_ms < self._retention_ms // SEEN_AGAIN_PARTS

    async def remove(self, name: str) -> bool:
        """Forget a reader; False if it is not registered, or was seen again at this moment."""
        cell = self._cell(name)
        held = await cell.read()
        if held is None:
            return False
        return await self.forget(held)

    async def read_all(self) -> Sequence[FeedReader]:
        """Every registered reader by name; Damaged if a record cannot be read."""
        return [reader.value for reader, _ in await self.listed()]

    async def listed(self) -> Sequence[tuple[Versioned[FeedReader], Listed]]:
        found: list[Listed] = []
        async for page in list_pages(self._lake.store, self._folder):
            found += page
            if len(found) > READERS_MAX:
                raise Exhausted(f"feed: more than {READERS_MAX} readers are registered; remove some of them")
        read = await gather_in_batches(found, self._read_listed, at_once=_AT_ONCE)
        return [(reader, listed) for reader, listed in zip(read, found, strict=True) if reader]

    async def forget(self, reader: Versioned[FeedReader]) -> bool:
        """Remove a reader as it was read; False if it was seen again since then."""
        with contextlib.suppress(SwapLost):
            await self._cell(reader.value.name).empty(expected=reader.version)
            return True
        return False

    async def _read_listed(self, listed: Listed) -> Versioned[FeedReader] | None:
        found = await self._lake.store.get(listed.key)
        return Versioned(decode_record(listed.key, found.data, FeedReader), found.version) if found else None

    async def _current_mark(self) -> TrimMark:
        held = await self._mark.read()
        return held.value if held else TrimMark()

    def _cell(self, name: str) -> Cell[FeedReader]:
        if not _NAME.match(name):
            raise BadRequest(
                f"reader {name!r}: a name has up to 128 letters, digits, dots, hyphens and underscores, "
                "and begins with a letter or digit"
            )
        key = self._lake.layout.operational(self._kind, name)
        return Cell(self._lake.store, key, FeedReader, self._lake.clock)


class _Watermarks(msgspec.Struct):
    watermark: dict[str, int] = {}


class _Published(msgspec.Struct):
    """The part of the pipeline's manifest that says how far its jobs have read."""

    datasets: dict[str, _Watermarks] = {}


class _ManifestName(Record, frozen=True, kw_only=True):
    manifest: str


async def published_position(lake: Lake, log: Log) -> int | None:
    """The entry up to which the pipeline has published; None if it never has. Damaged if that cannot be read."""
    held = await Cell(lake.store, lake.layout.core_manifest(), _ManifestName, lake.clock).read()
    if held is None:
        return None
    found = await lake.store.get(held.value.manifest)
    if found is None:
        raise Damaged(held.value.manifest, "the published manifest does not exist")
    published = decode_record(held.value.manifest, found.data, _Published)
    return published.datasets[log.dataset].watermark.get(log.name, 0) if log.dataset in published.datasets else None


class TrimReport(NamedTuple):
    """The result of a trim. `slowest` is the reader that needs the oldest entries, at `slowest_position`.

    None: the feed has no reader.
    """

    trimmed: int
    entries_removed: int = 0
    receipts_carried: int = 0
    readers_forgotten: tuple[str, ...] = ()
    slowest: str = ""
    slowest_position: int | None = None


class SlowestReader(NamedTuple):
    """The reader that needs the oldest entries: it has read those up to `position`. None: the feed has no reader.

    `stale` are readers that were not seen within `feed_reader_retention`; nothing waits for them.
    """

    name: str
    position: int | None
    stale: Sequence[Versioned[FeedReader]]


async def find_slowest_reader(lake: Lake, log: Log = RECEIPTS) -> SlowestReader:
    """Look at every registered reader, and at what the pipeline has published."""
    now_ms = lake.clock.now_ms()
    retention_ms = seconds_of(lake.settings.feed_reader_retention) * 1_000
    positions: list[tuple[int, str]] = []
    stale: list[Versioned[FeedReader]] = []
    for reader, listed in await FeedReaders(lake, log).listed():
        is_as_listed = reader.version == listed.version
        if is_as_listed and listed.modified_ms + retention_ms <= now_ms:
            stale.append(reader)
        else:
            positions.append((reader.value.position, reader.value.name))
    published = await published_position(lake, log)
    if published is not None:
        positions.append((published, "pipeline"))
    position, name = min(positions, default=(None, ""))
    return SlowestReader(name, position, stale)


class PassedReceipts:
    """The receipts that no reader of the feed needs any more, date by date.

    A receipt is needed while a registered reader has not read its position, or while it has no position and there is
    a reader to get one for. Receipts are asked for in the order of their dates; one date is remembered.
    """

    def __init__(self, lake: Lake, upto: int | None, log: Log = RECEIPTS) -> None:
        self._lake = lake
        self._upto = upto
        self._log = log
        self._feed = Feed(lake, log)
        self._lock = asyncio.Lock()
        self._date = ""
        self._passed: frozenset[str] = frozenset()

    async def has(self, receipt: str) -> bool:
        if self._upto is None:
            return True
        async with self._lock:
            if date_of(receipt) != self._date:
                self._passed = frozenset(await self._passed_of(date_of(receipt), self._upto))
                self._date = date_of(receipt)
            return receipt in self._passed

    async def _passed_of(self, date: str, upto: int) -> Sequence[str]:
        folder = self._log.folder(self._lake.layout)
        names: list[str] = []
        async for page in list_pages(self._lake.store, f"{folder}{date}/"):
            names += [listed.key.removeprefix(folder) for listed in page]
        return await self._feed.passed(names, upto)


async def trim_feed(lake: Lake, log: Log = RECEIPTS, *, entries_max: int = ENTRIES_TRIMMED_MAX) -> TrimReport:
    """Remove the oldest entries that are older than the retention of their receipts and that no reader needs.

    Nothing is removed while more than half of their receipts still exist: it would save nothing. Two trimmers, and one
    that died at any step, leave a feed that the next one continues with.
    """
    return await _Trimmer(lake, log).trim(entries_max)


class _Trimmer:
    def __init__(self, lake: Lake, log: Log) -> None:
        self._lake = lake
        self._log = log
        self._feed = Feed(lake, log)
        self._readers = FeedReaders(lake, log)
        self._folder = lake.layout.operational_folder(log.name)
        self._retention_ms = seconds_of(log.retention(lake.settings)) * 1_000

    async def trim(self, entries_max: int) -> TrimReport:
        held = await self._feed.mark_cell.read()
        mark = held.value if held else TrimMark()
        removed = await self._remove(mark.trimmed, entries_max)  # What a trimmer that died left.
        slowest = await find_slowest_reader(self._lake, self._log)
        report = TrimReport(mark.trimmed, removed, slowest=slowest.name, slowest_position=slowest.position)
        old = await self._old_entries(mark.trimmed, entries_max - removed)
        if slowest.position is not None:
            old = range(old.start, min(old.stop, slowest.position + 1))
        entries = await self._read_entries(old)
        if not entries:
            return report
        upto = entries[-1].sequence
        planned = replace(mark, planned=upto)
        try:
            marked = await self._feed.mark_cell.swap(planned, expected=held.version if held else ABSENT)
            return await self._act(marked, entries, report)
        except SwapLost:
            return report  # Another trimmer is at work.

    async def _act(self, marked: Versioned[TrimMark], entries: Sequence[Entry], report: TrimReport) -> TrimReport:
        """Look at the readers and receipts again, now that the mark is set; then remove the entries."""
        upto = entries[-1].sequence
        slowest = await find_slowest_reader(self._lake, self._log)
        forgotten = [reader.value.name for reader in slowest.stale if await self._readers.forget(reader)]
        is_needed = len(forgotten) < len(slowest.stale) or (slowest.position is not None and slowest.position < upto)
        names = {receipt for entry in entries for receipt in entry.receipts}
        existing = [] if is_needed else await self._existing(names)
        report = report._replace(readers_forgotten=tuple(forgotten))
        if is_needed or 2 * len(existing) > len(names):
            await self._feed.mark_cell.swap(replace(marked.value, planned=0), expected=marked.version)
            return report
        if existing:
            await self._feed.carry(existing, upto=upto)
        done = TrimMark(trimmed=upto, next_position=entries[-1].next_position)
        await self._feed.mark_cell.swap(done, expected=marked.version)  # The entries leave the feed here.
        removed = await self._remove(upto, len(entries))
        return report._replace(
            trimmed=upto, entries_removed=report.entries_removed + removed, receipts_carried=len(existing)
        )

    async def _old_entries(self, trimmed: int, entries_max: int) -> range:
        """The oldest entries whose age is above the retention of what they name."""
        now_ms, last = self._lake.clock.now_ms(), trimmed
        after = entry_key(self._lake.layout, trimmed, self._log)
        async for page in list_pages(self._lake.store, self._folder, after=after):
            for listed in page:
                sequence = _sequence_of(listed)
                is_old = listed.modified_ms + self._retention_ms <= now_ms
                if sequence != last + 1 or not is_old or last - trimmed >= entries_max:
                    return range(trimmed + 1, last + 1)
                last = sequence
        return range(trimmed + 1, last + 1)

    async def _read_entries(self, sequences: range) -> Sequence[Entry]:
        """The entries, up to a bound of receipts; without damaged ones, whose receipts get later positions."""
        found: list[Entry] = []
        is_damaged, receipts = False, 0
        for some in portions(sequences, ENTRIES_AT_ONCE):
            for entry in await gather_in_batches(some, self._feed.entry_of, at_once=_AT_ONCE):
                receipts += len(entry.receipts) if entry else 0
                is_damaged |= entry is None
                if entry and (receipts <= RECEIPTS_TRIMMED_MAX or not found):
                    found.append(entry)
            if receipts > RECEIPTS_TRIMMED_MAX:
                break
        if is_damaged:
            await self._feed.advance(unread_after=sequences.start - 1)
        return found

    async def _existing(self, names: set[str]) -> list[str]:
        """Those of the receipts that still exist."""
        folder = self._log.folder(self._lake.layout)
        found: list[str] = []
        for date in sorted({date_of(name) for name in names}):
            async for page in list_pages(self._lake.store, f"{folder}{date}/"):
                listed = (one.key.removeprefix(folder) for one in page)
                found += [name for name in listed if name in names]
        return found

    async def _remove(self, upto: int, entries_max: int) -> int:
        """Delete the entries up to `upto`, which the mark has taken out of the feed."""
        removed = 0
        async for page in list_pages(self._lake.store, self._folder):
            gone = [listed for listed in page if (_sequence_of(listed) or upto + 1) <= upto]
            some = gone[: entries_max - removed]
            removed += sum(await gather_in_batches(some, self._delete, at_once=_AT_ONCE))
            if len(gone) < len(page) or len(some) < len(gone):
                break
        return removed

    async def _delete(self, listed: Listed) -> bool:
        try:
            await self._lake.store.delete(listed.key, expected=listed.version)
        except SwapLost:
            return False  # Another trimmer was first.
        return True


def _sequence_of(listed: Listed) -> int | None:
    """The number of an entry; None for another object of the feed."""
    found = _ENTRY_NAME.search(listed.key)
    return int(found[1]) if found else None
