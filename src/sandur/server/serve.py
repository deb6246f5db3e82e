"""The server of one process: the application, the catalog behind it, and uvicorn in front of it."""

import asyncio
import gc
import importlib
import importlib.util
import multiprocessing
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

import uvicorn

from sandur.clock import Clock, SystemClock
from sandur.extras import has_planning
from sandur.server.addresses import BACKLOG, FILES_RESERVED, port_of, raise_file_limit
from sandur.server.app import App
from sandur.server.control.routes import CONTROL, WELL_KNOWN
from sandur.server.delta_rest.routes import DELTA
from sandur.server.iceberg_rest.routes import iceberg_dialect
from sandur.server.identity import ANONYMOUS_BEARER, Bearer
from sandur.server.metrics import MeasuredStore, Metrics
from sandur.server.openlineage.routes import OPENLINEAGE
from sandur.server.process import RunningCatalog
from sandur.server.protocol import bounded_protocol
from sandur.server.requests import Requests
from sandur.server.supervisor import Ports
from sandur.server.ui.routes import UI
from sandur.server.unity_rest.routes import UNITY, UNITY_CONTROL
from sandur.settings import Settings, seconds_of
from sandur.storage.contract import ObjectStore
from sandur.storage.locations import connect

if TYPE_CHECKING:
    from sandur.server.grpc.server import GrpcServer

KEEP_ALIVE_SECONDS: Final = 75
PLANNING: Final = "sandur.operations.planning.plans"
GARBAGE_THRESHOLDS: Final = (20_000, 20, 50)


def build(
    settings: Settings,
    *,
    clock: Clock | None = None,
    store: ObjectStore | None = None,
    metrics_folder: Path | None = None,
    unauthenticated: Bearer = ANONYMOUS_BEARER,
) -> tuple[App, RunningCatalog]:
    """The application of one process, and the catalog that it serves, which is not started yet."""
    clock = clock or SystemClock()
    metrics = Metrics(metrics_folder)
    measured = MeasuredStore(store or connect(settings, clock, creates=metrics_folder is None), metrics)
    catalog = RunningCatalog(settings, clock, measured, metrics, unauthenticated=unauthenticated)
    requests = Requests(catalog=catalog, settings=settings, clock=clock, metrics=metrics)
    app = App(
        dialects=[iceberg_dialect(settings), UNITY, UNITY_CONTROL, DELTA, CONTROL, OPENLINEAGE, WELL_KNOWN, UI],
        catalog=catalog,
        settings=settings,
        metrics=metrics,
        requests=requests,
    )
    return app, catalog


def grpc_services(settings: Settings, app: App, catalog: RunningCatalog, *, port: int) -> "GrpcServer":
    """The gRPC services of the process that serves the application, which are not started yet."""
    from sandur.server.grpc.server import GrpcServer  # noqa: PLC0415 - without gRPC its packages need not be installed

    return GrpcServer(settings, catalog, app.requests, port=port)


def serve_here(
    settings: Settings,
    bound: list[socket.socket],
    grpc_port: int,
    metrics_folder: Path | None,
    announce: Callable[[Ports], None],
) -> int:
    """Serve on these sockets until a signal arrives, and return the exit code."""
    app, catalog = build(settings, metrics_folder=metrics_folder)
    grpc_server = grpc_services(settings, app, catalog, port=grpc_port) if grpc_port >= 0 else None

    def report_ready() -> None:
        announce(Ports(port_of(bound[0]), grpc_server.port if grpc_server else None))

    # A server holds many objects and makes few cycles: at the default thresholds the collector took a seventh of the
    # CPU time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    config = uvicorn.Config(
        app,
        loop="uvloop" if importlib.util.find_spec("uvloop") else "asyncio",
        http=bounded_protocol(min(settings.connections_max, raise_file_limit() - FILES_RESERVED)),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=seconds_of(settings.shutdown_timeout),
    )
    server = _Server(config, catalog, grpc_server, report_ready)
    for number in (signal.SIGTERM, signal.SIGINT):
        # This handler catches signals that arrive before uvicorn installs its own. uvicorn raises them again after its
        # shutdown; the process must not die of them then.
        signal.signal(number, server.stop)
    try:
        server.run(sockets=bound)
    except SystemExit:
        return 1
    return 0


class _Server(uvicorn.Server):
    """Opens and closes the catalog, reports when it is ready, and stops when the process that started it ends.

    uvicorn's own start-up would log a failure as several lines; here it is raised.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        catalog: RunningCatalog,
        grpc_server: "GrpcServer | None",
        report_ready: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._catalog = catalog
        self._grpc = grpc_server
        self._report_ready = report_ready

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await self._catalog.start()
        try:
            if self._grpc:
                await self._grpc.start()
            await super().serve(sockets)
        finally:
            await self._catalog.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if parent := multiprocessing.parent_process():
            asyncio.get_running_loop().add_reader(parent.sentinel, self.stop)
        self._report_ready()
        if has_planning():  # In a thread: an import by the first plan would stop all other requests while it lasts.
            self._importing = asyncio.create_task(asyncio.to_thread(importlib.import_module, PLANNING))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams first: uvicorn waits for answers in progress, and a stream does not end by itself."""
        self._catalog.end_streams()
        # The requests of both ports are finished at the same time.
        await asyncio.gather(super().shutdown(sockets), self._grpc.stop() if self._grpc else asyncio.sleep(0))

    def stop(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """Finish the requests in progress, and stop."""
        self.should_exit = True
