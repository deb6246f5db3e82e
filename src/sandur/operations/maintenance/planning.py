"""The plan of a maintenance run, from the health that was published last and from what earlier runs did."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sandur.catalog.maintenance.health import Operation, TableHealth
from sandur.catalog.maintenance.plan import BYTES_PER_TASK_SECOND, Past, Plan, Skipped, TableState, plan_of
from sandur.catalog.maintenance.policies import merged_from
from sandur.catalog.maintenance.records import RunEnd, spent_on
from sandur.catalog.maintenance.requests import MaintenanceRequest
from sandur.extras import pa, pc
from sandur.operations.lake import Lake
from sandur.operations.maintenance.requests import list_requests
from sandur.operations.maintenance.runs import last_end, list_runs
from sandur.operations.policies import SYSTEM_NAMESPACE
from sandur.operations.published import PublishedDatasets
from sandur.storage.cell import gather_all

MEASURED: Final = tuple(name for name in TableHealth.__struct_fields__ if name != "blocked")
_COLUMNS: Final = (*MEASURED, "blocked", "policy_json")
HEALTH_COLUMNS: Final = (*_COLUMNS, "needs_json", "benefit")


class PlannedRun(NamedTuple):
    """A plan with what it was made of. `published_ms` is 0 if no health was published yet.

    `requests` are the open requests for tables of the plan, by the uuid of the table. `tables` are the ids of all
    measured tables, and whether the plan looked at what they need; None if no health is published.
    """

    plan: Plan
    states: Mapping[str, TableState]
    before: RunEnd
    published_ms: int
    requests: Mapping[str, MaintenanceRequest] = {}
    tables: Mapping[str, bool] | None = None


def state_of(row: Mapping[str, Any], past: Mapping[Operation, Past] | None = None) -> TableState:
    """A row of `table_health` as the planner needs it."""
    health = TableHealth(**{name: row[name] for name in MEASURED}, blocked=row["blocked"])
    return TableState(health, merged_from(row["policy_json"]), past or {})


async def plan_run(
    lake: Lake,
    *,
    within: str = "",
    is_dry: bool = False,
    before: RunEnd | None = None,
    is_requested: bool = False,
    refuses_own: str = "",
) -> PlannedRun:
    """The plan of a run that starts now; `within` is the name of a catalog, namespace or table, empty for all.

    `is_requested`: as if just all of these tables were requested. `refuses_own` is why this run leaves system tables
    alone; empty if it does not.
    """
    published = lake.feature(PublishedDatasets)
    found, requests, manifest = await gather_all(
        (_last_end(lake, before), _requests(lake, is_assumed=is_requested), published.manifest())
    )
    before, opened = found, {one.uuid: one for one in requests if one.is_open}
    whole = await published.table(manifest, "table_health", _COLUMNS)
    table = within_name(whole, within)
    pasts: dict[str, dict[Operation, Past]] = {}
    for one in before.pasts:
        pasts.setdefault(one.uuid, {})[one.operation] = one.past()
    rows = table.to_pylist()
    left = [row for row in rows if refuses_own and is_system(lake, row["catalog"], row["namespace"])]
    states = [
        state_of(row, pasts.get(row["uuid"]))._replace(is_requested=is_requested or row["uuid"] in opened)
        for row in rows
        if not (refuses_own and is_system(lake, row["catalog"], row["namespace"]))
    ]
    now_ms = lake.clock.now_ms()
    plan = plan_of(
        states,
        now_ms=now_ms,
        is_dry=is_dry,
        spent=spent_on(before, now_ms),
        bytes_per_task_second=before.bytes_per_task_second or BYTES_PER_TASK_SECOND,
    )
    refused = [Skipped(state_of(row).health, None, refuses_own) for row in left]
    plan = plan._replace(skipped=[*plan.skipped, *refused])
    by_uuid = {one.health.uuid: one for one in states}
    taken = {uuid: opened[uuid] for uuid in opened.keys() & by_uuid.keys()}
    refused_ids = {one.health.uuid for one in plan.skipped if one.operation is None}
    # A policy that only reports has nothing that waits or fails.
    looked_at = {uuid for uuid, one in by_uuid.items() if uuid not in refused_ids or one.merged.policy.mode == "report"}
    is_known = "table_health" in manifest.datasets
    tables = {uuid: uuid in looked_at for uuid in whole["uuid"].to_pylist()} if is_known else None
    return PlannedRun(plan, by_uuid, before, manifest.published_ms, taken, tables)


async def _requests(lake: Lake, *, is_assumed: bool) -> Sequence[MaintenanceRequest]:
    return () if is_assumed else await list_requests(lake)


async def _last_end(lake: Lake, before: RunEnd | None) -> RunEnd:
    return await last_end(lake, await list_runs(lake)) if before is None else before


def within_name(table: "pa.Table", name: str) -> "pa.Table":
    """The rows whose table is the named one, or lies in the named catalog or namespace."""
    if not name or not table.num_rows:
        return table
    parts = [table[one].cast(pa.string()) for one in ("catalog", "namespace", "name")]
    full = pc.binary_join_element_wise(*parts, ".")
    return table.filter(pc.or_(pc.equal(full, name), pc.starts_with(full, f"{name}.")))


def is_system(lake: Lake, catalog: str, namespace: str) -> bool:
    """Whether a table is one of the pipeline's own."""
    return (catalog, namespace) == (lake.settings.default_catalog, SYSTEM_NAMESPACE)


def is_in(row: Mapping[str, Any], name: str) -> bool:
    """Whether a table is the named one, or lies in the named catalog or namespace."""
    full = f"{row['catalog']}.{row['namespace']}.{row['name']}"
    return not name or full == name or full.startswith(f"{name}.")
