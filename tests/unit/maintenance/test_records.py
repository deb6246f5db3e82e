"""Records of maintenance: what a run tells the next one."""

import pytest
from msgspec.structs import replace

from sandur.catalog.maintenance.health import TableHealth
from sandur.catalog.maintenance.plan import Plan, Skipped, TableState, plan_of
from sandur.catalog.maintenance.policies import MergedPolicy, ScopePolicy, merged_policy, policy_hash
from sandur.catalog.maintenance.records import (
    NO_END,
    OperationRecord,
    OperationResult,
    PastRecord,
    RunEnd,
    RunPlan,
    ended_record,
    planned_records,
    run_end,
    skipped_records,
    spent_on,
)

_DAY = 86_400_000
_NOW = 400 * _DAY
_POLICY = merged_policy([ScopePolicy("catalog main", {"mode": "run"})])
_HEALTH = TableHealth(
    uuid="u1",
    catalog="main",
    namespace="sales",
    name="orders",
    format="iceberg",
    last_commit_ms=0,
    data_files=100,
    small_files=100,
    small_bytes=100 << 20,
    excess_files=99,
)


def _plan(before: RunEnd = NO_END, *, now_ms: int = _NOW) -> Plan:
    past = {one.operation: one.past() for one in before.pasts}
    return plan_of([TableState(_HEALTH, _POLICY, past)], now_ms=now_ms, is_dry=False, spent=spent_on(before, now_ms))


def _run(plan: Plan, run: str = "1", *, now_ms: int = _NOW) -> RunPlan:
    operations = planned_records(plan, {"u1": _POLICY}, run)
    return RunPlan(run=run, started_ms=now_ms, operations=operations, skipped=skipped_records(plan.skipped))


def _ended(plan: RunPlan, operation: str, result: OperationResult, *, now_ms: int) -> OperationRecord:
    record = next(one for one in plan.operations if one.operation == operation)
    return ended_record(record, result, now_ms=now_ms)


def _past(end: RunEnd, operation: str) -> PastRecord | None:
    return next((one for one in end.pasts if one.operation == operation), None)


def test_the_pause_after_conflicts_doubles_and_a_success_ends_it() -> None:
    end, now_ms, pauses = NO_END, _NOW, []
    for _ in range(7):
        run = _run(_plan(end, now_ms=now_ms), now_ms=now_ms)
        end = run_end(end, run, [_ended(run, "compaction", OperationResult(state="conflict"), now_ms=now_ms)], now_ms=0)
        began_ms = now_ms
        while not any(work.operation == "compaction" for work in _plan(end, now_ms=now_ms).work):
            now_ms += 60_000
        pauses.append((now_ms - began_ms) // 3_600_000)
    run = _run(_plan(end, now_ms=now_ms), now_ms=now_ms)
    after = run_end(end, run, [_ended(run, "compaction", OperationResult(), now_ms=now_ms)], now_ms=now_ms)

    assert pauses == [1, 2, 4, 8, 16, 24, 24]
    assert _past(after, "compaction") is None


def test_what_waits_keeps_the_time_since_which_it_waits_until_it_is_done_or_not_needed() -> None:
    plan = _run(_plan())
    held_back = RunPlan(
        run="2", started_ms=_NOW + _DAY, skipped=skipped_records([Skipped(_HEALTH, "compaction", "no budget")])
    )
    outside = RunPlan(
        run="3", started_ms=_NOW + _DAY, skipped=skipped_records([Skipped(_HEALTH, None, "outside the window")])
    )
    healthy = RunPlan(run="4", started_ms=_NOW, skipped=skipped_records([Skipped(_HEALTH, "orphans", "no budget")]))

    first = run_end(NO_END, plan, [], now_ms=_NOW)
    second = run_end(first, held_back, [], now_ms=_NOW + _DAY)
    third = run_end(second, outside, [], now_ms=_NOW + _DAY)

    assert [one.due_since_ms for end in (first, second, third) if (one := _past(end, "compaction"))] == [_NOW] * 3
    assert _past(run_end(third, healthy, [], now_ms=0), "compaction") is None
    done = [_ended(plan, "compaction", OperationResult(), now_ms=_NOW)]
    assert _past(run_end(third, plan, done, now_ms=0), "compaction") is None


def test_only_tables_that_exist_and_still_need_something_wait_or_fail() -> None:
    plan = _run(_plan())
    failed = [_ended(plan, "compaction", OperationResult(state="failed"), now_ms=_NOW)]
    before = run_end(NO_END, plan, failed, now_ms=_NOW)
    next_run = RunPlan(run="2", started_ms=_NOW)

    def left(tables: dict[str, bool] | None) -> tuple[int, int]:
        end = run_end(before, next_run, [], now_ms=_NOW, tables=tables)
        return end.failing, end.backlog

    assert left(None) == left({"u1": False}) == (1, 2)
    assert left({"u1": True}) == left({"u2": True}) == left({}) == (0, 0)


def test_work_at_intervals_remembers_when_it_was_done() -> None:
    plan = _run(_plan())

    end = run_end(NO_END, plan, [_ended(plan, "orphans", OperationResult(), now_ms=_NOW)], now_ms=_NOW)

    assert _past(end, "orphans") == PastRecord(uuid="u1", operation="orphans", done_ms=_NOW)
    assert "orphans" not in [work.operation for work in _plan(end, now_ms=_NOW + 6 * _DAY).work]
    assert "orphans" in [work.operation for work in _plan(end, now_ms=_NOW + 7 * _DAY).work]


def _looked_in_vain(*, attempts: int = 1) -> RunEnd:
    """What is known after a run whose compaction was skipped."""
    plan = _run(_plan())
    skipped = OperationResult(state="skipped", reason="it found nothing", attempts=attempts)
    begun = replace(plan, operations=tuple(replace(one, started_ms=_NOW) for one in plan.operations))
    return run_end(NO_END, begun, [_ended(begun, "compaction", skipped, now_ms=_NOW + 5)], now_ms=_NOW + 5)


def test_work_that_found_nothing_is_not_planned_again_while_the_table_and_its_policy_stay_as_they_are() -> None:
    end = _looked_in_vain()

    for day in range(1, 4):
        plan = _plan(end, now_ms=_NOW + day * _DAY)
        assert "compaction" not in [one.operation for one in plan.work] + [one.operation for one in plan.skipped]
        assert [(one.operation, one.reason) for one in plan.idle] == [
            ("compaction", "it found nothing to do, and nothing has changed since")
        ]
        end = run_end(end, _run(plan, now_ms=_NOW + day * _DAY), [], now_ms=_NOW + day * _DAY, tables={"u1": True})
        assert [one.operation for one in end.pasts if one.due_since_ms is not None] == ["orphans"]


@pytest.mark.parametrize(
    ("health", "policy", "is_requested"),
    [
        (replace(_HEALTH, last_commit_ms=_NOW + 1), _POLICY, False),
        (_HEALTH, merged_policy([ScopePolicy("catalog main", {"mode": "run", "priority": 51})]), False),
        (_HEALTH, _POLICY, True),
    ],
)
def test_work_that_found_nothing_is_planned_after_a_commit_a_change_of_the_policy_or_a_request(
    health: TableHealth, policy: MergedPolicy, *, is_requested: bool
) -> None:
    past = {one.operation: one.past() for one in _looked_in_vain().pasts}

    plan = plan_of([TableState(health, policy, past, is_requested)], now_ms=_NOW + _DAY, is_dry=False)

    assert "compaction" in [one.operation for one in plan.work]


def test_work_that_was_turned_off_is_planned_as_soon_as_it_is_turned_on() -> None:
    assert "compaction" in [one.operation for one in _plan(_looked_in_vain(attempts=0), now_ms=_NOW + _DAY).work]

    plan = _run(_plan())
    turned_off = OperationResult(state="skipped", attempts=0)
    end = run_end(NO_END, plan, [_ended(plan, "orphans", turned_off, now_ms=_NOW)], now_ms=_NOW)

    assert _past(end, "orphans") is None
    assert "orphans" in [one.operation for one in _plan(end, now_ms=_NOW + _DAY).work]


def test_work_that_left_files_is_due_again_after_the_wait() -> None:
    plan = _run(_plan())
    left = _ended(plan, "orphans", OperationResult(files_left=1), now_ms=_NOW)

    end = run_end(NO_END, plan, [left], now_ms=_NOW)
    looked = run_end(end, RunPlan(run="2", started_ms=_NOW), [], now_ms=_NOW, tables={"u1": True})

    for known in (end, looked):
        early, late = (_plan(known, now_ms=_NOW + _DAY - early_ms) for early_ms in (1, 0))
        assert "orphans" not in [work.operation for work in early.work]
        assert "was done 1 days ago, and left files" in [work.reason for work in late.work]


def test_work_that_left_nothing_waits_for_its_interval_again() -> None:
    plan = _run(_plan())
    left = _ended(plan, "orphans", OperationResult(files_left=1), now_ms=_NOW)
    before = run_end(NO_END, plan, [left], now_ms=_NOW)
    done = _ended(plan, "orphans", OperationResult(), now_ms=_NOW + _DAY)

    end = run_end(before, plan, [done], now_ms=_NOW + _DAY)

    assert "orphans" not in [work.operation for work in _plan(end, now_ms=_NOW + 7 * _DAY).work]
    assert "orphans" in [work.operation for work in _plan(end, now_ms=_NOW + 8 * _DAY).work]


def test_budgets_are_spent_by_what_started_and_are_whole_again_on_the_next_day() -> None:
    plan = _run(_plan())
    ended = [_ended(plan, "compaction", OperationResult(state="failed"), now_ms=_NOW)]
    cancelled = [_ended(plan, "compaction", OperationResult(state="cancelled"), now_ms=_NOW)]

    end = run_end(NO_END, plan, ended, now_ms=_NOW)

    assert dict(spent_on(end, _NOW)) == dict(plan.operations[0].accounts)
    assert spent_on(end, _NOW + _DAY) == {}
    assert spent_on(run_end(NO_END, plan, cancelled, now_ms=_NOW), _NOW) == {}


def test_the_speed_of_tasks_is_learnt_and_an_odd_table_does_not_decide_alone() -> None:
    plan = _run(_plan())
    slow = OperationResult(task_seconds=plan.operations[0].estimated_bytes / (8 << 20))

    first = run_end(NO_END, plan, [_ended(plan, "compaction", slow, now_ms=_NOW)], now_ms=_NOW)
    second = run_end(
        replace(first, bytes_per_task_second=32 << 20),
        plan,
        [_ended(plan, "compaction", slow, now_ms=_NOW)],
        now_ms=_NOW,
    )

    assert first.bytes_per_task_second == 8 << 20
    assert second.bytes_per_task_second == 20 << 20


def test_the_hash_of_a_policy_follows_its_values_and_not_their_origin() -> None:
    same = merged_policy([ScopePolicy("workspace", {"mode": "run"})])
    other = merged_policy([ScopePolicy("workspace", {"mode": "run", "priority": 51})])

    assert policy_hash(same) == policy_hash(_POLICY) != policy_hash(other)
