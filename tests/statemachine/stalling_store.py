"""A store with very different latencies: one client may do all its work while another waits for one call."""

import asyncio
import random  # noqa: TID251 - seeded, so that interleavings can be repeated
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from sandur.storage.contract import ObjectStore
from tests.fakes.wrapping_store import Call, WrappingStore

T = TypeVar("T")

STALLS_SHARE: Final = 0.12
SHORT_MAX: Final = 2
LONG_MAX: Final = 60


class StallingStore(WrappingStore):
    """Waits a little before and after each call takes effect, and sometimes for a long time."""

    def __init__(self, inner: ObjectStore, *, seed: int) -> None:
        super().__init__(inner)
        self._chance = random.Random(seed)

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002 - every call alike
        await self._wait()
        try:
            return await perform()
        finally:
            await self._wait()

    async def _wait(self) -> None:
        longest = LONG_MAX if self._chance.random() < STALLS_SHARE else SHORT_MAX
        for _ in range(self._chance.randint(0, longest)):
            await asyncio.sleep(0)
