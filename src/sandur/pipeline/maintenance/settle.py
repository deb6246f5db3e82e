"""Settles the operations of runs that died: the table itself shows what became of them."""

from collections.abc import Sequence

from msgspec.structs import replace

from sandur.catalog.maintenance.health import TableHealth
from sandur.catalog.maintenance.records import (
    OperationRecord,
    OperationResult,
    RunEnd,
    RunPlan,
    ended_record,
    run_end,
)
from sandur.errors import SandurError
from sandur.operations.lake import Lake
from sandur.operations.maintenance.runs import RunListing, RunRecords, last_end
from sandur.pipeline.maintenance.evidence import load_metadata, measure, rewrites_of

_REWRITING = frozenset({"compaction", "deletes", "manifests"})
_NOTHING = "its run died before it committed; nothing of it is visible"
_REPEATED = "its run died; what was done is visible and complete, and the next run does the rest"


async def settle_runs(lake: Lake, runs: Sequence[RunListing], *, settled_by: str) -> int:
    """Write the missing ends of all runs but the current one; returns the number of operations that were settled."""
    settled = 0
    for place, run in enumerate(runs):
        if run.is_over or run.run == settled_by:
            continue
        settled += await _settle(lake, run, await last_end(lake, runs[:place]), settled_by)
    return settled


async def _settle(lake: Lake, run: RunListing, before: RunEnd, settled_by: str) -> int:
    records = RunRecords(lake, run.run)
    plan = await records.plan() or RunPlan(run=run.run, started_ms=0)
    ended = list(await records.ended(run.ended))
    for number in run.unsettled:
        begun = await records.begun(number)
        if begun is None:
            continue
        result = await _settled_result(lake, begun, plan.application)
        record = ended_record(begun, result, now_ms=lake.clock.now_ms(), settled_by=settled_by)
        await records.end(record)
        ended.append(record)
    end = run_end(before, plan, ended, now_ms=lake.clock.now_ms())
    await records.write_end(replace(end, settled_by=settled_by))
    return len(run.unsettled)


async def _settled_result(lake: Lake, begun: OperationRecord, application: str) -> OperationResult:
    if begun.format != "iceberg" or begun.operation not in _REWRITING:
        return OperationResult(state="failed", reason=_REPEATED)
    health = TableHealth(
        uuid=begun.uuid, catalog=begun.catalog, namespace=begun.namespace, name=begun.name, format=begun.format
    )
    try:
        metadata = await load_metadata(lake, health)
    except SandurError as error:
        return OperationResult(state="failed", reason=f"its run died, and the table cannot be read: {error}")
    old = frozenset(one.snapshot_id for one in metadata.snapshots if one.timestamp_ms < begun.started_ms)
    made = rewrites_of(old, metadata, application)
    if not made:
        return OperationResult(state="failed", reason=_NOTHING)
    return OperationResult(
        reason=f"its run died after {len(made)} commits, which are complete",
        before=replace(begun.before),
        after=measure(metadata),
        files_rewritten=sum(one.replaced("deleted-data-files") for one in made),
        bytes_rewritten=sum(one.replaced("removed-files-size") for one in made),
    )
