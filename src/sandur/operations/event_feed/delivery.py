"""The delivery of one subscription by one server: reads the feed, sends in order, and moves the cursor behind the 2xx.

The cursor is taken by a swap for a minute and renewed with every save. A server that dies leaves it to the next one,
which repeats what was sent after the last save, under the same ids. A server that stalls loses its next swap.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from sandur.catalog.event_feed.events import Event, Position
from sandur.catalog.event_feed.subscriptions import (
    HELD_MAX,
    OBJECTS_AT_ONCE,
    PENDING_MAX,
    Answered,
    Choice,
    DeadLetter,
    DeliveryCursor,
    Parked,
    Pending,
    Subscription,
    choose,
    decide,
)
from sandur.catalog.event_feed.webhooks import envelope, signed_headers
from sandur.catalog.security.manifest import Authority
from sandur.errors import Busy, Expired, SandurError, SwapLost, Trimmed
from sandur.operations.access import Security
from sandur.operations.caches import LruCache
from sandur.operations.counters import DELIVERIES, Counters
from sandur.operations.credentials.sealed_secrets import Sealing
from sandur.operations.event_feed.decode import read_events
from sandur.operations.event_feed.predecessors import Predecessors
from sandur.operations.event_feed.reader import oldest_entry, read_page
from sandur.operations.event_feed.send import Sender
from sandur.operations.event_feed.subscriptions import cursor_cell, disable_subscription, reader_name
from sandur.operations.event_feed.visibility import EventJudge
from sandur.operations.event_feed.watch import FeedWatch
from sandur.operations.feed_readers import FeedReaders
from sandur.operations.lake import Lake
from sandur.settings import seconds_of
from sandur.storage.cell import TRIES_MAX, Versioned
from sandur.storage.contract import ABSENT

SAVE_MS: Final = 200
"""The shortest time between two saves of a busy cursor."""
CHECK_MS: Final = 2_000
"""How often the subscription itself is read, to notice that it was paused, changed or deleted."""
REPORT_MS: Final = 60_000
"""How often the feed learns which entries this subscription still needs."""
_RENEWALS: Final = 3
"""How often a lease is renewed before it would end."""
_SETTLED_MAX: Final = 20_000
_WAIT_SECONDS_MAX: Final = 2.0

Observe = Callable[[float], None]
"""Receives the seconds from a change to its delivery."""


class LeaseLost(Exception):
    """Another server, or a request, has the cursor now: this one stops, and what it sent may be sent again."""


def lease_ms(lake: Lake) -> int:
    return seconds_of(lake.settings.delivery_lease) * 1_000


async def take_cursor(lake: Lake, subscription: Subscription, holder: str) -> Versioned[DeliveryCursor] | None:
    """Take the cursor of a subscription; None if another server holds it, or takes it at the same time."""
    now_ms = lake.clock.now_ms()
    cell = cursor_cell(lake, subscription.id)
    found = await cell.read()
    if found and found.value.holder not in {"", holder} and found.value.held_until_ms > now_ms:
        return None
    held = found.value if found else DeliveryCursor(position=subscription.start)
    taken = replace(held, holder=holder, epoch=held.epoch + 1, held_until_ms=now_ms + lease_ms(lake))
    return await cell.try_swap(taken, expected=found.version if found else ABSENT)


@dataclass
class Delivery:
    """The deliveries of one subscription, while this server holds its cursor."""

    lake: Lake
    subscription: Subscription
    cursor: Versioned[DeliveryCursor]
    sender: Sender
    observe: Observe = lambda _seconds: None
    _pending: dict[str, Pending] = field(default_factory=dict)
    _sending: dict[asyncio.Task[None], Pending] = field(default_factory=dict)
    _settled: LruCache[str, bool] = field(default_factory=lambda: LruCache(_SETTLED_MAX))
    _is_dirty: bool = False
    _failure: Exception | None = None

    def __post_init__(self) -> None:
        self._clock = self.lake.clock
        self._watch = self.lake.feature(FeedWatch)
        self._counters = self.lake.feature(Counters)
        self._predecessors = Predecessors(self.lake, self.subscription)
        self._position = self.cursor.value.position
        self._saved_ms = self._checked_ms = self._clock.now_ms()
        self._delivered = self.cursor.value.delivered
        self._dead = self.cursor.value.dead_letters
        self._delivered_ms = self.cursor.value.delivered_ms
        self._loss = ""
        self._lease_ms = lease_ms(self.lake)
        self._reported_ms = 0
        self._due_ms = 0
        self._newest = 0
        self._has_answers = False

    async def run(self) -> None:
        """Deliver until the subscription is not active any more. Raises LeaseLost if the cursor is gone."""
        with self._watch.listening():
            try:
                await self.load()
                while await self.step():
                    await self._wait()
            finally:
                await self._stop()

    async def load(self) -> None:
        """Read the events that were parked when the cursor was saved last."""
        parked = self.cursor.value.parked
        for one, event in zip(parked, await read_events(self.lake, [one.receipt for one in parked]), strict=True):
            if event is None:  # Its receipt was collected: it cannot be delivered.
                self._is_dirty = True
                self._count("expired")
            else:
                self._pending[one.receipt] = Pending(event, one)
                if one.since_ms and not one.attempts:
                    self._predecessors.hold(event.commit_key, one.since_ms)

    async def step(self) -> bool:
        """Read on, send what is ready, and save what is settled; False if the subscription is no longer active."""
        if self._failure:
            raise self._failure
        self._has_answers = False
        if not await self._is_active():
            return False
        await self._fill()
        await self._dispatch()
        await self._save_sometimes()
        return True

    async def idle(self) -> None:
        """Wait for the answers to everything that is being sent."""
        if self._sending:
            await asyncio.wait(self._sending)

    async def _is_active(self) -> bool:
        now_ms = self._clock.now_ms()
        if now_ms < self._checked_ms + CHECK_MS:
            return True
        self._checked_ms = now_ms
        key = self.lake.layout.subscription(self.subscription.id)
        found = await self.lake.uncached(key, Subscription).read()
        if found is None or found.value.state != "active":
            return False
        self.subscription = found.value
        return True

    async def _fill(self) -> None:
        """Read events from the feed, as long as there is room for them."""
        self._newest = self._watch.newest or await self._watch.refresh()
        while (room := self._pending_max - len(self._pending)) > 0 and self._position.entry <= self._newest:
            try:
                # What the owner may see is decided when an event is sent, not when it is read.
                page = await read_page(
                    self.lake, self.subscription.wanted, self._position, newest=self._newest, size=room
                )
            except Expired as error:
                self._count("expired")
                self._loss = str(error)
                self._position = max(self._position, Position(await oldest_entry(self.lake)))
                self._is_dirty = True
                continue
            for key in page.passed:
                self._settled[key] = True
            for placed in page.events:
                known = placed.event.commit_key in self._settled
                if not known and placed.receipt not in self._pending:  # It may have two positions.
                    self._pending[placed.receipt] = Pending(placed.event, Parked(placed.receipt, placed.behind))
            self._is_dirty = self._is_dirty or page.position != self._position
            self._position = page.position

    @property
    def _pending_max(self) -> int:
        return HELD_MAX if self._predecessors.is_waiting else PENDING_MAX

    async def _dispatch(self) -> None:
        """Start to send the next event of every object that has one and is not busy."""
        now_ms = self._clock.now_ms()
        self._due_ms = now_ms + self._lease_ms // _RENEWALS
        authority: Authority | None = None
        busy = {one.event.object_id for one in self._sending.values()}
        for queue in self._queues(busy):
            if len(self._sending) >= OBJECTS_AT_ONCE:
                return
            choice = await self._choose(queue, now_ms)
            if choice.due_ms:
                self._due_ms = min(self._due_ms, choice.due_ms)
            if choice.next is None:
                continue
            if authority is None and self.lake.settings.authentication == "on":
                authority = await self.lake.feature(Security).read()
                if not authority.accepts(self.subscription.caller):
                    await self._disable(f"its owner {self.subscription.owner} was disabled or removed")
                    return
            await self._start(choice.next, authority, is_gap=choice.is_gap)

    def _queues(self, busy: set[str]) -> Sequence[Sequence[Pending]]:
        """The pending events of every object of which none is being sent, in the order of the feed."""
        queues: dict[str, list[Pending]] = {}
        for one in self._pending.values():
            if one.event.object_id not in busy:
                queues.setdefault(one.event.object_id, []).append(one)
        return list(queues.values())

    async def _choose(self, queue: Sequence[Pending], now_ms: int) -> Choice:
        """The next event of an object; the store says what became of predecessors that this process does not know."""
        choice = Choice()
        for _ in range(len(queue) + 1):
            missing = self._predecessors.missing(now_ms)
            choice = choose(queue, settled=self._settled, missing=missing, now_ms=now_ms)
            if choice.unknown is None:
                break
            event, parked = choice.unknown
            if await self._predecessors.is_settled(event, read_entry=self._position.entry - 1):
                self._settled[event.previous or ""] = True
            elif not parked.since_ms:
                held = replace(parked, since_ms=self._predecessors.since_ms(event.commit_key))
                self._pending[parked.receipt] = Pending(event, held)
                self._is_dirty = True  # The next server holds it no longer than this one would.
        return choice

    async def _start(self, pending: Pending, authority: Authority | None, *, is_gap: bool) -> None:
        caller = self.subscription.caller if authority else None
        seen = await EventJudge(self.lake, authority, caller).see(pending.event)
        if seen is None or not self.subscription.wanted.matches(seen):
            self._settle(pending, "skipped")  # A right was revoked, or the filter was changed.
            return
        task = asyncio.create_task(self._send(pending, seen, is_gap=is_gap))
        self._sending[task] = pending
        task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.pop(task, None)
        if not task.cancelled() and (error := task.exception()) and isinstance(error, Exception):
            self._failure = error
        self._has_answers = True
        self._watch.wake()

    async def _send(self, pending: Pending, event: Event, *, is_gap: bool) -> None:
        body = envelope(event, is_gap=is_gap)
        headers = signed_headers(event.id, self._clock.now_ms() // 1_000, body, self._secrets())
        if parent := event.source.traceparent:
            headers = {**headers, "traceparent": parent}
        answer: Answered = await self.sender.post(self.subscription.url, body, headers)
        now_ms = self._clock.now_ms()
        decided = decide(pending.parked, answer, now_ms=now_ms, chance=self._clock.chance())
        match decided.verdict:
            case "delivered":
                self._delivered += 1
                self._delivered_ms = now_ms
                self.observe(max(now_ms - event.time_ms, 0) / 1_000)
                self._settle(pending, "gap" if is_gap else "delivered")
            case "retry":
                self._fail(Pending(pending.event, decided.parked))
            case "dead":
                await self._bury(pending.event, decided.parked)
                self._settle(pending, "dead_lettered")
            case "disable":
                self._fail(Pending(pending.event, decided.parked))
                await self._disable("the receiver answered 410: it is gone")

    def _secrets(self) -> Sequence[bytes]:
        """The secrets that sign now: the newest, and the one before it for a day."""
        sealing, now_ms = self.lake.feature(Sealing), self._clock.now_ms()
        live = [one for one in self.subscription.secrets if not one.expires_ms or one.expires_ms > now_ms]
        return [sealing.open_bytes(one.sealed, subject=f"Subscription {self.subscription.id}") for one in live]

    def _settle(self, pending: Pending, result: str) -> None:
        self._pending.pop(pending.parked.receipt, None)
        self._settled[pending.event.commit_key] = True
        self._predecessors.forget(pending.event.commit_key)
        self._is_dirty = True
        self._count(result)

    def _fail(self, tried: Pending) -> None:
        self._pending[tried.parked.receipt] = tried
        self._is_dirty = True
        self._count("failed")

    async def _bury(self, event: Event, parked: Parked) -> None:
        """Keep an event that was not delivered in time.

        An earlier letter of the same event is written again: a replay of dead letters that has stalled since then
        deletes only what it has read.
        """
        letter = DeadLetter(
            event_id=event.id,
            type=event.type,
            receipt=parked.receipt,
            position=parked.position,
            attempts=parked.attempts,
            first_ms=parked.since_ms,
            last_ms=self._clock.now_ms(),
            reason=parked.reason,
        )
        key, data = self.lake.layout.dead_letter(self.subscription.id, event.id), msgspec.json.encode(letter)
        for _ in range(TRIES_MAX):
            found = await self.lake.store.head(key)
            with contextlib.suppress(SwapLost):
                await self.lake.store.put(key, data, expected=found.version if found else ABSENT)
                self._dead += 1
                return
        raise Busy(f"subscription {self.subscription.id}: lost {TRIES_MAX} races to write a dead letter")

    async def _disable(self, reason: str) -> None:
        self._checked_ms = 0  # The next step sees the state, and ends.
        await disable_subscription(self.lake, self.subscription.id, reason)

    async def _save_sometimes(self) -> None:
        now_ms = self._clock.now_ms()
        is_due = now_ms >= self._saved_ms + SAVE_MS or not self._sending
        if (self._is_dirty and is_due) or now_ms >= self._saved_ms + self._lease_ms // _RENEWALS:
            await self._save(held_until_ms=now_ms + self._lease_ms)

    async def _save(self, *, held_until_ms: int) -> None:
        """Move the cursor behind what is settled. Raises LeaseLost if another one moved it."""
        self._is_dirty = False
        pending = sorted((one.parked for one in self._pending.values()), key=lambda one: one.position)
        saved = replace(
            self.cursor.value,
            position=self._position,
            parked=tuple(pending),
            held_until_ms=held_until_ms,
            delivered=self._delivered,
            dead_letters=self._dead,
            delivered_ms=self._delivered_ms,
            failure=next((one.reason for one in pending if one.reason), self._loss),
        )
        try:
            self.cursor = await cursor_cell(self.lake, self.subscription.id).swap(saved, expected=self.cursor.version)
        except SwapLost:
            raise LeaseLost from None
        self._saved_ms = self._clock.now_ms()
        if self._saved_ms >= self._reported_ms + REPORT_MS:
            self._reported_ms = self._saved_ms
            await self._report(saved)

    async def _report(self, saved: DeliveryCursor) -> None:
        """Say which entries this subscription still needs: also those of parked events, whose receipts must stay."""
        for position in dict.fromkeys((saved.settled_entry, saved.position.entry - 1)):
            # What was removed already is noticed when it is read.
            with contextlib.suppress(Trimmed):
                await FeedReaders(self.lake).report(reader_name(self.subscription.id), position)
                return

    async def _wait(self) -> None:
        """Wait for news of the feed, an answer, or the time of a retry, a save or a renewal."""
        if self._has_answers or (self._is_dirty and not self._sending):
            return
        due_ms = min(self._due_ms, self._saved_ms + SAVE_MS) if self._is_dirty else self._due_ms
        seconds = min(max(due_ms - self._clock.now_ms(), 10) / 1_000, _WAIT_SECONDS_MAX)
        # With no room for more, news of the feed do not matter.
        seen = self._newest if len(self._pending) < self._pending_max else self._watch.newest
        await self._watch.wait(seen, seconds=seconds)

    async def _stop(self) -> None:
        """Give up the cursor, with what is settled; what is being sent counts as not delivered."""
        for task in tuple(self._sending):
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        with contextlib.suppress(LeaseLost, SandurError):  # Another server takes the cursor when it ends.
            await self._save(held_until_ms=0)

    def _count(self, result: str) -> None:
        self._counters.add(DELIVERIES, result)
