"""Servers for tests: in this process for speed, in their own process for tests of the wire."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from sandur.clock import Clock
from sandur.server.app import App
from sandur.server.http import Receive, Scope, Send
from sandur.server.process import RunningCatalog
from sandur.server.serve import build
from sandur.settings import Settings
from sandur.storage.contract import ObjectStore
from tests.server.process import ServerProcess, server_process


def with_plain_names(app: App) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """The application with plain header names, as httpx would read them from the wire."""

    async def plain(scope: Scope, receive: Receive, send: Send) -> None:
        async def plainly(message: MutableMapping[str, Any]) -> None:
            named = [(bytes(bytearray(name)), value) for name, value in message.get("headers", [])]
            await send({**message, "headers": named})

        await app(scope, receive, plainly)

    return plain


class Catalogs:
    """Opens servers in this process, each with its own settings and store, and closes them at the end."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._servers: list[RunningCatalog] = []

    async def open(self, store: ObjectStore | None = None, **settings: object) -> httpx.AsyncClient:
        given = Settings(**{"store": "memory:", "log_level": "error", **settings})  # type: ignore[arg-type] # Given by name.
        return await self.open_with(given, store)

    async def open_with(
        self, settings: Settings, store: ObjectStore | None = None, *, clock: Clock | None = None
    ) -> httpx.AsyncClient:
        """A server with exactly these settings."""
        app, catalog = build(settings, store=store, clock=clock)
        await catalog.start()
        self._servers.append(catalog)
        self._stack.push_async_callback(catalog.close)
        transport = httpx.ASGITransport(with_plain_names(app))
        return await self._stack.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30)
        )

    async def settled(self) -> None:
        """Wait until no work goes on behind an answer."""
        for server in self._servers:
            await server.lakes.lake("default", "default").background.drain()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Servers in this process write no logs."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()


@pytest.fixture
async def catalogs() -> AsyncIterator[Catalogs]:
    async with AsyncExitStack() as stack:
        yield Catalogs(stack)


@pytest.fixture
async def client(catalogs: Catalogs) -> httpx.AsyncClient:
    """A fresh catalog in memory."""
    return await catalogs.open()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of two workers on a folder, started once."""
    folder: Path = tmp_path_factory.mktemp("server")
    with server_process(folder, "--workers", "2", fsync="never") as running:
        yield running
