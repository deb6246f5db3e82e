"""Settles operations whose run died, or could not compare rows: the table itself shows what became of them."""

from collections.abc import Sequence

from msgspec.structs import replace

from sandur.catalog.maintenance.health import TableHealth
from sandur.catalog.maintenance.policies import Compaction
from sandur.catalog.maintenance.records import (
    REWRITING,
    Measure,
    OperationRecord,
    OperationResult,
    RunEnd,
    RunPlan,
    ended_record,
    run_end,
)
from sandur.catalog.records import DeltaTable
from sandur.errors import SandurError
from sandur.operations.delta.tables import find_by_id
from sandur.operations.delta.versions import LogFile
from sandur.operations.lake import Lake
from sandur.operations.maintenance.delta_health import checkpoint_since, log_position, measure_delta
from sandur.operations.maintenance.runs import RunListing, RunRecords, last_end
from sandur.pipeline.maintenance.evidence import (
    compacted,
    compactions_of,
    load_metadata,
    measure,
    rewrites_of,
    roll_back,
    rows_differ,
)

_NOTHING = "its run ended before it committed; nothing of it is visible"
_COMPLETE = "its run ended after {} commits, which are complete"
_CHECKPOINT = "its run ended after the checkpoint was written"
_REPEATED = "its run ended early; what was done is visible and complete, and the next run does the rest"


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
    health = TableHealth(
        uuid=begun.uuid, catalog=begun.catalog, namespace=begun.namespace, name=begun.name, format=begun.format
    )
    try:
        if begun.format == "delta":
            return await _settled_delta(lake, begun, health)
        if begun.operation in REWRITING:
            return await _settled_rewrite(lake, begun, health, application)
    except SandurError as error:
        return OperationResult(state="failed", reason=f"its run ended early, and the table cannot be read: {error}")
    return OperationResult(state="failed", reason=_REPEATED)


async def _settled_rewrite(
    lake: Lake, begun: OperationRecord, health: TableHealth, application: str
) -> OperationResult:
    """A rewrite of an Iceberg table, from the snapshots of its application.

    Its run may have died before it compared the rows (rule 7). Here only totals are compared: there is no engine.
    """
    metadata = await load_metadata(lake, health)
    old = frozenset(one.snapshot_id for one in metadata.snapshots if one.timestamp_ms < begun.started_ms)
    made = rewrites_of(old, metadata, application)
    if not made:
        return OperationResult(state="failed", reason=_NOTHING)
    for place, rewrite in enumerate(made):
        if differs := rows_differ(rewrite):
            done = await roll_back(lake, health, made[place:], begun.run)
            return OperationResult(state="failed", reason=f"{differs}; {done}")
    return OperationResult(
        reason=_COMPLETE.format(len(made)),
        before=replace(begun.before),
        after=measure(metadata),
        files_rewritten=sum(one.replaced("deleted-data-files") for one in made),
        bytes_rewritten=sum(one.replaced("removed-files-size") for one in made),
    )


async def _settled_delta(lake: Lake, begun: OperationRecord, health: TableHealth) -> OperationResult:
    """An operation on a Delta table, from its log: commits name their run, and checkpoints are whole or not there."""
    table = (await find_by_id(lake, begun.uuid)).value
    version = (await log_position(lake, table)).version
    match begun.operation:
        case "publish":
            left = [one.version for one in table.commits if one.version > table.published]
            return OperationResult(state="failed" if left else "done", reason=_REPEATED, after=Measure(version=version))
        case "checkpoint":
            checkpoint = await checkpoint_since(lake, table, begun.started_ms)
            if checkpoint is None:
                return OperationResult(state="failed", reason=_NOTHING)
            return OperationResult(reason=_CHECKPOINT, after=Measure(version=checkpoint))
        case "compaction":
            return await _settled_compaction(lake, begun, health, table, version)
        case _:
            return OperationResult(state="failed", reason=_REPEATED)


async def _settled_compaction(
    lake: Lake, begun: OperationRecord, health: TableHealth, table: DeltaTable, version: int
) -> OperationResult:
    """The compaction of a Delta table, from the newest commits that name its run."""
    made = await compactions_of(lake, table, begun.run, upto=version)
    if not made:
        return OperationResult(state="failed", reason=_NOTHING)
    for at, one in made.items():
        if differs := _delta_rows_differ(at, one):
            return OperationResult(state="failed", reason=differs, before=Measure(version=at - 1))
    now = await measure_delta(lake, table, health, Compaction())
    after = Measure(version=version, files=now.data_files, bytes=now.data_bytes)
    return compacted(made, Measure(version=min(made) - 1), after, reason=_COMPLETE.format(len(made)))


def _delta_rows_differ(version: int, commit: LogFile) -> str:
    """Why the rows of a compaction are not those before it; empty if they are equal, or if the log does not say."""
    before, after = ([one.live_rows for one in files] for files in (commit.removed, commit.added))
    if None in before or None in after:
        return ""
    rows = [sum(one or 0 for one in counts) for counts in (before, after)]
    if rows[0] == rows[1]:
        return ""
    return f"version {version} replaces {rows[0]:,} rows by {rows[1]:,}: restore version {version - 1}"
