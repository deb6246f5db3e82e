"""A server in this process whose audit trail a test reads."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from sandur.catalog.audit import AuditFilter, AuditRecord
from sandur.catalog.security.manifest import Caller
from sandur.clock import Clock, SystemClock
from sandur.operations.access import Security
from sandur.operations.audit.search import search_audit
from sandur.server.app import App
from sandur.server.process import RunningCatalog
from sandur.server.serve import build
from sandur.settings import Settings
from sandur.storage.contract import ObjectStore
from sandur.storage.locations import connect
from tests.server.conftest import with_plain_names

EVER = AuditFilter(0, 1 << 47)


@dataclass
class AuditedServer:
    """A server, a client of it, and what it has recorded."""

    app: App
    catalog: RunningCatalog
    store: ObjectStore
    client: httpx.AsyncClient

    async def admin(self) -> dict[str, str]:
        """The header of the administrator, without a login, which would be recorded."""
        lake = self.catalog.lakes.lake("default", "default")
        principal = (await lake.feature(Security).read()).principal_named("admin")
        assert principal
        caller = Caller(principal.id, principal.name, token_epoch=principal.token_epoch)
        return {"authorization": f"Bearer {self.catalog.authenticator.issue(caller, 'default', 'default').text}"}

    async def records(self, tenant: str = "default", workspace: str = "default") -> Sequence[AuditRecord]:
        """Everything in the trail of a workspace."""
        await self.catalog.audit.flush()
        return (await search_audit(self.catalog.lakes.lake(tenant, workspace), EVER, page_size=1_000)).records

    async def settled(self) -> None:
        """Wait until no work goes on behind an answer."""
        await self.catalog.lakes.lake("default", "default").background.drain()

    async def last(self) -> AuditRecord:
        return (await self.records())[-1]

    async def objects(self) -> dict[str, bytes]:
        """Every object of the audit trail, of all workspaces."""
        await self.catalog.audit.flush()
        found = {}
        for listed in await self.store.list("", limit=100_000):
            if "/_catalog/audit/" in listed.key:
                stored = await self.store.get(listed.key)
                assert stored
                found[listed.key] = stored.data
        return found


async def _next_millisecond(_request: httpx.Request) -> None:
    """Begin each request in a millisecond of its own: within one, the trail keeps no order."""
    await asyncio.sleep(0.002)


@asynccontextmanager
async def audited_server(
    inner: ObjectStore | None = None, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[AuditedServer]:
    """A server with these settings, on a new store in memory unless one is given."""
    given = msgspec.convert({"store": "memory:", "log_level": "error", "janitors": False, **settings}, Settings)
    held = inner or connect(given, clock or SystemClock())
    app, catalog = build(given, store=held, clock=clock)
    await catalog.start()
    transport = httpx.ASGITransport(with_plain_names(app), client=("10.1.2.3", 4567))
    hooks = {"request": [_next_millisecond]}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", timeout=30, event_hooks=hooks
    ) as client:
        try:
            yield AuditedServer(app, catalog, held, client)
        finally:
            await catalog.close()
