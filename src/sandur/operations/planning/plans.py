"""Scan plans: create one, fetch its result, cancel it, and fetch its tasks.

A plan stores only its request and the snapshot. A snapshot never changes, so any server can compute the result, also
after the server that accepted the plan is gone.
"""

import hashlib
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier
from sandur.catalog.record_versions import Record
from sandur.catalog.records import Request
from sandur.errors import BadRequest, NotFound, SandurError
from sandur.iceberg.scan.requests import Scan, ScanRequest, resolve_scan
from sandur.iceberg.table_metadata import TableMetadata
from sandur.operations.access import resolve_authorized
from sandur.operations.counters import PLANNING_SECONDS, Counters
from sandur.operations.lake import Lake
from sandur.operations.locations.placement import allowed_roots
from sandur.operations.planning.cache import PLANS_FOLDER, PlanningCache, PlanResult, plan_ttl_ms
from sandur.operations.planning.manifests import Manifests, run_aside
from sandur.operations.planning.plan_tasks import decode_task, no_such_task
from sandur.operations.planning.scan import Limits, ScanRunner, run_plan, run_task
from sandur.operations.tables.documents import TABLES, Document, current_document, load_document
from sandur.operations.tables.manifest_places import ReadableManifests
from sandur.operations.tables.names import name_not_found, resolve_name
from sandur.settings import seconds_of
from sandur.storage.cell import Cell, Versioned, gather_all
from sandur.storage.contract import ABSENT

_PLAN_ID_CHARS_MAX: Final = 64


class Plan(Record, frozen=True, kw_only=True):
    """A stored plan. `table_uuid` is the catalog's own id of the table. Without a snapshot the table was empty."""

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

    @property
    def work_id(self) -> str:
        """Identifies the work on a plan. With an idempotency key, a plan id can return for a later snapshot."""
        return f"{self.plan_id}@{self.snapshot_id}"


class Submitted(NamedTuple):
    """The plan is in progress: fetch the result later."""

    plan_id: str


class Cancelled(NamedTuple):
    """A client has cancelled the plan."""

    plan_id: str


class Failed(NamedTuple):
    """The plan cannot be completed, also not later."""

    plan_id: str
    error: SandurError


class Completed(NamedTuple):
    """The plan has a result."""

    plan_id: str
    result: PlanResult


Result = Submitted | Cancelled | Failed | Completed


async def plan_table_scan(lake: Lake, identifier: Identifier, scan_request: ScanRequest, request: Request) -> Result:
    """Plan a scan of the table's current state. A plan that takes long is Submitted and continues in the background."""
    document = await current_document(lake, identifier)
    scan = await _resolve(scan_request, document.metadata)
    table_uuid = await _table_uuid(lake, identifier)
    now_ms, settings = lake.clock.now_ms(), lake.settings
    plan = Plan(
        plan_id=_plan_id(lake, table_uuid, request),
        table_uuid=table_uuid,
        principal=request.source.principal,
        metadata_location=document.location,
        snapshot_id=scan.snapshot.snapshot_id if scan.snapshot else None,
        request=scan_request,
        entries_per_task=settings.plan_task_files,
        created_ms=now_ms,
        expires_ms=now_ms + plan_ttl_ms(settings),
    )
    # Stored before the answer: then every server knows a plan that a client knows.
    result, is_stored = await gather_all((_run(lake, identifier, plan, scan, document.metadata), _store(lake, plan)))
    if is_stored:
        return result
    # An earlier attempt of this request has stored a plan, perhaps of another snapshot. The client may know its result.
    return await fetch_planning_result(lake, identifier, plan.plan_id, principal=plan.principal)


async def fetch_planning_result(lake: Lake, identifier: Identifier, plan_id: str, *, principal: str) -> Result:
    """The state of a plan. A server that has not worked on the plan starts now."""
    plan = (await _plan_of_table(lake, identifier, plan_id, principal)).value
    if plan.state == "cancelled":
        return Cancelled(plan_id)
    try:
        document, scan = await _pinned(lake, identifier, plan)
    except SandurError as error:
        return _failed_or_raised(plan_id, error)
    return await _run(lake, identifier, plan, scan, document.metadata)


async def cancel_planning(lake: Lake, identifier: Identifier, plan_id: str, *, principal: str) -> None:
    """Cancel a plan on all servers. Its tasks no longer exist afterwards."""
    held = await _plan_of_table(lake, identifier, plan_id, principal)

    def decide(plan: Plan | None) -> Plan | None:
        if plan is None:
            raise _no_such_plan(plan_id)
        return replace(plan, state="cancelled", request=ScanRequest()) if plan.state == "open" else None

    ended = await _cell(lake, plan_id).update(decide, is_idempotent=True, found=held, subject=f"plan {plan_id}")
    # After the swap: before it, a concurrent fetch would start the work again.
    cache = lake.feature(PlanningCache)
    cache.plans.cancel((ended or held).value.work_id)
    cache.scans.pop(plan_id, None)


async def fetch_scan_tasks(lake: Lake, identifier: Identifier, token: str, *, principal: str) -> bytes:
    """The files of a plan task, as fields of a JSON object. A token names the same files until the plan expires."""
    task = decode_task(token)
    try:
        plan = (await _plan_of_table(lake, identifier, task.plan_id, principal)).value
    except NotFound as error:
        raise no_such_task(token) if error.subject == "plan" else error from None
    if plan.state == "cancelled" or plan.snapshot_id != task.snapshot_id:
        raise no_such_task(token)
    scans = lake.feature(PlanningCache).scans
    runner = scans.get(plan.plan_id)
    if runner is None or not runner.is_of(plan.snapshot_id):
        document, scan = await _pinned(lake, identifier, plan)
        runner = scans[plan.plan_id] = await _runner(lake, identifier, plan, scan, document.metadata)
    return await run_task(runner, task)


def _cell(lake: Lake, plan_id: str) -> Cell[Plan]:
    return lake.uncached(lake.layout.operational(PLANS_FOLDER, plan_id), Plan)


def _plan_id(lake: Lake, table_uuid: str, request: Request) -> str:
    """A fresh id. With an idempotency key it is derived, so that a repeated request finds its plan."""
    if request.key is None:
        return lake.clock.new_id()
    identity = f"{request.key}\n{request.hash}\n{request.source.principal}\n{table_uuid}"
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


async def _store(lake: Lake, plan: Plan) -> bool:
    """Write the plan. False if an earlier attempt of the same request has written a plan that is still valid."""
    cell = _cell(lake, plan.plan_id)
    if await cell.try_swap(plan, expected=ABSENT):
        return True
    held = await cell.read()
    if held is not None and held.value.state == "open" and held.value.expires_ms > plan.created_ms:
        return False
    return await cell.try_swap(plan, expected=ABSENT if held is None else held.version) is not None


async def _table_uuid(lake: Lake, identifier: Identifier) -> str:
    """The catalog's id of a table whose document was just read. The uuid in the metadata may be absent, or change."""
    seen = lake.name(identifier).last_seen
    if seen is not None:
        return seen.value.uuid
    found = await resolve_name(lake, identifier)  # The cache has evicted the name since.
    if found is None:
        raise name_not_found(identifier, "table")
    return found.uuid


async def _plan_of_table(lake: Lake, identifier: Identifier, plan_id: str, principal: str) -> Versioned[Plan]:
    """The plan, if it belongs to the principal and to the table that has this name now; NotFound otherwise."""
    missing = name_not_found(identifier, "table")
    found, held = await gather_all(
        (
            resolve_authorized(lake, identifier, lambda found: found.is_a("table"), missing=missing),
            _read(lake, plan_id),
        )
    )
    is_valid = held is not None and held.value.principal == principal and held.value.expires_ms > lake.clock.now_ms()
    if held is None or not is_valid or held.value.table_uuid != found.uuid:
        raise _no_such_plan(plan_id)
    return held


def _no_such_plan(plan_id: str) -> NotFound:
    return NotFound(f"The plan id does not exist: {plan_id[:100]}", subject="plan")


async def _read(lake: Lake, plan_id: str) -> Versioned[Plan] | None:
    is_plan_id = 0 < len(plan_id) <= _PLAN_ID_CHARS_MAX and plan_id.isascii() and plan_id.replace("-", "").isalnum()
    return await _cell(lake, plan_id).read() if is_plan_id else None


async def _pinned(lake: Lake, identifier: Identifier, plan: Plan) -> tuple[Document[TableMetadata], Scan]:
    """The table and the scan at the plan's snapshot."""
    try:
        document = await load_document(lake, TABLES, plan.metadata_location)
    except NotFound:  # Old metadata files may be deleted. The current one has the snapshot until it expires.
        document = await current_document(lake, identifier)
    request = plan.request
    if not request.is_incremental and plan.snapshot_id is not None:
        request = replace(request, snapshot_id=plan.snapshot_id)
    scan = await _resolve(request, document.metadata)
    return document, scan if plan.snapshot_id is not None else replace(scan, snapshot=None)


async def _resolve(request: ScanRequest, metadata: TableMetadata) -> Scan:
    return await run_aside(lambda: resolve_scan(request, metadata), is_long=request.is_long)


async def _runner(lake: Lake, identifier: Identifier, plan: Plan, scan: Scan, metadata: TableMetadata) -> ScanRunner:
    roots = await allowed_roots(lake, identifier.catalog)
    manifests = Manifests(lake, roots, ReadableManifests(metadata))
    return await run_aside(lambda: ScanRunner(scan, metadata, manifests, plan_id=plan.plan_id), is_long=scan.is_long)


async def _run(
    lake: Lake, identifier: Identifier, plan: Plan, scan: Scan, metadata: TableMetadata
) -> Submitted | Failed | Completed:
    """Work on the plan while the client waits, and afterwards in the background."""
    settings, cache = lake.settings, lake.feature(PlanningCache)
    wait_seconds = seconds_of(settings.plan_wait)
    limits = Limits(settings.plan_inline_files_max, plan.entries_per_task, wait_seconds / 2)

    async def work() -> PlanResult:
        began_ms = lake.clock.now_ms()
        runner = await _runner(lake, identifier, plan, scan, metadata)
        result = await run_plan(plan.plan_id, runner, limits)
        if result.plan_tasks:
            cache.scans[plan.plan_id] = runner
        lake.feature(Counters).observe(PLANNING_SECONDS, (lake.clock.now_ms() - began_ms) / 1_000)
        return result

    try:
        result = await cache.plans.run(plan.work_id, work, wait_seconds=wait_seconds)
    except SandurError as error:
        return _failed_or_raised(plan.plan_id, error)
    return Submitted(plan.plan_id) if result is None else Completed(plan.plan_id, result)


def _failed_or_raised(plan_id: str, error: SandurError) -> Failed:
    """Failed if the error is permanent: a file is missing or not readable. Other errors are raised."""
    if isinstance(error, BadRequest) or (isinstance(error, NotFound) and error.subject == "file"):
        return Failed(plan_id, error)
    raise error
