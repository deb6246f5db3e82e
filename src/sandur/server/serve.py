"""Runs the server in this process, or in several that share the address and the store."""

import asyncio
import functools
import importlib.util
import multiprocessing
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

import uvicorn

from sandur.errors import BadRequest, SandurError
from sandur.server.addresses import BACKLOG, bind_socket, check_exposure, port_of
from sandur.server.logs import configure_logging
from sandur.server.process import build_app
from sandur.server.protocol import PlainHttpProtocol
from sandur.server.workers import Workers
from sandur.settings import Settings, seconds_of

KEEP_ALIVE_SECONDS: Final = 75


def serve(settings: Settings, announce: Callable[[int], None]) -> int:
    """Serve until a signal arrives, and return the exit code. `announce` gets the port when the server is ready."""
    check_exposure(settings)
    if settings.workers == 1:
        bound = bind_socket(settings.host, settings.port, is_shared=False)
        return _serve_here(settings, bound, None, lambda: announce(port_of(bound)))
    if settings.store == "memory:":
        raise BadRequest(f"workers {settings.workers}: a store in memory belongs to one process, use 1")
    # Not shared at first: a shared address could be that of another server, and nothing would fail.
    with bind_socket(settings.host, settings.port, is_shared=False) as alone:
        port = port_of(alone)
    # This socket never listens. It reserves the port for the workers, also while one is replaced.
    with (
        bind_socket(settings.host, port, is_shared=True),
        tempfile.TemporaryDirectory(prefix="sandur-metrics-", ignore_cleanup_errors=True) as folder,
    ):
        work = functools.partial(_work, settings, port, Path(folder))
        return Workers(work, count=settings.workers, announce=lambda: announce(port)).run()


def _work(settings: Settings, port: int, metrics_folder: Path, report_ready: Callable[[], None]) -> None:
    try:
        bound = bind_socket(settings.host, port, is_shared=True)
        code = _serve_here(settings, bound, metrics_folder, report_ready)
    except SandurError as error:
        sys.stderr.write(f"sandur: {error}\n")
        code = 1
    raise SystemExit(code)


def _serve_here(
    settings: Settings, bound: socket.socket, metrics_folder: Path | None, report_ready: Callable[[], None]
) -> int:
    configure_logging(settings.log_format, settings.log_level)
    config = uvicorn.Config(
        functools.partial(build_app, settings, metrics_folder),
        factory=True,
        loop="uvloop" if importlib.util.find_spec("uvloop") else "asyncio",
        http=PlainHttpProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=seconds_of(settings.shutdown_timeout),
    )
    server = _Server(config, report_ready)
    for number in (signal.SIGTERM, signal.SIGINT):
        # This handler catches signals that arrive before uvicorn installs its own. uvicorn raises them again after its
        # shutdown; the process must not die of them then.
        signal.signal(number, server.stop)
    try:
        server.run(sockets=[bound])
    except SystemExit:
        return 1
    return 0


class _Server(uvicorn.Server):
    """Reports when it is ready, and stops when the process that started it ends, even if that was killed."""

    def __init__(self, config: uvicorn.Config, report_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._report_ready = report_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if parent := multiprocessing.parent_process():
            asyncio.get_running_loop().add_reader(parent.sentinel, self.stop)
        self._report_ready()

    def stop(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """Finish the requests in progress, and stop."""
        self.should_exit = True
