"""`maintain`: carry out what the policies allow and the tables need, and record it."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from msgspec.structs import replace

from sandur.catalog.maintenance.health import Operation, TableHealth, is_enabled
from sandur.catalog.maintenance.policies import Policy, is_open, with_properties
from sandur.catalog.maintenance.records import (
    OperationRecord,
    OperationResult,
    RunEnd,
    RunPlan,
    SkippedRecord,
    planned_records,
    run_end,
    skipped_records,
)
from sandur.catalog.maintenance.requests import MaintenanceRequest, begun_request, ended_request, waiting_request
from sandur.errors import Unfit
from sandur.operations.maintenance.planning import PlannedRun, plan_run
from sandur.operations.maintenance.requests import change_requests
from sandur.operations.maintenance.runs import RunListing, RunRecords, last_end, list_runs, remove_runs
from sandur.operations.published import ROWS_PER_FILE_MAX
from sandur.pipeline import system_tables
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.maintenance.delta import DeltaMaintenance
from sandur.pipeline.maintenance.engine import Engine, session_refusal
from sandur.pipeline.maintenance.evidence import current_properties, load_metadata
from sandur.pipeline.maintenance.iceberg import IcebergTable
from sandur.pipeline.maintenance.orphans import begin, remove_orphans, vacuum, why_files_stay
from sandur.pipeline.maintenance.runner import Runner, TableWork
from sandur.pipeline.maintenance.settle import settle_runs
from sandur.pipeline.publishing import DatasetUpdate, Publication
from sandur.pipeline.tables import MAINTENANCE, clamped_ms
from sandur.settings import seconds_of
from sandur.spark.sessions import Connection

NAME: Final = "maintain"
_WARNINGS_MAX: Final = 10
_NEVER: Final = "the run ended before it began"
_STATES: Final = ("done", "skipped", "conflict", "failed", "cancelled")


def run(context: JobContext) -> JobReport:
    """Plan from the published health, settle runs that died, do the work, and publish `maintenance`.

    A dry run only counts what would be done.
    """
    context.progress("plan maintenance")
    publication = Publication(context)
    runs = context.wait(list_runs(context.lake))
    settled = 0 if context.dry_run else context.wait(settle_runs(context.lake, runs, settled_by=context.run_id))
    runs = context.wait(list_runs(context.lake)) if settled else runs
    before = context.wait(last_end(context.lake, runs))
    within, refusal = context.arguments.get("name", ""), session_refusal(context.spark)
    planned = context.wait(plan_run(context.lake, within=within, before=before, refuses_own=refusal))
    counts = {"operations_planned": len(planned.plan.work), "skipped": len(planned.plan.skipped), "settled": settled}
    if context.dry_run:
        return context.report(NAME, counts=counts, warnings=_without_health(planned))
    if planned.plan.work:
        ended = _carry_out(context, planned)
    else:
        ended = ()
        _end_without_work(context, planned)
    refused = _publish(context, publication)
    by_state = {f"operations_{state}": sum(one.state == state for one in ended) for state in _STATES}
    saved = sum((one.before.files or 0) - (one.after.files or 0) for one in ended if one.state == "done")
    counts |= {**{name: count for name, count in by_state.items() if count}, "files_saved": saved}
    return context.report(
        NAME,
        counts=counts,
        warnings=(*_without_health(planned), *_problems(ended), *refused),
        published=publication.published,
    )


def _without_health(planned: PlannedRun) -> Sequence[str]:
    return () if planned.states else ("no health of tables is published: run project and health first",)


def _problems(ended: Sequence[OperationRecord]) -> Sequence[str]:
    bad = [one for one in ended if one.state in {"failed", "conflict", "running"}]
    return [f"{one.operation} of {one.catalog}.{one.namespace}.{one.name}: {one.state}: {one.reason}" for one in bad][
        :_WARNINGS_MAX
    ]


def _carry_out(context: JobContext, planned: PlannedRun) -> Sequence[OperationRecord]:
    """The operations that ended, and those that the next run settles."""
    if context.open_catalog is None:
        raise Unfit("maintenance needs a catalog server for Spark: start it with sandur maintain or sandur run")
    with context.open_catalog(context.run_id) as connection, context.another_lake() as shared:
        engine = _engine(context, planned, connection)
        records = RunRecords(context.lake, context.run_id)
        policies = {uuid: state.merged for uuid, state in planned.states.items()}
        plan = RunPlan(
            run=context.run_id,
            started_ms=context.clock.now_ms(),
            application=engine.application,
            operations=planned_records(planned.plan, policies, context.run_id),
            skipped=skipped_records(planned.plan.skipped),
        )
        context.wait(records.write_plan(plan))
        _change_requests(
            context,
            planned,
            lambda one: begun_request(one, planned.plan, context.run_id, now_ms=plan.started_ms),
        )
        runner = Runner(
            engine,
            context.run_id,
            _Performer(context, engine, shared),
            open_lake=context.another_lake,
            check_fence=context.check_fence,
            on_progress=lambda done, total, what: context.progress(
                f"maintain {done}/{total}: {what}", done=done, total=total
            ),
        )
        try:
            runner.run(_tables(planned, plan))
        finally:
            if not runner.unsettled:  # Otherwise the next run ends this one: only then is the table looked at.
                context.wait(records.write_end(_end(context, planned, plan, runner.ended)))
            _end_requests(context, planned, (*runner.ended, *runner.unsettled))
        return *runner.ended, *runner.unsettled


def _end_without_work(context: JobContext, planned: PlannedRun) -> None:
    """Write a run only if it has something to tell the next one, such as that a table is gone."""
    plan = RunPlan(run=context.run_id, started_ms=context.clock.now_ms(), skipped=skipped_records(planned.plan.skipped))
    end = _end(context, planned, plan, ())
    if end.pasts != planned.before.pasts:
        records = RunRecords(context.lake, context.run_id)
        context.wait(records.write_plan(plan))
        context.wait(records.write_end(end))
    _end_requests(context, planned, ())


def _end(context: JobContext, planned: PlannedRun, plan: RunPlan, ended: Sequence[OperationRecord]) -> RunEnd:
    return run_end(planned.before, plan, ended, now_ms=context.clock.now_ms(), tables=planned.tables)


def _end_requests(context: JobContext, planned: PlannedRun, ended: Sequence[OperationRecord]) -> None:
    now_ms = context.clock.now_ms()
    _change_requests(context, planned, lambda one: ended_request(one, planned.plan, ended, now_ms=now_ms))


def _change_requests(
    context: JobContext, planned: PlannedRun, change: Callable[[MaintenanceRequest], MaintenanceRequest]
) -> None:
    context.wait(change_requests(context.lake, planned.requests.values(), change))


def _engine(context: JobContext, planned: PlannedRun, connection: Connection) -> Engine:
    """The engine of the run. If this session cannot do the work, requests say so and wait."""
    try:
        return Engine(context.spark, connection, context.run_id)
    except Unfit as error:
        reason = str(error)
        _change_requests(context, planned, lambda one: waiting_request(one, reason))
        raise


class _Performer:
    """Carries out one operation on a table of either format.

    What deletes files knows the references of all tables. They are read once for all tables of a run, so these
    operations share one lake and follow each other; everything else works on many tables at once.
    """

    def __init__(self, context: JobContext, engine: Engine, shared: BlockingLake) -> None:
        self._context = context
        self._engine = engine
        self._delta = DeltaMaintenance(engine, context.run_id)
        self._removal = begin(shared, context.run_id, context.check_fence)
        self._deleting = threading.Lock()

    def __call__(self, blocking: BlockingLake, work: TableWork, operation: Operation) -> OperationResult:
        if operation in {"orphans", "vacuum"}:
            with self._deleting:
                return self._perform(blocking, work, operation)
        return self._perform(blocking, work, operation)

    def _perform(self, blocking: BlockingLake, work: TableWork, operation: Operation) -> OperationResult:
        health = work.health
        # The health is hours old: what a writer has set since then counts.
        properties = blocking.wait(current_properties(blocking.lake, health))
        policy = with_properties(work.merged, properties).policy
        if refused := _refused(work, policy, operation, blocking.lake.clock.now_ms()):
            return refused
        if operation == "vacuum":
            return vacuum(self._removal, health, policy)
        if operation == "orphans":
            return remove_orphans(self._removal, self._engine.table(health), health, policy)
        if operation == work.records[0].operation and self._is_busy(blocking, health, policy):
            return OperationResult(state="conflict", reason=f"a commit happened within the last {policy.quiet}")
        if health.format == "delta":
            return self._delta.perform(blocking, health, policy, operation)
        table = IcebergTable(self._engine, blocking, health, policy, self._context.run_id)
        return table.perform(operation, conflicts=work.conflicts.get(operation, 0), sharing=self._sharing)

    def _is_busy(self, blocking: BlockingLake, health: TableHealth, policy: Policy) -> bool:
        if health.format == "delta":
            last_ms = blocking.wait(self._delta.last_commit_ms(blocking.lake, health))
        else:
            last_ms = blocking.wait(load_metadata(blocking.lake, health)).last_updated_ms
        return blocking.lake.clock.now_ms() - last_ms < seconds_of(policy.quiet) * 1_000

    def _sharing(self, health: TableHealth, location: str) -> str:
        """Why files of a table may belong to others, too (O8); empty if they do not."""
        with self._deleting:
            return why_files_stay(self._removal, health, location)


def _refused(work: TableWork, policy: Policy, operation: Operation, now_ms: int) -> OperationResult | None:
    """The result of an operation that may not begin now; None if it may."""
    if reason := _turned_off(work, policy, operation):
        return OperationResult(state="skipped", reason=reason, attempts=0)
    if work.obeys_window and not is_open(policy.window, now_ms):
        return OperationResult(state="cancelled", reason=f"the window {policy.window} UTC closed", attempts=0)
    return None


def _turned_off(work: TableWork, policy: Policy, operation: Operation) -> str:
    """Why the properties that the table has now forbid what was planned; empty if they do not."""
    if policy.mode == "report" and work.merged.policy.mode == "run":
        return "a property of the table turned maintenance off"
    return "" if is_enabled(operation, policy) else f"a property of the table turned {operation} off"


def _tables(planned: PlannedRun, plan: RunPlan) -> Sequence[TableWork]:
    """The work by table, in the order of the plan."""
    found: dict[str, list[OperationRecord]] = {}
    for record in plan.operations:
        found.setdefault(record.uuid, []).append(record)
    return [
        TableWork(
            planned.states[uuid].health,
            planned.states[uuid].merged,
            records,
            {operation: past.conflicts for operation, past in planned.states[uuid].past.items()},
            obeys_window=planned.states[uuid].obeys("window"),
        )
        for uuid, records in found.items()
    ]


def _publish(context: JobContext, publication: Publication) -> Sequence[str]:
    """Publish the rows of all runs that ended and are not published yet, then remove old runs."""
    context.progress("publish maintenance")
    before = publication.dataset(MAINTENANCE)
    known = frozenset(row.run for row in publication.read(MAINTENANCE).select("run").distinct().collect())
    runs = [one for one in context.wait(list_runs(context.lake)) if one.is_over and one.run not in known]
    by_run = {one.run: context.wait(_rows(context, one)) for one in runs}
    rows = [row for found in by_run.values() for row in found]
    if rows:
        new = context.spark.createDataFrame(pa.Table.from_pylist(rows, schema=MAINTENANCE.plain_arrow_schema))
        total = len(rows)
        if before.is_scattered:
            total += before.rows
            new = new.unionByName(publication.read(MAINTENANCE))
        files = publication.write(new.coalesce(-(-total // ROWS_PER_FILE_MAX)), MAINTENANCE)
        publication.publish({MAINTENANCE.name: DatasetUpdate(files, {}, appends=not before.is_scattered)})
    ended_before_ms = context.clock.now_ms() - seconds_of(context.settings.report_retention) * 1_000
    known |= {run for run, found in by_run.items() if not found}
    context.wait(remove_runs(context.lake, ended_before_ms=ended_before_ms, published=known))
    return system_tables.refresh(context, publication.manifest, (MAINTENANCE,))


async def _rows(context: JobContext, run: RunListing) -> Sequence[Mapping[str, Any]]:
    """The operations of a run, then those that were due and that it skipped."""
    records = RunRecords(context.lake, run.run)
    plan = await records.plan()
    if plan is None:
        return ()
    ended = {one.number: one for one in await records.ended(run.ended)}
    operations = [ended.get(one.number) or replace(one, state="cancelled", reason=_NEVER) for one in plan.operations]
    skipped = [one for one in plan.skipped if one.operation]
    return [
        *(_row(one) for one in operations),
        *(_skipped_row(plan.run, len(operations) + place, one) for place, one in enumerate(skipped)),
    ]


def _row(record: OperationRecord) -> Mapping[str, Any]:
    before, after = record.before, record.after
    both = ("version", "files", "bytes", "rows", "delete_files", "snapshots")
    return {
        **{
            name: getattr(record, name)
            for name in MAINTENANCE.column_names
            if name in OperationRecord.__struct_fields__
        },
        "started_at": _timestamp(record.started_ms),
        "ended_at": _timestamp(record.ended_ms),
        **{f"{name}_before": getattr(before, name) for name in both},
        **{f"{name}_after": getattr(after, name) for name in both},
    }


def _skipped_row(run: str, number: int, skipped: SkippedRecord) -> Mapping[str, Any]:
    known = {name: getattr(skipped, name) for name in ("uuid", "catalog", "namespace", "name", "format", "reason")}
    operation = skipped.operation or "compaction"
    record = OperationRecord(run=run, number=number, operation=operation, state="skipped", attempts=0, **known)
    return _row(record)


def _timestamp(time_ms: int) -> int | None:
    """A time for Arrow, in microseconds; None if it never came."""
    return clamped_ms(time_ms) * 1_000 if time_ms else None


MAINTAIN: Final = Job(NAME, "Carry out the maintenance that policies allow, and record it.", run)
