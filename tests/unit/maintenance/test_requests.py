"""A request takes the place of the schedule of a policy, and keeps what protects tables and budgets."""

from typing import Any

import pytest

from sandur.catalog.maintenance.health import Operation, TableHealth
from sandur.catalog.maintenance.plan import Past, Plan, TableState, plan_of
from sandur.catalog.maintenance.policies import ScopePolicy, merged_policy
from sandur.catalog.maintenance.records import OperationRecord, State
from sandur.catalog.maintenance.requests import MaintenanceRequest, begun_request, ended_request

_DAY_MS = 86_400_000
_NOW_MS = 20_000 * _DAY_MS + 12 * 3_600_000
_DONE: dict[Operation, Past] = {"orphans": Past(done_ms=_NOW_MS), "statistics": Past(done_ms=_NOW_MS)}
REQUEST = MaintenanceRequest(
    uuid="0001", catalog="main", namespace="sales", name="t1", format="iceberg", requested_ms=_NOW_MS
)


def _health(number: int = 1, **fields: Any) -> TableHealth:
    usual: dict[str, Any] = {
        "last_commit_ms": _NOW_MS - _DAY_MS,
        "data_files": 100,
        "small_files": 100,
        "small_bytes": 100 << 20,
        "excess_files": 99,
    }
    return TableHealth(
        uuid=f"{number:04}",
        catalog="main",
        namespace="sales",
        name=f"t{number}",
        format="iceberg",
        **{**usual, **fields},
    )


def _requested(health: TableHealth, *, locked: tuple[str, ...] = (), **values: Any) -> TableState:
    return TableState(health, merged_policy([ScopePolicy("workspace", values, locked)]), _DONE, is_requested=True)


def _plan(*states: TableState) -> Plan:
    return plan_of(states, now_ms=_NOW_MS, is_dry=False)


@pytest.mark.parametrize("values", [{"mode": "report"}, {"mode": "run", "window": "22:00-06:00"}])
def test_a_requested_table_waits_neither_for_its_mode_nor_for_its_window(values: dict[str, Any]) -> None:
    field = "window" if "window" in values else "mode"
    requested, locked = _plan(_requested(_health(), **values)), _plan(_requested(_health(), locked=(field,), **values))

    assert [one.operation for one in requested.work] == ["compaction"]
    assert locked.work == []
    assert len(locked.skipped) == 1


def test_a_requested_table_does_not_wait_after_a_conflict() -> None:
    past: dict[Operation, Past] = {**_DONE, "compaction": Past(conflicts=3, conflict_ms=_NOW_MS)}
    state = _requested(_health(), mode="run")

    assert _plan(state._replace(past=past)).work
    assert not _plan(state._replace(past=past, is_requested=False)).work


@pytest.mark.parametrize("fields", [{"blocked": "is encrypted"}, {"last_commit_ms": _NOW_MS}, {"last_commit_ms": None}])
def test_what_protects_a_table_holds_for_a_request(fields: dict[str, Any]) -> None:
    plan = _plan(_requested(_health(**fields), mode="run"))

    assert plan.work == []
    after = ended_request(begun_request(REQUEST, plan, "7", now_ms=1), plan, (), now_ms=9)
    assert (after.state, after.run, after.reason) == ("requested", "", plan.skipped[0].reason)


def test_a_request_goes_before_everything_else_and_within_the_budget() -> None:
    others = [
        _requested(_health(number, excess_files=99 * number), mode="run")._replace(is_requested=False)
        for number in range(2, 6)
    ]
    long = others[0]._replace(past={**_DONE, "compaction": Past(due_since_ms=0)})
    first = _requested(_health(), mode="run", budget={"tables_per_run": 1})

    assert _plan(long, *others[1:], first).work[0].health.name == "t1"
    spent = {("budget.bytes_per_day", "workspace"): 1 << 60}
    refused = plan_of(
        [_requested(_health(), mode="run", budget={"bytes_per_day": 1 << 20})],
        now_ms=_NOW_MS,
        is_dry=False,
        spent=spent,
    )
    assert refused.work == []
    assert "budget.bytes_per_day" in ended_request(REQUEST, refused, (), now_ms=9).reason


def _ended(state: State, reason: str = "") -> OperationRecord:
    return OperationRecord(
        run="7",
        number=0,
        uuid="0001",
        catalog="main",
        namespace="sales",
        name="t1",
        format="iceberg",
        operation="compaction",
        state=state,
        reason=reason,
    )


@pytest.mark.parametrize(
    ("ended", "state", "reason"),
    [
        (("done",), "done", "compaction: done (x)"),
        (("done", "skipped"), "done", "compaction: done (x); compaction: skipped (x)"),
        (("done", "conflict"), "conflict", "compaction: done (x); compaction: conflict (x)"),
        (("failed", "conflict"), "failed", "compaction: failed (x); compaction: conflict (x)"),
        (("done", "cancelled"), "requested", "the run ended before its work was done"),
        (("done", "running"), "requested", "the run ended before its work was done"),
        ((), "requested", "the run ended before its work was done"),
    ],
)
def test_the_outcome_of_a_request_is_the_worst_of_its_operations(
    ended: tuple[State, ...], state: str, reason: str
) -> None:
    plan = _plan(_requested(_health(), mode="run"))
    begun = begun_request(REQUEST, plan, "7", now_ms=5)

    after = ended_request(begun, plan, [_ended(one, "x") for one in ended], now_ms=9)

    assert (begun.state, begun.run, begun.started_ms) == ("running", "7", 5)
    assert (after.state, after.reason) == (state, reason)
    assert after.is_open == (state == "requested")
    assert bool(after.ended_ms) != after.is_open


def test_a_request_for_a_table_that_needs_nothing_is_done() -> None:
    plan = _plan(_requested(_health(small_files=2, excess_files=1)))

    after = ended_request(begun_request(REQUEST, plan, "7", now_ms=5), plan, (), now_ms=9)

    assert (after.state, after.reason, after.ended_ms) == ("done", "nothing was due", 9)
