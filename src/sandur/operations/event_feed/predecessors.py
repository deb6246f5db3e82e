"""Whether the event before an event was settled, for a server that does not remember it.

A receipt exists before that of its successor is written, but it may get its position later: another server wrote it, or
it has an old date. So the store is asked: the receipt of the predecessor is looked for by its key, date by date.
"""

import datetime as dt
from collections.abc import Mapping
from typing import Final

import msgspec

from sandur.catalog.event_feed.events import Event
from sandur.catalog.event_feed.subscriptions import Subscription
from sandur.operations.event_feed.watch import FeedWatch
from sandur.operations.lake import Lake
from sandur.operations.receipts import receipt_of_key
from sandur.storage.cell import gather_all
from sandur.storage.contract import Listed
from sandur.storage.layout import EventFamily

DATES_MAX: Final = 32
"""How many dates back the receipt of a predecessor is looked for. An older one was settled long ago."""
_AT_ONCE: Final = 8
RECHECK_MS: Final = 1_000
SETTLED_AGE_MS: Final = 600_000
"""After this time every receipt has a position: polls find even those with old dates sooner."""
_SKEW_MS: Final = 60_000
_DAY_MS: Final = 86_400_000
_EPOCH: Final = dt.date(1970, 1, 1)


class Held(msgspec.Struct):
    """An event whose predecessor was not read yet: since when it waits, when that was checked, and the receipt.

    `entry` is one up to which the receipt has its position; None if it has none yet.
    """

    since_ms: int
    checked_ms: int = 0
    found: Listed | None = None
    entry: int | None = None


class Predecessors:
    """What one delivery found out about the predecessors of its events, by the commit keys of the events."""

    def __init__(self, lake: Lake, subscription: Subscription) -> None:
        self._lake = lake
        self._created_ms = subscription.created_ms
        self._held: dict[str, Held] = {}

    def missing(self, now_ms: int) -> Mapping[str, int]:
        """The events that are held, and since when. After a while each one is left out, so that it is checked again."""
        return {key: held.since_ms for key, held in self._held.items() if now_ms < held.checked_ms + RECHECK_MS}

    @property
    def is_waiting(self) -> bool:
        return bool(self._held)

    def since_ms(self, commit_key: str) -> int:
        """Since when an event is held; 0 if it is not."""
        held = self._held.get(commit_key)
        return held.since_ms if held else 0

    def hold(self, commit_key: str, since_ms: int) -> None:
        """Another server held the event since then."""
        self._held[commit_key] = Held(since_ms)

    def forget(self, commit_key: str) -> None:
        self._held.pop(commit_key, None)

    async def is_settled(self, event: Event, *, read_entry: int) -> bool:
        """Whether the predecessor of an event needs no wait; otherwise the event is held.

        Every entry up to `read_entry` was read, and the predecessor is not among what is pending. It may have got its
        position after that: then it is in a later entry, and must not count as settled.
        """
        now_ms = self._lake.clock.now_ms()
        held = self._held.get(event.commit_key) or Held(now_ms)
        held.found = held.found or await self._find(event)
        if held.found is None or held.found.modified_ms < self._known_before_ms(held.since_ms):
            return True
        watch, receipt = self._lake.feature(FeedWatch), receipt_of_key(self._lake.layout, held.found.key)
        if held.entry is None:
            held.entry = await watch.positioned_by(receipt)
        if held.entry is None:
            watch.note(held.found.key)  # It gets its position now.
        elif held.entry <= read_entry:
            return True
        held.checked_ms = now_ms
        self._held[event.commit_key] = held
        return False

    def _known_before_ms(self, since_ms: int) -> int:
        """Receipts before this time are older than the subscription, or had their positions when the wait began."""
        return max(self._created_ms - _SKEW_MS, since_ms - SETTLED_AGE_MS)

    async def _find(self, event: Event) -> Listed | None:
        """The receipt of the predecessor; None if it is too old to be found."""
        family: EventFamily = (
            "catalog" if event.kind != "committed" else "delta" if event.format == "delta" else "iceberg"
        )
        day = event.time_ms // _DAY_MS
        days = [day + 1, *(day - back for back in range(DATES_MAX))]  # The clocks of two servers may differ.
        for start in range(0, len(days), _AT_ONCE):
            keys = [
                self._lake.layout.receipt(_date(one), family, event.previous or "")
                for one in days[start : start + _AT_ONCE]
            ]
            for found in await gather_all(self._lake.store.head(key) for key in keys):
                if found:
                    return found
        return None


def _date(day: int) -> str:
    return (_EPOCH + dt.timedelta(days=min(max(day, 0), 2_932_896))).isoformat()
