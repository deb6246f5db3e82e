"""Janitors of claims, transactions, stages, receipts, index marks and segments, plans and reports."""

import contextlib
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from sandur.catalog.index import Mark, Segment
from sandur.catalog.records import AttemptedFile, Claim, Pointer, Transaction
from sandur.errors import NotFound
from sandur.operations.concurrency import gather_all
from sandur.operations.index import update
from sandur.operations.index.rebuild import read_manifest
from sandur.operations.janitors.sweep import DAY_MS, Janitor, Outcome, is_older, key_age_ms
from sandur.operations.lake import Lake
from sandur.operations.planning.plans import PLAN_TTL_MS_MIN, PLANS_FOLDER, plan_ttl_ms
from sandur.operations.tables.documents import TABLES, VIEWS, load_document, logged_locations
from sandur.operations.tables.locations import remove_empty_directories
from sandur.operations.transactions import resolution
from sandur.operations.transactions.participants import finish_participant
from sandur.settings import Settings, seconds_of
from sandur.storage.cell import Cell, Versioned
from sandur.storage.contract import Listed
from sandur.storage.layout import Layout

_HAPPENED = ("live", "dropped")


async def visit_claim(lake: Lake, listed: Listed) -> Outcome:
    cell = Cell(lake.store, listed.key, Claim, lake.clock)
    found = await cell.read()
    if found is None or found.version != listed.version:
        return "changed"
    match found.value.state:
        case "done":
            if not is_older(lake, listed, key_age_ms(lake.settings)):
                return "kept"
            await cell.empty(expected=found.version)
            return "removed"
        case "open":
            if not is_older(lake, listed, _open_age_ms(lake.settings)):
                return "kept"
            return await _decide(lake, cell, found.value, listed)
        case _:
            assert_never(found.value.state)


async def _decide(lake: Lake, cell: Cell[Claim], claim: Claim, listed: Listed) -> Outcome:
    """C8: first the claim is ours, so that no attempt can go on under it, and only then the pointer is read."""
    owner = lake.clock.new_id()
    held = await cell.swap(replace(claim, owner=owner), expected=listed.version)
    if committed := await _committed(lake, claim):
        await cell.swap(replace(held.value, state="done", location=committed.metadata_location), expected=held.version)
        return "settled"
    await cell.empty(expected=held.version)
    return "removed"


async def _committed(lake: Lake, claim: Claim) -> AttemptedFile | None:
    """C5: the location that is head, or in the log, or has a receipt; asked in this order."""
    if not claim.locations:
        return None
    pointer = await lake.pointer(claim.uuid).read()
    known: set[str] = set()
    registration = ""
    # N7: the head of a pointer that is not bound is that of a create that did not happen, or not yet.
    if pointer and pointer.value.state in _HAPPENED:
        effective = (await resolution.effective_pointer(lake, pointer)).value
        known = await _logged_locations(lake, effective)
        registration = effective.head.registration if effective.head else ""
    for tried in claim.locations:
        # A file that was registered may have been current before; only its registration tells (see `Head`).
        is_known = tried.registration == registration if tried.registration else tried.metadata_location in known
        if is_known or await lake.receipts.exists(tried):
            return tried
    return None


async def _logged_locations(lake: Lake, pointer: Pointer) -> set[str]:
    if pointer.head is None:
        return set()
    location = pointer.head.metadata_location
    try:
        if pointer.kind == "view":
            return set(logged_locations(VIEWS, await load_document(lake, VIEWS, location)))
        return set(logged_locations(TABLES, await load_document(lake, TABLES, location)))
    except NotFound:  # Purged; what its log named has receipts.
        return {location}


def _open_age_ms(settings: Settings) -> int:
    return settings.claim_timeout_ms + DAY_MS


def _claim_age_ms(settings: Settings) -> int:
    return min(_open_age_ms(settings), key_age_ms(settings))


COMMIT_CLAIMS = Janitor("commit_claims", Layout.commit_claims_folder, _claim_age_ms, visit_claim)
CLAIMS = Janitor("claims", Layout.claims_folder, _claim_age_ms, visit_claim)


TRANSACTION_ABANDONED_MS: Final = 3_600_000
PARTICIPANTS_AT_ONCE: Final = 32


async def visit_transaction(lake: Lake, listed: Listed) -> Outcome:
    transaction = lake.layout.parse_transaction(listed.key)
    cell = lake.transaction(transaction)
    found = await cell.read()
    if found is None or found.version != listed.version:
        return "changed"
    record = found.value
    is_replayable = not is_older(lake, listed, key_age_ms(lake.settings))
    match record.state:
        case "preparing":
            await cell.swap(replace(record, state="aborted"), expected=found.version)
            return "settled"
        case "committed":
            await _fold_in(lake, transaction, record)
            if is_replayable:
                return "kept"
        case "aborted":
            if record.failure and is_replayable:  # T8: the refusal that a retry is told again.
                return "kept"
    await cell.empty(expected=found.version)
    return "removed"


async def _fold_in(lake: Lake, transaction: str, record: Transaction) -> None:
    """When this returns, nobody has to ask the record any more what became of a participant."""
    for start in range(0, len(record.participants), PARTICIPANTS_AT_ONCE):
        some = record.participants[start : start + PARTICIPANTS_AT_ONCE]
        await gather_all(finish_participant(lake, transaction, record.attempt, participant) for participant in some)


TRANSACTIONS = Janitor(
    "transactions", Layout.transactions_folder, lambda _: TRANSACTION_ABANDONED_MS, visit_transaction
)


async def visit_stage(lake: Lake, listed: Listed) -> Outcome:
    identifier, uuid = lake.layout.parse_stage(listed.key)
    cell = lake.stage(identifier, uuid)
    stage = await cell.read()
    if stage is None:
        return "changed"
    if stage.value.expires_ms > lake.clock.now_ms():
        return "kept"
    await cell.empty(expected=stage.version)
    # A client that still comes with its commit has its files there, and then they are not empty.
    remove_empty_directories(lake, stage.value.location)
    return "removed"


STAGES = Janitor("stages", Layout.stages_folder, lambda settings: seconds_of(settings.stage_ttl) * 1_000, visit_stage)


PENDING_KEPT_MS: Final = DAY_MS


async def visit_pending(lake: Lake, listed: Listed) -> Outcome:
    """What an attempt announced: of use to nobody after a day, whatever became of it."""
    return await _remove_receipt(lake, listed, state="pending")


async def visit_committed(lake: Lake, listed: Listed) -> Outcome:
    """The proof of a commit (C5), which no request can ask for any more. Whoever calls knows its history has it."""
    return await _remove_receipt(lake, listed, state="committed")


async def _remove_receipt(lake: Lake, listed: Listed, *, state: str) -> Outcome:
    if lake.layout.parse_receipt(listed.key).state != state:
        return "kept"
    await lake.store.delete(listed.key, expected=listed.version)
    return "removed"


def _committed_kept_ms(settings: Settings) -> int:
    return seconds_of(settings.receipt_retention) * 1_000


PENDING_RECEIPTS = Janitor("pending_receipts", Layout.events_folder, lambda _: PENDING_KEPT_MS, visit_pending)
COMMITTED_RECEIPTS = Janitor("committed_receipts", Layout.events_folder, _committed_kept_ms, visit_committed)


MARK_OVERDUE_MS: Final = 60_000
"""An operation that runs takes its mark away much sooner."""

MARK_ABANDONED_MS: Final = 3_600_000
"""A mark is kept so long, for its operation may still be about to change the name."""


async def visit_mark(lake: Lake, listed: Listed) -> Outcome:
    found = await lake.store.get(listed.key)
    if found is None:
        return "changed"
    with contextlib.suppress(msgspec.DecodeError):  # One that says nothing can only be taken away.
        await update.update_entry(lake, msgspec.json.decode(found.data, type=Mark).place)
    if not is_older(lake, listed, MARK_ABANDONED_MS):
        return "settled"
    await lake.store.delete(listed.key, expected=found.version)
    return "removed"


MARKS = Janitor("marks", Layout.marks_folder, lambda _: MARK_OVERDUE_MS, visit_mark)


async def visit_segment(lake: Lake, listed: Listed) -> Outcome:
    """Take a segment away if the index it belongs to does not name it.

    Whoever wrote it a day ago and is still about to name it would make an index with a hole; such an index is made anew
    when it is met.
    """
    _, segment_id = lake.layout.parse_index_segment(listed.key)
    found = await lake.store.get(listed.key)
    if found is None or found.version != listed.version:
        return "changed"
    try:
        scope = msgspec.json.decode(found.data, type=Segment).scope
    except msgspec.DecodeError:
        return "kept"  # Whoever meets it by its index makes it anew.
    manifest = await read_manifest(lake, scope)
    if manifest is not None and not isinstance(manifest, Versioned):
        return "kept"
    if manifest and segment_id in {ref.id for ref in manifest.value.segments}:
        return "kept"
    await lake.store.delete(listed.key, expected=found.version)
    return "removed"


SEGMENTS = Janitor("segments", Layout.all_index_segments_folder, lambda _: DAY_MS, visit_segment)


async def visit_plan(lake: Lake, listed: Listed) -> Outcome:
    await lake.store.delete(listed.key, expected=listed.version)
    return "removed"


def _plan_age_ms(settings: Settings) -> int:
    """A little more than the lifetime: the store's clock need not be ours."""
    return plan_ttl_ms(settings) + PLAN_TTL_MS_MIN


PLANS = Janitor("plans", lambda layout: layout.operational_folder(PLANS_FOLDER), _plan_age_ms, visit_plan)


async def visit_report(lake: Lake, listed: Listed) -> Outcome:
    await lake.store.delete(listed.key, expected=listed.version)
    return "removed"


def _report_age_ms(settings: Settings) -> int:
    return seconds_of(settings.report_retention) * 1_000


REPORTS = Janitor("reports", lambda layout: layout.operational_folder("metrics"), _report_age_ms, visit_report)
