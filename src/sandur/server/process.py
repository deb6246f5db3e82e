"""The catalog of one server process: the lakes, the janitors and the metrics, from its start to its end."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import structlog

from sandur.clock import Clock
from sandur.errors import Damaged, SandurError
from sandur.operations.audit.trail import AuditTrail
from sandur.operations.containers.catalogs import ensure_default_catalog
from sandur.operations.counters import CACHE_READS, STORE_PACE, Count, Counters
from sandur.operations.credentials.profiles import check_own_access
from sandur.operations.event_feed.schedule import Deliveries
from sandur.operations.event_feed.send import HttpSender
from sandur.operations.event_feed.streams import EventStreams
from sandur.operations.identity.bootstrap import AdminSecret, bootstrap
from sandur.operations.identity.signing_keys import SigningKeys
from sandur.operations.incidents import reason_of
from sandur.operations.index.hints import read_ahead
from sandur.operations.janitors.schedule import Janitors
from sandur.operations.lake import Lakes
from sandur.operations.planning.cache import PlanningCache
from sandur.operations.tables.documents import document_cache
from sandur.server.authentication.authenticator import Authenticator
from sandur.server.health import StoreHealth
from sandur.server.identity import ANONYMOUS_BEARER, Bearer
from sandur.server.metric_families import (
    CACHE_BYTES,
    DAMAGED_OBJECTS,
    DELIVERY_SECONDS,
    FAMILIES,
    LOOP_LAG,
    WORK_FAILURES,
)
from sandur.server.metrics import NO_REQUEST, Metrics, area_of, current_rounds
from sandur.server.opa import OpaVeto
from sandur.server.store_gauges import read_store
from sandur.server.traces import Traces
from sandur.settings import Settings
from sandur.storage.contract import ObjectStore
from sandur.storage.layout import Layout
from sandur.storage.pace import pace_of

_METRICS_SECONDS: Final = 5.0
_STORE_SECONDS: Final = 60
_LAG_SECONDS: Final = 0.5
_FORMAT_SECONDS: Final = 30.0

log = structlog.get_logger()


class LoggedAndCounted:
    """The incidents of one process: a log line and a count each."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def work_failed(self, work: str, error: Exception) -> None:
        is_expected = isinstance(error, SandurError)
        self._metrics.count(WORK_FAILURES, work, type(error).__name__ if is_expected else "unexpected")
        rounds = current_rounds.get()
        operation = rounds.operation if rounds else NO_REQUEST
        if is_expected:
            log.warning("work failed", work=work, operation=operation, reason=reason_of(error))
        else:
            log.error("work failed", work=work, operation=operation, reason=reason_of(error), exc_info=error)

    def object_damaged(self, key: str, reason: str) -> None:
        self._metrics.count(DAMAGED_OBJECTS, area_of(key))
        log.warning("damaged object", key=key, reason=reason)


class RunningCatalog:
    """The catalog of one process, from its start to its end."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        store: ObjectStore,
        metrics: Metrics,
        *,
        unauthenticated: Bearer = ANONYMOUS_BEARER,
    ) -> None:
        self.is_started = False
        self.incidents = LoggedAndCounted(metrics)
        self.lakes = Lakes(settings, clock, store, incidents=self.incidents)
        self.audit = AuditTrail(settings, clock, store, on_loss=_log_audit_loss, incidents=self.incidents)
        self.health = StoreHealth(store, clock, metrics)
        self._settings = settings
        self._keys = SigningKeys(store, clock, self.incidents)
        self.authenticator = Authenticator(settings, clock, self.lakes, self._keys, unauthenticated=unauthenticated)
        self.traces = Traces(settings, clock) if settings.traces_endpoint else None
        self.veto = OpaVeto(settings.opa) if settings.opa.url else None
        self._clock = clock
        self._metrics = metrics
        self._tasks: list[asyncio.Task[None]] = []
        self._janitors = Janitors(
            settings, clock, store, self.lakes.fresh_lake, on_run=_log_janitors, on_failure=self._report_janitor
        )
        self._sender = HttpSender(settings)
        self._deliveries = Deliveries(
            settings,
            clock,
            store,
            # The lakes of the requests: their commits wake the deliveries.
            lambda layout: self.lakes.lake(layout.tenant, layout.workspace),
            self._sender,
            observe=lambda seconds: metrics.observe(DELIVERY_SECONDS, seconds),
            on_failure=self._report_delivery,
        )

    async def start(self) -> None:
        """Probe the store and open the catalog; raises when the store cannot be used."""
        lake = await self.lakes.start()
        await check_own_access(lake)
        await ensure_default_catalog(lake)
        if self._settings.authentication == "on":
            await self._keys.refresh()
            self._tasks.append(asyncio.create_task(self._keys.refresh_periodically()))
            if made := await bootstrap(lake, self._settings.admin_secret):
                _announce_admin(made)
        await read_ahead(lake)
        self._tasks.append(asyncio.create_task(self._update_metrics_periodically()))
        self._tasks.append(asyncio.create_task(self._measure_lag_periodically()))
        self._tasks.append(asyncio.create_task(self._read_format_periodically()))
        if self._settings.janitors:
            self._tasks.append(asyncio.create_task(self._read_store_periodically()))
        self._janitors.start()
        self._deliveries.start()
        self.is_started = True

    async def close(self) -> None:
        """Finish pending work, then close the store."""
        self.is_started = False
        for task in self._tasks:
            task.cancel()
        await self.authenticator.close()
        await self._janitors.stop()
        await self._deliveries.stop()
        await self._sender.close()
        await self.audit.close()
        if self.veto:
            await self.veto.close()
        if self.traces:
            await asyncio.to_thread(self.traces.close)
        await self.lakes.close()
        self.update_metrics()

    def end_streams(self) -> None:
        """End the streams of events; each client reads on at another server, from its position."""
        for lake in self.lakes.lakes:
            lake.feature(EventStreams).end()

    def update_metrics(self) -> None:
        """Take over the counters of the operations, and share all numbers with the other workers."""
        counted = [*_counts(self.lakes), *self._janitors.counters, *self.audit.counters]
        if pace := pace_of(self.lakes.store):
            counted += [Count(STORE_PACE, "event", event, times) for event, times in pace.counts.items()]
        self._metrics.follow(counted)
        for lake in self.lakes.lakes:
            for name, seconds in lake.feature(Counters).take_durations():
                self._metrics.observe(FAMILIES[name], seconds)
        for cache, size_bytes in _cache_bytes(self.lakes).items():
            self._metrics.set_gauge(CACHE_BYTES, size_bytes, cache)
        self._metrics.share()

    async def _update_metrics_periodically(self) -> None:
        """Prometheus asks one worker at a time: the numbers of the others must be in their files."""
        while True:
            await self._clock.sleep(_METRICS_SECONDS)
            try:
                self.update_metrics()
            except Exception as error:  # noqa: BLE001 - such as a full disk: the next update may succeed
                self.incidents.work_failed("share the metrics", error)

    async def _read_format_periodically(self) -> None:
        """Learn that the store was upgraded, so that new records have the new form (V3)."""
        while not self.lakes.form.is_newest:
            await self._clock.sleep(_FORMAT_SECONDS)
            try:
                await self.lakes.form.read()
            except Exception as error:  # noqa: BLE001 - the next read may succeed
                self.incidents.work_failed("read the format of the store", error)

    async def _measure_lag_periodically(self) -> None:
        """Measure how late the event loop runs a timer."""
        while True:
            due = time.perf_counter() + _LAG_SECONDS
            await self._clock.sleep(_LAG_SECONDS)
            self._metrics.observe(LOOP_LAG, max(0.0, time.perf_counter() - due))

    async def _read_store_periodically(self) -> None:
        """Read what waits in the store, and what the last runs of jobs left, for alerts."""
        while True:
            try:
                self._metrics.set_newest(await read_store(self.lakes.lakes), read_ms=self._clock.now_ms())
            except Exception as error:  # noqa: BLE001 - the next read may succeed
                self.incidents.work_failed("read the backlog of the store", error)
            await self._clock.sleep(_STORE_SECONDS)

    def _report_janitor(self, layout: Layout, what: str, error: Exception) -> None:
        """Log a failure of a janitor; `what` is the key of the object, or the part that failed."""
        self._report("janitor", layout, what, error)

    def _report_delivery(self, layout: Layout, what: str, error: Exception) -> None:
        self._report("deliveries", layout, what, error)

    def _report(self, work: str, layout: Layout, what: str, error: Exception) -> None:
        if isinstance(error, Damaged):
            self.incidents.object_damaged(error.key, error.reason)
        where = {"tenant": layout.tenant, "workspace": layout.workspace, "what": what, "reason": reason_of(error)}
        if isinstance(error, SandurError):
            log.warning(work, **where)
        else:
            log.error(work, **where, exc_info=error)


def _announce_admin(admin: AdminSecret) -> None:
    """Print the secret of the first administrator: the only time that anything shows it. It never goes into the log."""
    if admin.is_generated:
        text = f"The principal admin was created. Its secret, which is not shown again: {admin.secret}"
    else:
        text = "The principal admin was created. Its secret is the setting admin_secret."
    print(text, flush=True)  # noqa: T201 - for the person who starts the server


def _log_janitors(layout: Layout, counts: Mapping[str, int]) -> None:
    done = {outcome: times for outcome, times in counts.items() if times}
    log.info("janitors", tenant=layout.tenant, workspace=layout.workspace, **done)


def _log_audit_loss(layout: Layout, lost: Mapping[str, int], reason: str) -> None:
    log.warning("audit records lost", tenant=layout.tenant, workspace=layout.workspace, reason=reason, **lost)


def _counts(lakes: Lakes) -> Iterator[Count]:
    """The counters of all lakes, summed: tenants are no label."""
    times: Counter[tuple[str, str, str]] = Counter()
    for lake in lakes.lakes:
        for count in lake.feature(Counters):
            times[count.name, count.label, count.value] += count.times
    for (name, label, value), total in times.items():
        yield Count(name, label, value, total)
    documents = [cache for lake in lakes.lakes for cache in lake.feature(document_cache)]
    yield Count(CACHE_READS, "result", "hit", sum(cache.hits for cache in documents))
    yield Count(CACHE_READS, "result", "miss", sum(cache.misses for cache in documents))


def _cache_bytes(lakes: Lakes) -> Mapping[str, int]:
    """The bytes of the large caches of all lakes."""
    documents = [lake.feature(document_cache) for lake in lakes.lakes]
    planning = [lake.feature(PlanningCache) for lake in lakes.lakes]
    return {
        "tables": sum(cache.tables.bytes for cache in documents),
        "views": sum(cache.views.bytes for cache in documents),
        "manifests": sum(cache.manifests.bytes for cache in planning),
        "plans": sum(cache.selected.bytes + cache.plans.bytes for cache in planning),
    }
