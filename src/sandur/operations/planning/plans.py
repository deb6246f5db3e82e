"""Scan plans: create one, fetch its result, cancel it, and fetch its tasks.

A plan is only its question: what it asks about never changes, so whichever server is asked can answer. That makes a
plan outlive the server that took it, and costs one small object.
"""

import hashlib
from collections.abc import Awaitable
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier
from sandur.catalog.sources import Request
from sandur.errors import BadRequest, Busy, NotFound, SandurError, SwapLost
from sandur.iceberg.scan.requests import Scan, ScanRequest, scan_of
from sandur.iceberg.table_metadata import TableMetadata
from sandur.operations.concurrency import gather_all
from sandur.operations.lake import Lake
from sandur.operations.planning.cache import Answered
from sandur.operations.planning.manifests import Manifests, aside
from sandur.operations.planning.plan_tasks import decoded_task, no_such_task
from sandur.operations.planning.scan import Limits, Selecting, run_plan, run_task
from sandur.operations.tables.documents import TABLES, Document, load_document
from sandur.operations.tables.load import current_document
from sandur.operations.tables.locations import allowed_roots
from sandur.operations.tables.names import resolve_name
from sandur.settings import Settings, seconds_of
from sandur.storage.cell import Cell, Versioned
from sandur.storage.contract import ABSENT

PLANS_FOLDER = "plans"
PLAN_TTL_MS_MIN = 60_000


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
    return Cell(lake.store, lake.layout.operational(PLANS_FOLDER, plan_id), Plan, lake.clock)


def new_plan_id(lake: Lake, table_uuid: str, request: Request) -> str:
    """A fresh id; with an idempotency key always the same one, so that a repeated request finds its plan."""
    if request.key is None:
        return lake.clock.new_id()
    asked = f"{request.key}\n{request.hash}\n{request.source.principal}\n{table_uuid}"
    return hashlib.sha256(asked.encode()).hexdigest()[:32]


def plan_ttl_ms(settings: Settings) -> int:
    """How long a plan lasts; at least as long as a client may take to ask for the next task."""
    return max(PLAN_TTL_MS_MIN, seconds_of(settings.plan_ttl) * 1_000)


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


async def found_plan(lake: Lake, plan_id: str, *, principal: str) -> Versioned[Plan]:
    """The plan, for whoever asked for it and while it lasts; NotFound otherwise."""
    held = await plan_cell(lake, plan_id).read() if is_plan_id(plan_id) else None
    if held is None or held.value.principal != principal or held.value.expires_ms <= lake.clock.now_ms():
        raise no_such_plan(plan_id)
    return held


def is_plan_id(text: str) -> bool:
    return 0 < len(text) <= 64 and text.isascii() and text.replace("-", "").isalnum()  # noqa: PLR2004 - as they are made


def no_such_plan(plan_id: str) -> NotFound:
    return NotFound(f"The plan id does not exist: {plan_id[:100]}", subject="plan")


CANCEL_TRIES_MAX: Final = 4


class Submitted(NamedTuple):
    """The plan is being worked out: ask again."""

    plan_id: str


class Cancelled(NamedTuple):
    """The plan was given up."""

    plan_id: str


class Failed(NamedTuple):
    """The plan cannot be worked out, and will not be."""

    plan_id: str
    error: SandurError


class Completed(NamedTuple):
    """The plan is worked out."""

    plan_id: str
    answered: Answered


Result = Submitted | Cancelled | Failed | Completed


async def plan_table_scan(lake: Lake, identifier: Identifier, scan_request: ScanRequest, request: Request) -> Result:
    """Plan a scan of the table as it is now. What takes too long is answered as submitted, and worked on behind it."""
    document = await current_document(lake, identifier)
    scan = await _scan(scan_request, document.metadata)
    table_uuid = await _uuid_of(lake, identifier)
    now_ms, settings = lake.clock.now_ms(), lake.settings
    plan = Plan(
        plan_id=new_plan_id(lake, table_uuid, request),
        table_uuid=table_uuid,
        principal=request.source.principal,
        metadata_location=document.location,
        snapshot_id=scan.snapshot.snapshot_id if scan.snapshot else None,
        request=scan_request,
        entries_per_task=settings.plan_task_files,
        created_ms=now_ms,
        expires_ms=now_ms + plan_ttl_ms(settings),
    )
    # Kept before it is answered: a plan that a client knows of is there, whichever server is asked next.
    result, is_kept = await gather_all(
        (_worked_out(lake, identifier, plan, scan, document.metadata), keep_plan(lake, plan))
    )
    if is_kept:
        return result
    # An earlier try of the same request was kept: what it was told is true, and may have been another snapshot.
    return await fetch_planning_result(lake, identifier, plan.plan_id, principal=plan.principal)


async def fetch_planning_result(lake: Lake, identifier: Identifier, plan_id: str, *, principal: str) -> Result:
    """What became of a plan. A server that has not worked on it does so now: the one that did may be gone."""
    plan = (await _plan_of_table(lake, identifier, plan_id, principal)).value
    if plan.state == "cancelled":
        return Cancelled(plan_id)
    try:
        document, scan = await _pinned(lake, identifier, plan)
    except SandurError as error:
        return _failed_or_raised(plan_id, error)
    return await _worked_out(lake, identifier, plan, scan, document.metadata)


async def cancel_planning(lake: Lake, identifier: Identifier, plan_id: str, *, principal: str) -> None:
    """Give a plan up: whoever asks for it from now on is told so, and its tasks are gone."""
    for _ in range(CANCEL_TRIES_MAX):
        held = await _plan_of_table(lake, identifier, plan_id, principal)
        if held.value.state == "open":
            gone = replace(held.value, state="cancelled", request=ScanRequest())
            try:
                await plan_cell(lake, plan_id).swap(gone, expected=held.version)
            except SwapLost:
                continue
        # Only now: whoever asked a moment ago would have begun it anew.
        lake.plans.give_up(held.value.work_id)
        lake.scans.pop(plan_id, None)
        return
    raise Busy(f"plan {plan_id}: it keeps changing")


async def fetch_scan_tasks(lake: Lake, identifier: Identifier, token: str, *, principal: str) -> bytes:
    """The files behind a task, as fields of a JSON object; the same again and again while the plan lasts."""
    task = decoded_task(token)
    try:
        plan = (await _plan_of_table(lake, identifier, task.plan_id, principal)).value
    except NotFound as error:
        raise no_such_task(token) if error.subject == "plan" else error from None
    if plan.state == "cancelled" or plan.snapshot_id != task.snapshot_id:
        raise no_such_task(token)
    selecting: Selecting | None = lake.scans.get(plan.plan_id)
    if selecting is None or not selecting.is_of(plan.snapshot_id):
        document, scan = await _pinned(lake, identifier, plan)
        selecting = await _selecting(lake, identifier, plan, scan, document.metadata)
        lake.scans[plan.plan_id] = selecting
    return await run_task(selecting, task)


async def _uuid_of(lake: Lake, identifier: Identifier) -> str:
    """The id that the catalog gave the table whose document was just read; one in metadata may be absent, or change."""
    seen = lake.name(identifier).last_seen
    if seen is not None:
        return seen.value.uuid
    found = await resolve_name(lake, identifier)  # So many others were asked for meanwhile that this one was forgotten.
    if found is None:
        raise TABLES.missing(identifier)
    return found.uuid


async def _plan_of_table(lake: Lake, identifier: Identifier, plan_id: str, principal: str) -> Versioned[Plan]:
    """The plan, if it is one of the table that has this name now."""
    found, held = await gather_all(
        (resolve_name(lake, identifier), _or_none(found_plan(lake, plan_id, principal=principal)))
    )
    if found is None or not found.is_a("table"):
        raise TABLES.missing(identifier)
    if held is None or held.value.table_uuid != found.uuid:
        raise no_such_plan(plan_id)
    return held


async def _or_none(reading: Awaitable[Versioned[Plan]]) -> Versioned[Plan] | None:
    try:
        return await reading
    except NotFound:
        return None


async def _pinned(lake: Lake, identifier: Identifier, plan: Plan) -> tuple[Document[TableMetadata], Scan]:
    """The table as it was when the plan was made, of which the plan's snapshot is all that matters."""
    try:
        document = await load_document(lake, TABLES, plan.metadata_location)
    except NotFound:  # Old metadata files may be taken away; the snapshot is in the current one as long as it lives.
        document = await current_document(lake, identifier)
    asked = plan.request
    if not asked.is_incremental and plan.snapshot_id is not None:
        asked = replace(asked, snapshot_id=plan.snapshot_id)
    scan = await _scan(asked, document.metadata)
    return document, scan if plan.snapshot_id is not None else replace(scan, snapshot=None)


async def _scan(request: ScanRequest, metadata: TableMetadata) -> Scan:
    return await aside(lambda: scan_of(request, metadata), is_long=request.is_long)


async def _selecting(lake: Lake, identifier: Identifier, plan: Plan, scan: Scan, metadata: TableMetadata) -> Selecting:
    manifests = Manifests(lake, await allowed_roots(lake, identifier.catalog))
    return await aside(lambda: Selecting(scan, metadata, manifests, plan_id=plan.plan_id), is_long=scan.is_long)


async def _worked_out(
    lake: Lake, identifier: Identifier, plan: Plan, scan: Scan, metadata: TableMetadata
) -> Submitted | Failed | Completed:
    """Work on the plan for as long as a client waits; then go on behind the answer."""
    settings = lake.settings
    wait_seconds = seconds_of(settings.plan_wait)
    limits = Limits(settings.plan_inline_files_max, plan.entries_per_task, wait_seconds / 2)

    async def work() -> Answered:
        selecting = await _selecting(lake, identifier, plan, scan, metadata)
        answered = await run_plan(plan.plan_id, selecting, limits)
        if answered.plan_tasks:
            lake.scans[plan.plan_id] = selecting
        return answered

    try:
        answered = await lake.plans.worked_on(plan.work_id, work, wait_seconds=wait_seconds)
    except SandurError as error:
        return _failed_or_raised(plan.plan_id, error)
    return Submitted(plan.plan_id) if answered is None else Completed(plan.plan_id, answered)


def _failed_or_raised(plan_id: str, error: SandurError) -> Failed:
    """A plan fails for good when what it needs is not there or not readable; what may pass is told as it is."""
    if isinstance(error, BadRequest) or (isinstance(error, NotFound) and error.subject == "file"):
        return Failed(plan_id, error)
    raise error
