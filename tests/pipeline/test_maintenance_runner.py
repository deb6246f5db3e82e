"""The runner works on many tables at once; what happens to one table does not stop the others."""

import _thread
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from sandur.catalog.maintenance.health import Operation, TableHealth
from sandur.catalog.maintenance.policies import merged_policy
from sandur.catalog.maintenance.records import OperationRecord, OperationResult
from sandur.clock import Clock
from sandur.errors import Conflict, NotFound, Unavailable
from sandur.operations.maintenance.runs import RunRecords, list_runs
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.maintenance.engine import Engine, SparkTable, run_times_ms
from sandur.pipeline.maintenance.evidence import Unsettled
from sandur.pipeline.maintenance.runner import Perform, Runner, TableWork
from sandur.settings import Settings
from sandur.spark.sessions import EXTENSIONS, ICEBERG_EXTENSIONS, Connection

_OPERATIONS: tuple[Operation, ...] = ("compaction", "manifests", "snapshots")


class FakeEngine:
    """Counts cancellations, and runs nothing."""

    def __init__(self) -> None:
        self.cancelled = 0

    @contextmanager
    def tagged(self, table_uuid: str) -> Iterator[str]:
        yield table_uuid

    def cancel(self) -> None:
        self.cancelled += 1

    def task_seconds(self, tag: str) -> float:
        return float(len(tag))


def _table(name: str, first: int) -> TableWork:
    health = TableHealth(uuid=name, catalog="main", namespace="sales", name=name, format="iceberg")
    records = [
        OperationRecord(
            run="run",
            number=first + place,
            uuid=name,
            catalog="main",
            namespace="sales",
            name=name,
            format="iceberg",
            operation=operation,
        )
        for place, operation in enumerate(_OPERATIONS)
    ]
    return TableWork(health, merged_policy([]), records)


class Performed:
    """Answers by table and operation; everything else is done."""

    def __init__(self, **outcomes: OperationResult | Exception) -> None:
        self._outcomes = outcomes
        self.calls: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def __call__(self, blocking: BlockingLake, work: TableWork, operation: Operation) -> OperationResult:
        with self._lock:
            self.calls.append((work.health.name, operation))
            assert blocking.lake.store is not None
        outcome = self._outcomes.get(f"{work.health.name}_{operation}", OperationResult())
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class Case:
    def __init__(
        self, folder: Path, performed: Perform, engine: FakeEngine | None = None, clock: Clock | None = None
    ) -> None:
        self.settings = Settings(store=str(folder), fsync="never")
        self.engine = engine or FakeEngine()
        self.fenced = False
        self.progress: list[tuple[int, int, str]] = []
        self.runner = Runner(
            self.engine,  # type: ignore[arg-type]  # The runner uses only what the fake has.
            "run",
            performed,
            open_lake=lambda: BlockingLake(self.settings, clock=clock),
            check_fence=self._check,
            on_progress=lambda *progress: self.progress.append(progress),
        )

    def _check(self) -> None:
        if self.fenced:
            raise Conflict("another run took over")


def _states(records: object) -> dict[tuple[str, str], str]:
    return {(one.name, one.operation): one.state for one in records}  # type: ignore[attr-defined]


def test_a_table_with_a_conflict_or_an_odd_error_ends_there_and_the_others_go_on(tmp_path: Path) -> None:
    performed = Performed(
        a_compaction=OperationResult(state="conflict", reason="a writer was faster"),
        b_manifests=Unavailable("the store is down"),
        c_compaction=NotFound("it was dropped", subject="table"),
        e_compaction=ValueError("Exceeds the limit for integer string conversion"),
    )
    case = Case(tmp_path, performed)

    ended = case.runner.run([_table(name, 3 * place) for place, name in enumerate("aebcd")], threads=2)

    assert _states(ended) == {
        ("a", "compaction"): "conflict",
        ("e", "compaction"): "failed",
        ("b", "compaction"): "done",
        ("b", "manifests"): "failed",
        ("c", "compaction"): "skipped",
        ("c", "manifests"): "done",
        ("c", "snapshots"): "done",
        ("d", "compaction"): "done",
        ("d", "manifests"): "done",
        ("d", "snapshots"): "done",
    }
    with BlockingLake(case.settings) as blocking:
        (run,) = blocking.wait(list_runs(blocking.lake))
        assert run.unsettled == []
        stored = blocking.wait(RunRecords(blocking.lake, "run").ended(run.ended))
    assert _states(stored) == _states(ended)
    assert case.engine.cancelled == 0


def test_an_operation_that_only_the_next_run_can_settle_has_no_end_and_ends_its_table(tmp_path: Path) -> None:
    performed = Performed(a_compaction=Unsettled("its rows were not compared"))
    case = Case(tmp_path, performed)

    ended = case.runner.run([_table("a", 0), _table("b", 3)], threads=1)

    assert {one.name for one in ended} == {"b"}
    (open_,) = case.runner.unsettled
    assert (open_.number, open_.state, open_.reason) == (0, "running", "its rows were not compared")
    with BlockingLake(case.settings) as blocking:
        (run,) = blocking.wait(list_runs(blocking.lake))
    assert run.unsettled == [0]


def test_progress_says_how_much_is_done_and_what_is_next(tmp_path: Path) -> None:
    case = Case(tmp_path, Performed())

    case.runner.run([_table("a", 0), _table("b", 3)], threads=1)

    assert case.progress == [
        (done, 6, f"{operation} sales.{name}")
        for done, (name, operation) in enumerate((name, one) for name in "ab" for one in _OPERATIONS)
    ]


def test_a_run_that_lost_its_lease_stops_before_the_next_operation(tmp_path: Path) -> None:
    performed = Performed()
    case = Case(tmp_path, performed)
    case.fenced = True

    with pytest.raises(Conflict, match="took over"):
        case.runner.run([_table("a", 0), _table("b", 3)])

    assert performed.calls == []
    assert case.engine.cancelled == 1


def test_a_run_that_lost_its_lease_cancels_the_work_of_other_threads_at_once(tmp_path: Path) -> None:
    case: Case
    has_begun, is_cancelled = threading.Event(), threading.Event()

    class Long(Performed):
        def __call__(self, blocking: BlockingLake, work: TableWork, operation: Operation) -> OperationResult:
            super().__call__(blocking, work, operation)
            if work.health.name == "a":
                has_begun.set()
                return OperationResult(state="cancelled" if is_cancelled.wait(20) else "done")
            assert has_begun.wait(20)
            case.fenced = True
            return OperationResult()

    class NotingEngine(FakeEngine):
        def cancel(self) -> None:
            is_cancelled.set()

    case = Case(tmp_path, Long(), engine=NotingEngine())

    with pytest.raises(Conflict, match="took over"):
        case.runner.run([_table("a", 0), _table("b", 3)], threads=2)

    assert _states(case.runner.ended) == {("a", "compaction"): "cancelled", ("b", "compaction"): "done"}


def test_a_cancelled_run_begins_nothing_more_and_leaves_no_open_record(tmp_path: Path) -> None:
    case: Case

    class Cancelling(Performed):
        def __call__(self, blocking: BlockingLake, work: TableWork, operation: Operation) -> OperationResult:
            case.runner.cancel()
            return super().__call__(blocking, work, operation)

    performed = Cancelling()
    case = Case(tmp_path, performed)

    ended = case.runner.run([_table("a", 0), _table("b", 3)], threads=1)

    assert performed.calls == [("a", "compaction")]
    assert _states(ended) == {("a", "compaction"): "done"}
    with BlockingLake(case.settings) as blocking:
        (run,) = blocking.wait(list_runs(blocking.lake))
    assert run.unsettled == []


def test_ctrl_c_cancels_the_jobs_of_the_run_and_every_operation_that_began_has_an_end(tmp_path: Path) -> None:
    case: Case
    is_cancelled = threading.Event()

    class Interrupted(Performed):
        def __call__(self, blocking: BlockingLake, work: TableWork, operation: Operation) -> OperationResult:
            super().__call__(blocking, work, operation)
            _thread.interrupt_main()  # As a signal does it, in the thread that waits.
            assert is_cancelled.wait(60)
            return OperationResult(state="cancelled")

    class NotingEngine(FakeEngine):
        def cancel(self) -> None:
            super().cancel()
            is_cancelled.set()

    performed = Interrupted()
    case = Case(tmp_path, performed, engine=NotingEngine())

    with pytest.raises(KeyboardInterrupt):
        case.runner.run([_table("a", 0), _table("b", 3)], threads=1)

    assert performed.calls == [("a", "compaction")]
    assert case.engine.cancelled == 1
    assert _states(case.runner.ended) == {("a", "compaction"): "cancelled"}


def test_what_spark_has_forgotten_takes_no_time(tmp_path: Path) -> None:
    """Spark keeps a bounded number of jobs and stages; many tables at once have more."""

    class ForgettingEngine(FakeEngine):
        def task_seconds(self, tag: str) -> float:
            return 0.5 if case.runner.ended else super().task_seconds(tag)

    case = Case(tmp_path, Performed(), engine=ForgettingEngine())

    ended = case.runner.run([_table("a", 0)])

    assert [one.task_seconds for one in ended] == [1.0, 0.0, 0.0]


class Forgotten:
    """What py4j has of an exception of Java."""

    _target_id = "o1"


class Stages(list[int]):
    length = list.__len__
    apply = list.__getitem__


class KeptJobs:
    """The status of a Spark application that keeps one job, and of its stages one."""

    def job(self, job: int) -> SimpleNamespace:
        if job:
            raise Py4JJavaError("gone", Forgotten())
        return SimpleNamespace(stageIds=lambda: Stages([0, 7]))

    def lastStageAttempt(self, stage: int) -> SimpleNamespace:  # noqa: N802 - of Java
        if stage:
            raise Py4JJavaError("gone", Forgotten())
        return SimpleNamespace(executorRunTime=lambda: 5)


def test_jobs_and_stages_that_spark_keeps_no_more_are_left_out() -> None:
    assert [list(run_times_ms(KeptJobs(), job)) for job in (0, 1)] == [[5], []]


class FakeSession:
    """Keeps options, and calls a function before it sets one."""

    def __init__(self, before_set: Callable[[str], None]) -> None:
        self.conf = self
        self.options: dict[str, str] = {EXTENSIONS: ICEBERG_EXTENSIONS}
        self._before_set = before_set

    def get(self, name: str, default: str) -> str:
        return self.options.get(name, default)

    def set(self, name: str, value: str) -> None:
        self._before_set(name)
        self.options[name] = value


class FakeSpark(FakeSession):
    """As much of Spark as an engine needs to add catalogs."""

    _sc = object()
    sparkContext = SimpleNamespace(applicationId="application")  # noqa: N815 - of Spark

    def newSession(self) -> FakeSession:  # noqa: N802 - of Spark
        return FakeSession(self._before_set)


def test_a_thread_that_adds_a_catalog_is_not_disturbed_by_one_that_adds_another() -> None:
    found: dict[str, SparkTable] = {}

    def find(catalog: str) -> None:
        found[catalog] = engine.table(
            TableHealth(uuid="u", catalog=catalog, namespace="sales", name="t", format="iceberg")
        )

    other = threading.Thread(target=find, args=("west",))

    def interrupt(option: str) -> None:
        if found and other.ident is None and option.startswith("spark.sql.catalog."):
            other.start()
            other.join(1)  # It ends within this time only if nothing stops it, and then it must change nothing here.

    engine = Engine(FakeSpark(interrupt), Connection(uri="http://127.0.0.1:1"), "run")  # type: ignore[arg-type]  # A fake.
    find("north")  # The other two share its session.
    find("east")
    other.join()

    assert found.keys() == {"north", "east", "west"}
    for catalog, table in found.items():
        session: Any = table.session
        assert session.options[f"spark.sql.catalog.{table.catalog}.warehouse"] == catalog


class TaggedJob:
    """A job of Spark that works on a table until it is released, in a thread of its own as in a run."""

    def __init__(self, spark: SparkSession, run: str, folder: Path) -> None:
        self._context: Any = spark.sparkContext
        self._run = run
        self._gate = folder / run
        os.mkfifo(self._gate)
        self.engine = Engine(spark, Connection(uri="http://127.0.0.1:1"), run)
        self.pools: list[str | None] = []
        self.error: BaseException | None = None
        self._thread = InheritableThread(target=self._work)

    def _work(self) -> None:
        gate = self._gate

        def wait(_: int) -> None:
            gate.read_bytes()

        with self.engine.tagged(f"table-of-{self._run}"):
            self.pools.append(self._context.getLocalProperty("spark.scheduler.pool"))
            try:
                self._context.parallelize([0], 1).foreach(wait)
            except Py4JJavaError as error:
                self.error = error
        self.pools.append(self._context.getLocalProperty("spark.scheduler.pool"))

    @contextmanager
    def running(self) -> Iterator[None]:
        """The job runs in the block, unless it is cancelled there."""
        self._thread.start()
        with self._gate.open("wb"):  # Returns as soon as the job reads from it.
            yield
        self.join()

    def join(self) -> None:
        self._thread.join()


@pytest.mark.timeout(300)
def test_a_cancelled_run_stops_its_own_jobs_in_spark_and_no_others(spark: SparkSession, tmp_path: Path) -> None:
    cancelled, other = (TaggedJob(spark, run, tmp_path) for run in ("run-1", "run-2"))

    with other.running(), cancelled.running():
        cancelled.engine.cancel()
        cancelled.join()

    assert "cancelled" in str(cancelled.error)
    assert other.error is None
    assert [one.pools for one in (cancelled, other)] == [["table-of-run-1", None], ["table-of-run-2", None]]
    assert spark.sparkContext.getConf().get("spark.scheduler.mode") == "FAIR"
