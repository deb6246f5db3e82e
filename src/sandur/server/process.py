"""The catalog of one server process: the lakes, the janitors and the metrics, from its start to its end."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import structlog

from sandur.clock import Clock
from sandur.errors import SandurError
from sandur.operations.audit.trail import AuditTrail
from sandur.operations.containers.catalogs import ensure_default_catalog
from sandur.operations.counters import Count, Counters
from sandur.operations.credentials.profiles import check_own_access
from sandur.operations.identity.bootstrap import AdminSecret, bootstrap
from sandur.operations.identity.signing_keys import SigningKeys
from sandur.operations.janitors.schedule import Janitors
from sandur.operations.lake import Lakes
from sandur.operations.tables.documents import document_cache
from sandur.server.authentication.authenticator import Authenticator
from sandur.server.metrics import Metrics
from sandur.server.opa import OpaVeto
from sandur.settings import Settings
from sandur.storage.contract import ObjectStore
from sandur.storage.layout import Layout
from sandur.storage.probe import reach_store

_CACHE_READS: Final = "sandur_cache_reads_total"
_METRICS_SECONDS: Final = 5.0

log = structlog.get_logger()


class RunningCatalog:
    """The catalog of one process, from its start to its end."""

    def __init__(self, settings: Settings, clock: Clock, store: ObjectStore, metrics: Metrics) -> None:
        self.is_started = False
        self.lakes = Lakes(settings, clock, store)
        self.audit = AuditTrail(settings, clock, store, on_loss=_log_audit_loss)
        self._settings = settings
        self._keys = SigningKeys(store, clock)
        self.authenticator = Authenticator(settings, clock, self.lakes, self._keys)
        self.veto = OpaVeto(settings.opa) if settings.opa.url else None
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._tasks: list[asyncio.Task[None]] = []
        self._janitors = Janitors(
            settings, clock, store, self.lakes.fresh_lake, on_run=_log_janitors, on_failure=_log_janitor_failure
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
        self._tasks.append(asyncio.create_task(self._update_metrics_periodically()))
        self._janitors.start()
        self.is_started = True

    async def close(self) -> None:
        """Finish pending work, then close the store."""
        self.is_started = False
        for task in self._tasks:
            task.cancel()
        await self.authenticator.close()
        await self._janitors.stop()
        await self.audit.close()
        if self.veto:
            await self.veto.close()
        await self.lakes.close()
        self.update_metrics()

    async def reach_store(self) -> None:
        """Make one small store call; raises Unfit when the store does not answer."""
        await reach_store(self._store)

    def update_metrics(self) -> None:
        """Take over the counters of the operations, and share all numbers with the other workers."""
        self._metrics.follow([*_counts(self.lakes), *self._janitors.counters, *self.audit.counters])
        self._metrics.share()

    async def _update_metrics_periodically(self) -> None:
        """Prometheus asks one worker at a time: the numbers of the others must be in their files."""
        while True:
            await self._clock.sleep(_METRICS_SECONDS)
            self.update_metrics()


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


def _log_janitor_failure(layout: Layout, what: str, error: Exception) -> None:
    unexpected = None if isinstance(error, SandurError) else error
    reason = f"{type(error).__name__}: {error}"
    log.warning(
        "janitor", tenant=layout.tenant, workspace=layout.workspace, what=what, reason=reason, exc_info=unexpected
    )


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
    yield Count(_CACHE_READS, "result", "hit", sum(cache.hits for cache in documents))
    yield Count(_CACHE_READS, "result", "miss", sum(cache.misses for cache in documents))
