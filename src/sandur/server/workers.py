"""Several processes for one server: started together, replaced when one dies, stopped together.

uvicorn's supervisor is not used: it shares one listening socket, on which one of two processes took up to 59 of 64
connections of a burst; it does not report when all workers are ready; and its workers outlive a killed supervisor.
"""

import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Final

import structlog

_POLL_SECONDS: Final = 0.2
_STARTUP_POLL_SECONDS: Final = 0.05
_REPLACE_SECONDS: Final = 1.0

Work = Callable[[Callable[[], None]], None]
"""What a worker does until it is stopped; it calls the given function once, when it is ready."""

log = structlog.get_logger()


class _Worker:
    """One process; it reports once that it is ready."""

    def __init__(self, work: Work) -> None:
        context = multiprocessing.get_context("spawn")
        self._ready, theirs = context.Pipe(duplex=False)
        self._is_ready = False
        self.process: SpawnProcess = context.Process(target=_run, args=(work, theirs))
        self.process.start()
        theirs.close()

    @property
    def is_ready(self) -> bool:
        if not self._is_ready and self._ready.poll():
            with contextlib.suppress(EOFError):
                self._ready.recv()
                self._is_ready = True
        return self._is_ready

    @property
    def is_dead(self) -> bool:
        return self.process.exitcode is not None


class Workers:
    """Keeps `count` processes running. `announce` is called once, when all of them are ready."""

    def __init__(self, work: Work, *, count: int, announce: Callable[[], None]) -> None:
        self._work = work
        self._count = count
        self._announce = announce
        self._stopping = threading.Event()
        self._workers: list[_Worker] = []

    def run(self) -> int:
        """Run until a signal arrives; the exit code is 1 when a worker dies before it is ready."""
        with self._stopping_on_signals():
            self._workers = [_Worker(self._work) for _ in range(self._count)]
            is_healthy = self._start() and self._watch()
            code = 0 if is_healthy or self._stopping.is_set() else 1
            self._stop()
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
    work(lambda: ready.send("ready"))
