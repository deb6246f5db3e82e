"""Maintenance at a glance: what was requested, what the next run does, what runs did, and what they saved."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from sandur.catalog.maintenance.health import Operation
from sandur.catalog.maintenance.plan import Past, TableState, plan_of
from sandur.catalog.maintenance.records import NO_END, OperationRecord, RunEnd, RunPlan, saved_bytes, spent_on
from sandur.extras import pa, pc
from sandur.operations.access import authorize_metastore
from sandur.operations.explore.overview import derived
from sandur.operations.explore.visibility import Row, Sight
from sandur.operations.lake import Lake
from sandur.operations.maintenance.planning import HEALTH_COLUMNS, current_scopes, state_of
from sandur.operations.maintenance.reports import plan_rows, request_row
from sandur.operations.maintenance.requests import list_requests
from sandur.operations.maintenance.runs import RunListing, RunRecords, list_runs
from sandur.operations.published import PublishedDatasets
from sandur.storage.cell import gather_all

ROWS_MAX: Final = 50
"""The most rows of each kind."""

_CANDIDATES: Final = 100
_RUNS_READ: Final = 2
_DAYS: Final = 30
_BOTH: Final = ("files", "bytes")
_PAST: Final = (
    *("run", "number", "catalog", "namespace", "name", "uuid", "operation", "state", "why", "reason"),
    *("started_at", "ended_at", "files_before", "files_after", "bytes_before", "bytes_after", "bytes_deleted"),
)


class MaintenanceOverview(msgspec.Struct, frozen=True, kw_only=True):
    """`last` is the end of the newest run that ended. `saved` are bytes by day, for callers who see every table.

    `published_ms` is 0 if nothing was published: then nothing is planned.
    """

    published_ms: int
    last: RunEnd
    requests: Sequence[Row]
    planned: Sequence[Row]
    operations: Sequence[Row]
    saved: Sequence[tuple[str, int]] = ()


class _Recent(msgspec.Struct, frozen=True):
    """The newest runs: the end of the last one that ended, their names, and their operations."""

    last: RunEnd
    runs: frozenset[str]
    rows: Sequence[Row]


async def load_overview(lake: Lake) -> MaintenanceOverview:
    """Everything about maintenance, as far as the caller may see it; each list is bounded."""
    published = lake.feature(PublishedDatasets)
    authority, (manifest, scopes), (recent, requests) = await gather_all(
        (
            authorize_metastore(lake),
            gather_all((published.manifest(), current_scopes(lake))),
            gather_all((_recent(lake), list_requests(lake))),
        )
    )
    sight = Sight(lake, authority)
    rows: Sequence[Row] = await derived(lake, manifest, "table_health", HEALTH_COLUMNS, _needy)
    needy = [state_of(row, scopes.of(row)) for row in rows]
    past: Sequence[Row] = await derived(lake, manifest, "maintenance", _PAST, _newest)
    opened = {one.uuid for one in requests if one.is_open}
    planned = _planned(lake, needy, recent.last, opened)
    done = [*recent.rows, *(row for row in past if row["run"] not in recent.runs)]
    return MaintenanceOverview(
        published_ms=manifest.published_ms,
        last=recent.last,
        requests=await sight.visible([request_row(one) for one in requests], ROWS_MAX),
        planned=await sight.visible(planned, ROWS_MAX),
        operations=await sight.visible(done, ROWS_MAX),
        saved=await derived(lake, manifest, "maintenance", _PAST, saved_by_day) if sight.is_unlimited else (),
    )


async def _recent(lake: Lake) -> _Recent:
    runs = (await list_runs(lake))[-_RUNS_READ:]
    found = await gather_all([_read_run(lake, run) for run in runs])
    ends = [end for _, end in found if end]
    rows = [row for rows, _ in reversed(found) for row in rows]
    return _Recent(ends[-1] if ends else NO_END, frozenset(run.run for run in runs), rows)


async def _read_run(lake: Lake, run: RunListing) -> tuple[Sequence[Row], RunEnd | None]:
    records = RunRecords(lake, run.run)
    begun = gather_all([records.begun(number) for number in run.unsettled[:ROWS_MAX]])
    plan, end, (ended, started) = await gather_all(
        (records.plan(), records.run_end(), gather_all((records.ended(run.ended[-ROWS_MAX:]), begun)))
    )
    known = {one.number: one for one in (*started, *ended) if one}
    return [_row(one) for one in _in_order(plan, known, is_over=end is not None)], end


def _in_order(
    plan: RunPlan | None, known: Mapping[int, OperationRecord], *, is_over: bool
) -> Iterator[OperationRecord]:
    """The operations of a run, newest first; of one that goes on, also those that did not begin."""
    yield from sorted(known.values(), key=lambda one: (-one.started_ms, -one.number))
    if plan and not is_over:
        yield from (one for one in plan.operations[:ROWS_MAX] if one.number not in known)


def _row(record: OperationRecord) -> Row:
    names = ("run", "catalog", "namespace", "name", "uuid", "operation", "state", "started_ms", "ended_ms")
    return {
        **{name: getattr(record, name) for name in names},
        **{f"{name}_before": getattr(record.before, name) for name in _BOTH},
        **{f"{name}_after": getattr(record.after, name) for name in _BOTH},
        "reason": record.reason or record.why,
    }


def _needy(table: "pa.Table") -> Sequence[Row]:
    """The tables that need something, those that gain most first."""
    if not table.num_rows:
        return ()
    needed = table.filter(pc.not_equal(table["needs_json"].cast(pa.string()), "[]"))
    rows: Sequence[Row] = (
        needed.sort_by([("benefit", "descending"), ("uuid", "ascending")]).slice(0, _CANDIDATES).to_pylist()
    )
    return rows


def _planned(lake: Lake, states: Sequence[TableState], before: RunEnd, opened: set[str]) -> Sequence[Row]:
    """What a run would do now to the tables that need most, then what it would skip, and why."""
    pasts: dict[str, dict[Operation, Past]] = {}
    for one in before.pasts:
        pasts.setdefault(one.uuid, {})[one.operation] = one.past()
    now = [one._replace(past=pasts.get(one.health.uuid, {}), is_requested=one.health.uuid in opened) for one in states]
    now_ms = lake.clock.now_ms()
    return plan_rows(plan_of(now, now_ms=now_ms, is_dry=False, spent=spent_on(before, now_ms)))


def _newest(table: "pa.Table") -> Sequence[Row]:
    """The newest operations that began, newest first."""
    begun = table.filter(pc.is_valid(table["started_at"])) if table.num_rows else table
    if not begun.num_rows:
        return ()
    keys = [("started_at", "descending"), ("number", "descending")]
    rows = begun.take(pc.select_k_unstable(begun, k=min(_CANDIDATES, begun.num_rows), sort_keys=keys)).to_pylist()
    return [_past_row(row) for row in rows]


def _past_row(row: Mapping[str, Any]) -> Row:
    times = {f"{name}_ms": _ms(row[f"{name}_at"]) for name in ("started", "ended")}
    return {**row, **times, "reason": row["reason"] or row["why"]}


def _ms(time: Any) -> int:  # noqa: ANN401 - Arrow has no types
    return int(time.timestamp() * 1_000) if time else 0


def saved_by_day(table: "pa.Table") -> Sequence[tuple[str, int]]:
    """The bytes that operations saved on each of the last days that have some, in their order."""
    if not table.num_rows:
        return ()
    done = table.filter(pc.and_(pc.equal(table["state"].cast(pa.string()), "done"), pc.is_valid(table["ended_at"])))
    days: dict[str, int] = {}
    names = ("ended_at", "bytes_deleted", "bytes_before", "bytes_after")
    for row in done.select(names).sort_by("ended_at").to_pylist():
        day = row["ended_at"].date().isoformat()
        days[day] = days.get(day, 0) + saved_bytes(row["bytes_deleted"], row["bytes_before"], row["bytes_after"])
    return tuple(days.items())[-_DAYS:]
