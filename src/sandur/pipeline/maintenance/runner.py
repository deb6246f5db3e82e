"""Carries out a plan: several tables at once, the operations of one table in order, a record before and after each."""

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace
from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread

from sandur.catalog.maintenance.health import Operation, TableHealth
from sandur.catalog.maintenance.policies import MergedPolicy
from sandur.catalog.maintenance.records import OperationRecord, OperationResult, State, ended_record
from sandur.errors import Conflict, NotFound
from sandur.operations.maintenance.runs import RunRecords
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.maintenance.engine import SPARK_ERRORS, Engine, is_conflict
from sandur.pipeline.maintenance.evidence import Unsettled

THREADS: Final = 8
"""The most tables that one run works on at once."""

_POLL_SECONDS: Final = 0.2
_TEXT_MAX: Final = 500


class TableWork(NamedTuple):
    """Everything that a run does to one table. `obeys_window`: no request of a person takes the window's place."""

    health: TableHealth
    merged: MergedPolicy
    records: Sequence[OperationRecord]
    conflicts: Mapping[Operation, int] = {}
    obeys_window: bool = True


class Perform(Protocol):
    """Carries out one operation on one table; errors of Spark and of the catalog may be raised."""

    def __call__(self, blocking: BlockingLake, work: TableWork, operation: Operation) -> OperationResult: ...


class Runner:
    """One run. `perform` does the work, `open_lake` opens a lake for one thread, `check_fence` stops a stale run."""

    def __init__(
        self,
        engine: Engine,
        run: str,
        perform: Perform,
        *,
        open_lake: Callable[[], BlockingLake],
        check_fence: Callable[[], None],
        on_progress: Callable[[int, int, str], None],
    ) -> None:
        self._engine = engine
        self._run = run
        self._perform = perform
        self._open_lake = open_lake
        self._check_fence = check_fence
        self._on_progress = on_progress
        self._tables: queue.SimpleQueue[TableWork] = queue.SimpleQueue()
        self._ended: list[OperationRecord] = []
        self._lock = threading.Lock()
        self._is_cancelled = threading.Event()
        self._is_over = threading.Event()
        self._working = 0
        self._open: dict[int, OperationRecord] = {}
        self._error: BaseException | None = None
        self._total = 0

    def run(self, tables: Sequence[TableWork], *, threads: int = THREADS) -> Sequence[OperationRecord]:
        """The records of all operations that began. Ctrl-C cancels the jobs of this run, and every operation ends.

        The record of an operation stays open if its rows were not compared: `unsettled` has these.

        Raises the first error that is not about a single table, after all threads ended.
        """
        for table in tables:
            self._tables.put(table)
        self._total = sum(len(table.records) for table in tables)
        self._working = min(threads, len(tables))
        workers = [InheritableThread(target=self._work, name=f"maintain-{number}") for number in range(self._working)]
        try:
            for worker in workers:
                worker.start()
            self._wait()
        except KeyboardInterrupt:
            self.cancel()
            self._leave(sum(worker.ident is None for worker in workers))  # Those that were not started yet.
            self._wait()
            raise
        if self._error:
            raise self._error
        return self._ended

    @property
    def ended(self) -> Sequence[OperationRecord]:
        return tuple(self._ended)

    @property
    def unsettled(self) -> Sequence[OperationRecord]:
        """The operations that began and have no end: the next run settles them."""
        return tuple(self._open.values())

    def cancel(self) -> None:
        """Begin nothing more, and cancel the jobs that run. What was not committed leaves nothing behind."""
        self._is_cancelled.set()
        self._engine.cancel()

    def _wait(self) -> None:
        """Wait in short steps, so that Ctrl-C is noticed; a thread whose `join` is interrupted counts as ended."""
        while not self._is_over.wait(_POLL_SECONDS):
            pass

    def _work(self) -> None:
        try:
            with self._open_lake() as blocking:
                while not self._is_cancelled.is_set() and not self._tables.empty():
                    self._maintain(blocking, self._tables.get_nowait())
        except queue.Empty:
            pass  # Another thread took the last table.
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            with self._lock:
                is_first, self._error = self._error is None, self._error or error
            if is_first:
                self.cancel()  # Now: the work of other threads may take hours, and another run may have taken over.
        finally:
            self._leave(1)

    def _leave(self, workers: int) -> None:
        with self._lock:
            self._working -= workers
            if not self._working:
                self._is_over.set()

    def _maintain(self, blocking: BlockingLake, table: TableWork) -> None:
        records = RunRecords(blocking.lake, self._run)
        with self._engine.tagged(table.health.uuid) as tag:
            spent = 0.0
            for planned in table.records:
                if self._is_cancelled.is_set():
                    return
                self._check_fence()
                self._on_progress(
                    len(self._ended), self._total, f"{planned.operation} {planned.namespace}.{planned.name}"
                )
                begun = replace(planned, state="running", started_ms=blocking.lake.clock.now_ms())
                with self._lock:
                    self._open[begun.number] = begun
                blocking.wait(records.begin(begun))
                result = self._result(blocking, table, begun.operation)
                if result.state == "running":
                    with self._lock:
                        self._open[begun.number] = replace(begun, reason=result.reason)
                    return  # Its record gets its end from the next run, which looks at the table.
                seconds = self._engine.task_seconds(tag)
                result = replace(result, task_seconds=round(max(0.0, seconds - spent), 3))
                spent = seconds
                ended = ended_record(begun, result, now_ms=blocking.lake.clock.now_ms())
                blocking.wait(records.end(ended))
                with self._lock:
                    del self._open[begun.number]
                    self._ended.append(ended)
                if result.state in {"conflict", "failed"}:
                    return  # The rest would meet the same writer, or the same problem.

    def _result(self, blocking: BlockingLake, table: TableWork, operation: Operation) -> OperationResult:
        """The result of an operation; its state stays `running` if the next run has to find out."""
        try:
            return self._perform(blocking, table, operation)
        except Exception as error:  # noqa: BLE001 - one odd table must not end the run for all others, and for good
            return self._outcome(error)

    def _outcome(self, error: Exception) -> OperationResult:
        state: State
        attempts = 1
        match error:
            case Unsettled():
                state, reason = "running", _short(error)
            case NotFound():
                state, reason, attempts = "skipped", f"the table is gone: {error}", 0
            case Conflict():
                state, reason = "conflict", str(error)
            case _ if not isinstance(error, SPARK_ERRORS):
                state, reason = "failed", f"{type(error).__name__}: {error}"
            case _ if self._is_cancelled.is_set():
                state, reason = "cancelled", "the run was cancelled"
            case _:
                state, reason = "conflict" if is_conflict(error) else "failed", _short(error)
        return OperationResult(state=state, reason=reason, attempts=attempts)


def _short(error: BaseException) -> str:
    """The first line of an error of Spark, which may have hundreds."""
    text = str(error.java_exception if isinstance(error, Py4JJavaError) else error).strip()
    return (text.splitlines() or [type(error).__name__])[0][:_TEXT_MAX]
