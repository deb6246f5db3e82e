"""The health of the store, for `/readyz`: can it be read and written? Checked on request, every few seconds at most."""

import asyncio
from typing import Final

import structlog

from sandur.clock import Clock
from sandur.errors import SandurError
from sandur.operations.incidents import reason_of
from sandur.server.metric_families import STORE_CHECKS
from sandur.server.metrics import Metrics
from sandur.storage.contract import ObjectStore
from sandur.storage.probe import check_access

CHECK_EVERY_MS: Final = 2_000
CHECK_SECONDS_MAX: Final = 5.0

log = structlog.get_logger()


class StoreHealth:
    """The result of the last check, and the check that runs now, which all callers share."""

    def __init__(self, store: ObjectStore, clock: Clock, metrics: Metrics) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._problem: str | None = None
        self._checked_ms: int | None = None
        self._check: asyncio.Task[None] | None = None

    async def problem(self) -> str | None:
        """Why the store cannot be used; None if it can. At most CHECK_EVERY_MS old."""
        if self._check is None and self._is_due():
            self._check = asyncio.create_task(self._run(), name="check the store")
        if self._check:
            # The check goes on if this caller stops waiting.
            await asyncio.shield(self._check)
        return self._problem

    def _is_due(self) -> bool:
        # The difference is negative if the system's clock went back.
        return self._checked_ms is None or not 0 <= self._clock.now_ms() - self._checked_ms < CHECK_EVERY_MS

    async def _run(self) -> None:
        before = self._problem
        try:
            self._problem = await self._find_problem()
        finally:
            self._checked_ms, self._check = self._clock.now_ms(), None
        self._metrics.count(STORE_CHECKS, "failed" if self._problem else "ok")
        if self._problem and self._problem != before:
            log.error("not ready", reason=self._problem)
        elif before and not self._problem:
            log.info("ready again")

    async def _find_problem(self) -> str | None:
        try:
            async with asyncio.timeout(CHECK_SECONDS_MAX):
                await check_access(self._store, self._clock)
        except TimeoutError:
            return f"the store did not answer within {CHECK_SECONDS_MAX:g} seconds"
        except SandurError as error:
            return str(error)
        except Exception as error:
            log.exception("check of the store")
            return f"the check of the store failed: {reason_of(error)}"
        return None
