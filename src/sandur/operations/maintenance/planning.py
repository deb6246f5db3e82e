"""The plan of a maintenance run, from the health that was published last and from what earlier runs did."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sandur.catalog.identifiers import Identifier
from sandur.catalog.maintenance.health import Operation, TableHealth
from sandur.catalog.maintenance.plan import BYTES_PER_TASK_SECOND, Past, Plan, Skipped, TableState, plan_of
from sandur.catalog.maintenance.policies import PolicyRecord, ScopePolicy, merged_again
from sandur.catalog.maintenance.records import RunEnd, spent_on
from sandur.catalog.maintenance.requests import MaintenanceRequest
from sandur.extras import pa, pc
from sandur.operations.lake import Lake
from sandur.operations.maintenance.requests import list_requests
from sandur.operations.maintenance.runs import last_end, list_runs
from sandur.operations.policies import (
    SYSTEM_NAMESPACE,
    WORKSPACE,
    Scopes,
    read_policies,
    read_policies_of,
    scopes_of,
)
from sandur.operations.published import CoreManifest, PublishedDatasets
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


def state_of(
    row: Mapping[str, Any], scopes: Sequence[ScopePolicy], past: Mapping[Operation, Past] | None = None
) -> TableState:
    """A row of `table_health` as the planner needs it, by the policies of its scopes as they are now."""
    return TableState(_health_of(row), merged_again(scopes, row["policy_json"]), past or {})


def _health_of(row: Mapping[str, Any]) -> TableHealth:
    return TableHealth(**{name: row[name] for name in MEASURED}, blocked=row["blocked"])


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
    (found, requests), (manifest, scopes) = await gather_all(
        (
            gather_all((_last_end(lake, before), _requests(lake, is_assumed=is_requested))),
            gather_all((published.manifest(), current_scopes(lake))),
        )
    )
    before, opened = found, {one.uuid: one for one in requests if one.is_open}
    whole = await published.table(manifest, "table_health", _COLUMNS)
    left: list[Mapping[str, Any]] = []
    planned: list[Mapping[str, Any]] = []
    for row in within_name(whole, within).to_pylist():
        (left if refuses_own and is_system(lake, row["catalog"], row["namespace"]) else planned).append(row)
    pasts = _pasts(before)
    states = [
        state_of(row, scopes.of(row), pasts.get(row["uuid"]))._replace(
            is_requested=is_requested or row["uuid"] in opened
        )
        for row in planned
    ]
    now_ms = lake.clock.now_ms()
    plan = plan_of(
        states,
        now_ms=now_ms,
        is_dry=is_dry,
        spent=spent_on(before, now_ms),
        bytes_per_task_second=before.bytes_per_task_second or BYTES_PER_TASK_SECOND,
    )
    refused = [Skipped(_health_of(row), None, refuses_own) for row in left]
    plan = plan._replace(skipped=[*plan.skipped, *refused])
    by_uuid = {one.health.uuid: one for one in states}
    taken = {uuid: opened[uuid] for uuid in opened.keys() & by_uuid.keys()}
    tables = _looked_at(whole, plan, by_uuid) if "table_health" in manifest.datasets else None
    return PlannedRun(plan, by_uuid, before, manifest.published_ms, taken, tables)


def _pasts(before: RunEnd) -> Mapping[str, Mapping[Operation, Past]]:
    """What earlier runs did, by the id of the table."""
    found: dict[str, dict[Operation, Past]] = {}
    for one in before.pasts:
        found.setdefault(one.uuid, {})[one.operation] = one.past()
    return found


def _looked_at(whole: "pa.Table", plan: Plan, states: Mapping[str, TableState]) -> Mapping[str, bool]:
    """All tables, and whether the plan looked at what they need. One that only reports has nothing that waits."""
    refused = {one.health.uuid for one in plan.skipped if one.operation is None}
    seen = {uuid for uuid, one in states.items() if uuid not in refused or one.merged.policy.mode == "report"}
    return {uuid: uuid in seen for uuid in whole["uuid"].to_pylist()}


async def current_scopes(lake: Lake) -> Scopes:
    """The policies of now, for the names that are published."""
    published = lake.feature(PublishedDatasets)
    policies, manifest = await gather_all((read_policies(lake), published.manifest()))
    if policies.keys() <= {WORKSPACE}:
        return scopes_of(policies, (), (), lake.settings.default_catalog)
    catalogs, namespaces = await _read_containers(published, manifest)
    return _scopes(lake, policies, catalogs, namespaces)


async def current_scopes_of(
    lake: Lake, manifest: CoreManifest, identifier: Identifier, uuid: str
) -> Sequence[ScopePolicy]:
    """The policies of now of one table, from the workspace down. No others are read."""
    catalogs, namespaces = await _read_containers(lake.feature(PublishedDatasets), manifest)
    catalog, levels = identifier.catalog, identifier.levels
    above = [".".join(levels[:depth]) for depth in range(1, len(levels) + 1)]
    catalogs = catalogs.filter(_is_in(catalogs["name"], [catalog]))
    namespaces = namespaces.filter(_is_in(namespaces["catalog"], [catalog]))
    namespaces = namespaces.filter(_is_in(namespaces["namespace"], above))
    ids = [*catalogs["id"].to_pylist(), *namespaces["id"].to_pylist()]
    policies = await read_policies_of(lake, (WORKSPACE, *ids, uuid))
    row = {"catalog": catalog, "namespace": str(identifier.namespace), "uuid": uuid}
    return _scopes(lake, policies, catalogs, namespaces).of(row)


def _is_in(column: "pa.ChunkedArray", values: Sequence[str]) -> "pa.ChunkedArray":
    return pc.is_in(column.cast(pa.string()), value_set=pa.array(values, pa.string()))


async def _read_containers(published: PublishedDatasets, manifest: CoreManifest) -> "tuple[pa.Table, pa.Table]":
    """The catalogs and namespaces that are published, with their ids."""
    catalogs, namespaces = await gather_all(
        (
            published.table(manifest, "catalogs", ("name", "id")),
            published.table(manifest, "namespaces", ("catalog", "namespace", "id")),
        )
    )
    return catalogs, namespaces


def _scopes(lake: Lake, policies: Mapping[str, PolicyRecord], catalogs: "pa.Table", namespaces: "pa.Table") -> Scopes:
    return scopes_of(
        policies,
        [(row["name"], row["id"]) for row in catalogs.to_pylist()],
        [(row["catalog"], row["namespace"], row["id"]) for row in namespaces.to_pylist()],
        lake.settings.default_catalog,
    )


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
