"""Runs the server in this process, or in several that share the address and the store.

With several workers, this process only watches them, so it imports little. The server itself is imported once, by the
process from which the workers are forked; it also forks the replacement of a worker that died.
"""

import contextlib
import functools
import gc
import importlib.util
import multiprocessing
import multiprocessing.forkserver
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

import structlog

from sandur.errors import BadRequest, SandurError, Unfit
from sandur.server.addresses import bind_socket, check_exposure, port_of, resolve, setting_warnings
from sandur.server.logs import configure_logging
from sandur.settings import Settings
from sandur.storage.probe import check_store

_POLL_SECONDS: Final = 0.2
_STARTUP_POLL_SECONDS: Final = 0.02
_REPLACE_SECONDS: Final = 1.0
_TERMINATE_SECONDS: Final = 1.0
_PRELOADED: Final = ("__main__", "sandur.server.serve")
if sys.platform == "linux":
    _context = multiprocessing.get_context("forkserver")
else:  # Libraries of other systems may not survive a fork.
    _context = multiprocessing.get_context("spawn")

Work = Callable[[Callable[[], None]], None]
"""What a worker does until it is stopped; it calls the given function once, when it is ready."""

log = structlog.get_logger()


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
    if settings.sealing_keys:
        from sandur.operations.credentials.sealed_secrets import sealing_keys  # noqa: PLC0415 - imports much

        sealing_keys(settings.sealing_keys)
    if settings.workers > 1 and settings.store == "memory:":
        raise BadRequest(f"workers {settings.workers}: a store in memory belongs to one process, use 1")
    has_grpc = settings.grpc.port >= 0
    if has_grpc and importlib.util.find_spec("grpc_reflection") is None:
        raise BadRequest("setting grpc.port needs the gRPC packages: pip install 'sandur[grpc]'")
    configure_logging(settings.log_format, settings.log_level)
    if settings.workers > 1:
        _import_beside()
    check_store(settings, creates=True)
    for warning in setting_warnings(settings):
        log.warning(warning)
    if settings.workers > 1:
        return _serve_with_workers(settings, announce)
    bound = _bind(settings, settings.port, is_shared=False)
    from sandur.server.serve import serve_here  # noqa: PLC0415 - imports the whole server

    return serve_here(settings, bound, settings.grpc.port, None, announce)


def _serve_with_workers(settings: Settings, announce: Callable[[Ports], None]) -> int:
    has_grpc = settings.grpc.port >= 0
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


def _import_beside() -> None:
    """Start the process that workers are forked from: it imports the server while this one checks the store."""
    if sys.platform != "linux":
        return
    # A service manager may signal all processes at once. This one ends after the supervisor, whose workers it reports.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        multiprocessing.forkserver.set_forkserver_preload(list(_PRELOADED))
        multiprocessing.forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGTERM, before)


def _bind(settings: Settings, port: int, *, is_shared: bool) -> list[socket.socket]:
    """The socket of the REST APIs, then that of the metrics if they have a port of their own."""
    bound = [bind_socket(settings.host, port, is_shared=is_shared)]
    if settings.metrics_port:
        bound.append(bind_socket(settings.metrics_host, settings.metrics_port, is_shared=is_shared))
    return bound


def _work(settings: Settings, ports: Ports, metrics_folder: Path, report_ready: Callable[[], None]) -> None:
    # What was imported before the fork is shared with the other workers as long as nothing writes to it.
    gc.freeze()
    from sandur.server.serve import serve_here  # noqa: PLC0415 - imported before the fork

    configure_logging(settings.log_format, settings.log_level)
    bound = _bind(settings, ports.http, is_shared=True)
    grpc_port = -1 if ports.grpc is None else ports.grpc
    raise SystemExit(serve_here(settings, bound, grpc_port, metrics_folder, lambda _ports: report_ready()))


class _Worker:
    """One process; it reports once that it is ready."""

    def __init__(self, work: Work) -> None:
        self._ready, theirs = _context.Pipe(duplex=False)
        self._is_ready = False
        self.failure: str | None = None
        self.process: BaseProcess = _context.Process(target=_run, args=(work, theirs))
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
        """Replace workers that die; False when none is left that was ready."""
        while not self._stopping.is_set():
            for place, worker in enumerate(self._workers):
                if worker.is_dead:
                    if not worker.is_ready and not any(one.is_ready and not one.is_dead for one in self._workers):
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
        while running := [worker for worker in self._workers if not worker.is_dead]:
            for worker in running:
                # Again and again: right after its fork, a worker does not receive this signal yet.
                worker.process.terminate()
            self._pause(_TERMINATE_SECONDS)

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
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # The process from which this one was forked ignores it.
    try:
        work(lambda: ready.send(None))
    except SandurError as error:
        ready.send(str(error))
        raise SystemExit(1) from None
