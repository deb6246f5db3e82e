"""What becomes of operations that are interrupted, come too late, or meet an odd table. Nothing here needs Spark."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.errors import PySparkException

from sandur.catalog.maintenance.health import Operation, TableHealth
from sandur.catalog.maintenance.plan import TableState, plan_of
from sandur.catalog.maintenance.policies import Policy, ScopePolicy, merged_policy
from sandur.catalog.maintenance.records import NO_END, OperationRecord, OperationResult, RunPlan
from sandur.operations.maintenance.planning import PlannedRun
from sandur.operations.maintenance.requests import list_requests, request_maintenance
from sandur.operations.maintenance.runs import RunRecords, last_end, list_runs
from sandur.operations.tables.commit import commit_table
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.job import JobContext
from sandur.pipeline.jobs import maintain
from sandur.pipeline.maintenance.engine import SparkTable
from sandur.pipeline.maintenance.evidence import load_metadata
from sandur.pipeline.maintenance.iceberg import IcebergTable
from sandur.pipeline.maintenance.runner import TableWork
from sandur.pipeline.maintenance.settle import settle_runs
from sandur.settings import Settings
from sandur.spark.sessions import Connection
from tests.fakes.fixed_clock import FixedClock
from tests.operations.janitor_runs import HOUR_MS
from tests.operations.requests import at_snapshot, commit, create, identifier_of, request, set_up_catalog, snapshot
from tests.pipeline.test_maintenance_runner import Case, FakeEngine

APPLICATION = "application"
ORDERS = identifier_of("orders")


class FakeSession:
    """Calls `on_procedure` for a procedure, and `on_count` when rows are counted."""

    def __init__(self, on_procedure: Callable[[], None], on_count: Callable[[], None]) -> None:
        self._on_procedure = on_procedure
        self._on_count = on_count

    def sql(self, text: str) -> SimpleNamespace:
        (self._on_procedure if text.startswith("CALL") else self._on_count)()
        return SimpleNamespace(collect=list)


class TableEngine(FakeEngine):
    """An engine whose tables all use one session."""

    application = APPLICATION

    def __init__(self, session: FakeSession) -> None:
        super().__init__()
        self._session: Any = session

    def table(self, health: TableHealth) -> SparkTable:
        return SparkTable(self._session, health.catalog, "`orders`", "orders")


@pytest.fixture
def clock() -> FixedClock:
    """It begins at midnight in UTC."""
    return FixedClock()


@pytest.fixture
def blocking(tmp_path: Path, clock: FixedClock) -> Iterator[BlockingLake]:
    with BlockingLake(Settings(store=str(tmp_path), fsync="never"), clock=clock) as found:
        found.wait(set_up_catalog(found.lake))
        yield found


def _table(blocking: BlockingLake) -> TableHealth:
    made = blocking.wait(create(blocking.lake, "orders"))
    return TableHealth(uuid=made.table_uuid, catalog="main", namespace="a", name="orders", format="iceberg")


def _commit(blocking: BlockingLake, number: int, operation: str, rows: int, delete_files: int = 0) -> None:
    totals = {"total-records": str(rows), "total-delete-files": str(delete_files)}
    summary = {"operation": operation, "app-id": APPLICATION, **totals}
    parent = number - 1 or None
    now_ms = blocking.lake.clock.now_ms()
    change = commit(
        {
            "action": "add-snapshot",
            "snapshot": {**snapshot(number, parent), "timestamp-ms": now_ms, "summary": summary},
        },
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number},
        require=(at_snapshot(parent),),
    )
    blocking.wait(commit_table(blocking.lake, ORDERS, change, request(f"commit {number}")))


def _record(number: int, health: TableHealth, operation: Operation = "compaction") -> OperationRecord:
    named = {name: getattr(health, name) for name in ("uuid", "catalog", "namespace", "name", "format")}
    return OperationRecord(run="run", number=number, operation=operation, **named)


@pytest.mark.parametrize("is_cancelled", [True, False])
@pytest.mark.parametrize(("delete_files", "state", "current"), [(0, "failed", 1), (1, "done", 2)])
def test_a_rewrite_that_could_not_count_its_rows_is_compared_by_the_next_run(
    blocking: BlockingLake, tmp_path: Path, *, is_cancelled: bool, delete_files: int, state: str, current: int
) -> None:
    """Totals say nothing about rows with delete files."""
    health = _table(blocking)
    _commit(blocking, 1, "append", 10)
    case: Case

    def fail() -> None:
        if is_cancelled:  # Ctrl-C also cancels the job that counts.
            case.runner.cancel()
        raise PySparkException("the job was cancelled")

    session = FakeSession(lambda: _commit(blocking, 2, "replace", 9, delete_files), fail)
    engine = TableEngine(session)

    def perform(blocking: BlockingLake, work: TableWork, operation: Operation) -> OperationResult:
        table = IcebergTable(engine, blocking, work.health, Policy(), "run")  # type: ignore[arg-type]  # A fake.
        return table.perform(operation, sharing=lambda *_: "")

    case = Case(tmp_path, perform, engine, blocking.lake.clock)
    records = RunRecords(blocking.lake, "run")
    planned = (_record(0, health), _record(1, health, "manifests"))
    blocking.wait(records.write_plan(RunPlan(run="run", started_ms=1, application=APPLICATION, operations=planned)))

    ended = case.runner.run([TableWork(health, merged_policy([]), planned)], threads=1)
    runs = blocking.wait(list_runs(blocking.lake))
    blocking.wait(settle_runs(blocking.lake, runs, settled_by="next"))

    assert ended == []
    assert [(one.number, one.state) for one in case.runner.unsettled] == [(0, "running")]
    assert [list(one.unsettled) for one in runs] == [[0]]
    (settled,) = blocking.wait(records.ended([0]))
    assert (settled.state, settled.settled_by) == (state, "next")
    assert (blocking.wait(load_metadata(blocking.lake, health))).current_snapshot_id == current


class RunCase:
    """One run over one table, from its plan to its end, with a fake of Spark."""

    def __init__(self, blocking: BlockingLake, session: FakeSession, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(maintain, "Engine", lambda *_: TableEngine(session))
        self._context = JobContext(spark=SimpleNamespace(), blocking=blocking, run_id="run", open_catalog=_no_catalog)  # type: ignore[arg-type]  # The fake needs no Spark.
        self._blocking = blocking

    def plan(self, state: TableState) -> PlannedRun:
        found = plan_of([state], now_ms=self._blocking.lake.clock.now_ms(), is_dry=False)
        return PlannedRun(found, {state.health.uuid: state}, NO_END, 1)

    def carry_out(self, planned: PlannedRun) -> Sequence[OperationRecord]:
        return maintain._carry_out(self._context, planned)


@contextmanager
def _no_catalog(run: str) -> Iterator[Connection]:
    yield Connection(uri=f"http://127.0.0.1:1/{run}")


def _do_nothing() -> None:
    """Spark is not asked."""


def test_a_run_with_an_operation_that_is_not_settled_has_no_end_and_its_request_waits(
    blocking: BlockingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise PySparkException("an executor was lost")

    health = replace(_table(blocking), last_commit_ms=0, small_files=9, small_bytes=9, excess_files=8)
    _commit(blocking, 1, "append", 10)
    asked = blocking.wait(request_maintenance(blocking.lake, ORDERS, request("asked")))
    case = RunCase(blocking, FakeSession(lambda: _commit(blocking, 2, "replace", 9), fail), monkeypatch)
    merged = merged_policy([ScopePolicy("catalog main", {"quiet": "PT0S", "orphans": {"enabled": False}})])
    planned = case.plan(TableState(health, merged, is_requested=True))

    records = case.carry_out(planned._replace(requests={asked.uuid: asked}))

    assert [(one.operation, one.state) for one in records] == [("compaction", "running")]
    (run,) = blocking.wait(list_runs(blocking.lake))
    assert (run.is_over, list(run.unsettled)) == (False, [0])
    (waits,) = blocking.wait(list_requests(blocking.lake))
    assert (waits.state, waits.reason) == ("requested", "the run ended before its work was done")
    assert blocking.wait(settle_runs(blocking.lake, [run], settled_by="next")) == 1
    (run,) = blocking.wait(list_runs(blocking.lake))
    end = blocking.wait(last_end(blocking.lake, [run]))
    assert (run.is_over, end.failing) == (True, 1)


@pytest.mark.parametrize(
    ("locked", "is_requested", "state"),
    [((), False, "cancelled"), ((), True, "done"), (("window",), True, "cancelled")],
)
def test_no_operation_begins_after_its_window_closed_unless_a_person_requested_it(
    blocking: BlockingLake,
    clock: FixedClock,
    monkeypatch: pytest.MonkeyPatch,
    locked: tuple[str, ...],
    *,
    is_requested: bool,
    state: str,
) -> None:
    health = replace(_table(blocking), last_commit_ms=0)
    values = {"mode": "run", "quiet": "PT0S", "window": "23:00-01:00", "statistics": {"enabled": True}}
    merged = merged_policy([ScopePolicy("catalog main", {**values, "orphans": {"enabled": False}}, locked=locked)])
    case = RunCase(blocking, FakeSession(_do_nothing, _do_nothing), monkeypatch)
    table = TableState(health, merged, is_requested=is_requested)
    planned = case.plan(table)
    clock.advance(2 * HOUR_MS)  # The run worked on other tables.

    (record,) = case.carry_out(planned)

    assert (record.operation, record.state) == ("statistics", state)
    assert record.reason == ("the window 23:00-01:00 UTC closed" if state == "cancelled" else "")
    if state == "cancelled":
        clock.advance(21 * HOUR_MS)
        end = blocking.wait(last_end(blocking.lake, blocking.wait(list_runs(blocking.lake))))
        (past,) = end.pasts
        assert (past.due_since_ms, end.failing) == (clock.now_ms() - 21 * HOUR_MS, 0)
        again = case.plan(table._replace(past={past.operation: past.past()}))
        assert [one.operation for one in again.plan.work] == ["statistics"]
