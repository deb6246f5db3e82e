"""Idempotency keys that nobody will send again (GC3): what is done goes, what is open is looked into first (C8)."""

from typing import assert_never

from msgspec.structs import replace

from sandur.catalog.records import AttemptedFile, Claim, Pointer
from sandur.errors import NotFound
from sandur.operations.janitors.sweeping import DAY_MS, Janitor, Outcome, is_older, key_age_ms
from sandur.operations.lake import Lake
from sandur.operations.tables.documents import TABLES, VIEWS, load_document, logged_locations
from sandur.operations.transactions import resolution
from sandur.settings import Settings
from sandur.storage.cell import Cell
from sandur.storage.contract import Listed
from sandur.storage.layout import Layout

_HAPPENED = ("live", "dropped")


async def visit(lake: Lake, listed: Listed) -> Outcome:
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
        known = await _known(lake, effective)
        registration = effective.head.registration if effective.head else ""
    for tried in claim.locations:
        # A file that was registered may have been current before; only its registration tells (see `Head`).
        is_known = tried.registration == registration if tried.registration else tried.metadata_location in known
        if is_known or await lake.receipts.exists(tried):
            return tried
    return None


async def _known(lake: Lake, pointer: Pointer) -> set[str]:
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


def _age_ms(settings: Settings) -> int:
    return min(_open_age_ms(settings), key_age_ms(settings))


COMMIT_CLAIMS = Janitor("commit_claims", Layout.commit_claims_folder, _age_ms, visit)
CLAIMS = Janitor("claims", Layout.claims_folder, _age_ms, visit)
