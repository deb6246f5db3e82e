"""Streams of events: pages as they appear, with heartbeats, until the reader leaves or must log in again."""

import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from typing import Final, NamedTuple

from sandur.catalog.event_feed.events import EventFilter, Position
from sandur.errors import BadRequest, Exhausted, SandurError, Unauthenticated
from sandur.operations.access import authorize_caller
from sandur.operations.counters import EVENT_STREAMS, Counters
from sandur.operations.event_feed.reader import EventPage, find_position, read_entry, read_page
from sandur.operations.event_feed.watch import FeedWatch
from sandur.operations.lake import Lake

HEARTBEAT_SECONDS: Final = 15.0
STREAM_PAGE: Final = 100
_SHARE_MAX: Final = 4
"""One principal may open a quarter of the streams of a server."""


class EventStreams:
    """The open streams of one lake in one process."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._open: Counter[str] = Counter()
        self.is_ending = False

    def check(self, principal: str) -> None:
        """Raise Exhausted if there is no room for one more stream."""
        most, own = self._lake.settings.event_streams_max, self._open[principal]
        if self._open.total() >= most or own >= max(most // _SHARE_MAX, 1):
            self._lake.feature(Counters).add(EVENT_STREAMS, "refused")
            raise Exhausted(
                f"Too many streams of events: {self._open.total()} are open on this server, {own} of them are yours, "
                f"of at most {most} (setting event_streams_max); close one, or pull pages",
                retry_after_seconds=5,
            )

    @contextlib.contextmanager
    def opened(self, principal: str) -> Iterator[None]:
        self._open[principal] += 1
        self._lake.feature(Counters).add(EVENT_STREAMS, "opened")
        try:
            yield
        finally:
            self._open[principal] -= 1
            self._open += Counter()  # Without principals that have none.

    def end(self) -> None:
        """End every stream: the server stops."""
        self.is_ending = True
        self._lake.feature(FeedWatch).wake()


class StreamPart(NamedTuple):
    """A page of a stream, empty for a heartbeat. With `end`, the stream ends here, and this is why."""

    page: EventPage
    end: str = ""


async def open_stream(lake: Lake, wanted: EventFilter, token: str | None) -> tuple[Position, EventFilter]:
    """Where a stream begins: behind its token, at the time of its filter, or now. Raises before anything is sent."""
    await authorize_caller(lake)
    lake.feature(EventStreams).check(_principal(lake))
    newest = await lake.feature(FeedWatch).refresh()
    position, wanted = await find_position(lake, wanted, token, newest, is_from_now=True)
    if position.entry <= newest:
        await read_entry(lake, position.entry)  # Expired, if it is no longer kept.
    return position, wanted


async def follow(
    lake: Lake, wanted: EventFilter, position: Position, *, expires_ms: int = 0
) -> AsyncGenerator[StreamPart, None]:
    """Every page from the position on, and a heartbeat with the position while nothing happens.

    Every part is authorized again. At `expires_ms` the caller's token ends, and so does the stream.
    """
    lake = lake.by_known_names()  # A stream outlives the names that it began with.
    streams, watch = lake.feature(EventStreams), lake.feature(FeedWatch)
    with streams.opened(_principal(lake)), watch.listening():
        newest = watch.newest
        while True:
            try:
                page = await read_page(lake, wanted, position, newest=newest, size=STREAM_PAGE)
            except SandurError as error:
                yield StreamPart(EventPage((), position, has_more=True), _failure(lake, error))
                return
            position = page.position
            end = _ending(lake, streams, expires_ms)
            yield StreamPart(page, end=end)
            if end:
                return
            if not page.has_more and not _ending(lake, streams, expires_ms):  # It may end while a part is sent.
                await watch.wait(newest, seconds=HEARTBEAT_SECONDS)
                newest = watch.newest


def _failure(lake: Lake, error: SandurError) -> str:
    """Why a stream ends. Errors of the store may have names that are not for its reader."""
    if isinstance(error, Unauthenticated | BadRequest):
        return str(error)
    lake.incidents.work_failed("stream events", error)
    return "the storage cannot be used now; connect again"


def _ending(lake: Lake, streams: EventStreams, expires_ms: int) -> str:
    if streams.is_ending:
        return "the server stops; connect again"
    if expires_ms and lake.clock.now_ms() >= expires_ms:
        return "the token has expired; connect again with a new one"
    return ""


def _principal(lake: Lake) -> str:
    return lake.access.caller.id if lake.access else ""
