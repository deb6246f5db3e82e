"""The feed: an append-only log that gives every receipt a position, in the order in which receipts are found.

The batches of the audit trail and those of lineage events have feeds of their own, which work in the same way: read
"receipt" as "batch" there.

The key of a receipt is a date and a hash, so neither its key nor its time says when it was written: a late receipt
sorts between old ones. So positions are assigned, not derived. Each entry of the log is created under a new key; a
writer that loses that race reads the winner's entry and appends after it. A receipt that a reader skipped because it
was missing or damaged can be appended again at a later position.

An entry that cannot be decoded counts as empty. The state remembers it, and its receipts get new positions: readers
that had read it find them a second time, with the same commit keys.

The oldest entries are removed once no reader needs them (`feed_readers.trim_feed`). Receipts of removed entries that
still exist are first named by a carried entry, which has no news for readers. A slow process may append where an entry
was removed. No reader sees that entry, and the process appends again, because the log was trimmed while it worked.
"""

import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from sandur.catalog.record_versions import Record
from sandur.errors import Busy, Damaged, SwapLost, Trimmed, Unavailable
from sandur.operations.lake import Lake
from sandur.operations.receipts import by_date, date_of, list_dates
from sandur.settings import Settings
from sandur.splicing import NOT_JSON
from sandur.storage.cell import Cell, Versioned, gather_all
from sandur.storage.contract import ABSENT, get_many, portions
from sandur.storage.layout import Layout
from sandur.storage.record_form import decode_record

T = TypeVar("T")

ENTRY_RECEIPTS_MAX: Final = 10_000
APPENDS_MAX: Final = 1_000_000
ENTRIES_AT_ONCE: Final = 64
DATES_REMEMBERED_MAX: Final = 4
RECOVERIES_MAX: Final = 10
STATE: Final = "state"
TRIM: Final = "trim"
FEED: Final = "feed"
"""The folder of the log, and the name of its watermark in a dataset."""
AUDIT_FEED: Final = "audit-feed"
LINEAGE_FEED: Final = "lineage-feed"
_DIGEST_BITS: Final = 128


class Log(NamedTuple):
    """A folder of objects by date, and the name of the feed that gives them positions.

    `retention` is how long its objects are kept; `dataset` is what the pipeline publishes from them.
    """

    name: str
    folder: Callable[[Layout], str]
    retention: Callable[[Settings], str]
    dataset: str


RECEIPTS: Final = Log(FEED, Layout.events_folder, lambda settings: settings.receipt_retention, "commits")
AUDIT_BATCHES: Final = Log(AUDIT_FEED, Layout.audit_folder, lambda settings: settings.audit_retention, "audit")
LINEAGE_BATCHES: Final = Log(
    LINEAGE_FEED, Layout.lineage_folder, lambda settings: settings.lineage_retention, "lineage"
)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable entry: new receipts, the first of them at `first_position`.

    `receipts` are keys relative to the events folder. `is_again`: they have earlier positions, at which a reader found
    them missing or damaged. `carried_upto`: they have positions in entries up to that one, which are removed; readers
    have read them.
    """

    sequence: int
    first_position: int
    receipts: tuple[str, ...]
    is_again: bool = False
    carried_upto: int = 0

    @property
    def news(self) -> tuple[str, ...]:
        """The receipts that a reader of the whole log gets from this entry."""
        return () if self.carried_upto else self.receipts

    @property
    def next_position(self) -> int:
        return self.first_position + len(self.news)


class Day(msgspec.Struct, frozen=True, array_like=True):
    """The receipts of one date in the feed: their count, a digest of the set, and the entries that hold them.

    `entries` are ordered ranges of first and last entry.
    """

    count: int = 0
    digest: str = "0"
    entries: tuple[tuple[int, int], ...] = ()


class FeedState(Record, frozen=True, kw_only=True):
    """A summary of the feed up to `sequence`. The log is the truth; later entries are added when it is read.

    `damaged` are the entries that could not be decoded. Their receipts are not in `days`, so they are found again.
    """

    sequence: int = 0
    next_position: int = 0
    days: dict[str, Day] = msgspec.field(default_factory=dict)
    damaged: tuple[int, ...] = ()


class TrimMark(Record, frozen=True, kw_only=True):
    """How far the feed is trimmed: entries up to `trimmed` are no longer part of it.

    `next_position` is the first position after them. Entries up to `planned` may be removed next: a reader that
    registers now must not need them. Both only grow, except that a plan may be taken back.
    """

    trimmed: int = 0
    next_position: int = 0
    planned: int = 0

    @property
    def start(self) -> int:
        """The position of a new reader of everything that is kept."""
        return max(self.trimmed, self.planned)


def entry_key(layout: Layout, sequence: int, log: Log = RECEIPTS) -> str:
    return layout.operational(log.name, f"{sequence:020d}")


def add_entry(state: FeedState, entry: Entry) -> FeedState:
    days = dict(state.days)
    for date, receipts in by_date(entry.receipts).items():
        day = days.get(date, Day())
        new = () if entry.is_again or entry.carried_upto else receipts
        digest = (int(day.digest, 16) + digest_of(new)) % (1 << _DIGEST_BITS)
        days[date] = Day(day.count + len(new), f"{digest:x}", _with_entry(day.entries, entry.sequence))
    return replace(state, sequence=entry.sequence, next_position=entry.next_position, days=days)


def cut_state(state: FeedState, mark: TrimMark) -> FeedState:
    """The state without removed entries. A date keeps its count; `_new_of` corrects it if receipts are gone."""
    if state.sequence < mark.trimmed:
        return FeedState(sequence=mark.trimmed, next_position=mark.next_position)
    days: dict[str, Day] = {}
    for date, day in state.days.items():
        kept = tuple((max(first, mark.trimmed + 1), last) for first, last in day.entries if last > mark.trimmed)
        if kept:
            days[date] = Day(day.count, day.digest, kept)
    damaged = tuple(sequence for sequence in state.damaged if sequence > mark.trimmed)
    return replace(state, days=days, damaged=damaged)


def digest_of(receipts: Iterable[str]) -> int:
    """A digest of a set of receipts; their order does not matter."""
    hashes = (hashlib.sha256(receipt.encode()).digest()[:16] for receipt in receipts)
    return sum(map(int.from_bytes, hashes)) % (1 << _DIGEST_BITS)


def _with_entry(ranges: tuple[tuple[int, int], ...], sequence: int) -> tuple[tuple[int, int], ...]:
    if ranges and ranges[-1][1] == sequence - 1:
        return (*ranges[:-1], (ranges[-1][0], sequence))
    return (*ranges, (sequence, sequence))


class Feed:
    """The feed of one lake. State that is kept between calls only saves reads."""

    def __init__(self, lake: Lake, log: Log = RECEIPTS) -> None:
        self._log = log
        self._store = lake.store
        self._layout = lake.layout
        self._cell = Cell(lake.store, lake.layout.operational(log.name, STATE), FeedState, lake.clock)
        self.mark_cell = Cell(lake.store, lake.layout.operational(log.name, TRIM), TrimMark, lake.clock)
        self._state: FeedState | None = None
        self._known: OrderedDict[str, set[str]] = OrderedDict()
        # Receipts that others appended since our listing: we may have found them too, and must not append them again.
        self._taken: set[str] = set()
        self.problems: tuple[str, ...] = ()
        """Warnings about a damaged state, and about damaged entries."""

    async def catch_up(self) -> FeedState:
        """The current state: the stored one, and every entry after it."""
        return await self._untrimmed(self._catch_up)

    async def advance(self, *, unread_after: int | None = None) -> FeedState:
        """Append every receipt without a position, and return the new state.

        Afterwards every receipt that existed at the call has a position, and keeps it even when it is collected. A
        reader that has read the entries up to `unread_after` says so: damage behind it is looked for first.
        """
        if unread_after is not None:
            await self.recover(unread_after)
        held = await self._read_state()
        if held and self._state and set(held.value.damaged) - set(self._state.damaged):
            self._forget(held.value)  # Another process found damage in an entry that we count as read.
        state = await self._untrimmed(self._append_news)
        if held is None or held.value.sequence < state.sequence or held.value.days != state.days:
            with contextlib.suppress(SwapLost):  # Another writer saved a state, which saves the next reader as much.
                await self._cell.swap(state, expected=held.version if held else ABSENT)
        return state

    async def start(self) -> int:
        """The position from which a new reader reads every entry that is kept."""
        return (await self._mark()).start

    async def trimmed(self) -> int:
        """The newest entry that was removed; 0 if none was."""
        return (await self._mark()).trimmed

    async def _untrimmed(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of work on the log, repeated if the log was trimmed meanwhile.

        A slot of a removed entry is empty, so a slow process may take it for the end of the log. All slots after the
        mark are intact if the mark is the same before and after the work.
        """
        for _ in range(RECOVERIES_MAX):
            mark = await self._mark()
            if self._state is None:
                held = await self._read_state()
                self._state = held.value if held else FeedState()
            self._state = cut_state(self._state, mark)
            try:
                result = await work()
            except _MissingEntry as error:
                if mark.trimmed == (await self._mark()).trimmed:
                    raise Unavailable(str(error)) from error
            else:
                if mark.trimmed == (await self._mark()).trimmed:
                    return result
            self._state = None
            self._known.clear()
        raise Busy(f"feed: the log was trimmed {RECOVERIES_MAX} times while it was read")

    async def _mark(self) -> TrimMark:
        held = await self.mark_cell.read()
        return held.value if held else TrimMark()

    async def _catch_up(self) -> FeedState:
        state = self._state or FeedState()
        for _ in range(APPENDS_MAX):
            entry = await self._entry(state.sequence + 1)
            if entry is None:
                break
            if isinstance(entry, DamagedEntry):
                state = self._without(state, entry)
                continue
            self._taken.update(entry.receipts)
            state = self._with_entry(state, entry)
        self._state = state
        return state

    async def _append_news(self) -> FeedState:
        await self._catch_up()
        self._taken.clear()
        found: list[str] = []
        async for date, receipts in list_dates(self._store, self._log.folder(self._layout)):
            found += await self._new_of(date, receipts)
            if len(found) >= ENTRY_RECEIPTS_MAX:
                found = await self._append(found, keep_rest=True)
        await self._append(found, keep_rest=False)
        return await self._catch_up()

    async def recover(self, after: int) -> None:
        """Look for damage in the entries behind `after`; `advance` gives new positions to their receipts."""
        await self._untrimmed(lambda: self._recover(after))

    async def _recover(self, after: int) -> None:
        for _ in range(RECOVERIES_MAX):
            held = await self._read_state()
            if held is None:
                return  # Without a stored state, every reader decodes the log itself.
            mark = await self._mark()
            known = cut_state(held.value, mark)
            damaged = await self._damaged(range(max(after, mark.trimmed) + 1, known.sequence + 1))
            new = [one for one in damaged if one.sequence not in known.damaged]
            if not new:
                return
            self._known.clear()
            numbers = {one.sequence for one in new}
            days = {date: await self._counted(date, day, numbers) for date, day in known.days.items()}
            state = replace(known, days=days, damaged=(*known.damaged, *sorted(numbers)))
            with contextlib.suppress(SwapLost):  # Another writer saved a state: look again.
                await self._cell.swap(state, expected=held.version)
                self._forget(state)
                self.problems += tuple(map(str, new))
                return
        raise Busy(f"feed: lost {RECOVERIES_MAX} races to note a damaged entry")

    async def passed(self, receipts: Sequence[str], upto: int) -> Sequence[str]:
        """The receipts whose newest position is in an entry up to `upto`; receipts without a position are left out."""

        async def find() -> Sequence[str]:
            state = await self._catch_up()
            found: list[str] = []
            for date, some in by_date(receipts).items():
                newest = dict.fromkeys(some, 0)
                async for entry in self._entries_of(date, state.days.get(date, Day())):
                    place = entry.carried_upto or entry.sequence
                    newest.update((one, max(place, newest[one])) for one in entry.receipts if one in newest)
                found += [receipt for receipt, sequence in newest.items() if 0 < sequence <= upto]
            return found

        return await self._untrimmed(find)

    async def append_again(self, receipts: Sequence[str]) -> None:
        """Append receipts that already have a position, so that later readers see them again."""
        await self._append_known(receipts, is_again=True)

    async def carry(self, receipts: Sequence[str], *, upto: int) -> None:
        """Append receipts with positions in entries up to `upto`, so that these may be removed; no reader sees them."""
        await self._append_known(receipts, carried_upto=upto)

    async def _append_known(self, receipts: Sequence[str], *, is_again: bool = False, carried_upto: int = 0) -> None:
        async def append() -> None:
            await self._catch_up()
            self._taken.clear()
            await self._append(receipts, keep_rest=False, is_again=is_again, carried_upto=carried_upto)

        await self._untrimmed(append)

    async def receipts_of(self, entry: int) -> Entry:
        """An existing entry, without receipts if it is damaged.

        Raises Trimmed if it was removed, and Unavailable if it is missing.
        """
        found = await self._entry(entry)
        if found is None:
            await self.check_kept(entry - 1)
            raise Unavailable(f"feed: entry {entry} does not exist")
        return Entry(sequence=entry, first_position=0, receipts=()) if isinstance(found, DamagedEntry) else found

    async def entry_of(self, sequence: int) -> Entry | None:
        """An entry with all its receipts; None if it is missing or damaged."""
        found = await self._entry(sequence)
        return found if isinstance(found, Entry) else None

    async def check_kept(self, position: int) -> None:
        """Raise Trimmed if entries after this position were removed: who has read up to there missed some."""
        mark = await self._mark()
        if position < mark.trimmed:
            raise Trimmed(position, mark.trimmed)

    async def _new_of(self, date: str, receipts: Sequence[str]) -> Sequence[str]:
        state = await self._catch_up()
        day = state.days.get(date, Day())
        if day.count == len(receipts) and int(day.digest, 16) == digest_of(receipts):
            return []
        known = await self._known_of(date, day)
        if day.entries:  # The count of a date whose oldest entries were removed is corrected here.
            exact = Day(len(known), f"{digest_of(known):x}", day.entries)
            self._state = replace(state, days={**state.days, date: exact})
        return [receipt for receipt in receipts if receipt not in known]

    async def _append(
        self, receipts: Sequence[str], *, keep_rest: bool, is_again: bool = False, carried_upto: int = 0
    ) -> list[str]:
        """Append receipts, entry by entry; with `keep_rest`, return those that do not fill an entry."""
        left = list(receipts)
        for _ in range(APPENDS_MAX):
            state = await self._catch_up()
            if self._taken:
                left = [receipt for receipt in left if receipt not in self._taken]
            if not left or (keep_rest and len(left) < ENTRY_RECEIPTS_MAX):
                return left
            entry = Entry(
                sequence=state.sequence + 1,
                first_position=state.next_position,
                receipts=tuple(left[:ENTRY_RECEIPTS_MAX]),
                is_again=is_again,
                carried_upto=carried_upto,
            )
            try:
                await self._store.put(
                    entry_key(self._layout, entry.sequence, self._log), msgspec.json.encode(entry), expected=ABSENT
                )
            except SwapLost:
                continue  # Another writer won, or our own answer was lost: read that entry and append after it.
            self._state = self._with_entry(state, entry)
            left = left[len(entry.receipts) :]
        raise Busy(f"feed: lost {APPENDS_MAX} races to append an entry")

    def _without(self, state: FeedState, entry: "DamagedEntry") -> FeedState:
        """The state after a damaged entry: its positions are not given to other receipts."""
        self.problems += (str(entry),)
        unused = state.next_position + ENTRY_RECEIPTS_MAX
        return replace(state, sequence=entry.sequence, next_position=unused, damaged=(*state.damaged, entry.sequence))

    def _forget(self, state: FeedState) -> None:
        """Continue from a stored state."""
        self._state = state
        self._known.clear()

    async def _damaged(self, sequences: Sequence[int]) -> "list[DamagedEntry]":
        found: list[DamagedEntry] = []
        for some in portions(sequences, ENTRIES_AT_ONCE):
            entries = await gather_all(self._entry(sequence) for sequence in some)
            found += [entry for entry in entries if isinstance(entry, DamagedEntry)]
        return found

    async def _counted(self, date: str, day: Day, damaged: set[int]) -> Day:
        """The summary of a date without its damaged entries."""
        if not any(first <= sequence <= last for first, last in day.entries for sequence in damaged):
            return day
        known = await self._known_of(date, day)
        return Day(len(known), f"{digest_of(known):x}", day.entries)

    def _with_entry(self, state: FeedState, entry: Entry) -> FeedState:
        for date, receipts in by_date(entry.receipts).items():
            if date in self._known:
                self._known[date].update(receipts)
        return add_entry(state, entry)

    async def _known_of(self, date: str, day: Day) -> set[str]:
        """The receipts of a date with a position."""
        if date not in self._known:
            known: set[str] = set()
            async for entry in self._entries_of(date, day):
                known.update(receipt for receipt in entry.receipts if date_of(receipt) == date)
            self._known[date] = known
            while len(self._known) > DATES_REMEMBERED_MAX:
                self._known.popitem(last=False)
        self._known.move_to_end(date)
        return self._known[date]

    async def _entries_of(self, date: str, day: Day) -> AsyncIterator[Entry]:
        """The entries with receipts of a date, in order, read in portions."""
        sequences = [sequence for first, last in day.entries for sequence in range(first, last + 1)]
        for some in portions(sequences, ENTRIES_AT_ONCE):
            keys = [entry_key(self._layout, one, self._log) for one in some]
            for key, found in zip(keys, await get_many(self._store, keys), strict=True):
                if found is None:
                    raise _MissingEntry(f"feed: entry {key} with receipts of {date} does not exist")
                entry = _decoded(key, found.data)
                if isinstance(entry, Entry):
                    yield entry

    async def _read_state(self) -> Versioned[FeedState] | None:
        """The stored state; an empty one if it is damaged, because the log has everything."""
        found = await self._store.get(self._cell.key)
        if found is None:
            return None
        try:
            return Versioned(decode_record(self._cell.key, found.data, FeedState), found.version)
        except Damaged as error:
            self.problems = (f"{error}; the feed is read from its beginning",)
            return Versioned(FeedState(), found.version)

    async def _entry(self, sequence: int) -> "Entry | DamagedEntry | None":
        key = entry_key(self._layout, sequence, self._log)
        found = await self._store.get(key)
        return _decoded(key, found.data) if found else None


class _MissingEntry(Exception):
    """An entry that the state names is not there: it was removed meanwhile, or it is lost."""


class DamagedEntry(NamedTuple):
    """An entry that cannot be decoded."""

    key: str
    sequence: int
    reason: str

    def __str__(self) -> str:
        return f"feed: entry {self.key} is damaged: {self.reason}; its receipts get new positions"


def _decoded(key: str, data: bytes) -> Entry | DamagedEntry:
    try:
        return msgspec.json.decode(data, type=Entry)
    except NOT_JSON as error:
        return DamagedEntry(key, int(key.rpartition("/")[2].removesuffix(".json")), str(error))
