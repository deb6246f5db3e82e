"""Plans as they are kept: what was asked, of which snapshot, by whom, and until when.

A plan is only its question: what it asks about never changes, so whichever server is asked can answer. That makes a
plan outlive the server that took it, and costs one small object.
"""

import hashlib
from typing import Literal

import msgspec

from sandur.catalog.sources import Request
from sandur.errors import NotFound, SwapLost
from sandur.iceberg.scan.requests import ScanRequest
from sandur.operations.lake import Lake
from sandur.settings import Settings, seconds_of
from sandur.storage.cell import Cell, Held
from sandur.storage.object_store import ABSENT

FOLDER = "plans"
TTL_MS_MIN = 60_000


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan. `table_uuid` is the catalog's own id of the table; `snapshot_id` is absent when it had no snapshot."""

    plan_id: str
    state: Literal["open", "cancelled"] = "open"
    table_uuid: str
    principal: str
    metadata_location: str
    snapshot_id: int | None
    request: ScanRequest
    entries_per_task: int
    created_ms: int
    expires_ms: int
    event_id: str = ""

    @property
    def work_id(self) -> str:
        """What tells the work on a plan from other work: an id may come back for a later snapshot, with a key."""
        return f"{self.plan_id}@{self.snapshot_id}"


def plan_cell(lake: Lake, plan_id: str) -> Cell[Plan]:
    return Cell(lake.store, lake.layout.operational(FOLDER, plan_id), Plan, lake.clock)


def new_plan_id(lake: Lake, table_uuid: str, request: Request) -> str:
    """A fresh id; with an idempotency key always the same one, so that a repeated request finds its plan."""
    if request.key is None:
        return lake.clock.new_id()
    asked = f"{request.key}\n{request.hash}\n{request.source.principal}\n{table_uuid}"
    return hashlib.sha256(asked.encode()).hexdigest()[:32]


def ttl_ms(settings: Settings) -> int:
    """How long a plan lasts; at least as long as a client may take to ask for the next task."""
    return max(TTL_MS_MIN, seconds_of(settings.plan_ttl) * 1_000)


async def keep_plan(lake: Lake, plan: Plan) -> bool:
    """Write the plan. False when an earlier try of the same request has written one that stands."""
    cell = plan_cell(lake, plan.plan_id)
    try:
        await cell.create(plan)
    except SwapLost:
        held = await cell.read()
        if held is not None and held.value.state == "open" and held.value.expires_ms > plan.created_ms:
            return False
        try:
            await cell.swap(plan, expected=ABSENT if held is None else held.version)
        except SwapLost:
            return False
    return True


async def found_plan(lake: Lake, plan_id: str, *, principal: str) -> Held[Plan]:
    """The plan, for whoever asked for it and while it lasts; NotFound otherwise."""
    held = await plan_cell(lake, plan_id).read() if is_plan_id(plan_id) else None
    if held is None or held.value.principal != principal or held.value.expires_ms <= lake.clock.now_ms():
        raise no_such_plan(plan_id)
    return held


def is_plan_id(text: str) -> bool:
    return 0 < len(text) <= 64 and text.isascii() and text.replace("-", "").isalnum()  # noqa: PLR2004 - as they are made


def no_such_plan(plan_id: str) -> NotFound:
    return NotFound(f"The plan id does not exist: {plan_id[:100]}", subject="plan")
