"""The plan of a maintenance run: which work is done in which order, and why the rest is not.

Work is ordered by benefit per cost, which grows with the days that it has waited and with the priority of its policy.
The first place of a plan belongs to the work that has waited longest: so everything that is due is done some day, also
while more work arrives than the budgets allow.
A budget belongs to the scope whose policy sets it, and all tables below that scope share it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from sandur.catalog.identifiers import Format
from sandur.catalog.maintenance.health import (
    OPEN_COST_BYTES,
    ORDER,
    Need,
    Operation,
    TableHealth,
    interval_seconds,
    needs_of,
)
from sandur.catalog.maintenance.policies import Field, MergedPolicy, Policy, is_open, policy_hash
from sandur.settings import seconds_of

_DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000
BACKOFF_MAX_MS: Final = 24 * _HOUR_MS
NAMESPACE_SHARE_MAX: Final = 0.5
"""The largest share of a run's tables that one namespace gets while tables of others wait."""
BYTES_PER_TASK_SECOND: Final = 32 << 20
"""The estimate of a run that has no measurement of earlier ones."""

_BYTES: Final[Field] = "budget.bytes_per_day"
_SECONDS: Final[Field] = "budget.task_seconds_per_day"
_TABLES: Final[Field] = "budget.tables_per_run"

_IDLE: Final = "it found nothing to do, and nothing has changed since"

_AT_INTERVALS: Final[Mapping[Format, tuple[Operation, ...]]] = {
    "iceberg": ("statistics", "orphans"),
    "delta": ("vacuum",),
}


class FoundNothing(NamedTuple):
    """When an operation began that found nothing to do, and the hash of its policy."""

    began_ms: int
    policy_hash: str


class Past(NamedTuple):
    """What earlier runs did with one operation of a table. `due_since_ms`: since when it waits; None if it does not.

    `found_nothing` is the last time that it looked and found nothing to do; None if it did something since.
    `has_more`: the last one left files, so that it is due again as soon as some of them may be deleted (O2).
    """

    due_since_ms: int | None = None
    done_ms: int | None = None
    conflicts: int = 0
    conflict_ms: int = 0
    found_nothing: FoundNothing | None = None
    has_more: bool = False


class TableState(NamedTuple):
    """`is_requested`: a person requested its maintenance, so that it does not wait for what its policy schedules."""

    health: TableHealth
    merged: MergedPolicy
    past: Mapping[Operation, Past] = {}
    is_requested: bool = False

    def obeys(self, field: Field) -> bool:
        """Whether this field of the policy holds now: a request takes its place, unless a scope locks it."""
        return not self.is_requested or any(one.field == field and one.locked_by for one in self.merged.origins)


Account = tuple[Field, str]
"""A budget: the field of the policy, and the scope that set it."""


class Work(NamedTuple):
    """One operation on one table, with its estimates."""

    health: TableHealth
    operation: Operation
    reason: str
    score: float
    cost_bytes: int
    task_seconds: int
    waiting_days: float


class Skipped(NamedTuple):
    health: TableHealth
    operation: Operation | None
    reason: str


class Plan(NamedTuple):
    """`work` is in the order in which it starts; the operations of one table follow each other in `ORDER`.

    `skipped` waits for a later run. `idle` does not: it would find nothing again.
    """

    work: Sequence[Work]
    skipped: Sequence[Skipped]
    idle: Sequence[Skipped] = ()


def plan_of(
    states: Sequence[TableState],
    *,
    now_ms: int,
    is_dry: bool,
    spent: Mapping[Account, int] | None = None,
    bytes_per_task_second: int = BYTES_PER_TASK_SECOND,
) -> Plan:
    """The plan for these tables. `spent` is what earlier runs of this day took from the budgets.

    A dry plan contains the tables whose policy only reports.
    """
    skipped: list[Skipped] = []
    idle: list[Skipped] = []
    candidates: list[tuple[Work, TableState]] = []
    for state in states:
        if refusal := _refusal(state, now_ms, is_dry=is_dry):
            skipped.append(Skipped(state.health, None, refusal))
            continue
        for need in _due(state, now_ms):
            past = state.past.get(need.operation, Past())
            if _finds_nothing(state, past):
                idle.append(Skipped(state.health, need.operation, _IDLE))
            elif not state.is_requested and (reason := _backoff(past, now_ms)):
                skipped.append(Skipped(state.health, need.operation, reason))
            else:
                work = _work(state, need, past, now_ms, bytes_per_task_second)
                candidates.append((work, state))
    candidates = _ordered(candidates)
    budgets = _Budgets(spent or {}, waiting=Counter(_namespace(work) for work, _ in candidates))
    chosen: list[Work] = []
    for work, state in candidates:
        if reason := budgets.refusal(work, state):
            skipped.append(Skipped(work.health, work.operation, reason))
        else:
            budgets.take(work, state)
            chosen.append(work)
    return Plan(_grouped(chosen), skipped, tuple(idle))


def _refusal(state: TableState, now_ms: int, *, is_dry: bool) -> str:
    """Why nothing is done to the table now; empty if something may be."""
    health, policy = state.health, state.merged.policy
    if health.blocked:
        return health.blocked
    if policy.mode == "report" and not is_dry and state.obeys("mode"):
        return "its policy only reports (mode = report)"
    if not is_open(policy.window, now_ms) and state.obeys("window"):
        return f"outside the window {policy.window} UTC"
    if health.last_commit_ms is None:
        return "the time of its last commit is not known"
    if now_ms - health.last_commit_ms < seconds_of(policy.quiet) * 1_000:
        return f"a commit happened within the last {policy.quiet}"
    return ""


def _due(state: TableState, now_ms: int) -> Iterator[Need]:
    yield from needs_of(state.health, state.merged.policy)
    for operation in _AT_INTERVALS.get(state.health.format, ()):
        seconds = interval_seconds(operation, state.merged.policy)
        past = state.past.get(operation, Past())
        done_ms = past.done_ms
        if seconds is not None and past.has_more:
            seconds = min(seconds, seconds_of(state.merged.policy.orphans.wait))
        if seconds is not None and (done_ms is None or now_ms - done_ms >= seconds * 1_000):
            last = "was never done" if done_ms is None else f"was done {(now_ms - done_ms) // _DAY_MS} days ago"
            last += ", and left files" if past.has_more else ""
            files = state.health.data_files or 0
            cost = (files + 1) * OPEN_COST_BYTES if operation == "statistics" else OPEN_COST_BYTES
            yield Need(operation, last, float(OPEN_COST_BYTES), float(cost))


def _finds_nothing(state: TableState, past: Past) -> bool:
    """Whether an operation found nothing, and neither its table nor its policy has changed since."""
    found, last_ms = past.found_nothing, state.health.last_commit_ms
    if state.is_requested or found is None or last_ms is None or last_ms > found.began_ms:
        return False
    return found.policy_hash == policy_hash(state.merged)


def _backoff(past: Past, now_ms: int) -> str:
    """Why the operation waits after conflicts with writers and failures; the pause doubles from an hour up to a day."""
    if not past.conflicts:
        return ""
    pause_ms = min(_HOUR_MS << min(past.conflicts - 1, 5), BACKOFF_MAX_MS)
    left_ms = past.conflict_ms + pause_ms - now_ms
    if left_ms <= 0:
        return ""
    tries = "the last try" if past.conflicts == 1 else f"the last {past.conflicts} tries"
    advice = "; a window without writers may help" if pause_ms == BACKOFF_MAX_MS else ""
    return f"{tries} had a conflict or failed; the next one is in {-(-left_ms // 60_000)} minutes{advice}"


def _work(state: TableState, need: Need, past: Past, now_ms: int, bytes_per_task_second: int) -> Work:
    waiting_days = max(0, now_ms - (past.due_since_ms if past.due_since_ms is not None else now_ms)) / _DAY_MS
    priority = state.merged.policy.priority / 50
    score = need.benefit_bytes / max(need.cost_bytes, 1.0) * priority * (1 + waiting_days)
    cost = int(need.cost_bytes)
    seconds = max(1, cost // bytes_per_task_second)
    return Work(state.health, need.operation, need.reason, score, cost, seconds, waiting_days)


def _ordered(candidates: Sequence[tuple[Work, TableState]]) -> list[tuple[Work, TableState]]:
    """What was requested, the work that has waited longest, then by score.

    The id breaks ties: the order of the input does not matter.
    """

    def identity(work: Work) -> tuple[str, int]:
        return work.health.uuid, ORDER.index(work.operation)

    ordered = sorted(candidates, key=lambda pair: (-pair[0].score, identity(pair[0])))
    if not ordered:
        return ordered
    first = min(ordered, key=lambda pair: (-pair[0].waiting_days, -pair[0].score, identity(pair[0])))
    requested = [pair for pair in ordered if pair[1].is_requested]
    others = [pair for pair in ordered if pair is not first and not pair[1].is_requested]
    return [*requested, *([] if first[1].is_requested else [first]), *others]


def _namespace(work: Work) -> tuple[str, str]:
    return work.health.catalog, work.health.namespace


class _Budgets:
    """What is left of each budget while a plan is made."""

    def __init__(self, spent: Mapping[Account, int], waiting: Counter[tuple[str, str]]) -> None:
        self._spent = Counter(dict(spent))
        self._tables: dict[Account, set[str]] = {}
        self._per_namespace: dict[tuple[str, str], set[str]] = {}
        self._waiting = waiting

    def refusal(self, work: Work, state: TableState) -> str:
        """Why the work does not fit; empty if it does."""
        policy = state.merged.policy
        for field, needed, most in _amounts(work, policy):
            account = (field, _owner(work, state.merged, field))
            left = most - self._spent[account]
            # Work that is larger than a whole day's budget runs on a day of which nothing is spent: otherwise never.
            if needed > left and self._spent[account]:
                return f"{field} of {account[1]}: {left:,} of {most:,} are left, {needed:,} are needed"
        tables = self._tables.get(self._table_account(work, state), set())
        most = policy.budget.tables_per_run
        if work.health.uuid not in tables and len(tables) >= most:
            return f"{_TABLES}: {most:,} tables are planned"
        return self._namespace_refusal(work, most)

    def _namespace_refusal(self, work: Work, most: int) -> str:
        namespace = _namespace(work)
        planned = self._per_namespace.get(namespace, set())
        share = max(1, int(most * NAMESPACE_SHARE_MAX))
        others_wait = any(count for other, count in self._waiting.items() if other != namespace)
        if work.health.uuid in planned or len(planned) < share or not others_wait:
            return ""
        return f"{share:,} tables of namespace {'.'.join(namespace)} are planned, and those of others wait"

    def take(self, work: Work, state: TableState) -> None:
        for field, needed, _ in _amounts(work, state.merged.policy):
            self._spent[field, _owner(work, state.merged, field)] += needed
        self._tables.setdefault(self._table_account(work, state), set()).add(work.health.uuid)
        self._per_namespace.setdefault(_namespace(work), set()).add(work.health.uuid)
        self._waiting[_namespace(work)] -= 1

    def _table_account(self, work: Work, state: TableState) -> Account:
        return _TABLES, _owner(work, state.merged, _TABLES)


def accounts_of(work: Work, merged: MergedPolicy) -> Mapping[Account, int]:
    """What the work takes from each budget of a day."""
    return {(field, _owner(work, merged, field)): needed for field, needed, _ in _amounts(work, merged.policy)}


def _amounts(work: Work, policy: Policy) -> tuple[tuple[Field, int, int], ...]:
    """The budgets of a day: the field, what the work needs, and the whole."""
    return (
        (_BYTES, work.cost_bytes, policy.budget.bytes_per_day),
        (_SECONDS, work.task_seconds, policy.budget.task_seconds_per_day),
    )


def _owner(work: Work, merged: MergedPolicy, field: Field) -> str:
    """The scope that sets a budget; a budget that a property sets belongs to its table alone."""
    found = next(one for one in merged.origins if one.field == field)
    return f"{found.origin} of table {work.health.uuid}" if found.is_property else found.origin


def _grouped(chosen: Sequence[Work]) -> Sequence[Work]:
    """The tables in the order of their best work, and the work on each in the order of its operations."""
    tables: dict[str, list[Work]] = {}
    for work in chosen:
        tables.setdefault(work.health.uuid, []).append(work)
    return [
        one for of_table in tables.values() for one in sorted(of_table, key=lambda work: ORDER.index(work.operation))
    ]
