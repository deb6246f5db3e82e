"""What is kept for a subscription that has not read it, or not delivered it, and what it says about a loss."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import pytest

from sandur.catalog.event_feed.subscriptions import Answered, Subscription
from sandur.errors import SwapLost, Unavailable
from sandur.operations.counters import DELIVERIES, Counters
from sandur.operations.event_feed.subscriptions import delete_subscription, replay_dead_letters
from sandur.operations.event_feed.watch import FeedWatch
from sandur.operations.feed import Feed, TrimMark, entry_key
from sandur.operations.feed_readers import FeedReaders, trim_feed
from sandur.operations.janitors.garbage import collect_garbage
from sandur.operations.lake import Lake
from sandur.storage.contract import Listed
from tests.events.deliveries import (
    OK,
    SEALING_KEY,
    ScriptedSender,
    clock_of,
    cursor_of,
    delivery_world,
    pump,
    server_on,
    subscribe,
    take,
)
from tests.events.world import change
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.operations.lakes import make_lake
from tests.operations.requests import create

T = TypeVar("T")

SERVER_ERROR = Answered(500, "status 500")
DAY_MS = 86_400_000


async def test_the_feed_keeps_what_a_subscription_has_not_read() -> None:
    lake = await delivery_world(receipt_retention="P1D", feed_reader_retention="P400D")
    await create(lake, "t")
    await Feed(lake).advance()
    subscription = await subscribe(lake)
    clock_of(lake).advance(200 * 86_400_000)
    for listed in await lake.store.list(lake.layout.events_folder()):
        await lake.store.delete(listed.key, expected=listed.version)  # As garbage collection does.

    assert (await trim_feed(lake)).slowest == f"subscription-{subscription.id}"
    assert (await trim_feed(lake)).entries_removed == 0
    await pump(await take(lake, subscription, ScriptedSender()))
    assert (await trim_feed(lake)).entries_removed > 0
    await delete_subscription(lake, subscription.id)
    assert await FeedReaders(lake).read_all() == []


async def test_a_subscription_that_was_away_too_long_says_what_it_lost_and_goes_on() -> None:
    lake = await delivery_world()
    await create(lake, "t")
    await Feed(lake).advance()
    subscription = await subscribe(lake)
    newest = lake.feature(FeedWatch).newest
    await Feed(lake).mark_cell.create(TrimMark(trimmed=newest, next_position=100))
    for sequence in range(1, newest + 1):
        found = await lake.store.get(entry_key(lake.layout, sequence))
        assert found
        await lake.store.delete(entry_key(lake.layout, sequence), expected=found.version)
    server = server_on(lake)
    for listed in await lake.store.list(lake.layout.events_folder()):
        await lake.store.delete(listed.key, expected=listed.version)
    await change(server, "t", "1")
    sender = ScriptedSender()
    await pump(await take(server, subscription, sender))

    assert "t1" in sender.names
    assert server.feature(Counters).times(DELIVERIES, "expired") == 1
    assert "no longer kept" in (await cursor_of(server, subscription)).failure


async def _collect(lake: Lake) -> int:
    """Collect garbage as a server does; the number of receipts of commits that are left."""
    await collect_garbage(lake, position="", on_error=lambda _key, error: pytest.fail(str(error)))
    return sum("/iceberg/" in one.key for one in await lake.store.list(lake.layout.events_folder()))


async def test_the_receipt_of_an_event_that_waits_for_a_retry_is_kept() -> None:
    lake = await delivery_world(receipt_retention="P2D")
    await create(lake, "t")
    await Feed(lake).advance()  # Each has an entry of its own.
    await create(lake, "u")
    is_broken = True
    sender = ScriptedSender(lambda sent: SERVER_ERROR if is_broken and sent.name == "u0" else OK)
    subscription = await subscribe(lake)
    delivery = await take(lake, subscription, sender)
    for _ in range(9):
        await pump(delivery, steps=3)
        clock_of(lake).advance(DAY_MS // 4)
    before = len(sender.sent)

    left = await _collect(lake)
    is_broken = False
    await pump(await take(server_on(lake), subscription, sender))
    clock_of(lake).advance(DAY_MS)

    assert left == 1  # That of `u`; the event of `t` was delivered.
    assert sender.names[before:] == ["u0"]
    assert (await cursor_of(lake, subscription)).parked == ()


class _KeepsLetters(WrappingStore):
    """Fails to delete dead letters, as a request that is killed before it does."""

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        if call.name == "delete" and "/dead/" in call.key:
            raise Unavailable(f"{call.key}: not deleted")
        return await perform()


async def _fail_for_days(lake: Lake, subscription: Subscription) -> Sequence[Listed]:
    delivery = await take(lake, subscription, ScriptedSender(lambda _: SERVER_ERROR))
    for _ in range(20):
        await pump(delivery, steps=3)
        clock_of(lake).advance(DAY_MS // 4)
    return await lake.store.list(lake.layout.dead_letters_folder(subscription.id))


async def test_a_replay_of_dead_letters_that_stalls_deletes_no_later_letter() -> None:
    lake = await delivery_world()
    await create(lake, "t")
    subscription = await subscribe(lake)
    (first,) = await _fail_for_days(lake, subscription)
    stalled = make_lake(_KeepsLetters(lake.store), lake.clock, sealing_keys=[SEALING_KEY])
    with pytest.raises(Unavailable):
        await replay_dead_letters(stalled, subscription.id)

    (second,) = await _fail_for_days(server_on(lake), subscription)

    with pytest.raises(SwapLost):
        await lake.store.delete(first.key, expected=first.version)
    assert second.key == first.key
