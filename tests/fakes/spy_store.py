"""A store that records its calls and counts sequential rounds, which determine the latency."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from sandur.storage.contract import UNCHANGED, ObjectStore, Stored, Version
from tests.fakes.wrapping_store import Call, WrappingStore

T = TypeVar("T")

_YIELDS = 8


class SpyStore(WrappingStore):
    """Calls that overlap in time are one round; a call that starts after others have ended is the next round.

    The depth of a call is one more than the greatest depth of the calls that ended before it started. `rounds` is the
    greatest depth, and `widths` has the number of calls of each round. Every call yields a few times after it starts,
    so that concurrent calls, also from nested tasks, overlap even over a store that answers at once.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.reset()

    def reset(self) -> None:
        """Forget all calls. Only between operations, not while a call is running."""
        self.calls: list[Call] = []
        self.rounds = 0
        self.widths: list[int] = []
        self.bytes_read = 0
        self.bytes_written = 0
        self._ended_depth = 0

    def keys(self, name: str) -> list[str]:
        """The keys with which that method was called, in the order of the calls."""
        return [call.key for call in self.calls if call.name == name]

    async def are_current(self, versions: Sequence[tuple[str, Version]]) -> bool:
        """One call for each object, as a bucket needs them."""
        found = await asyncio.gather(*(self.get_if_changed(key, seen=version) for key, version in versions))
        return all(one is UNCHANGED for one in found)

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        depth = self._ended_depth + 1
        self.rounds = max(self.rounds, depth)
        self.widths += [0] * (self.rounds - len(self.widths))
        self.widths[depth - 1] += 1
        self.calls.append(call)
        self.bytes_written += len(call.data)
        try:
            for _ in range(_YIELDS):
                await asyncio.sleep(0)
            answer = await perform()
        finally:
            self._ended_depth = max(self._ended_depth, depth)
        if isinstance(answer, Stored):
            self.bytes_read += len(answer.data)
        return answer
