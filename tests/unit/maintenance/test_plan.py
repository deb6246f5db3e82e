"""The planner keeps every budget, names a reason for everything that it skips, and starves nothing."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sandur.catalog.maintenance.health import ORDER, Operation, TableHealth
from sandur.catalog.maintenance.plan import Account, Past, Plan, TableState, accounts_of, plan_of
from sandur.catalog.maintenance.policies import ScopePolicy, merged_policy

_DAY_MS = 86_400_000
_NOW_MS = 20_000 * _DAY_MS + 12 * 3_600_000
_MIB = 1 << 20


def _health(number: int = 1, **fields: Any) -> TableHealth:
    """A table of 100 small files that nobody has changed for a day, and nothing else to do."""
    usual: dict[str, Any] = {
        "namespace": "sales",
        "format": "iceberg",
        "last_commit_ms": _NOW_MS - _DAY_MS,
        "data_files": 100,
        "small_files": 100,
        "small_bytes": 100 * _MIB,
        "excess_files": 99,
    }
    return TableHealth(uuid=f"{number:04}", catalog="main", name=f"t{number}", **{**usual, **fields})


def _state(health: TableHealth, past: dict[Operation, Past] | None = None, **values: Any) -> TableState:
    done: dict[Operation, Past] = {"orphans": Past(done_ms=_NOW_MS), "vacuum": Past(done_ms=_NOW_MS)}
    scopes = [ScopePolicy("workspace", {"mode": "run", **values})]
    return TableState(health, merged_policy(scopes), {**done, **(past or {})})


def _plan(states: list[TableState], *, now_ms: int = _NOW_MS, spent: dict[Account, int] | None = None) -> Plan:
    return plan_of(states, now_ms=now_ms, is_dry=False, spent=spent)


def _reasons(plan: Plan) -> list[str]:
    return [one.reason for one in plan.skipped]


def test_a_table_with_small_files_is_compacted() -> None:
    plan = _plan([_state(_health())])

    assert [(one.operation, one.reason) for one in plan.work] == [
        ("compaction", "100 small files, 99 of them can be saved")
    ]


def test_a_healthy_table_needs_nothing() -> None:
    plan = _plan([_state(_health(small_files=2, excess_files=1))])

    assert plan == Plan([], [])


def test_nothing_is_done_because_of_a_number_that_is_not_known() -> None:
    unknown = TableHealth(
        uuid="1", catalog="main", namespace="sales", name="t", format="iceberg", last_commit_ms=_NOW_MS - _DAY_MS
    )

    assert _plan([_state(unknown)]).work == []


def test_a_policy_that_only_reports_is_planned_but_not_done() -> None:
    state = _state(_health(), mode="report")

    assert _reasons(_plan([state])) == ["its policy only reports (mode = report)"]
    assert len(plan_of([state], now_ms=_NOW_MS, is_dry=True).work) == 1


@pytest.mark.parametrize(
    ("health", "values", "reason"),
    [
        ({"blocked": "gc.enabled is false"}, {}, "gc.enabled is false"),
        ({"last_commit_ms": _NOW_MS - 60_000}, {}, "a commit happened within the last PT10M"),
        ({"last_commit_ms": None}, {}, "the time of its last commit is not known"),
        ({}, {"window": "22:00-06:00"}, "outside the window 22:00-06:00 UTC"),
    ],
)
def test_a_table_that_is_left_alone_has_a_reason(health: dict[str, Any], values: dict[str, Any], reason: str) -> None:
    plan = _plan([_state(_health(**health), **values)])

    assert plan.work == []
    assert _reasons(plan) == [reason]


def test_a_conflict_doubles_the_pause_up_to_a_day() -> None:
    hour = 3_600_000
    pauses = [
        _reasons(_plan([_state(_health(), {"compaction": Past(conflicts=n, conflict_ms=_NOW_MS)})])) for n in (1, 2, 9)
    ]

    assert [text[0].split("in ")[1] for text in pauses] == [
        "60 minutes",
        "120 minutes",
        "1440 minutes; a window without writers may help",
    ]
    assert _plan([_state(_health(), {"compaction": Past(conflicts=1, conflict_ms=_NOW_MS - hour)})]).work


def test_work_on_one_table_is_in_the_order_that_rewrites_before_it_removes() -> None:
    health = _health(manifests=500, manifest_bytes=_MIB, expirable_snapshots=100, delete_files=50, delete_bytes=_MIB)

    plan = _plan([_state(health, {"orphans": Past()}, statistics={"enabled": True})])

    operations = [one.operation for one in plan.work]
    assert operations == ["compaction", "deletes", "manifests", "snapshots", "statistics", "orphans"]


def test_delta_tables_get_the_work_of_delta() -> None:
    health = _health(format="delta", unpublished_commits=3, commits_since_checkpoint=40, manifests=500)

    plan = _plan([_state(health, {"vacuum": Past(done_ms=_NOW_MS - 8 * _DAY_MS)})])

    assert [one.operation for one in plan.work] == ["compaction", "publish", "checkpoint", "vacuum"]


@pytest.mark.parametrize(("wait", "interval", "due_days"), [("P1D", "P7D", 1), ("P3D", "P7D", 3), ("P3D", "P2D", 2)])
def test_work_that_left_files_is_due_after_the_wait_or_its_interval(wait: str, interval: str, due_days: int) -> None:
    def operations(early_ms: int) -> list[Operation]:
        past: dict[Operation, Past] = {"orphans": Past(done_ms=_NOW_MS - due_days * _DAY_MS + early_ms, has_more=True)}
        state = _state(_health(excess_files=1), past, orphans={"wait": wait, "interval": interval})
        return [one.operation for one in _plan([state]).work]

    assert (operations(1), operations(0)) == ([], ["orphans"])


def test_a_budget_is_shared_by_the_tables_of_the_scope_that_sets_it() -> None:
    states = [_state(_health(n), budget={"bytes_per_day": 1_000 * _MIB}) for n in range(10)]

    plan = _plan(states)

    assert len(plan.work) == 1  # Each costs 2 * 100 MiB and 100 opened files of 4 MiB: 600 MiB.
    assert all(one.startswith("budget.bytes_per_day of workspace: 419,430,400 of") for one in _reasons(plan))
    assert len(_reasons(plan)) == 9


@pytest.mark.parametrize(
    ("properties", "held_back"),
    [
        ({"maintenance.budget.bytes_per_day": f"{1_000 * _MIB}"}, ["t0"]),
        ({"maintenance.budget.tables_per_run": "1"}, []),
    ],
)
def test_a_budget_that_a_property_sets_belongs_to_its_table_alone(
    properties: dict[str, str], held_back: list[str]
) -> None:
    merged = merged_policy([ScopePolicy("workspace", {"mode": "run", "orphans": {"enabled": False}})], properties)
    states = [TableState(_health(n), merged) for n in range(3)]

    plan = _plan(states)
    later = _plan(states, spent=dict(accounts_of(plan.work[0], merged)))

    assert [one.health.name for one in plan.work] == ["t0", "t1", "t2"]
    assert [one.health.name for one in later.skipped] == held_back


def test_work_larger_than_a_day_of_budget_runs_on_a_day_of_which_nothing_is_spent() -> None:
    state = _state(_health(), budget={"bytes_per_day": _MIB})
    account = ("budget.bytes_per_day", "workspace")

    assert len(_plan([state]).work) == 1
    assert _plan([state], spent={account: 1}).work == []


def test_one_namespace_does_not_take_a_whole_run() -> None:
    busy = [_state(_health(n, scans_per_day=1e6), budget={"tables_per_run": 4}) for n in range(9)]
    quiet = _state(_health(100, namespace="hr"), budget={"tables_per_run": 4})

    planned = Counter(one.health.namespace for one in _plan([*busy, quiet]).work)

    assert planned["hr"] == 1
    assert planned["sales"] >= 2


_states = st.lists(
    st.builds(
        lambda number, files, scans, days, namespace: (number, files, scans, days, namespace),
        number=st.integers(0, 10_000),
        files=st.integers(0, 5_000),
        scans=st.floats(0, 1e6),
        days=st.floats(0, 400),
        namespace=st.sampled_from(["a", "b", "c"]),
    ),
    max_size=30,
    unique_by=lambda drawn: drawn[0],
)


@settings(max_examples=150, deadline=None)
@given(drawn=_states, budget=st.integers(_MIB, 1 << 40), tables=st.integers(1, 20), spent=st.integers(0, 1 << 36))
def test_budgets_hold_and_everything_due_is_planned_or_has_a_reason(
    drawn: list[tuple[int, int, float, float, str]], budget: int, tables: int, spent: int
) -> None:
    policy = {"budget": {"bytes_per_day": budget, "tables_per_run": tables}}
    states = []
    for number, files, scans, days, namespace in drawn:
        health = _health(
            number,
            namespace=namespace,
            small_files=files,
            excess_files=max(files - 1, 0),
            small_bytes=files * _MIB,
            scans_per_day=scans,
        )
        states.append(_state(health, {"compaction": Past(due_since_ms=_NOW_MS - int(days * _DAY_MS))}, **policy))
    account = ("budget.bytes_per_day", "workspace")

    plan = _plan(states, spent={account: spent})
    backwards = _plan(states[::-1], spent={account: spent})

    taken = sum(one.cost_bytes for one in plan.work)
    assert taken + spent <= budget or (spent == 0 and len(plan.work) == 1) or not plan.work
    assert len({one.health.uuid for one in plan.work}) <= tables
    due = {state.health.uuid for state in states if (state.health.excess_files or 0) + 1 >= 5}
    assert {one.health.uuid for one in plan.work} | {one.health.uuid for one in plan.skipped} == due
    assert all(one.reason for one in plan.skipped)
    assert backwards.work == plan.work


@settings(max_examples=40, deadline=None)
@given(
    arrivals=st.lists(st.lists(st.tuples(st.integers(5, 500), st.floats(0, 1e6)), max_size=3), min_size=4, max_size=4),
    budget=st.integers(_MIB, 4_000 * _MIB),
    before=st.integers(0, 3),
)
def test_nothing_starves_while_more_good_work_arrives_than_the_budget_allows(
    arrivals: list[list[tuple[int, float]]], budget: int, before: int
) -> None:
    """A large table that few read waits behind those that waited longer, however much cheap work arrives."""
    policy = {"budget": {"bytes_per_day": budget}}
    large = _health(0, small_files=5_000, excess_files=100, small_bytes=5_000 * _MIB, scans_per_day=0.0)
    waiting = {f"{number:04}": (_health(number), _NOW_MS - 1 - number) for number in range(1, before + 1)}
    waiting[large.uuid] = large, _NOW_MS - 1

    for day, new in enumerate(arrivals[: before + 1]):
        now_ms = _NOW_MS + day * _DAY_MS
        for number, (files, scans) in enumerate(new):
            one = _health(100 + 10 * day + number, small_files=files, excess_files=files - 1, scans_per_day=scans)
            waiting[one.uuid] = one, now_ms + 1
        states = [
            _state(
                replace(health, last_commit_ms=now_ms - _DAY_MS),
                {"compaction": Past(due_since_ms=since_ms), "orphans": Past(done_ms=now_ms)},
                **policy,
            )
            for health, since_ms in waiting.values()
        ]
        for work in _plan(states, now_ms=now_ms).work:
            del waiting[work.health.uuid]

    assert large.uuid not in waiting


@settings(max_examples=60, deadline=None)
@given(
    drawn=st.lists(st.tuples(st.sampled_from(["run", "report"]), st.integers(0, 23), st.integers(0, 30)), max_size=10),
    hour=st.integers(0, 23),
)
def test_no_work_is_planned_against_a_policy(drawn: list[tuple[str, int, int]], hour: int) -> None:
    """A table is left alone if its policy only reports, outside its window, and within its quiet time."""
    now_ms = _NOW_MS // _DAY_MS * _DAY_MS + hour * 3_600_000
    allowed = set()
    states = []
    for number, (mode, opens, minutes) in enumerate(drawn):
        health = _health(number, last_commit_ms=now_ms - minutes * 60_000)
        window = f"{opens:02}:00-{(opens + 8) % 24:02}:00"
        states.append(_state(health, mode=mode, window=window, quiet="PT15M"))
        if mode == "run" and (hour - opens) % 24 < 8 and minutes >= 15:
            allowed.add(health.uuid)

    plan = _plan(states, now_ms=now_ms)

    assert {one.health.uuid for one in plan.work} == allowed
    assert {one.health.uuid for one in plan.skipped} == {state.health.uuid for state in states} - allowed


def test_the_order_of_operations_names_each_once() -> None:
    assert len(set(ORDER)) == len(ORDER)


def test_the_accounts_of_work_are_those_of_its_scopes() -> None:
    state = _state(_health(), budget={"bytes_per_day": 1 << 40})

    (work,) = _plan([state]).work

    assert accounts_of(work, state.merged) == {
        ("budget.bytes_per_day", "workspace"): work.cost_bytes,
        ("budget.task_seconds_per_day", "default"): work.task_seconds,
    }
