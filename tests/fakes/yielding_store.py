"""A store that lets other tasks run around every call; the seed determines the interleaving."""

import asyncio
import random  # noqa: TID251 - seeded, so that interleavings can be repeated
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sandur.storage.contract import ObjectStore
from tests.fakes.wrapping_store import Call, WrappingStore

T = TypeVar("T")


class YieldingStore(WrappingStore):
    """Yields up to `yields_max` times before and after each call takes effect."""

    def __init__(self, inner: ObjectStore, *, seed: int, yields_max: int = 4) -> None:
        super().__init__(inner)
        self._chance = random.Random(seed)
        self._yields_max = yields_max

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002 - every call alike
        await self._yield()
        try:
            return await perform()
        finally:
            await self._yield()

    async def _yield(self) -> None:
        for _ in range(self._chance.randint(0, self._yields_max)):
            await asyncio.sleep(0)
