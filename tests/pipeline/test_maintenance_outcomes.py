"""What becomes of operations that are interrupted, come too late, or meet an odd table. Nothing here needs Spark."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from sandur.catalog.maintenance.health import Operation, TableHealth
from sandur.catalog.maintenance.policies import Policy, merged_policy
from sandur.catalog.maintenance.records import OperationRecord, OperationResult, RunPlan
from sandur.operations.maintenance.runs import RunRecords, list_runs
from sandur.operations.tables.commit import commit_table
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.maintenance.engine import SparkTable
from sandur.pipeline.maintenance.evidence import load_metadata
from sandur.pipeline.maintenance.iceberg import IcebergTable
from sandur.pipeline.maintenance.runner import TableWork
from sandur.pipeline.maintenance.settle import settle_runs
from sandur.settings import Settings
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
def blocking(tmp_path: Path) -> Iterator[BlockingLake]:
    with BlockingLake(Settings(store=str(tmp_path), fsync="never")) as found:
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

    case = Case(tmp_path, perform, engine)
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
