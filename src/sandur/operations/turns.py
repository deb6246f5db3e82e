"""Turns: in this process one change at a time of a name, and now and then room for the servers beside it.

For speed and fairness only: the swap decides, here as between processes. A server whose clients queue for one table has
in memory all it needs to commit, and would always be faster than another that has lost a swap and must read first. So
it rests for a moment after some changes in a row.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from sandur.clock import Clock

IN_A_ROW_MAX: Final = 48
IN_A_ROW_MAX_BESIDE_OTHERS: Final = 16
OTHERS_SECONDS: Final = 5.0
"""How long it is remembered that another server changed the same."""

_ROOM_IN_TURNS: Final = 3.0
"""Who lost a swap reads, writes aside and swaps: as much as this many turns of one who need not read."""

_ROOM_SECONDS_MIN: Final = 0.002
_ROOM_SECONDS_MAX: Final = 0.05


class Turn:
    """Who may change something next."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()
        self._in_a_row = 0
        self._others_until = 0.0
        self._seconds = 0.0

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator["Turn"]:
        loop = asyncio.get_running_loop()
        async with self._lock:
            await self._leave_room(loop.time())
            began = loop.time()
            try:
                yield self
            finally:
                self._seconds = loop.time() - began

    def met_others(self) -> None:
        """Another server changed what was about to be changed here."""
        self._in_a_row = 0
        self._others_until = asyncio.get_running_loop().time() + OTHERS_SECONDS

    async def _leave_room(self, now: float) -> None:
        self._in_a_row += 1
        if self._in_a_row > (IN_A_ROW_MAX_BESIDE_OTHERS if now < self._others_until else IN_A_ROW_MAX):
            self._in_a_row = 1
            seconds = min(max(_ROOM_IN_TURNS * self._seconds, _ROOM_SECONDS_MIN), _ROOM_SECONDS_MAX)
            await self._clock.sleep(seconds)
