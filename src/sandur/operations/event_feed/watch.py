"""The watch of a feed: gives new receipts a position soon after they are written, while there are listeners.

What this process writes is noted at once. What other servers write is found by listing: the dates around now in every
poll, and one older date, so that a late receipt with an old date is found within some minutes. No poll costs more than
the receipts of a few dates.
"""

import asyncio
import contextlib
import datetime as dt
from collections.abc import Iterable, Iterator
from typing import Final

from sandur.errors import SwapLost
from sandur.operations.feed import Day, Feed, FeedState
from sandur.operations.lake import Lake
from sandur.operations.receipts import LISTED_AT_ONCE, WrittenReceipts, by_date, date_of, receipt_of_key
from sandur.storage.contract import ABSENT, list_pages

ENTRIES_UNSAVED_MAX: Final = 64
"""How many entries a server appends before it saves the state, from which other processes start to read."""
POLL_MS: Final = 2_000
POLL_SHARE: Final = 10
"""A poll takes at most a tenth of the time: the next one begins after ten times its duration."""
PAUSE_MS_MAX: Final = 30_000
"""A poll that was slow, because the machine was busy, does not delay the next one for longer."""
APPEND_MS: Final = 500
"""The shortest time between two appends: each one makes an entry, and a cold reader reads every entry of a date."""
FRESH_MS: Final = 200
"""How long readers share what one of them found."""
NOTED_MAX: Final = 10_000
DATES_MAX: Final = 100_000
_DAY_MS: Final = 86_400_000
_SKEW_MS: Final = 600_000
_EPOCH: Final = dt.date(1970, 1, 1)


class ServedFeed(Feed):
    """The feed as a server appends to it: a few receipts at a time, without a listing of the history."""

    _saved_sequence = 0

    async def append_new(self, receipts: Iterable[str]) -> FeedState:
        """Append those of these receipts that have no position, in this order, and return the new state."""
        given = tuple(dict.fromkeys(receipts))

        async def append() -> FeedState:
            state = await self._catch_up()
            self._taken.clear()
            left = dict.fromkeys(given)
            for date, some in by_date(given).items():
                for receipt in await self._known_of(date, state.days.get(date, Day())) & set(some):
                    del left[receipt]
            await self._append(tuple(left), keep_rest=False)
            return await self._catch_up()

        return await self._saved_sometimes(await self._untrimmed(append))

    async def advance_date(self, date: str) -> FeedState:
        """As `advance`, for the receipts of one date only: the cost does not grow with the history.

        What is found together is appended in the order in which it was written, as far as the store knows it.
        """

        async def append() -> FeedState:
            await self._catch_up()
            self._taken.clear()
            folder = self._log.folder(self._layout)
            written: dict[str, int] = {}
            async for page in list_pages(self._store, f"{folder}{date}/", limit=LISTED_AT_ONCE):
                written.update((listed.key[len(folder) :], listed.modified_ms) for listed in page)
            new = await self._new_of(date, tuple(written))
            await self._append(sorted(new, key=lambda receipt: (written[receipt], receipt)), keep_rest=False)
            return await self._catch_up()

        return await self._saved_sometimes(await self._untrimmed(append))

    async def date_after(self, date: str) -> str:
        """The next date with receipts; empty after the last one."""
        folder = self._log.folder(self._layout)
        # In byte order, `0` follows `/`: no key of the date sorts after it.
        page = await self._store.list(folder, after=f"{folder}{date}0" if date else None, limit=1)
        return date_of(page[0].key[len(folder) :]) if page else ""

    async def positioned_by(self, receipt: str) -> int | None:
        """The newest entry, if the receipt has a position, or had one that was removed; None if it has none yet."""
        date = date_of(receipt)

        async def look() -> int | None:
            state = await self._catch_up()
            is_known = receipt in await self._known_of(date, state.days.get(date, Day()))
            return state.sequence if is_known else None

        return await self._untrimmed(look)

    async def _saved_sometimes(self, state: FeedState) -> FeedState:
        """The state itself, saved if many entries were appended since it was saved last."""
        if state.sequence - self._saved_sequence >= ENTRIES_UNSAVED_MAX:
            held = await self._read_state()
            self._saved_sequence = max(state.sequence, held.value.sequence if held else 0)
            is_newer = held is None or held.value.sequence < state.sequence
            if is_newer and not (held and set(held.value.damaged) - set(state.damaged)):
                with contextlib.suppress(
                    SwapLost
                ):  # Another writer saved a state, which saves the next reader as much.
                    await self._cell.swap(state, expected=held.version if held else ABSENT)
        return state


class FeedWatch:
    """The watch of one lake in one process. `newest` is the newest entry that it knows."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._clock = lake.clock
        self._feed = ServedFeed(lake)
        self._lock = asyncio.Lock()
        self._noted: dict[str, None] = {}  # In the order in which they were written.
        self._note_made = asyncio.Event()
        self._news = asyncio.Event()
        self._listeners = 0
        self._task: asyncio.Task[None] | None = None
        self._poll_due_ms = 0
        self._appended_ms = 0
        self._fresh_until_ms = 0
        self._older_date = ""
        self.newest = 0
        lake.feature(WrittenReceipts).listener = self.note
        lake.on_close(self.close)

    def note(self, key: str) -> None:
        """A receipt exists, and may have no position yet. Never waits."""
        if len(self._noted) < NOTED_MAX:
            self._noted[receipt_of_key(self._lake.layout, key)] = None
        else:
            self._poll_due_ms = 0  # The listing finds the rest.
        self._note_made.set()

    async def refresh(self) -> int:
        """Give positions to what was noted and, if a poll is due, to what a poll finds. Returns the newest entry."""
        async with self._lock:
            began_ms = self._clock.now_ms()
            if not self._noted and began_ms < min(self._poll_due_ms, self._fresh_until_ms):
                return self.newest  # Many readers share a look at the feed.
            noted, self._noted = self._noted, {}
            try:
                state = await (self._feed.append_new(noted) if noted else self._feed.catch_up())
                if noted:
                    self._appended_ms = began_ms
                if not state.sequence:
                    state = await self._advance_history()
                if began_ms >= self._poll_due_ms:
                    for date in await self._dates(began_ms):
                        state = await self._feed.advance_date(date)
                    ended_ms = self._clock.now_ms()
                    slow_ms = min(POLL_SHARE * (ended_ms - began_ms), PAUSE_MS_MAX)
                    self._poll_due_ms = ended_ms + max(POLL_MS, slow_ms)
            except BaseException:
                self._noted = {**noted, **self._noted}
                raise
            self._fresh_until_ms = self._clock.now_ms() + FRESH_MS
            if state.sequence > self.newest:
                self.newest = state.sequence
                self._news.set()
                self._news = asyncio.Event()
            return self.newest

    async def _advance_history(self) -> FeedState:
        """Give positions to everything that exists: once in the life of a store whose feed has no entry yet."""
        state, date = FeedState(), ""
        for _ in range(DATES_MAX):
            date = await self._feed.date_after(date)
            if not date:
                break
            state = await self._feed.advance_date(date)
        return state

    async def _dates(self, now_ms: int) -> list[str]:
        """The dates of a poll: those of receipts that are written now, and the next older one."""
        near = {_date(now_ms - _DAY_MS), _date(now_ms), _date(now_ms + _SKEW_MS)}
        self._older_date = await self._feed.date_after(self._older_date)
        return sorted({*near, self._older_date} - {""})

    async def positioned_by(self, receipt: str) -> int | None:
        """An entry up to which the receipt has its position; None if it has none yet."""
        async with self._lock:
            return await self._feed.positioned_by(receipt)

    async def wait(self, seen: int, *, seconds: float) -> bool:
        """Wait until an entry after `seen` exists, at most for the given time; whether one exists."""
        news = self._news
        if self.newest <= seen:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await news.wait()
        return self.newest > seen

    def wake(self) -> None:
        """End every `wait`: something else than the feed has changed."""
        self._news.set()
        self._news = asyncio.Event()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Keep the feed up to date until the block ends."""
        self._listeners += 1
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="watch the feed")
        try:
            yield
        finally:
            self._listeners -= 1
            if not self._listeners and self._task is not None:
                self._task.cancel()
                self._task = None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            self._note_made.clear()
            try:
                await self.refresh()
            except Exception as error:  # noqa: BLE001 - reported; a watch that ends would stop deliveries in silence
                self._lake.incidents.work_failed("watch the feed", error)
                await self._clock.sleep(POLL_MS / 1_000)
            now_ms = self._clock.now_ms()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(self._poll_due_ms - now_ms, 1) / 1_000):
                    await self._note_made.wait()
            early_ms = self._appended_ms + APPEND_MS - self._clock.now_ms()
            if self._noted and early_ms > 0:
                await self._clock.sleep(early_ms / 1_000)


def _date(time_ms: int) -> str:
    return (_EPOCH + dt.timedelta(days=time_ms // _DAY_MS)).isoformat()
