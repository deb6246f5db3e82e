"""Whose turn it is: of many processes on one store, one at a time sweeps a workspace, or runs the pipeline on it."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from sandur.catalog.records import Record
from sandur.errors import SwapLost
from sandur.operations.lake import Lake
from sandur.storage.cell import Cell, Versioned
from sandur.storage.contract import ABSENT

LEASE_MS: Final = 300_000


class LeaseRecord(Record, frozen=True, kw_only=True):
    """Who is at it and until when, when the next turn is due, and how far each janitor has come.

    `fence` grows with every turn, also when one is taken from somebody who stalls: a higher one is the later one.
    """

    owner: str
    fence: int = 0
    expires_ms: int
    due_ms: int = 0
    positions: dict[str, str] = msgspec.field(default_factory=dict)


class Lease:
    """A turn that one of many processes holds for a while; `kind` says of which work.

    It saves work and is no lock: a server that stalls and goes on after its time is up sweeps beside its successor, and
    so may two whose clocks differ. That is harmless. Every deletion is conditional, and every janitor marks and looks
    before it acts, against operations and other janitors alike.
    """

    def __init__(self, lake: Lake, kind: str = "janitors") -> None:
        self._clock = lake.clock
        self._cell = Cell(lake.store, lake.layout.operational(kind, "turn"), LeaseRecord, lake.clock)
        self._held: Versioned[LeaseRecord] | None = None

    @property
    def fence(self) -> int:
        """The number of this turn; 0 when it is not ours."""
        return self._held.value.fence if self._held else 0

    @property
    def positions(self) -> Mapping[str, str]:
        return self._held.value.positions if self._held else {}

    async def current(self) -> LeaseRecord | None:
        """The lease as it is stored now, whoever holds it; None before the first one."""
        found = await self._cell.read()
        return found.value if found else None

    async def take(self, *, if_due: bool = True) -> bool:
        """Whether it is our turn now: nothing is due, or somebody else is at it, if not."""
        now_ms = self._clock.now_ms()
        found = await self._cell.read()
        if found and (found.value.expires_ms > now_ms or (if_due and found.value.due_ms > now_ms)):
            return False
        turn = LeaseRecord(
            owner=self._clock.new_id(),
            fence=found.value.fence + 1 if found else 1,
            expires_ms=now_ms + LEASE_MS,
            positions=found.value.positions if found else {},
        )
        try:
            self._held = await self._cell.swap(turn, expected=found.version if found else ABSENT)
        except SwapLost:
            return False
        return True

    async def keep(self, positions: Mapping[str, str]) -> bool:
        """Note how far the janitors have come, and hold on; False when the turn was given to another."""
        return await self._swap(positions, expires_ms=self._clock.now_ms() + LEASE_MS)

    async def release(self, positions: Mapping[str, str], *, due_ms: int) -> None:
        """End the turn; nobody begins another before the next is due."""
        await self._swap(positions, expires_ms=0, due_ms=due_ms)

    async def _swap(self, positions: Mapping[str, str], *, expires_ms: int, due_ms: int = 0) -> bool:
        if self._held is None:
            return False
        turn = replace(self._held.value, expires_ms=expires_ms, due_ms=due_ms, positions=dict(positions))
        try:
            self._held = await self._cell.swap(turn, expected=self._held.version)
        except SwapLost:
            self._held = None
            return False
        return True
