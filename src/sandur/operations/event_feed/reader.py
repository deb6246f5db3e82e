"""Read the feed: pages of events from a position on, filtered, and only what the caller may see."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sandur.catalog.event_feed.events import (
    Event,
    EventFilter,
    Position,
    checked_filter,
    decode_position,
    encode_position,
)
from sandur.catalog.security.manifest import Authority, Caller
from sandur.errors import Expired, Trimmed, Unauthenticated
from sandur.operations.access import Security, authorize_caller, read_authority
from sandur.operations.caches import BytesLruCache
from sandur.operations.event_feed.decode import read_events
from sandur.operations.event_feed.visibility import EventJudge
from sandur.operations.event_feed.watch import FeedWatch
from sandur.operations.feed import Entry, Feed, entry_key
from sandur.operations.lake import Lake

PAGE_SIZE_DEFAULT: Final = 100
PAGE_SIZE_MAX: Final = 1_000
EXAMINED_MAX: Final = 10_000
"""Receipts that one page reads at most: a page may have few events, or none, and still not be the last."""
_AT_ONCE: Final = 256
_ENTRIES_SHARE: Final = 1 / 32
_RECEIPT_BYTES: Final = 150
_SEARCH_STEPS_MAX: Final = 64
_FOUND_LATE_MS: Final = 600_000
"""How much earlier than a time the search for it begins: the clock of the store may differ from those of servers."""


class PlacedEvent(NamedTuple):
    """An event, its receipt, and the position behind it."""

    event: Event
    receipt: str
    behind: Position


class EventPage(NamedTuple):
    """Events in the order of the feed. `position` is where the next page begins; `has_more`: it is not the newest.

    `highest_ms` is the latest time of all events that were examined, 0 if there were none. `passed` are the commit keys
    of those that the page leaves out.
    """

    events: Sequence[PlacedEvent]
    position: Position
    has_more: bool
    highest_ms: int = 0
    passed: Sequence[str] = ()


class Portion(NamedTuple):
    """Consecutive receipts, with their events: None for a receipt that is gone or damaged."""

    placed: Sequence[tuple[str, Event | None, Position]]
    position: Position
    has_more: bool


def _entries(lake: Lake) -> BytesLruCache[int, Entry]:
    return BytesLruCache(
        lake.cache_bytes(_ENTRIES_SHARE), size_of=lambda entry: _RECEIPT_BYTES * (len(entry.receipts) + 1)
    )


def _feed(lake: Lake) -> Feed:
    """For reading existing entries only."""
    return Feed(lake)


async def read_entry(lake: Lake, sequence: int) -> Entry:
    """An entry of the feed; raises Expired if it was removed."""
    cache = lake.feature(_entries)
    if sequence in cache:
        return cache[sequence]
    try:
        cache[sequence] = entry = await lake.feature(_feed).receipts_of(sequence)
    except Trimmed as error:
        raise Expired(
            f"The events at entry {sequence} of the feed are no longer kept; read on from the oldest events, without a "
            "token"
        ) from error
    return entry


async def read_portion(lake: Lake, position: Position, newest: int, *, wanted: int) -> Portion:
    """At most `wanted` receipts from a position on, up to the entry `newest`, of one entry."""
    for sequence in range(position.entry, newest + 1):
        entry = await read_entry(lake, sequence)
        offset = position.offset if sequence == position.entry else 0
        receipts = entry.news[offset : offset + wanted]
        if not receipts:
            continue
        behind = [Position(sequence, offset + number + 1) for number in range(len(receipts))]
        if offset + len(receipts) == len(entry.news):
            behind[-1] = Position(sequence + 1)
        events = await read_events(lake, receipts)
        return Portion(list(zip(receipts, events, behind, strict=True)), behind[-1], behind[-1].entry <= newest)
    return Portion((), max(position, Position(newest + 1)), has_more=False)


async def read_page(
    lake: Lake, wanted: EventFilter, position: Position, *, newest: int, size: int, caller: Caller | None = None
) -> EventPage:
    """The events from a position on that the filter wants and the caller may see, by a read of the grants that begins
    now. The caller is that of the request, or `caller` for work that no request asks for.
    """
    if lake.known_aliases is None:
        await lake.feature(Security).read()
    authority = await read_authority(lake)
    caller = caller or (lake.access.caller if lake.access else None)
    check_caller(authority, caller)
    judge = EventJudge(lake, authority, caller)
    events: list[PlacedEvent] = []
    passed: list[str] = []
    examined, highest_ms = 0, 0
    while examined < EXAMINED_MAX:
        portion = await read_portion(lake, position, newest, wanted=_AT_ONCE)
        for receipt, event, behind in portion.placed:
            examined += 1
            position = behind
            if event is None:
                continue
            highest_ms = max(highest_ms, event.time_ms)
            if wanted.may_match(event) and (seen := await judge.see(event)) and wanted.matches(seen):
                events.append(PlacedEvent(seen, receipt, behind))
                if len(events) == size:
                    return EventPage(events, behind, behind.entry <= newest, highest_ms, passed)
            else:
                passed.append(event.commit_key)
        position = portion.position
        if not portion.has_more:
            return EventPage(events, position, False, highest_ms, passed)  # noqa: FBT003 - the fields of a page
    return EventPage(events, position, True, highest_ms, passed)  # noqa: FBT003 - the fields of a page


def check_caller(authority: Authority | None, caller: Caller | None) -> None:
    """Raise Unauthenticated if the caller's token no longer counts."""
    if authority and caller and not authority.accepts(caller):
        raise Unauthenticated(f"The token of {caller.name} has been revoked; log in again")


async def pull_events(
    lake: Lake, wanted: EventFilter, *, token: str | None, page_size: int | None
) -> tuple[EventPage, str]:
    """One page for a request, and the token of the next: from its token on, from the time of its filter on, or from the
    oldest event on. Raises Expired for a token whose events are no longer kept.
    """
    await authorize_caller(lake)
    newest = await lake.feature(FeedWatch).refresh()
    position, wanted = await find_position(lake, wanted, token, newest)
    size = min(page_size or PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)
    page = await read_page(lake, wanted, position, newest=newest, size=size)
    return page, encode_position(page.position, wanted)


async def find_position(
    lake: Lake, wanted: EventFilter, token: str | None, newest: int, *, is_from_now: bool = False
) -> tuple[Position, EventFilter]:
    """Where a reader begins, and its checked filter. Raises BadRequest for a token of another filter."""
    wanted = checked_filter(wanted)
    if token:
        return decode_position(token, wanted)
    if is_from_now and not wanted.since_ms:
        return Position(newest + 1), wanted
    oldest = await oldest_entry(lake)
    if wanted.since_ms:
        return await position_at(lake, wanted.since_ms, oldest=oldest, newest=newest), wanted
    return Position(min(oldest, newest + 1)), wanted


async def oldest_entry(lake: Lake) -> int:
    """The oldest entry that is kept."""
    return await lake.feature(_feed).start() + 1


async def position_at(lake: Lake, time_ms: int, *, oldest: int, newest: int) -> Position:
    """The first entry that may hold receipts of this time. Entries are written in the order of their numbers."""
    low, high = oldest, newest + 1
    for _ in range(_SEARCH_STEPS_MAX):
        if low >= high:
            break
        middle = (low + high) // 2
        found = await lake.store.head(entry_key(lake.layout, middle))
        if found is None or found.modified_ms < time_ms - _FOUND_LATE_MS:
            low = middle + 1
        else:
            high = middle
    return Position(low)
