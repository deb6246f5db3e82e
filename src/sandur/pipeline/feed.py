"""The feed: every receipt gets one position, in the order in which it was found, and keeps it.

A receipt lies under the date of its metadata and the hash of its location, so that nothing about its key or its time
says when it came: one that is written late lies in the midst of what was read long ago. Therefore positions are not
derived from receipts. They are given, in entries of a log that is only appended to, each put where nothing was before:
whoever is slower reads what the faster one has written, and goes on behind it. What was read in vain, as it was gone or
damaged then, can be told again, at a further position.
"""

import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from sandur.catalog.records import Record
from sandur.errors import Busy, SwapLost, Unavailable
from sandur.operations.lake import Lake
from sandur.storage.cell import Cell, Versioned
from sandur.storage.contract import ABSENT, Listed, ObjectStore, get_many
from sandur.storage.layout import Layout

ENTRY_RECEIPTS_MAX: Final = 10_000
APPENDS_MAX: Final = 1_000_000
LISTED_AT_ONCE: Final = 50_000
ENTRIES_AT_ONCE: Final = 64
DATES_REMEMBERED_MAX: Final = 4
STATE: Final = "state"
_KIND: Final = "feed"
_DIGEST_BITS: Final = 128


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the feed: the receipts that were found, the first of them at `first_position`. It never changes.

    `receipts` are keys below the folder of events. `is_again`: they have positions from before, at which they were gone
    or damaged when somebody read them.
    """

    sequence: int
    first_position: int
    receipts: tuple[str, ...]
    is_again: bool = False


class Day(msgspec.Struct, frozen=True, array_like=True):
    """What the feed holds of one date: how many, a sum over them that no other set of keys has, and in which entries.

    `entries` are ranges, first and last, in order.
    """

    count: int = 0
    digest: str = "0"
    entries: tuple[tuple[int, int], ...] = ()


class FeedState(Record, frozen=True, kw_only=True):
    """How far the feed goes, as somebody saw it: the log itself is the truth, and what follows in it is added."""

    sequence: int = 0
    next_position: int = 0
    days: dict[str, Day] = msgspec.field(default_factory=dict)


def entry_key(layout: Layout, sequence: int) -> str:
    return layout.operational(_KIND, f"{sequence:020d}")


def date_of(receipt: str) -> str:
    """The date a receipt lies under; whatever its folder is called."""
    return receipt.partition("/")[0]


def add_entry(state: FeedState, entry: Entry) -> FeedState:
    """The state with one more entry in it."""
    days = dict(state.days)
    for date, receipts in _by_date(entry.receipts).items():
        day = days.get(date, Day())
        new = () if entry.is_again else receipts
        digest = (int(day.digest, 16) + digest_of(new)) % (1 << _DIGEST_BITS)
        days[date] = Day(day.count + len(new), f"{digest:x}", _with(day.entries, entry.sequence))
    return replace(state, sequence=entry.sequence, next_position=entry.first_position + len(entry.receipts), days=days)


def digest_of(receipts: Iterable[str]) -> int:
    """The same for the same receipts in any order."""
    hashes = (hashlib.sha256(receipt.encode()).digest()[:16] for receipt in receipts)
    return sum(map(int.from_bytes, hashes)) % (1 << _DIGEST_BITS)


def _with(ranges: tuple[tuple[int, int], ...], sequence: int) -> tuple[tuple[int, int], ...]:
    if ranges and ranges[-1][1] == sequence - 1:
        return (*ranges[:-1], (ranges[-1][0], sequence))
    return (*ranges, (sequence, sequence))


def _by_date(receipts: Sequence[str]) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for receipt in receipts:
        found.setdefault(date_of(receipt), []).append(receipt)
    return found


class Feed:
    """The feed of one workspace. What is remembered between two calls only spares reading it again."""

    def __init__(self, lake: Lake) -> None:
        self._store = lake.store
        self._layout = lake.layout
        self._cell = Cell(lake.store, lake.layout.operational(_KIND, STATE), FeedState, lake.clock)
        self._state: FeedState | None = None
        self._known: OrderedDict[str, set[str]] = OrderedDict()
        # What others appended since we began to look: it may be among what we found and did not append yet.
        self._taken: set[str] = set()
        self.problems: tuple[str, ...] = ()
        """What was wrong with the state, if something was."""

    async def caught_up(self) -> FeedState:
        """The feed as it is now: what was noted last, and every entry behind that."""
        state = self._state or await self._noted_state()
        for _ in range(APPENDS_MAX):
            entry = await self._entry(state.sequence + 1)
            if entry is None:
                break
            self._taken.update(entry.receipts)
            state = self._followed(state, entry)
        self._state = state
        return state

    async def advance(self) -> FeedState:
        """Give every receipt that has none yet a position, and return the feed as it is then.

        When this returns, every receipt that was there when it was called has a position. Receipts that are collected
        later keep theirs.
        """
        held = await self._held()
        before = (await self.caught_up()).sequence
        self._taken.clear()
        found: list[str] = []
        async for date, receipts in list_dates(self._store, self._layout):
            found += await self._new_of(date, receipts)
            if len(found) >= ENTRY_RECEIPTS_MAX:
                found = await self._append(found, keep_rest=True)
        await self._append(found, keep_rest=False)
        state = await self.caught_up()
        if state.sequence > before or (held.value.sequence if held else 0) < state.sequence:
            await self._note(state, held)
        return state

    async def passed(self, receipts: Sequence[str], upto: int) -> Sequence[str]:
        """Those of the receipts whose newest position is in an entry up to that one; not those that have none."""
        state = await self.caught_up()
        found: list[str] = []
        for date, some in _by_date(receipts).items():
            newest = dict.fromkeys(some, 0)
            async for entry in self._entries_of(date, state.days.get(date, Day())):
                newest.update((receipt, entry.sequence) for receipt in entry.receipts if receipt in newest)
            found += [receipt for receipt, sequence in newest.items() if 0 < sequence <= upto]
        return found

    async def tell_again(self, receipts: Sequence[str]) -> None:
        """Give receipts that have a position another one, for those who read on from here."""
        await self.caught_up()
        self._taken.clear()
        await self._append(receipts, keep_rest=False, is_again=True)

    async def receipts_of(self, entry: int) -> Entry:
        """An entry that is known to be there."""
        found = await self._entry(entry)
        if found is None:
            raise Unavailable(f"feed: entry {entry} is not there")
        return found

    async def _new_of(self, date: str, receipts: Sequence[str]) -> Sequence[str]:
        state = await self.caught_up()
        day = state.days.get(date, Day())
        if day.count == len(receipts) and int(day.digest, 16) == digest_of(receipts):
            return []
        known = await self._known_of(date, day)
        return [receipt for receipt in receipts if receipt not in known]

    async def _append(self, receipts: Sequence[str], *, keep_rest: bool, is_again: bool = False) -> list[str]:
        """Put receipts at the end of the log, entry by entry; what is too little for one is returned."""
        left = list(receipts)
        for _ in range(APPENDS_MAX):
            state = await self.caught_up()
            if self._taken:
                left = [receipt for receipt in left if receipt not in self._taken]
            if not left or (keep_rest and len(left) < ENTRY_RECEIPTS_MAX):
                return left
            entry = Entry(
                sequence=state.sequence + 1,
                first_position=state.next_position,
                receipts=tuple(left[:ENTRY_RECEIPTS_MAX]),
                is_again=is_again,
            )
            try:
                await self._store.put(
                    entry_key(self._layout, entry.sequence), msgspec.json.encode(entry), expected=ABSENT
                )
            except SwapLost:
                continue  # Somebody was faster, perhaps we ourselves with an answer that was lost: follow him.
            self._state = self._followed(state, entry)
            left = left[len(entry.receipts) :]
        raise Busy("feed: others keep appending to it")

    def _followed(self, state: FeedState, entry: Entry) -> FeedState:
        for date, receipts in _by_date(entry.receipts).items():
            if date in self._known:
                self._known[date].update(receipts)
        return add_entry(state, entry)

    async def _known_of(self, date: str, day: Day) -> set[str]:
        """The receipts of a date that have a position."""
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
        """The entries that hold receipts of a date, in order, some of them read at a time."""
        sequences = [sequence for first, last in day.entries for sequence in range(first, last + 1)]
        for start in range(0, len(sequences), ENTRIES_AT_ONCE):
            keys = [entry_key(self._layout, one) for one in sequences[start : start + ENTRIES_AT_ONCE]]
            for key, found in zip(keys, await get_many(self._store, keys), strict=True):
                if found is None:
                    raise Unavailable(f"feed: {key}, which has receipts of {date}, is not there")
                yield _decoded(key, found.data)

    async def _noted_state(self) -> FeedState:
        held = await self._held()
        return held.value if held else FeedState()

    async def _held(self) -> Versioned[FeedState] | None:
        """What was noted last. What cannot be read says nothing: the log has all of it, and it is noted anew."""
        found = await self._store.get(self._cell.key)
        if found is None:
            return None
        try:
            return Versioned(msgspec.json.decode(found.data, type=FeedState), found.version)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self.problems = (
                f"object {self._cell.key}: is not a FeedState: {error}; the feed is read from its beginning",
            )
            return Versioned(FeedState(), found.version)

    async def _note(self, state: FeedState, held: Versioned[FeedState] | None) -> None:
        try:
            await self._cell.swap(state, expected=held.version if held else ABSENT)
        except SwapLost:
            return  # Whoever did it meanwhile saves the next one as much reading.

    async def _entry(self, sequence: int) -> Entry | None:
        key = entry_key(self._layout, sequence)
        found = await self._store.get(key)
        return _decoded(key, found.data) if found else None


def _decoded(key: str, data: bytes) -> Entry:
    try:
        return msgspec.json.decode(data, type=Entry)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable(f"feed: {key} is damaged: {error}") from error


async def list_dates(store: ObjectStore, layout: Layout) -> AsyncIterator[tuple[str, Sequence[str]]]:
    """Every date below the folder of events, with its receipts in order; pending ones are nobody's business."""
    folder = layout.events_folder()
    date, receipts = "", list[str]()
    async for listed in _listed(store, folder):
        receipt = listed.key[len(folder) :]
        if date_of(receipt) != date:
            if receipts:
                yield date, receipts
            date, receipts = date_of(receipt), []
        if not _is_pending(receipt):
            receipts.append(receipt)
    if receipts:
        yield date, receipts


async def _listed(store: ObjectStore, folder: str) -> AsyncIterator[Listed]:
    after: str | None = None
    while True:
        page = await store.list(folder, after=after, limit=LISTED_AT_ONCE)
        for listed in page:
            yield listed
        if len(page) < LISTED_AT_ONCE:
            return
        after = page[-1].key


def _is_pending(receipt: str) -> bool:
    parts = receipt.split("/")
    return len(parts) == 4 and parts[2] == "pending"  # noqa: PLR2004 - date, family, state, commit key


def receipt_of_key(layout: Layout, key: str) -> str:
    """What entries call the object of that key."""
    return key.removeprefix(layout.events_folder())


def key_of_receipt(layout: Layout, receipt: str) -> str:
    """The key of the object that an entry names."""
    return f"{layout.events_folder()}{receipt}"
