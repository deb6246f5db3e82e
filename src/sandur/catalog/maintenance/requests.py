"""Requests for the maintenance of one table: a person makes one, the next run takes it up and records the outcome.

A request takes the place of the mode and the window of a policy, unless a scope locks them, and goes before all other
work. Budgets, the quiet time after a commit, and what blocks a table hold for it, too: then it waits for a later run.
"""

from collections.abc import Sequence
from typing import Final, Literal

from msgspec.structs import replace

from sandur.catalog.events import CatalogEvent
from sandur.catalog.identifiers import Format
from sandur.catalog.maintenance.plan import Plan
from sandur.catalog.maintenance.records import REASON_CHARACTERS_MAX, OperationRecord
from sandur.catalog.record_versions import Record
from sandur.catalog.records import LastChange

RequestState = Literal["requested", "running", "done", "conflict", "failed"]

_OPEN: Final[frozenset[RequestState]] = frozenset({"requested", "running"})
_CUT_SHORT: Final = "the run ended before its work was done"


class MaintenanceRequest(Record, frozen=True, kw_only=True):
    """The latest request for one table. `reason` says what came of it, or why it waits. `run` is the run that took it.

    A request that is `running` under a run that died is taken up again by the next one. A request is no event of the
    catalog, so `last_event` stays None; the commits of its run are events of their table.
    """

    uuid: str
    catalog: str
    namespace: str
    name: str
    format: Format
    requested_ms: int
    requested_by: str = ""
    state: RequestState = "requested"
    run: str = ""
    started_ms: int = 0
    ended_ms: int = 0
    reason: str = ""
    change: LastChange | None = None
    last_event: CatalogEvent | None = None

    @property
    def is_open(self) -> bool:
        return self.state in _OPEN


def begun_request(request: MaintenanceRequest, plan: Plan, run: str, *, now_ms: int) -> MaintenanceRequest:
    """The request, if a run with this plan works on its table."""
    if not any(one.health.uuid == request.uuid for one in plan.work):
        return request
    return replace(request, state="running", run=run, started_ms=now_ms, ended_ms=0, reason="")


def ended_request(
    request: MaintenanceRequest, plan: Plan, ended: Sequence[OperationRecord], *, now_ms: int
) -> MaintenanceRequest:
    """The request after a run with this plan, of which these operations began; one that is `running` has no end."""
    own = [one for one in ended if one.uuid == request.uuid]
    states = {one.state for one in own}
    state: RequestState = "failed" if "failed" in states else "conflict" if "conflict" in states else "done"
    if state == "done" and states & {"cancelled", "running"}:
        return waiting_request(request, _CUT_SHORT)
    if not own and (reason := _reason_to_wait(request.uuid, plan)):
        return waiting_request(request, reason)
    reason = "; ".join(map(_outcome, own)) or "nothing was due"
    return replace(request, state=state, ended_ms=now_ms, reason=reason[:REASON_CHARACTERS_MAX])


def _reason_to_wait(uuid: str, plan: Plan) -> str:
    """Why a run did nothing for a table that needs something; empty if nothing was due."""
    if any(one.health.uuid == uuid for one in plan.work):
        return _CUT_SHORT
    return "; ".join(dict.fromkeys(one.reason for one in plan.skipped if one.health.uuid == uuid))


def waiting_request(request: MaintenanceRequest, reason: str) -> MaintenanceRequest:
    """The request, left for a later run."""
    return replace(request, state="requested", run="", started_ms=0, reason=reason[:REASON_CHARACTERS_MAX])


def _outcome(record: OperationRecord) -> str:
    return f"{record.operation}: {record.state}" + (f" ({record.reason})" if record.reason else "")
