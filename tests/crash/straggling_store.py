"""A store whose process dies while one of several concurrent calls is still in flight."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sandur.storage.contract import ObjectStore
from tests.fakes.dying_store import Died
from tests.fakes.wrapping_store import Call, WrappingStore

T = TypeVar("T")

_YIELDS = 12


class StragglingStore(WrappingStore):
    """Call number `loses_at` (from 1) never arrives; the concurrent calls do, and then the process is dead."""

    def __init__(self, inner: ObjectStore, *, loses_at: int) -> None:
        super().__init__(inner)
        self._loses_at = loses_at
        self._begun = 0
        self._has_died = False

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        self._begun += 1
        if self._begun == self._loses_at:
            for _ in range(_YIELDS):
                await asyncio.sleep(0)
            self._has_died = True
        if self._has_died:
            raise Died(f"at {call.name} {call.key}")
        return await perform()
