"""Maintenance for people: the plan of a run that would start now, and what the latest runs did."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from sandur.catalog.identifiers import Identifier, full_name_of
from sandur.catalog.maintenance.health import TableHealth
from sandur.catalog.maintenance.plan import Plan
from sandur.catalog.maintenance.records import OperationRecord
from sandur.catalog.maintenance.requests import MaintenanceRequest
from sandur.operations.access import authorize_metastore, read_authority
from sandur.operations.lake import Lake
from sandur.operations.maintenance.planning import is_in, plan_run
from sandur.operations.maintenance.requests import list_requests
from sandur.operations.maintenance.runs import RunListing, RunRecords, list_runs
from sandur.operations.table_health import first_visible, visible_rows

ROWS_MAX: Final = 1_000
"""The most rows of an answer."""

_NAMED: Final = ("catalog", "namespace", "name", "uuid", "format")


class PlanReport(msgspec.Struct, frozen=True, kw_only=True):
    """`published_ms` is when the health was published that the plan is made of; 0 if it never was.

    `is_cut`: there are more rows, or not all were looked at.
    """

    published_ms: int
    rows: Sequence[Mapping[str, Any]]
    is_cut: bool = False


class OperationReport(msgspec.Struct, frozen=True, kw_only=True):
    """Operations of the latest runs, newest first."""

    rows: Sequence[Mapping[str, Any]]
    is_cut: bool = False


async def load_plan(lake: Lake, *, within: str = "", limit: int = ROWS_MAX) -> PlanReport:
    """What a run would do now to the tables that the caller may see, with estimates; then what it would skip, and why.

    Nothing is written.
    """
    await authorize_metastore(lake)
    planned = await plan_run(lake, within=within)
    shown = await first_visible(lake, await read_authority(lake), plan_rows(planned.plan), limit)
    return PlanReport(published_ms=planned.published_ms, rows=shown.rows, is_cut=shown.is_cut)


async def load_request_plan(lake: Lake, identifier: Identifier) -> PlanReport:
    """What the next run would do if maintenance of the table were requested now; the caller authorizes, and selects
    the rows of the uuid that the name has.
    """
    planned = await plan_run(lake, within=full_name_of(identifier), is_requested=True)
    return PlanReport(published_ms=planned.published_ms, rows=plan_rows(planned.plan))


async def load_requests(lake: Lake, *, within: str = "", limit: int = 100) -> OperationReport:
    """The latest request for each table that the caller may see, newest first."""
    await authorize_metastore(lake)
    rows = [row for one in await list_requests(lake) if is_in(row := request_row(one), within)]
    shown = await visible_rows(lake, await read_authority(lake), rows)
    return OperationReport(rows=shown[:limit], is_cut=len(shown) > limit)


def request_row(request: MaintenanceRequest) -> Mapping[str, Any]:
    names = ("requested_ms", "requested_by", "state", "run", "started_ms", "ended_ms", "reason")
    return {name: getattr(request, name) for name in (*_NAMED, *names)}


async def load_operations(lake: Lake, *, within: str = "", limit: int = 100) -> OperationReport:
    """What the latest runs did to tables that the caller may see; one that runs now has the state `running`."""
    await authorize_metastore(lake)
    authority = await read_authority(lake)
    shown: list[Mapping[str, Any]] = []
    for run in reversed(await list_runs(lake)):
        rows = [row for one in await _operations(lake, run) if is_in(row := _operation_row(one), within)]
        shown += await visible_rows(lake, authority, rows)
        if len(shown) > limit:
            break
    return OperationReport(rows=shown[:limit], is_cut=len(shown) > limit)


async def _operations(lake: Lake, run: RunListing) -> Sequence[OperationRecord]:
    records = RunRecords(lake, run.run)
    ended = await records.ended(run.ended[-ROWS_MAX:])
    begun = [found for number in run.unsettled[:ROWS_MAX] if (found := await records.begun(number))]
    return sorted((*ended, *begun), key=lambda one: (-one.started_ms, -one.number))


def _operation_row(record: OperationRecord) -> Mapping[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(record)
    row.pop("accounts", None)
    return {**row, "state": record.state}


def plan_rows(plan: Plan) -> Sequence[Mapping[str, Any]]:
    """The work in its order, then what is skipped, then what would find nothing."""
    work = [
        {
            **_table(one.health),
            "operation": one.operation,
            "reason": one.reason,
            "score": round(one.score, 3),
            "cost_bytes": one.cost_bytes,
            "task_seconds": one.task_seconds,
            "waiting_days": round(one.waiting_days, 2),
        }
        for one in plan.work
    ]
    return [
        *work,
        *(
            {**_table(one.health), "operation": one.operation or "", "skipped": one.reason}
            for one in (*plan.skipped, *plan.idle)
        ),
    ]


def _table(health: TableHealth) -> dict[str, Any]:
    return {name: getattr(health, name) for name in _NAMED}
