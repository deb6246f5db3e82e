"""Run the janitors in tests, on stores with garbage."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import pytest

from sandur.errors import SandurError
from sandur.operations.janitors.schedule import run_janitors
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.lake import Lake
from sandur.storage.contract import ObjectStore
from sandur.storage.memory import MemoryStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.lakes import make_lake
from tests.operations.requests import copy_store, set_up_catalog

HOUR_MS: Final = 3_600_000
LONG_MS: Final = 2 * DAY_MS
"""Past every age gate but that of stages and blocked purges."""

_CALLS_MAX: Final = 200


class ReportedErrors(list[str]):
    """The errors that the janitors reported."""

    def __call__(self, what: str, error: SandurError) -> None:
        self.append(f"{what}: {type(error).__name__}: {error}")


class Cluster:
    """A store, a clock, and servers that start and die."""

    def __init__(self, seed: int | None = None, **settings: object) -> None:
        self.clock = FixedClock(seed=seed or 0)
        self.store = MemoryStore(seed=seed, clock=self.clock)
        self.settings = settings
        self.errors = ReportedErrors()

    @classmethod
    async def with_catalog(cls, seed: int | None = None, **settings: object) -> "Cluster":
        cluster = cls(seed, **settings)
        await set_up_catalog(cluster.server())
        return cluster

    def server(self, store: ObjectStore | None = None) -> Lake:
        """A new server without caches."""
        return make_lake(store or self.store, self.clock, **self.settings)

    async def sweep(self, store: ObjectStore | None = None) -> Mapping[str, int]:
        """Run all janitors once; returns the counts without the objects that were kept."""
        server = self.server(store)
        run = await run_janitors(server, {}, on_error=self.errors)
        await server.background.drain()
        return {
            outcome: times
            for outcome, times in run.counts.items()
            if times and not outcome.endswith(("_kept", "_changed"))
        }

    async def kill_when(
        self, work: Callable[[Lake], Awaitable[object]], condition: Callable[[Lake], Awaitable[bool]]
    ) -> None:
        """Let a server work, and kill it after the first call that makes the condition true."""
        origin = self.store, self.clock
        for calls in range(1, _CALLS_MAX):
            self.store, self.clock = copy_store(*origin)
            server = self.server(DyingStore(self.store, dies_at=calls, after=True))
            with contextlib.suppress(Died):
                await work(server)
            await server.background.drain()
            if await condition(self.server()):
                return
        pytest.fail("the server never died there")

    async def keys(self, folder: str = "") -> list[str]:
        return [listed.key for listed in await self.store.list(folder)]
