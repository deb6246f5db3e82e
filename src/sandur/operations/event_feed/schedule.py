"""The deliveries of one server: looks for subscriptions without a server, and delivers their events."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sandur.catalog.event_feed.subscriptions import Subscription
from sandur.clock import Clock
from sandur.errors import SandurError
from sandur.operations.counters import DELIVERIES, Counters
from sandur.operations.event_feed.delivery import Delivery, LeaseLost, Observe, take_cursor
from sandur.operations.event_feed.send import Sender
from sandur.operations.event_feed.subscriptions import SubscriptionChanges, read_subscriptions
from sandur.operations.janitors.sweep import list_layouts
from sandur.operations.lake import Lake
from sandur.settings import Settings, seconds_of
from sandur.storage.contract import ObjectStore
from sandur.storage.layout import Layout

LOOK_SECONDS: Final = 15.0
LOOK_SHARE: Final = 20
"""A look through all workspaces takes at most a twentieth of the time."""
PAUSE_SECONDS_MAX: Final = 60.0
"""A look that was slow, because the machine was busy, does not delay the next one for longer."""
RUNNING_MAX: Final = 200
"""Subscriptions that one server delivers at the same time; other servers take the rest."""
COOL_DOWN_MS: Final = 30_000
"""How long a server leaves a subscription alone after it failed there."""

OnFailure = Callable[[Layout, str, Exception], None]


@dataclass
class Deliveries:
    """The deliveries of one process. `on_failure` receives an error, and the subscription or part where it happened."""

    settings: Settings
    clock: Clock
    store: ObjectStore
    open_lake: Callable[[Layout], Lake]
    sender: Sender
    observe: Observe
    on_failure: OnFailure
    _running: dict[tuple[Layout, str], asyncio.Task[None]] = field(default_factory=dict)
    _cooling_ms: dict[tuple[Layout, str], int] = field(default_factory=dict)
    _task: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self._holder = self.clock.new_id()
        self._awake = asyncio.Event()

    def start(self) -> None:
        """Start in the background, unless the settings disable deliveries on this server."""
        if self.settings.deliveries and self._task is None:
            self._task = asyncio.create_task(self._run_forever(), name="deliveries")

    async def stop(self) -> None:
        """Give up every cursor. What is being sent now is sent again by another server."""
        tasks = [*self._running.values(), *([self._task] if self._task is not None else ())]
        self._task = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake(self) -> None:
        """A subscription was changed by this server: look at once."""
        self._awake.set()

    async def look_everywhere(self) -> None:
        """Take every subscription that no server holds."""
        async for layout in list_layouts(self.store, self.settings):
            try:
                await self._look(self.open_lake(layout))
            except SandurError as error:  # One workspace must not stop the deliveries of the others.
                self.on_failure(layout, "subscriptions", error)

    async def _look(self, lake: Lake) -> None:
        lake.feature(SubscriptionChanges).listener = self.wake
        now_ms = self.clock.now_ms()
        for subscription in await read_subscriptions(lake):
            key = (lake.layout, subscription.id)
            is_cooling = self._cooling_ms.get(key, 0) > now_ms
            if subscription.state != "active" or key in self._running or is_cooling:
                continue
            if len(self._running) >= RUNNING_MAX:
                return
            if cursor := await take_cursor(lake, subscription, self._holder):
                self._cooling_ms.pop(key, None)
                delivery = Delivery(lake, subscription, cursor, self.sender, self.observe)
                self._running[key] = asyncio.create_task(self._deliver(lake, subscription, delivery))

    async def _deliver(self, lake: Lake, subscription: Subscription, delivery: Delivery) -> None:
        key = (lake.layout, subscription.id)
        try:
            await delivery.run()
        except LeaseLost:
            lake.feature(Counters).add(DELIVERIES, "lease_lost")
        except Exception as error:  # noqa: BLE001 - a mistake in the program is reported too; others go on
            self._cooling_ms[key] = self.clock.now_ms() + COOL_DOWN_MS
            self.on_failure(lake.layout, f"subscription {subscription.id}", error)
        finally:
            self._running.pop(key, None)
            self.wake()

    async def _run_forever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._awake.clear()
            began = loop.time()
            try:
                await self.look_everywhere()
            except Exception as error:  # noqa: BLE001 - the store could not be listed; the next look tries again
                self.on_failure(Layout(), "subscriptions", error)
            # A random part, so that servers that were started together spread out.
            plain = min(LOOK_SECONDS, seconds_of(self.settings.delivery_lease) / 2)
            slow = min(LOOK_SHARE * (loop.time() - began), PAUSE_SECONDS_MAX)
            pause = max(plain * (0.5 + self.clock.chance()), slow)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._awake.wait()
