"""Runs the server in this process, or in several that share the address and the store."""

import asyncio
import functools
import importlib.util
import multiprocessing
import signal
import socket
import sys
from collections.abc import Callable
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

Announce = Callable[[int], None]


def serve(settings: Settings, announce: Announce) -> int:
    """Serve until a signal ends it, and return the exit code. `announce` is told the port once requests are served."""
    check_exposure(settings)
    if settings.workers > 1:
        if settings.store == "memory:":
            raise BadRequest(f"workers {settings.workers}: a store in memory belongs to one process, use 1")
        return _serve_with_workers(settings, announce)
    bound = bind_socket(settings.host, settings.port, is_shared=False)
    return _serve_here(settings, bound, lambda: announce(port_of(bound)))


def _serve_with_workers(settings: Settings, announce: Announce) -> int:
    # First alone: a shared address could be joined to that of another server without anybody noticing.
    with bind_socket(settings.host, settings.port, is_shared=False) as alone:
        port = port_of(alone)
    # Bound, never listened on: it keeps the port for the workers, also while one is replaced.
    with bind_socket(settings.host, port, is_shared=True):
        work = functools.partial(_work, settings, port)
        return Workers(work, count=settings.workers, announce=lambda: announce(port)).run()


def _work(settings: Settings, port: int, tell_ready: Callable[[], None]) -> None:
    try:
        bound = bind_socket(settings.host, port, is_shared=True)
        code = _serve_here(settings, bound, tell_ready)
    except SandurError as error:
        sys.stderr.write(f"sandur: {error}\n")
        code = 1
    raise SystemExit(code)


def _serve_here(settings: Settings, bound: socket.socket, tell_ready: Callable[[], None]) -> int:
    configure_logging(settings.log_format, settings.log_level)
    server = _Server(_uvicorn_config(settings), tell_ready)
    for ending in (signal.SIGTERM, signal.SIGINT):
        # Before uvicorn listens to signals, one that comes is remembered. It raises them again when it is done; having
        # ended well is no reason to die of them.
        signal.signal(ending, server.end)
    try:
        server.run(sockets=[bound])
    except SystemExit:
        return 1
    return 0


def _uvicorn_config(settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        functools.partial(build_app, settings),
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


class _Server(uvicorn.Server):
    """Tells when it is ready, and ends with the process that started it, however that ends."""

    def __init__(self, config: uvicorn.Config, tell_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell_ready = tell_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._watch_parent()
        self._tell_ready()

    def _watch_parent(self) -> None:
        parent = multiprocessing.parent_process()
        if parent is None:
            return
        asyncio.get_running_loop().add_reader(parent.sentinel, self.end)

    def end(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """Finish what was begun, and stop."""
        self.should_exit = True
