"""Runs the server in this process, or in several that share the address and the store."""

import asyncio
import contextlib
import functools
import gc
import importlib.util
import logging
import multiprocessing
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec
import structlog
import uvicorn
from structlog.typing import EventDict, WrappedLogger

from sandur.clock import Clock, SystemClock
from sandur.errors import BadRequest, SandurError, Unfit
from sandur.operations.credentials.sealed_secrets import sealing_keys
from sandur.server.addresses import (
    BACKLOG,
    FILES_RESERVED,
    bind_socket,
    check_exposure,
    port_of,
    raise_file_limit,
    resolve,
    setting_warnings,
)
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
from sandur.server.ui.routes import UI
from sandur.server.unity_rest.routes import UNITY, UNITY_CONTROL
from sandur.settings import Settings, seconds_of
from sandur.storage.contract import ObjectStore
from sandur.storage.locations import connect
from sandur.storage.probe import check_store

if TYPE_CHECKING:
    from sandur.server.grpc.server import GrpcServer

KEEP_ALIVE_SECONDS: Final = 75
_POLL_SECONDS: Final = 0.2
_STARTUP_POLL_SECONDS: Final = 0.05
_REPLACE_SECONDS: Final = 1.0
GARBAGE_THRESHOLDS: Final = (20_000, 20, 50)

_encoder: Final = msgspec.json.Encoder(enc_hook=str)
_pairs: Final = structlog.processors.KeyValueRenderer()

Work = Callable[[Callable[[], None]], None]
"""What a worker does until it is stopped; it calls the given function once, when it is ready."""

log = structlog.get_logger()


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
    measured = MeasuredStore(store or connect(settings, clock), metrics)
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


class Ports(NamedTuple):
    """The ports of a server; that of the gRPC services is None if they are off."""

    http: int
    grpc: int | None = None


def serve(settings: Settings, announce: Callable[[Ports], None]) -> int:
    """Serve until a signal arrives, and return the exit code. `announce` gets the ports when the server is ready."""
    resolve(settings.host)
    if settings.metrics_port:
        resolve(settings.metrics_host)
    check_exposure(settings)
    sealing_keys(settings.sealing_keys)
    if settings.workers > 1 and settings.store == "memory:":
        raise BadRequest(f"workers {settings.workers}: a store in memory belongs to one process, use 1")
    configure_logging(settings.log_format, settings.log_level)
    check_store(settings, creates=True)
    for warning in setting_warnings(settings):
        log.warning(warning)
    has_grpc = settings.grpc.port >= 0
    if has_grpc and importlib.util.find_spec("grpc_reflection") is None:
        raise BadRequest("setting grpc.port needs the gRPC packages: pip install 'sandur[grpc]'")
    if settings.workers == 1:
        bound = _bind(settings, settings.port, is_shared=False)
        return _serve_here(settings, bound, settings.grpc.port, None, announce)
    # Not shared at first: a shared address could be that of another server, and nothing would fail.
    alone = _bind(settings, settings.port, is_shared=False)
    if has_grpc:
        alone.append(bind_socket(settings.host, settings.grpc.port, is_shared=False))
    ports = Ports(port_of(alone[0]), port_of(alone[-1]) if has_grpc else None)
    for one in alone:
        one.close()
    # These sockets never listen. They reserve the ports for the workers, also while one is replaced.
    with (
        contextlib.ExitStack() as reserved,
        tempfile.TemporaryDirectory(prefix="sandur-metrics-", ignore_cleanup_errors=True) as folder,
    ):
        for one in _bind(settings, ports.http, is_shared=True):
            reserved.enter_context(one)
        if ports.grpc is not None:
            reserved.enter_context(bind_socket(settings.host, ports.grpc, is_shared=True))
        work = functools.partial(_work, settings, ports, Path(folder))
        return _Workers(work, count=settings.workers, announce=lambda: announce(ports)).run()


def _work(settings: Settings, ports: Ports, metrics_folder: Path, report_ready: Callable[[], None]) -> None:
    configure_logging(settings.log_format, settings.log_level)
    bound = _bind(settings, ports.http, is_shared=True)
    grpc_port = -1 if ports.grpc is None else ports.grpc
    raise SystemExit(_serve_here(settings, bound, grpc_port, metrics_folder, lambda _ports: report_ready()))


def _bind(settings: Settings, port: int, *, is_shared: bool) -> list[socket.socket]:
    """The socket of the REST APIs, then that of the metrics if they have a port of their own."""
    bound = [bind_socket(settings.host, port, is_shared=is_shared)]
    if settings.metrics_port:
        bound.append(bind_socket(settings.metrics_host, settings.metrics_port, is_shared=is_shared))
    return bound


def _serve_here(
    settings: Settings,
    bound: list[socket.socket],
    grpc_port: int,
    metrics_folder: Path | None,
    announce: Callable[[Ports], None],
) -> int:
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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams first: uvicorn waits for answers in progress, and a stream does not end by itself."""
        self._catalog.end_streams()
        # The requests of both ports are finished at the same time.
        await asyncio.gather(super().shutdown(sockets), self._grpc.stop() if self._grpc else asyncio.sleep(0))

    def stop(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """Finish the requests in progress, and stop."""
        self.should_exit = True


class _Worker:
    """One process; it reports once that it is ready."""

    def __init__(self, work: Work) -> None:
        context = multiprocessing.get_context("spawn")
        self._ready, theirs = context.Pipe(duplex=False)
        self._is_ready = False
        self.failure: str | None = None
        self.process: SpawnProcess = context.Process(target=_run, args=(work, theirs))
        self.process.start()
        theirs.close()

    @property
    def is_ready(self) -> bool:
        if not self._is_ready and self._ready.poll():
            with contextlib.suppress(EOFError):
                self.failure = self._ready.recv()
                self._is_ready = self.failure is None
        return self._is_ready

    @property
    def is_dead(self) -> bool:
        return self.process.exitcode is not None


class _Workers:
    """Keeps `count` processes running. `announce` is called once, when all of them are ready.

    uvicorn's supervisor is not used: it shares one listening socket, on which one of two processes took up to 59 of 64
    connections of a burst; it does not report when all workers are ready; and its workers outlive a killed supervisor.
    """

    def __init__(self, work: Work, *, count: int, announce: Callable[[], None]) -> None:
        self._work = work
        self._count = count
        self._announce = announce
        self._stopping = threading.Event()
        self._workers: list[_Worker] = []

    def run(self) -> int:
        """Run until a signal arrives; the exit code is 1 when a worker dies before it is ready.

        Raises Unfit if a worker says why it could not start.
        """
        with self._stopping_on_signals():
            self._workers = [_Worker(self._work) for _ in range(self._count)]
            is_healthy = self._start() and self._watch()
            code = 0 if is_healthy or self._stopping.is_set() else 1
            self._stop()
        failures = [worker.failure for worker in self._workers if not worker.is_ready and worker.failure]
        if code and failures:
            raise Unfit(failures[0])
        return code

    def _start(self) -> bool:
        """Wait until all workers are ready; False when one died or a signal arrived before that."""
        while not all(worker.is_ready for worker in self._workers):
            if self._stopping.is_set() or any(worker.is_dead for worker in self._workers):
                return False
            self._pause(_STARTUP_POLL_SECONDS)
        self._announce()
        return True

    def _watch(self) -> bool:
        """Replace workers that die; False when a replacement died before it was ready."""
        while not self._stopping.is_set():
            for place, worker in enumerate(self._workers):
                if worker.is_dead:
                    if not worker.is_ready:
                        return False
                    self._replace(place)
            self._pause(_POLL_SECONDS)
        return True

    def _replace(self, place: int) -> None:
        dead = self._workers[place].process
        log.error("worker died; starting a new one", pid=dead.pid, code=dead.exitcode)
        # A worker that dies right after its start must not keep the machine busy.
        if not self._stopping.wait(_REPLACE_SECONDS):
            self._workers[place] = _Worker(self._work)

    def _pause(self, seconds: float) -> None:
        """Wait, but not longer than until a worker dies."""
        wait([worker.process.sentinel for worker in self._workers], seconds)

    def _stop(self) -> None:
        """Let every worker finish its requests and wait for it; each worker bounds its own time."""
        for worker in self._workers:
            if not worker.is_dead:
                worker.process.terminate()
        for worker in self._workers:
            worker.process.join()

    @contextlib.contextmanager
    def _stopping_on_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, _signal: int, _frame: FrameType | None) -> None:
        self._stopping.set()


def _run(work: Work, ready: Connection) -> None:
    """Report to the supervisor, which prints: None when the worker is ready, or why it cannot start."""
    try:
        work(lambda: ready.send(None))
    except SandurError as error:
        ready.send(str(error))
        raise SystemExit(1) from None


def configure_logging(log_format: Literal["text", "json"], level: str) -> None:
    """Write all log events, also those of libraries, as lines to standard error."""
    level_number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            (lambda _logger, _method, event: _encoder.encode(event)) if log_format == "json" else _render_text,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level_number),
        logger_factory=lambda *_: _LossyLogger(sys.stderr.buffer),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_ToStructlog()], level=max(level_number, logging.WARNING), force=True)


class _LossyLogger(structlog.BytesLogger):
    """Loses a line that cannot be written, as on a full disk: no request may fail for its log."""

    def msg(self, message: bytes) -> None:
        try:
            super().msg(message)
        except OSError:  # There is no place left to report it.
            return

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


@contextlib.contextmanager
def temporary_logging(log_format: Literal["text", "json"], level: str) -> Iterator[None]:
    """`configure_logging` for a block, in a program that outlives the application."""
    root, configuration = logging.getLogger(), structlog.get_config()
    handlers, level_before = root.handlers[:], root.level
    configure_logging(log_format, level)
    try:
        yield
    finally:
        structlog.configure(**configuration)
        root.handlers[:] = handlers
        root.setLevel(level_before)


def _render_text(logger: WrappedLogger, method: str, event: EventDict) -> bytes:
    """`time level event key='value' …`. Values are quoted, so that none can forge a field or a line."""
    trace = event.pop("exception", None)
    head = f"{event.pop('timestamp')} {event.pop('level')} {event.pop('event')}"
    line = f"{head} {_pairs(logger, method, event)}" if event else head
    return (f"{line}\n{trace}" if trace else line).encode("utf-8", "backslashreplace")


class _ToStructlog(logging.Handler):
    """Passes the log records of libraries on to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        log.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)
