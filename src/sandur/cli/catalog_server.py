"""A catalog server for Spark in this process, while a maintenance run works on a store.

Spark reaches tables only through a catalog's protocol. The server listens on loopback and refuses requests without the
token that it makes for this run.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from hmac import compare_digest
from typing import Any, Final

import uvicorn
from msgspec.structs import replace

from sandur.catalog.security.manifest import Caller
from sandur.cli.configuration import s3_store
from sandur.clock import Clock, SystemClock
from sandur.errors import Unavailable
from sandur.operations.containers.catalogs import ensure_default_catalog
from sandur.server.addresses import bind_socket, port_of
from sandur.server.identity import Bearer
from sandur.server.logs import temporary_logging
from sandur.server.protocol import PlainHttpProtocol
from sandur.server.serve import build
from sandur.settings import Settings
from sandur.spark.sessions import Connection
from sandur.storage.contract import ObjectStore

_HOST: Final = "127.0.0.1"
_START_SECONDS: Final = 60
_POLLS_PER_SECOND: Final = 20
_NAME: Final = "maintenance"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@contextlib.contextmanager
def open_catalog(
    settings: Settings, run: str = "", *, clock: Clock | None = None, store: ObjectStore | None = None
) -> Iterator[Connection]:
    """A server on the store of the settings, or on `store`, until the block ends; returns how Spark connects to it.

    Its caller counts as a pipeline, and all its requests belong to `run`: not every client can send that itself.
    """
    clock = clock or SystemClock()
    token = clock.new_uuid()
    local = replace(settings, authentication="off", host=_HOST, port=0)
    bearer = Bearer(Caller("", _NAME, is_pipeline=True))
    with temporary_logging("text", "error"):
        app, catalog = build(local, clock=clock, store=store, unauthenticated=bearer)
        bound = bind_socket(_HOST, 0, is_shared=False)
        config = uvicorn.Config(
            _Guarded(app, token, run),
            http=PlainHttpProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
        )
        server = uvicorn.Server(config)
        failures: list[BaseException] = []

        async def serve() -> None:
            # Without janitors and deliveries: those are the work of real servers.
            await ensure_default_catalog(await catalog.lakes.start())
            try:
                await server.serve(sockets=[bound])
            finally:
                await catalog.close()

        def work() -> None:
            try:
                asyncio.run(serve())
            except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
                failures.append(error)

        thread = threading.Thread(target=work, name="catalog-server", daemon=True)
        thread.start()
        try:
            _wait_until_ready(server, thread, failures)
            s3 = s3_store(settings, with_keys=True)
            yield Connection(uri=f"http://{_HOST}:{port_of(bound)}", token=token, s3=s3)
        finally:
            server.should_exit = True
            thread.join(_START_SECONDS)


def _wait_until_ready(server: uvicorn.Server, thread: threading.Thread, failures: list[BaseException]) -> None:
    for _ in range(_START_SECONDS * _POLLS_PER_SECOND):
        if server.started:
            return
        thread.join(1 / _POLLS_PER_SECOND)
        if not thread.is_alive():
            break
    reason = f": {failures[0]}" if failures else ""
    raise Unavailable(f"the catalog server for Spark did not start{reason}")


class _Guarded:
    """Refuses every request without the token: other users of this machine reach the port, too. Adds the run."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], token: str, run: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()
        self._headers = [(b"x-sandur-run-id", run.encode())] if run else []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = dict(scope.get("headers", ())).get(b"authorization", b"")
        if compare_digest(sent, self._expected):
            await self._app({**scope, "headers": [*scope["headers"], *self._headers]}, receive, send)
            return
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
