"""Subscriptions and senders for the tests of deliveries."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from cryptography.fernet import Fernet

from sandur.catalog.event_feed.events import EventFilter
from sandur.catalog.event_feed.subscriptions import Answered, DeliveryCursor, Subscription
from sandur.operations.event_feed.delivery import Delivery, take_cursor
from sandur.operations.event_feed.send import Sender
from sandur.operations.event_feed.subscriptions import NewSubscription, create_subscription, cursor_cell
from sandur.operations.event_feed.watch import FeedWatch
from sandur.operations.lake import Lake
from tests.events.world import COMMITS, make_world
from tests.fakes.fixed_clock import FixedClock
from tests.operations.lakes import make_lake
from tests.operations.requests import request

SEALING_KEY = Fernet.generate_key().decode()
URL = "https://receiver.example.org/hook"
OK = Answered(200)


async def delivery_world(**settings: Any) -> Lake:
    """A lake with a catalog and a namespace, which can seal the secrets of subscriptions."""
    return await make_world(sealing_keys=[SEALING_KEY], **settings)


def server_on(lake: Lake, **settings: Any) -> Lake:
    """Another server on the same store."""
    return make_lake(lake.store, lake.clock, sealing_keys=[SEALING_KEY], **settings)


def clock_of(lake: Lake) -> FixedClock:
    assert isinstance(lake.clock, FixedClock)
    return lake.clock


class Sent(NamedTuple):
    headers: Mapping[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self.body)
        return found

    @property
    def name(self) -> str:
        """The name of the object, and the version of a commit."""
        data = self.event["data"]
        return f"{data.get('name', data['object_type'])}{data.get('version', '')}"


class ScriptedSender:
    """Answers as `script` says. `names` is what it was sent, in order; each call lets other tasks run."""

    def __init__(self, script: Callable[[Sent], Answered] = lambda _: OK) -> None:
        self.script = script
        self.sent: list[Sent] = []
        self.at_once = 0
        self.gate = asyncio.Event()
        """No answer is given until it is set."""
        self.gate.set()

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.sent]

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answered:
        del url
        self.at_once += 1
        try:
            await asyncio.sleep(0)
            await self.gate.wait()
            one = Sent(headers, body)
            self.sent.append(one)
            return self.script(one)
        finally:
            self.at_once -= 1


async def subscribe(lake: Lake, wanted: EventFilter = COMMITS, begin: str | int = "oldest") -> Subscription:
    new = NewSubscription(URL, wanted, begin=begin)
    return (await create_subscription(lake, new, request("subscribe"))).subscription


async def take(lake: Lake, subscription: Subscription, sender: Sender, *, holder: str = "one") -> Delivery:
    """A delivery that holds the cursor."""
    cursor = await take_cursor(lake, subscription, holder)
    assert cursor, "another server holds the cursor"
    delivery = Delivery(lake, subscription, cursor, sender)
    await delivery.load()
    return delivery


async def pump(delivery: Delivery, *, steps: int = 50) -> None:
    """Find what is new, and deliver until nothing more happens at this time."""
    watch = delivery.lake.feature(FeedWatch)
    watch._poll_due_ms = 0  # As if the last poll were long ago.
    await watch.refresh()
    for _ in range(steps):
        if not await delivery.step():
            return
        await delivery.idle()
        await watch.refresh()


async def cursor_of(lake: Lake, subscription: Subscription) -> DeliveryCursor:
    found = await cursor_cell(lake, subscription.id).read()
    assert found
    return found.value
