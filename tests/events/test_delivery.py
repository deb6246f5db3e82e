"""Deliveries: at least once, in order per table, with retries, dead letters, replays and the rights of the owner."""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from sandur.catalog.event_feed.events import EventFilter
from sandur.catalog.event_feed.subscriptions import HOLD_MS, PENDING_MAX, Answered
from sandur.catalog.events import Source
from sandur.catalog.identifiers import Identifier
from sandur.operations.counters import DELIVERIES, Counters
from sandur.operations.event_feed.decode import read_events
from sandur.operations.event_feed.delivery import CHECK_MS, LeaseLost, take_cursor
from sandur.operations.event_feed.subscriptions import (
    change_subscription,
    delete_subscription,
    list_dead_letters,
    load_subscription,
    replay,
    replay_dead_letters,
    rotate_secret,
)
from sandur.operations.event_feed.watch import FeedWatch, ServedFeed
from sandur.operations.lake import Lake
from sandur.operations.receipts import receipt_of_key
from sandur.operations.tables.create import create_table
from sandur.storage.contract import Listed
from sandur.storage.memory import MemoryStore
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
from tests.events.world import change, write_change
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.wrapping_store import WrappingStore
from tests.operations.lakes import make_lake
from tests.operations.requests import NAMESPACE, create, request, set_up_catalog, table

LEASE_MS = 60_000
SERVER_ERROR = Answered(500, "status 500")


async def test_every_event_is_delivered_once_in_the_order_of_its_table() -> None:
    lake = await delivery_world()
    await create(lake, "t")
    await create(lake, "u")
    for step in range(5):
        await change(lake, "t", str(step))
    sender = ScriptedSender()
    subscription = await subscribe(lake)

    await pump(await take(lake, subscription, sender))

    assert [name for name in sender.names if name.startswith("t")] == [f"t{version}" for version in range(6)]
    assert [name for name in sender.names if name.startswith("u")] == ["u0"]
    cursor = await cursor_of(lake, subscription)
    assert (cursor.parked, cursor.delivered) == ((), 7)


async def test_a_subscription_begins_now_unless_it_says_otherwise() -> None:
    lake = await delivery_world()
    await create(lake, "t")
    sender = ScriptedSender()
    delivery = await take(lake, await subscribe(lake, begin="now"), sender)
    await pump(delivery)
    assert sender.names == []

    await change(lake, "t", "1")
    await pump(delivery)
    assert sender.names == ["t1"]
    assert "gap" not in sender.sent[0].event


async def test_a_failing_table_blocks_only_itself_and_is_retried_in_order() -> None:
    lake = await delivery_world()
    await create(lake, "t")
    clock_of(lake).advance(10)
    await create(lake, "u")
    await change(lake, "t", "1")
    is_broken = True
    sender = ScriptedSender(lambda sent: SERVER_ERROR if is_broken and sent.name.startswith("t") else OK)
    subscription = await subscribe(lake)
    delivery = await take(lake, subscription, sender)

    await pump(delivery)
    assert sender.names == ["t0", "u0"]
    cursor = await cursor_of(lake, subscription)
    assert [one.attempts for one in cursor.parked] == [1, 0]
    assert cursor.failure == "status 500"
    await change(lake, "u", "1")
    await pump(delivery)
    assert sender.names == ["t0", "u0", "u1"]

    is_broken = False
    clock_of(lake).advance(7_000)
    await pump(delivery)
    assert sender.names == ["t0", "u0", "u1", "t0", "t1"]
    assert (await cursor_of(lake, subscription)).parked == ()


async def test_a_repeat_has_the_same_id_and_a_fresh_signature_time() -> None:
    lake = await delivery_world()
    await create(lake, "t")
    answers = iter([SERVER_ERROR, OK])
    sender = ScriptedSender(lambda _: next(answers))
    delivery = await take(lake, await subscribe(lake), sender)
    await pump(delivery)
    clock_of(lake).advance(7_000)
    await pump(delivery)

    first, second = sender.sent
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == first.event["id"]
    assert first.headers["webhook-timestamp"] != second.headers["webhook-timestamp"]


async def test_a_server_that_dies_between_the_answer_and_its_cursor_leaves_a_repeat() -> None:
    lake = await delivery_world()
    await create(lake, "t")
    await change(lake, "t", "1")
    subscription = await subscribe(lake)
    dying = ScriptedSender()
    delivery = await take(lake, subscription, dying)
    await delivery.step()
    await delivery.idle()  # Here it dies: the receiver has answered, and the cursor has not moved.
    assert dying.names == ["t0"]

    other = server_on(lake)
    sender = ScriptedSender()
    assert await take_cursor(other, subscription, "two") is None
    clock_of(lake).advance(LEASE_MS + 1)
    await pump(await take(other, subscription, sender, holder="two"))

    assert sender.names == ["t0", "t1"]
    assert sender.sent[0].headers["webhook-id"] == dying.sent[0].headers["webhook-id"]


async def test_a_stalled_server_loses_its_next_swap_and_moves_nothing() -> None:
    lake = await delivery_world()
    await create(lake, "t")
    subscription = await subscribe(lake)
    slow, fast = ScriptedSender(), ScriptedSender()
    stalled = await take(lake, subscription, slow)
    clock_of(lake).advance(LEASE_MS + 1)
    await pump(await take(server_on(lake), subscription, fast, holder="two"))

    with pytest.raises(LeaseLost):
        await pump(stalled)
    assert fast.names == ["t0"]
    assert (await cursor_of(lake, subscription)).holder == "two"


async def test_two_senders_that_race_for_a_cursor_deliver_under_one_holder() -> None:
    lake = await delivery_world()
    subscription = await subscribe(lake)

    taken = await asyncio.gather(*(take_cursor(server_on(lake), subscription, holder) for holder in "abcd"))

    assert len([one for one in taken if one]) == 1


async def test_an_event_waits_for_a_predecessor_that_is_found_later() -> None:
    """Two servers commit to one table. The holder of the cursor learns first of its own commit, which is the second."""
    lake = await delivery_world()
    other = server_on(lake)
    await create(other, "t")
    sender = ScriptedSender()
    delivery = await take(lake, await subscribe(lake), sender)
    await pump(delivery)
    watch = lake.feature(FeedWatch)
    watch._poll_due_ms = clock_of(lake).now_ms() + 3_600_000  # No poll finds what the other server writes.

    for step in range(1, 5):
        await change(other if step % 2 else lake, "t", str(step))
    await watch.refresh()
    own = [await _key_of(lake, version=version) for version in (2, 4)]
    assert await watch.positioned_by(receipt_of_key(lake.layout, own[0])) is not None
    assert await watch.positioned_by(receipt_of_key(lake.layout, await _key_of(lake, version=1))) is None
    for _ in range(10):
        await delivery.step()
        await delivery.idle()
        await watch.refresh()
        clock_of(lake).advance(1_000)

    assert sender.names == ["t0", "t1", "t2", "t3", "t4"]
    assert not [one for one in sender.sent if "gap" in one.event]


class OvertakenWatch(FeedWatch):
    """A watch that another server overtakes: that one gives positions right before this one looks for a receipt."""

    other: FeedWatch

    async def positioned_by(self, receipt: str) -> int | None:
        await self.other.refresh()
        return await super().positioned_by(receipt)


async def test_a_predecessor_that_gets_its_position_during_the_look_is_sent_first() -> None:
    """It is in an entry that was not read yet: if it counted as settled, it would never be sent."""
    lake = await delivery_world()
    other = server_on(lake)
    await create(other, "t")
    watch = OvertakenWatch(lake)
    watch.other = other.feature(FeedWatch)
    lake._features[FeedWatch] = watch
    sender = ScriptedSender()
    delivery = await take(lake, await subscribe(lake), sender)
    await pump(delivery)
    for one in (watch, watch.other):
        one._poll_due_ms = clock_of(lake).now_ms() + 3_600_000  # Each server knows only what it wrote itself.

    await change(other, "t", "1")
    await change(lake, "t", "2")
    for _ in range(10):
        await delivery.step()
        await delivery.idle()
        await watch.refresh()
        clock_of(lake).advance(1_000)

    assert sender.names == ["t0", "t1", "t2"]


class DeafWatch(FeedWatch):
    """A watch that gives no position to one receipt, although it exists."""

    hidden = ""

    def note(self, key: str) -> None:
        if key != self.hidden:
            super().note(key)


class HidingStore(WrappingStore):
    """A store whose listings leave one object out."""

    hidden = ""

    async def list(self, prefix: str, *, after: str | None = None, limit: int = 1_000) -> Sequence[Listed]:
        return [one for one in await super().list(prefix, after=after, limit=limit) if one.key != self.hidden]


async def test_an_event_whose_predecessor_never_comes_is_sent_with_a_gap() -> None:
    clock = FixedClock()
    store = HidingStore(MemoryStore(clock=clock))
    lake = make_lake(store, clock, sealing_keys=[SEALING_KEY])
    await set_up_catalog(lake)
    await create(lake, "t")
    subscription = await subscribe(lake, begin="now")
    await change(lake, "t", "1")
    store.hidden = DeafWatch.hidden = await _key_of(lake, version=1)
    await change(lake, "t", "2")
    sender = ScriptedSender()
    first, second = (server_on(lake) for _ in range(2))
    for server in (first, second):
        server._features[FeedWatch] = DeafWatch(server)

    await pump(await take(first, subscription, sender), steps=3)
    assert sender.names == []
    assert [one.since_ms > 0 for one in (await cursor_of(lake, subscription)).parked] == [True]

    clock.advance(HOLD_MS // 2)  # The first server dies, and the second one goes on with the same wait.
    delivery = await take(second, subscription, sender, holder="two")
    await pump(delivery, steps=3)
    assert sender.names == []
    clock.advance(HOLD_MS // 2)
    await pump(delivery, steps=3)
    assert sender.names == ["t2"]
    assert sender.sent[0].event["gap"] is True


async def _key_of(lake: Lake, *, version: int) -> str:
    """The receipt of a version of the only table."""
    for listed in await lake.store.list(lake.layout.events_folder()):
        stored = await lake.store.get(listed.key)
        if stored and f'"metadata_version":{version},'.encode() in stored.data:
            return listed.key
    raise AssertionError(version)


async def test_at_most_16_tables_are_sent_at_once_and_one_event_of_each() -> None:
    lake = await delivery_world()
    for number in range(20):
        await create(lake, f"t{number:02d}x")
        await change(lake, f"t{number:02d}x", "1")
    sender = ScriptedSender()
    delivery = await take(lake, await subscribe(lake), sender)
    sender.gate.clear()
    await delivery.step()
    await delivery.step()
    await asyncio.sleep(0)
    assert sender.at_once == 16

    sender.gate.set()
    await pump(delivery)
    assert len(sender.sent) == 40


async def test_after_three_days_an_event_is_a_dead_letter_and_the_table_goes_on() -> None:
    lake = await delivery_world()
    await create(lake, "t")
    await change(lake, "t", "1")
    is_broken = True
    sender = ScriptedSender(lambda sent: SERVER_ERROR if is_broken and sent.name == "t0" else OK)
    subscription = await subscribe(lake)
    delivery = await take(lake, subscription, sender)
    for _ in range(40):
        await pump(delivery, steps=3)
        clock_of(lake).advance(6 * 3_600_000)

    letters = (await list_dead_letters(lake, subscription.id, token=None, size=None)).entries
    assert [(one.type, one.reason) for one in letters] == [("table.committed", "status 500")]
    assert sender.names[-1] == "t1"
    assert lake.feature(Counters).times(DELIVERIES, "dead_lettered") == 1

    is_broken = False
    assert await replay_dead_letters(lake, subscription.id) == 1
    with pytest.raises(LeaseLost):
        await pump(delivery)
    await pump(await take(lake, subscription, sender))
    assert sender.names[-1] == "t0"
    assert not (await list_dead_letters(lake, subscription.id, token=None, size=None)).entries


async def test_a_receiver_that_is_gone_disables_the_subscription_until_it_is_resumed() -> None:
    lake = await delivery_world()
    await create(lake, "t")
    answers = iter([Answered(410, "status 410"), OK])
    sender = ScriptedSender(lambda _: next(answers))
    subscription = await subscribe(lake)
    delivery = await take(lake, subscription, sender)
    await pump(delivery)
    found = (await load_subscription(lake, subscription.id)).subscription
    assert (found.state, "410" in found.reason) == ("disabled", True)
    await delivery._stop()

    resumed = await change_subscription(lake, subscription.id, state="active")
    clock_of(lake).advance(10_000)
    await pump(await take(lake, resumed, sender))
    assert sender.names == ["t0", "t0"]
    assert (resumed.state, resumed.reason) == ("active", "")


async def test_a_paused_subscription_sends_nothing_and_continues_where_it_stopped() -> None:
    lake = await delivery_world()
    await create(lake, "t")
    sender = ScriptedSender()
    subscription = await subscribe(lake)
    delivery = await take(lake, subscription, sender)
    await pump(delivery)
    await change_subscription(lake, subscription.id, state="paused")
    clock_of(lake).advance(CHECK_MS)
    await change(lake, "t", "1")
    assert not await delivery.step()
    await delivery._stop()
    assert sender.names == ["t0"]

    resumed = await change_subscription(lake, subscription.id, state="active")
    await pump(await take(lake, resumed, sender))
    assert sender.names == ["t0", "t1"]


async def test_a_deleted_subscription_ends_its_delivery() -> None:
    lake = await delivery_world()
    await create(lake, "t")
    subscription = await subscribe(lake)
    delivery = await take(lake, subscription, ScriptedSender())
    await pump(delivery)

    await delete_subscription(lake, subscription.id)
    clock_of(lake).advance(CHECK_MS)

    assert not await delivery.step()


async def test_a_replay_delivers_again_from_a_time_on_with_the_same_ids() -> None:
    lake = await delivery_world()
    await create(lake, "t")
    sender = ScriptedSender()
    subscription = await subscribe(lake)
    delivery = await take(lake, subscription, sender)
    await pump(delivery)
    clock_of(lake).advance(3_600_000)
    middle_ms = clock_of(lake).now_ms()
    await change(lake, "t", "1")
    await pump(delivery)

    await replay(lake, subscription.id, middle_ms)
    clock_of(lake).advance(LEASE_MS)
    with pytest.raises(LeaseLost):
        await pump(delivery)
    await pump(await take(lake, subscription, sender))
    assert sender.names == ["t0", "t1", "t1"]
    await replay(lake, subscription.id, "oldest")
    await pump(await take(lake, subscription, sender))
    assert sender.names == ["t0", "t1", "t1", "t0", "t1"]
    assert sender.sent[1].headers["webhook-id"] == sender.sent[-1].headers["webhook-id"]


async def test_while_a_secret_is_rotated_both_sign() -> None:
    lake = await delivery_world()
    await create(lake, "t")
    subscription = await subscribe(lake)
    rotated = (await rotate_secret(lake, subscription.id, request("rotate"))).subscription
    sender = ScriptedSender()
    delivery = await take(lake, rotated, sender)
    await pump(delivery)
    assert len(sender.sent[0].headers["webhook-signature"].split(" ")) == 2

    clock_of(lake).advance(86_400_001)
    await change(lake, "t", "1")
    await pump(await take(lake, rotated, sender, holder="two"))
    assert len(sender.sent[-1].headers["webhook-signature"].split(" ")) == 1


async def test_a_filter_that_was_changed_applies_to_what_waits() -> None:
    lake = await delivery_world()
    await create(lake, "t")
    sender = ScriptedSender(lambda _: SERVER_ERROR)
    subscription = await subscribe(lake)
    delivery = await take(lake, subscription, sender)
    await pump(delivery)
    await change_subscription(lake, subscription.id, wanted=EventFilter(kinds=("dropped",)))
    clock_of(lake).advance(10_000)
    await pump(delivery)

    assert sender.names == ["t0"]
    assert (await cursor_of(lake, subscription)).parked == ()


async def test_changes_of_the_catalog_are_delivered_in_their_own_chain() -> None:
    lake = await delivery_world()
    await create(lake, "t")
    first = await write_change(lake, "catalog", "catalog", "created", Identifier("main", (), ""))
    clock_of(lake).advance(5)
    await write_change(lake, "catalog", "catalog", "changed", Identifier("main", (), ""), previous=first)
    sender = ScriptedSender()
    await pump(await take(lake, await subscribe(lake, EventFilter()), sender))

    types = [one.event["type"] for one in sender.sent if "catalog." in one.event["type"]]
    assert types == ["io.sandur.catalog.created.v1", "io.sandur.catalog.changed.v1"]


async def test_a_predecessor_is_found_behind_more_events_than_a_subscription_holds() -> None:
    lake = await delivery_world()
    await create(lake, "t")
    for step in range(PENDING_MAX + 5):
        await change(lake, "t", str(step))
    listed = await lake.store.list(lake.layout.events_folder())
    receipts = [receipt_of_key(lake.layout, one.key) for one in listed if "/iceberg/" in one.key]
    versions = [event.version if event else None for event in await read_events(lake, receipts)]
    names = [receipt for _, receipt in sorted(zip(versions, receipts, strict=True), key=lambda one: one[0] or 0)]
    await ServedFeed(lake).append_new([names[0], *names[2:], names[1]])  # The second commit is found last.
    sender = ScriptedSender()
    subscription = await subscribe(lake)

    await pump(await take(lake, subscription, sender), steps=2 * PENDING_MAX)

    assert sender.names == [f"t{version}" for version in range(PENDING_MAX + 6)]


async def test_a_delivery_continues_the_trace_of_the_change() -> None:
    lake = await delivery_world()
    source = Source(kind="rest", trace_id="0af7651916cd43dd8448eb211c80319c", span_id="b7ad6b7169203331")
    unsampled = replace(source, span_id="")
    for name, known in (("t", source), ("u", unsampled), ("v", Source())):
        await create_table(lake, NAMESPACE, table(name), request(f"create {name}")._replace(source=known))
    await lake.background.drain()
    sender = ScriptedSender()

    await pump(await take(lake, await subscribe(lake), sender))

    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    got = {one.event["data"].get("name"): one for one in sender.sent}
    assert got["t"].headers["traceparent"] == got["t"].event["traceparent"] == parent
    assert got["t"].event["data"]["source"]["trace_id"] == got["u"].event["data"]["source"]["trace_id"]
    assert not {"traceparent"} & {*got["u"].headers, *got["u"].event, *got["v"].headers, *got["v"].event}
    assert "trace_id" not in got["v"].event["data"]["source"]
