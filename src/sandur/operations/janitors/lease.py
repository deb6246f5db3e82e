"""A lease: of many processes on one lake, one at a time runs the janitors, or the pipeline."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from sandur.catalog.record_versions import Record, in_place_of
from sandur.operations.lake import Lake
from sandur.storage.cell import Versioned
from sandur.storage.contract import ABSENT

LEASE_MS: Final = 300_000


class LeaseRecord(Record, frozen=True, kw_only=True):
    """The owner of the lease and its expiry, when the next run is due, and the position of each janitor.

    `fence` grows with every lease, also when it is taken from a process that stalls: the highest one is the latest.
    """

    owner: str
    fence: int = 0
    expires_ms: int
    due_ms: int = 0
    positions: dict[str, str] = msgspec.field(default_factory=dict)


class Lease:
    """A lease that one of many processes holds for a while; `kind` names its work.

    It saves work and is not a lock: a server that stalls past the expiry runs beside its successor, and so do two
    servers whose clocks differ. That is harmless: every deletion is conditional, and every janitor marks and looks
    before it acts.
    """

    def __init__(self, lake: Lake, kind: str = "janitors") -> None:
        self._clock = lake.clock
        self._cell = lake.uncached(lake.layout.operational(kind, "turn"), LeaseRecord)
        self._held: Versioned[LeaseRecord] | None = None

    @property
    def fence(self) -> int:
        """The number of this lease; 0 if it is not held."""
        return self._held.value.fence if self._held else 0

    @property
    def positions(self) -> Mapping[str, str]:
        return self._held.value.positions if self._held else {}

    async def current(self) -> LeaseRecord | None:
        """The stored lease of any holder; None before the first one."""
        found = await self._cell.read()
        return found.value if found else None

    async def take(self, *, if_due: bool = True) -> bool:
        """Whether the lease is taken; False if another process holds it, or no run is due."""
        now_ms = self._clock.now_ms()
        found = await self._cell.read()
        if found and (found.value.expires_ms > now_ms or (if_due and found.value.due_ms > now_ms)):
            return False
        lease = LeaseRecord(
            owner=self._clock.new_id(),
            fence=found.value.fence + 1 if found else 1,
            expires_ms=now_ms + LEASE_MS,
            positions=found.value.positions if found else {},
        )
        lease = in_place_of(found.value if found else None, lease)
        taken = await self._cell.try_swap(lease, expected=found.version if found else ABSENT)
        self._held = taken or self._held
        return taken is not None

    async def keep(self, positions: Mapping[str, str]) -> bool:
        """Store the positions and extend the lease; False if another process has taken it."""
        return await self._swap(positions, expires_ms=self._clock.now_ms() + LEASE_MS)

    async def release(self, positions: Mapping[str, str], *, due_ms: int) -> None:
        """End the lease; the next run starts when it is due."""
        await self._swap(positions, expires_ms=0, due_ms=due_ms)

    async def _swap(self, positions: Mapping[str, str], *, expires_ms: int, due_ms: int = 0) -> bool:
        if self._held is None:
            return False
        lease = replace(self._held.value, expires_ms=expires_ms, due_ms=due_ms, positions=dict(positions))
        self._held = await self._cell.try_swap(lease, expected=self._held.version)
        return self._held is not None
