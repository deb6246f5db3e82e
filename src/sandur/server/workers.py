"""Several processes for one server: started together, replaced when one dies, ended together."""

import contextlib
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Final

import structlog

SHARED_FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
"""Where the numbers of all workers add up; Prometheus's library reads it when it is imported."""

_LOOK_SECONDS: Final = 0.2
_FIRST_LOOK_SECONDS: Final = 0.05
_REPLACE_SECONDS: Final = 1.0

Work = Callable[[Callable[[], None]], None]

log = structlog.get_logger()


class _Worker:
    """A process that works until it is ended; it says once that it is ready."""

    def __init__(self, work: Work) -> None:
        context = multiprocessing.get_context("spawn")
        self._ready, theirs = context.Pipe(duplex=False)
        self.is_ready = False
        self.process: SpawnProcess = context.Process(target=_run, args=(work, theirs))
        self.process.start()
        theirs.close()

    def look(self) -> None:
        if not self.is_ready and self._ready.poll():
            with contextlib.suppress(EOFError):
                self._ready.recv()
                self.is_ready = True


class Workers:
    """Keeps `count` processes at work. `announce` is called once, when all of them are ready."""

    def __init__(self, work: Work, *, count: int, announce: Callable[[], None]) -> None:
        self._work = work
        self._count = count
        self._announce = announce
        self._ending = threading.Event()
        self._workers: list[_Worker] = []

    def run(self) -> int:
        """Work until a signal; the exit code is 1 when a worker could not even start."""
        with _shared_folder() as folder, self._signals():
            self._workers = [_Worker(self._work) for _ in range(self._count)]
            code = self._watch(folder)
            self._end()
        return code

    def _watch(self, folder: str) -> int:
        is_announced = False
        while not self._ending.is_set():
            for worker in self._workers:
                worker.look()
            if not is_announced and all(worker.is_ready for worker in self._workers):
                self._announce()
                is_announced = True
            dead = [worker for worker in self._workers if worker.process.exitcode is not None]
            if any(not worker.is_ready for worker in dead):
                return 0 if self._ending.is_set() else 1
            for worker in dead:
                self._replace(worker, folder)
            wait(
                [worker.process.sentinel for worker in self._workers],
                _LOOK_SECONDS if is_announced else _FIRST_LOOK_SECONDS,
            )
        return 0

    def _replace(self, dead: _Worker, folder: str) -> None:
        if self._ending.is_set():
            return
        log.error("worker ended, a new one takes its place", pid=dead.process.pid, code=dead.process.exitcode)
        _forget_numbers(folder, dead.process.pid)
        wait([], _REPLACE_SECONDS)  # A worker that dies at once must not keep the machine busy.
        self._workers[self._workers.index(dead)] = _Worker(self._work)

    def _end(self) -> None:
        """Ask every worker to finish what it began, and wait for it; each bounds its own time."""
        for worker in self._workers:
            if worker.process.exitcode is None:
                worker.process.terminate()
        for worker in self._workers:
            worker.process.join()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        before = {ending: signal.signal(ending, self._on_signal) for ending in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for ending, handler in before.items():
                signal.signal(ending, handler)

    def _on_signal(self, _signal: int, _frame: FrameType | None) -> None:
        self._ending.set()


def _run(work: Work, ready: Connection) -> None:
    work(lambda: ready.send("ready"))


@contextlib.contextmanager
def _shared_folder() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="sandur-metrics-")
    os.environ[SHARED_FOLDER_VARIABLE] = folder
    try:
        yield folder
    finally:
        del os.environ[SHARED_FOLDER_VARIABLE]
        shutil.rmtree(folder, ignore_errors=True)


def _forget_numbers(folder: str, pid: int | None) -> None:
    """What a dead worker has under way is nothing; what it counted stays counted."""
    from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415 - reads the variable above

    mark_process_dead(pid, folder)  # type: ignore[no-untyped-call] # The library has no types here.
