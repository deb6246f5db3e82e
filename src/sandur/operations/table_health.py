"""The health of tables as it was published last, and the order in which maintenance would help them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from sandur.catalog.identifiers import Identifier, full_name_of
from sandur.catalog.maintenance.health import Need, Operation, TableHealth, needs_of
from sandur.catalog.maintenance.plan import Past, Plan, plan_of
from sandur.catalog.maintenance.policies import Policy
from sandur.catalog.maintenance.requests import MaintenanceRequest
from sandur.catalog.security.manifest import Authority
from sandur.extras import pa, pc
from sandur.operations.access import authorize_metastore, read_authority, resolve_authorized
from sandur.operations.explore.visibility import Sight
from sandur.operations.lake import Lake
from sandur.operations.maintenance.planning import MEASURED, current_scopes, current_scopes_of, state_of
from sandur.operations.maintenance.requests import request_cell
from sandur.operations.published import PublishedDatasets
from sandur.operations.tables.names import name_not_found
from sandur.storage.cell import gather_all, gather_in_batches

TABLES_MAX: Final = 1_000
"""The most tables of an answer: those that a plan would help most."""
LOOKED_AT_MAX: Final = 20_000
"""The most rows whose table is looked at for one answer: the caller may see few of them."""

_PAGE_ROWS: Final = 1_000
_CHECKS_AT_ONCE: Final = 64
_NAMED: Final = ("catalog", "namespace", "name", "uuid")
_COLUMNS: Final = (*MEASURED, "blocked", "mode", "benefit", "needs_json", "policy_json")
_BY_INTERVAL: Final[tuple[Operation, ...]] = ("orphans", "statistics", "vacuum")


class HealthRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One operation that a table needs, with the estimates of the plan; or the reason why nothing is done to it."""

    name: str
    format: str
    mode: str
    operation: str = ""
    reason: str = ""
    skipped: str = ""
    score: float | None = None
    cost_bytes: int | None = None
    data_files: int | None = None
    small_files: int | None = None
    expirable_snapshots: int | None = None


class HealthReport(msgspec.Struct, frozen=True, kw_only=True):
    """`published_ms` is 0 if nothing was published yet. `is_cut`: more tables need something, or may do so."""

    published_ms: int
    rows: Sequence[HealthRow]
    is_cut: bool = False


async def load_table_health(lake: Lake, *, worst: int) -> HealthReport:
    """What the tables in the worst health need, of those that the caller may see.

    The plan is a dry one: it contains the tables whose policy only reports. Work at intervals is left out, because only
    the run that does it knows when it was done last.
    """
    await authorize_metastore(lake)
    published = lake.feature(PublishedDatasets)
    manifest, scopes = await gather_all((published.manifest(), current_scopes(lake)))
    table = await published.table(manifest, "table_health", _COLUMNS)
    found = [row for row in table.to_pylist() if row["needs_json"] != "[]" or row["blocked"]]
    found.sort(key=lambda row: (-(row["benefit"] or 0.0), row["catalog"], row["namespace"], row["name"]))
    shown = await first_visible(lake, await read_authority(lake), found, TABLES_MAX)
    now_ms = lake.clock.now_ms()
    not_due = dict.fromkeys(_BY_INTERVAL, Past(done_ms=now_ms + 1))  # Also if its interval is zero.
    states = [state_of(row, scopes.of(row), not_due) for row in shown.rows]
    modes = {state.health.uuid: state.merged.policy.mode for state in states}
    rows = list(_rows(plan_of(states, now_ms=now_ms, is_dry=True), modes))
    return HealthReport(published_ms=manifest.published_ms, rows=rows[:worst], is_cut=len(rows) > worst or shown.is_cut)


class VisibleRows(NamedTuple):
    """The first rows that a caller may see. `is_cut`: there are more, or not all rows were looked at."""

    rows: Sequence[Mapping[str, Any]]
    is_cut: bool


async def first_visible(
    lake: Lake, authority: Authority | None, rows: Sequence[Mapping[str, Any]], wanted: int
) -> VisibleRows:
    """The first `wanted` rows whose table the caller may see, of as many rows as are looked at for one answer."""
    sight = Sight(lake, authority)
    found: list[Mapping[str, Any]] = []
    looked_at = rows[:LOOKED_AT_MAX]
    for start in range(0, len(looked_at), _PAGE_ROWS):
        found += await _seen(sight, looked_at[start : start + _PAGE_ROWS])
        if len(found) > wanted:
            break
    return VisibleRows(found[:wanted], len(found) > wanted or len(rows) > len(looked_at))


async def visible_rows(
    lake: Lake, authority: Authority | None, rows: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    """Those rows whose table the caller may see; a row has `catalog`, `namespace`, `name` and `uuid`."""
    return await _seen(Sight(lake, authority), rows)


async def _seen(sight: Sight, rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    visible = await gather_in_batches(
        rows, lambda row: sight.sees(*(row[name] for name in _NAMED)), at_once=_CHECKS_AT_ONCE
    )
    return [row for row, is_visible in zip(rows, visible, strict=True) if is_visible]


class TableHealthDetail(msgspec.Struct, frozen=True, kw_only=True):
    """The health of one table, with the policy of now that judges it. `health` is None if it was not measured yet.

    `request` is the latest request for its maintenance; None if there was none, or it is long over.
    """

    published_ms: int
    measured_ms: int = 0
    health: TableHealth | None = None
    policy: Policy = Policy()
    needs: Sequence[Need] = ()
    request: MaintenanceRequest | None = None


async def load_health_of(lake: Lake, identifier: Identifier) -> TableHealthDetail:
    """The health of a table that the caller may read, as it was measured last."""
    published = lake.feature(PublishedDatasets)
    missing = name_not_found(identifier, "table")
    found, manifest = await gather_all(
        (
            resolve_authorized(lake, identifier, lambda one: one.name.value.kind == "table", missing=missing),
            published.manifest(),
        )
    )
    (table, held), scopes = await gather_all(
        (
            gather_all(
                (
                    published.table(manifest, "table_health", (*_COLUMNS, "measured_at")),
                    request_cell(lake, found.uuid).read(),
                )
            ),
            current_scopes_of(lake, manifest, identifier, found.uuid),
        )
    )
    request = held.value if held else None
    rows = table.filter(pc.equal(table["uuid"].cast(pa.string()), found.uuid)).to_pylist() if table.num_rows else []
    if not rows:
        return TableHealthDetail(published_ms=manifest.published_ms, request=request)
    state = state_of(rows[0], scopes)
    return TableHealthDetail(
        published_ms=manifest.published_ms,
        measured_ms=int(rows[0]["measured_at"].timestamp() * 1_000),
        health=state.health,
        policy=state.merged.policy,
        needs=tuple(needs_of(state.health, state.merged.policy)) if not state.health.blocked else (),
        request=request,
    )


def _rows(plan: Plan, modes: Mapping[str, str]) -> Iterator[HealthRow]:
    """The work in the order of the plan, then what is skipped."""
    for work in plan.work:
        yield HealthRow(
            **_shared(work.health, modes),
            operation=work.operation,
            reason=work.reason,
            score=round(work.score, 3),
            cost_bytes=work.cost_bytes,
        )
    for skipped in plan.skipped:
        yield HealthRow(**_shared(skipped.health, modes), operation=skipped.operation or "", skipped=skipped.reason)


def _shared(health: TableHealth, modes: Mapping[str, str]) -> dict[str, Any]:
    name = full_name_of(Identifier(health.catalog, tuple(health.namespace.split(".")), health.name))
    return {
        "name": name,
        "format": health.format,
        "mode": modes[health.uuid],
        "data_files": health.data_files,
        "small_files": health.small_files,
        "expirable_snapshots": health.expirable_snapshots,
    }
