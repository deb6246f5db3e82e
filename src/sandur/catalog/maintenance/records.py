"""Records of maintenance runs: what was planned, what each operation did, and what the next run must know of it.

The objects of a run lie in a folder of their own and are never changed. The record of an operation is written before it
begins and again when it ends: a run that died is recognized by the missing end, and the next run settles it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from sandur.catalog.identifiers import Format
from sandur.catalog.maintenance.health import Operation, TableHealth
from sandur.catalog.maintenance.plan import Account, FoundNothing, Past, Plan, Skipped, Work, accounts_of
from sandur.catalog.maintenance.policies import MergedPolicy, policy_hash

State = Literal["planned", "running", "done", "skipped", "conflict", "failed", "cancelled"]

REASON_CHARACTERS_MAX: Final = 1_000
AT_INTERVALS: Final[frozenset[Operation]] = frozenset({"orphans", "statistics", "vacuum"})
"""Operations that are due by time alone: only for these is it kept when they were done."""
REWRITING: Final[frozenset[Operation]] = frozenset({"compaction", "deletes", "manifests"})
"""Operations that find the same as before while neither their table nor its policy changes."""

_DAY_MS: Final = 86_400_000
_SPEED_MIN: Final = 1 << 20
_SPEED_MAX: Final = 1 << 30


class Measure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table at one moment. `version` is its snapshot id, or the version of a Delta table; None is not known."""

    version: int | None = None
    files: int | None = None
    bytes: int | None = None
    rows: int | None = None
    delete_files: int | None = None
    manifests: int | None = None
    snapshots: int | None = None


UNMEASURED: Final = Measure()


class OperationResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an operation did to a table.

    `attempts` is 0 if the operation did not look at the table, such as one that a property turned off.
    `files_rewritten` and `bytes_rewritten` were read and replaced, `files_deleted` and `bytes_deleted` are gone from
    the store. `files_found` and `bytes_found` were only noted, as orphans are before they may be deleted. `files_left`
    were too many for one run. `conflict` means that a writer was faster: what of this operation is visible is complete,
    and the rest is tried again later.
    """

    state: State = "done"
    reason: str = ""
    before: Measure = UNMEASURED
    after: Measure = UNMEASURED
    files_rewritten: int = 0
    bytes_rewritten: int = 0
    files_deleted: int = 0
    bytes_deleted: int = 0
    files_found: int = 0
    bytes_found: int = 0
    files_left: int = 0
    attempts: int = 1
    task_seconds: float = 0.0


class OperationRecord(OperationResult, frozen=True, kw_only=True, omit_defaults=True):
    """One operation on one table in one run: its estimates, and its result. `settled_by` is the run that ended it,
    if its own run died.
    """

    run: str
    number: int
    uuid: str
    catalog: str
    namespace: str
    name: str
    format: Format
    operation: Operation
    state: State = "planned"
    policy_hash: str = ""
    why: str = ""
    started_ms: int = 0
    ended_ms: int = 0
    estimated_bytes: int = 0
    estimated_task_seconds: int = 0
    accounts: tuple[tuple[Account, int], ...] = ()
    settled_by: str = ""


class SkippedRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table, or one operation on it, that a run left alone, and why."""

    uuid: str
    catalog: str
    namespace: str
    name: str
    format: Format
    reason: str
    operation: Operation | None = None


class RunPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first object of a run. `application` is the id of its Spark application, which its snapshots name."""

    run: str
    started_ms: int
    application: str = ""
    operations: tuple[OperationRecord, ...] = ()
    skipped: tuple[SkippedRecord, ...] = ()


class PastRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What all runs so far did with one operation of one table. `has_more`: the last one left files.

    `nothing_ms` and `nothing_policy`: when it began and found nothing to do, and the hash of its policy then.
    """

    uuid: str
    operation: Operation
    due_since_ms: int | None = None
    done_ms: int | None = None
    conflicts: int = 0
    conflict_ms: int = 0
    nothing_ms: int | None = None
    nothing_policy: str = ""
    has_more: bool = False

    def past(self) -> Past:
        nothing = None if self.nothing_ms is None else FoundNothing(self.nothing_ms, self.nothing_policy)
        return Past(self.due_since_ms, self.done_ms, self.conflicts, self.conflict_ms, nothing, self.has_more)

    def ended(self) -> "PastRecord":
        """What stays known of it when it neither waits nor fails."""
        return replace(self, due_since_ms=None, conflicts=0, conflict_ms=0)


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken from the budgets of one day, counted in days since 1970 in UTC."""

    day: int
    accounts: tuple[tuple[Account, int], ...] = ()


class RunEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last object of a run: what the next run must know. The next one copies it, so that one object is enough.

    `bytes_per_task_second` is what runs achieved; 0 if nothing was measured yet. `saved_bytes` is what all runs saved.
    """

    run: str
    ended_ms: int
    pasts: tuple[PastRecord, ...] = ()
    spent: Spending = Spending(day=0)
    bytes_per_task_second: int = 0
    saved_bytes: int = 0
    settled_by: str = ""

    @property
    def backlog(self) -> int:
        """The operations that are due and were not done."""
        return sum(past.due_since_ms is not None for past in self.pasts)

    @property
    def failing(self) -> int:
        """The operations whose last try did not succeed."""
        return sum(past.conflicts > 0 for past in self.pasts)


NO_END: Final = RunEnd(run="", ended_ms=0)
"""What a run knows that is the first of its workspace."""


def planned_records(plan: Plan, policies: Mapping[str, MergedPolicy], run: str) -> tuple[OperationRecord, ...]:
    """The work of a plan as records, in its order; `policies` are by the uuid of the table."""
    return tuple(_planned(work, policies[work.health.uuid], run, number) for number, work in enumerate(plan.work))


def _planned(work: Work, merged: MergedPolicy, run: str, number: int) -> OperationRecord:
    health = work.health
    return OperationRecord(
        run=run,
        number=number,
        **_named(health),
        operation=work.operation,
        policy_hash=policy_hash(merged),
        why=work.reason,
        estimated_bytes=work.cost_bytes,
        estimated_task_seconds=work.task_seconds,
        accounts=tuple(accounts_of(work, merged).items()),
    )


def skipped_records(skipped: Iterable[Skipped]) -> tuple[SkippedRecord, ...]:
    return tuple(SkippedRecord(**_named(one.health), reason=one.reason, operation=one.operation) for one in skipped)


def _named(health: TableHealth) -> dict[str, Any]:
    return {name: getattr(health, name) for name in ("uuid", "catalog", "namespace", "name", "format")}


def ended_record(
    record: OperationRecord, result: OperationResult, *, now_ms: int, settled_by: str = ""
) -> OperationRecord:
    """The record of an operation with its result."""
    fields = {name: getattr(result, name) for name in OperationResult.__struct_fields__}
    fields["reason"] = result.reason[:REASON_CHARACTERS_MAX]
    return replace(record, **fields, ended_ms=now_ms, settled_by=settled_by)


def run_end(
    before: RunEnd,
    plan: RunPlan,
    ended: Sequence[OperationRecord],
    *,
    now_ms: int,
    tables: Mapping[str, bool] | None = None,
) -> RunEnd:
    """What the run after this one must know: `before` is the end of the previous run, `ended` what this one did.

    `tables` are the ids of all tables, and whether this run looked at what they need; None if that is not known. A
    table that this run did not look at keeps its pasts; one that is gone does not.
    """
    pasts = _with_waiting(before, plan, {uuid for uuid, is_seen in (tables or {}).items() if is_seen})
    pasts = {key: past for key, past in pasts.items() if tables is None or past.uuid in tables}
    for record in ended:
        before_it = pasts.get((record.uuid, record.operation))
        pasts[record.uuid, record.operation] = _past_after(before_it, record)
    kept = tuple(past for past in pasts.values() if past != PastRecord(uuid=past.uuid, operation=past.operation))
    return RunEnd(
        run=plan.run,
        ended_ms=now_ms,
        pasts=kept,
        spent=_spent(before.spent, ended, now_ms),
        bytes_per_task_second=_speed(before.bytes_per_task_second, ended),
        saved_bytes=before.saved_bytes + sum(map(_saved, ended)),
    )


def _with_waiting(
    before: RunEnd, plan: RunPlan, looked_at: AbstractSet[str]
) -> dict[tuple[str, Operation], PastRecord]:
    """What was known before, and since when each operation waits that this run found due."""
    pasts = {(one.uuid, one.operation): one for one in before.pasts}
    seen = {one.uuid for one in plan.operations} | {one.uuid for one in plan.skipped if one.operation is not None}
    seen = (seen - {one.uuid for one in plan.skipped if one.operation is None}) | looked_at
    waiting: set[tuple[str, Operation]] = {(one.uuid, one.operation) for one in plan.operations}
    waiting |= {(one.uuid, one.operation) for one in plan.skipped if one.operation is not None}
    for uuid, operation in waiting | pasts.keys():
        past = pasts.get((uuid, operation)) or PastRecord(uuid=uuid, operation=operation)
        if (uuid, operation) in waiting:
            due_ms = plan.started_ms if past.due_since_ms is None else past.due_since_ms
            pasts[uuid, operation] = replace(past, due_since_ms=due_ms)
        elif uuid in seen:  # It was looked at, and needs this no more: nothing is left to fail.
            pasts[uuid, operation] = past.ended()
    return pasts


def _saved(record: OperationRecord) -> int:
    if record.state != "done":
        return 0
    return saved_bytes(record.bytes_deleted, record.before.bytes, record.after.bytes)


def saved_bytes(deleted: int, before: int | None, after: int | None) -> int:
    """The bytes that left the store, or that readers of the current state need no more."""
    return deleted + (max(0, before - after) if before is not None and after is not None else 0)


def _past_after(found: PastRecord | None, record: OperationRecord) -> PastRecord:
    """A failure waits as long as a conflict: the same work would fail again."""
    past = found or PastRecord(uuid=record.uuid, operation=record.operation)
    match record.state:
        case "skipped" if not record.attempts:
            return past.ended()
        case "skipped" if record.operation in REWRITING:
            return replace(past.ended(), nothing_ms=record.started_ms, nothing_policy=record.policy_hash)
        case "done" | "skipped":
            done_ms = record.ended_ms if record.operation in AT_INTERVALS else None
            has_more = done_ms is not None and record.files_left > 0
            return PastRecord(uuid=past.uuid, operation=past.operation, done_ms=done_ms, has_more=has_more)
        case "conflict" | "failed":
            return replace(past, conflicts=past.conflicts + 1, conflict_ms=record.ended_ms)
        case _:
            return past


def _spent(before: Spending, ended: Sequence[OperationRecord], now_ms: int) -> Spending:
    day = now_ms // _DAY_MS
    spent = Counter(dict(before.accounts) if before.day == day else {})
    for record in ended:
        if record.state in {"done", "conflict", "failed"}:
            spent.update(dict(record.accounts))
    return Spending(day=day, accounts=tuple(spent.items()))


def spent_on(end: RunEnd, now_ms: int) -> Mapping[Account, int]:
    """What earlier runs of this day took from the budgets."""
    return dict(end.spent.accounts) if end.spent.day == now_ms // _DAY_MS else {}


def _speed(before: int, ended: Sequence[OperationRecord]) -> int:
    """The mean of what was known and what this run measured, so that one odd table does not decide alone."""
    measured = [one for one in ended if one.state == "done" and one.task_seconds > 0]
    seconds = sum(one.task_seconds for one in measured)
    if not seconds:
        return before
    now = min(max(int(sum(one.estimated_bytes for one in measured) / seconds), _SPEED_MIN), _SPEED_MAX)
    return (before + now) // 2 if before else now
