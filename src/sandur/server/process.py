"""One server process: the store, the catalog on it, and the dialects that serve it."""

import asyncio
import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import structlog

from sandur.clock import Clock, SystemClock
from sandur.errors import SandurError
from sandur.operations.counters import Count
from sandur.operations.janitors.schedule import Janitors
from sandur.operations.lake import Lake
from sandur.operations.lakes import Lakes
from sandur.server.app import App
from sandur.server.delta_rest.routes import DELTA
from sandur.server.health import Pages
from sandur.server.iceberg_rest.routes import iceberg_dialect
from sandur.server.measured_store import MeasuredStore
from sandur.server.metrics import Grown, RequestMeasures
from sandur.server.unity_rest.routes import UNITY, UNITY_CONTROL
from sandur.settings import Settings
from sandur.storage.contract import ObjectStore
from sandur.storage.layout import Layout
from sandur.storage.open import connect

_CACHE_READS: Final = "sandur_cache_reads_total"
_LOOKED_FOR: Final = "_probe/readiness"
_SHOW_SECONDS: Final = 5.0
_GARBAGE_THRESHOLDS: Final = (20_000, 20, 50)

log = structlog.get_logger()


class RunningCatalog:
    """The catalog of one process, from its start to its end."""

    def __init__(self, settings: Settings, clock: Clock, store: MeasuredStore) -> None:
        self.is_started = False
        self.lakes = Lakes(settings, clock, store)
        self.measures = RequestMeasures()
        self._store = store
        self._clock = clock
        self._grown = Grown()
        self._showing: asyncio.Task[None] | None = None
        self._janitors = Janitors(
            settings, clock, store, self.lakes.fresh_lake, on_run=_log_janitors, on_failure=_log_janitor_failure
        )

    async def start(self) -> None:
        """Prove the store and open the catalog; raises what makes it unusable."""
        await self.lakes.start()
        self._showing = asyncio.create_task(self._show_counts_often())
        self._janitors.start()
        self.is_started = True

    async def close(self) -> None:
        """Finish what was begun, then let go of the store."""
        self.is_started = False
        if self._showing:
            self._showing.cancel()
        await self._janitors.stop()
        await self.lakes.close()
        self.show_counts()

    async def reach_store(self) -> None:
        await self._store.head(_LOOKED_FOR)

    def show_counts(self) -> None:
        self._store.show()
        self.measures.show()
        self._grown.show([*_counts(self.lakes.lakes), *self._janitors.counters])

    async def _show_counts_often(self) -> None:
        """Workers are asked for their numbers by turns: what the others counted must lie ready."""
        while True:
            await self._clock.sleep(_SHOW_SECONDS)
            self.show_counts()


def _log_janitors(layout: Layout, counts: Mapping[str, int]) -> None:
    done = {outcome: times for outcome, times in counts.items() if times}
    log.info("janitors", tenant=layout.tenant, workspace=layout.workspace, **done)


def _log_janitor_failure(layout: Layout, what: str, error: Exception) -> None:
    unexpected = None if isinstance(error, SandurError) else error
    reason = f"{type(error).__name__}: {error}"
    log.warning(
        "janitor", tenant=layout.tenant, workspace=layout.workspace, what=what, reason=reason, exc_info=unexpected
    )


def _counts(lakes: Iterable[Lake]) -> Iterator[Count]:
    """What all workspaces counted, by name and value: tenants are not told apart."""
    times: Counter[tuple[str, str, str]] = Counter()
    for lake in lakes:
        for count in lake.counters:
            times[count.name, count.label, count.value] += count.times
        times[_CACHE_READS, "result", "hit"] += lake.documents.hits
        times[_CACHE_READS, "result", "miss"] += lake.documents.misses
    for (name, label, value), total in times.items():
        yield Count(name, label, value, total)


def build(
    settings: Settings, *, clock: Clock | None = None, store: ObjectStore | None = None
) -> tuple[App, RunningCatalog]:
    """The application of one process, and the catalog it serves, not yet started."""
    acting = clock or SystemClock()
    catalog = RunningCatalog(settings, acting, MeasuredStore(store or connect(settings, acting)))
    app = App(
        dialects=[iceberg_dialect(settings), UNITY, UNITY_CONTROL, DELTA],
        pages=Pages(catalog),
        lifetime=catalog,
        lakes=catalog.lakes,
        settings=settings,
        clock=acting,
        metrics=catalog.measures,
    )
    return app, catalog


def build_app(settings: Settings) -> App:
    """What uvicorn calls in each process."""
    app = build(settings)[0]
    _collect_garbage_seldom()
    return app


def _collect_garbage_seldom() -> None:
    """A server keeps much and makes little that counting references does not free: looking for it took a seventh."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE_THRESHOLDS)
