"""Janitors of what requests leave behind: claims, transactions, stages, receipts, index marks, plans, deliveries.

GC3: a claim stays as long as its idempotency key may be sent again. An open one is taken over before its outcome is
looked up (C8), so that no attempt can continue under it.
T9: an abandoned transaction is aborted, a committed one is finished; then its record is deleted.
"""

from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from sandur.catalog.event_feed.subscriptions import Subscription
from sandur.catalog.index import Mark, Segment
from sandur.catalog.maintenance.orphans import SWEPT_KEPT_MS
from sandur.catalog.maintenance.requests import MaintenanceRequest
from sandur.catalog.records import Claim
from sandur.operations.audit.trail import is_day_over
from sandur.operations.feed import LINEAGE_BATCHES, LINEAGE_FEED, Feed
from sandur.operations.index.rebuild import read_manifest
from sandur.operations.index.update import update_entry
from sandur.operations.janitors.sweep import DAY_MS, Janitor, Outcome, delete_listed, is_older, key_age_ms, read_listed
from sandur.operations.lake import Lake
from sandur.operations.planning.cache import PLAN_TTL_MS_MIN, PLANS_FOLDER, plan_ttl_ms
from sandur.operations.published import PublishedDatasets
from sandur.operations.tables.drafts import find_committed
from sandur.operations.tables.stages import remove_empty_directories
from sandur.operations.transactions.completion import finish_participant
from sandur.settings import Settings, seconds_of
from sandur.storage.cell import Versioned, gather_in_batches
from sandur.storage.contract import Listed
from sandur.storage.layout import COMMITTED, Layout

TRANSACTION_ABANDONED_MS: Final = 3_600_000
PARTICIPANTS_AT_ONCE: Final = 32

MARK_OVERDUE_MS: Final = 60_000
"""A running operation removes its mark much sooner."""

MARK_ABANDONED_MS: Final = 3_600_000
"""Until then the operation of a mark may still change the name."""


async def visit_claim(lake: Lake, listed: Listed) -> Outcome:
    """Delete a claim whose key is over (GC3); decide an open one that is stale (C8)."""
    cell = lake.uncached(listed.key, Claim)
    found = await read_listed(cell, listed)
    is_open = found.value.state == "open"
    is_over = is_older(lake, listed, key_age_ms(lake.settings))
    if not is_older(lake, listed, _open_age_ms(lake.settings)) if is_open else not is_over:
        return "kept"
    if is_open and await find_committed(lake, found.value):  # It stays the proof for retries as long as its key lives.
        if not is_over:
            return "kept"
    elif is_open:
        # Take the claim over, then read the pointer: no attempt can continue under the claim.
        found = await cell.swap(replace(found.value, owner=lake.clock.new_id()), expected=found.version)
        if done := await find_committed(lake, found.value):
            await cell.swap(done, expected=found.version)
            return "settled"
    await cell.empty(expected=found.version)
    return "removed"


def _open_age_ms(settings: Settings) -> int:
    return settings.claim_timeout_ms + DAY_MS


def _claim_age_ms(settings: Settings) -> int:
    return min(_open_age_ms(settings), key_age_ms(settings))


COMMIT_CLAIMS = Janitor("commit_claims", Layout.commit_claims_folder, _claim_age_ms, visit_claim)
CLAIMS = Janitor("claims", Layout.claims_folder, _claim_age_ms, visit_claim)


async def visit_transaction(lake: Lake, listed: Listed) -> Outcome:
    """T9: abort an abandoned transaction, finish a committed one; delete the record when no replay needs it."""
    transaction = lake.layout.parse_transaction(listed.key)
    cell = lake.transaction(transaction)
    found = await read_listed(cell, listed)
    record = found.value
    is_replayable = not is_older(lake, listed, key_age_ms(lake.settings))
    match record.state:
        case "preparing":
            await cell.swap(replace(record, state="aborted"), expected=found.version)
            return "settled"
        case "committed":
            # Afterwards no reader needs the record.
            finish = partial(finish_participant, lake, transaction, record.attempt)
            await gather_in_batches(record.participants, finish, at_once=PARTICIPANTS_AT_ONCE)
            if is_replayable:
                return "kept"
        case "aborted":
            if record.failure and is_replayable:  # T8: a retry gets the same error.
                return "kept"
    await cell.empty(expected=found.version)
    return "removed"


TRANSACTIONS = Janitor(
    "transactions", Layout.transactions_folder, lambda _: TRANSACTION_ABANDONED_MS, visit_transaction
)


async def visit_stage(lake: Lake, listed: Listed) -> Outcome:
    """S4: delete an expired stage, and on a file system its empty directories."""
    identifier, uuid = lake.layout.parse_stage(listed.key)
    cell = lake.stage(identifier, uuid)
    stage = await cell.read()
    if stage is None:
        return "changed"
    if stage.value.expires_ms > lake.clock.now_ms():
        return "kept"
    await cell.empty(expected=stage.version)
    # If a client still writes there, the directories are not empty.
    remove_empty_directories(lake, stage.value.location)
    return "removed"


STAGES = Janitor("stages", Layout.stages_folder, lambda settings: seconds_of(settings.stage_ttl) * 1_000, visit_stage)


async def visit_receipt(lake: Lake, listed: Listed) -> Outcome:
    """Delete an old receipt, the proof of a commit (C5): the caller knows that no request needs it any more.

    The caller also knows that the history has it. An object elsewhere in the folder is not a receipt.
    """
    if lake.layout.parse_receipt(listed.key).state != COMMITTED:
        return "kept"
    return await delete_listed(lake, listed)


COMMITTED_RECEIPTS = Janitor(
    "committed_receipts",
    Layout.events_folder,
    lambda settings: seconds_of(settings.receipt_retention) * 1_000,
    visit_receipt,
)


async def visit_mark(lake: Lake, listed: Listed) -> Outcome:
    """I1: update the entry of an operation that died; delete the mark when the operation is surely over."""
    found = await lake.store.get(listed.key)
    if found is None:
        return "changed"
    try:
        mark = msgspec.json.decode(found.data, type=Mark)
        await update_entry(lake, mark.place, mark.uuid)
    except msgspec.DecodeError as error:  # A damaged mark can only be deleted.
        lake.incidents.object_damaged(listed.key, f"is not a Mark: {error}")
    if not is_older(lake, listed, MARK_ABANDONED_MS):
        return "settled"
    await lake.store.delete(listed.key, expected=found.version)
    return "removed"


MARKS = Janitor("marks", Layout.marks_folder, lambda _: MARK_OVERDUE_MS, visit_mark)


async def visit_segment(lake: Lake, listed: Listed) -> Outcome:
    """Delete a segment that its index does not name: its writer died or lost, or it was split.

    If its writer names it more than a day after it was written, the index has a missing segment, and is rebuilt.
    """
    _, segment_id = lake.layout.parse_index_segment(listed.key)
    found = await lake.store.get(listed.key)
    if found is None or found.version != listed.version:
        return "changed"
    try:
        scope = msgspec.json.decode(found.data, type=Segment).scope
    except msgspec.DecodeError as error:
        lake.incidents.object_damaged(listed.key, f"is not a Segment: {error}")
        return "kept"  # A reader that finds it through its index rebuilds the index.
    manifest = await read_manifest(lake, scope)
    if manifest is not None and not isinstance(manifest, Versioned):
        return "kept"
    if manifest and segment_id in {ref.id for ref in manifest.value.segments}:
        return "kept"
    await lake.store.delete(listed.key, expected=found.version)
    return "removed"


SEGMENTS = Janitor("segments", Layout.all_index_segments_folder, lambda _: DAY_MS, visit_segment)


PLANS = Janitor(
    "plans",
    lambda layout: layout.operational_folder(PLANS_FOLDER),
    # More than the lifetime of a plan: the clock of the store may differ.
    lambda settings: plan_ttl_ms(settings) + PLAN_TTL_MS_MIN,
    delete_listed,
)
REPORTS = Janitor(
    "reports",
    lambda layout: layout.operational_folder("metrics"),
    lambda settings: seconds_of(settings.report_retention) * 1_000,
    delete_listed,
)


async def visit_audit(lake: Lake, listed: Listed) -> Outcome:
    """Delete a batch of the audit trail when its whole day is older than the retention."""
    date, _ = lake.layout.parse_audit(listed.key)
    return await delete_listed(lake, listed) if is_day_over(date, lake.clock.now_ms(), lake.settings) else "kept"


AUDIT = Janitor(
    "audit",
    Layout.audit_folder,
    lambda settings: seconds_of(settings.audit_retention) * 1_000,
    visit_audit,
)


async def visit_delivery(lake: Lake, listed: Listed) -> Outcome:
    """Delete what belongs to no subscription, and a dead letter whose receipt may have been collected."""
    subscription_id = lake.layout.parse_delivery(listed.key)
    is_letter = listed.key != lake.layout.delivery_cursor(subscription_id)
    if is_letter and is_older(lake, listed, seconds_of(lake.settings.receipt_retention) * 1_000):
        return await delete_listed(lake, listed)
    # An id is never used again: what has no subscription now never has one.
    if await lake.uncached(lake.layout.subscription(subscription_id), Subscription).read() is None:
        return await delete_listed(lake, listed)
    return "kept"


DELIVERIES = Janitor("deliveries", Layout.deliveries_folder, lambda _: DAY_MS, visit_delivery)


async def visit_condemned(lake: Lake, listed: Listed) -> Outcome:
    """Delete the list of condemned files of a table that is gone."""
    uuid = lake.layout.parse_condemned(listed.key)
    if await lake.pointer(uuid).read() or await lake.delta_table(uuid).read():
        return "kept"
    return await delete_listed(lake, listed)


CONDEMNED = Janitor("condemned", Layout.condemned_folder, lambda _: DAY_MS, visit_condemned)
SWEPT = Janitor("swept", Layout.swept_folder, lambda _: SWEPT_KEPT_MS, delete_listed)
"""O5: every file on a list that was not written for so long was deleted even longer ago."""


async def visit_maintenance_request(lake: Lake, listed: Listed) -> Outcome:
    """Delete a request that is over, and one for a table that is gone."""
    uuid = lake.layout.parse_maintenance_request(listed.key)
    found = await read_listed(lake.uncached(listed.key, MaintenanceRequest), listed)
    if found.value.is_open and (await lake.pointer(uuid).read() or await lake.delta_table(uuid).read()):
        return "kept"
    return await delete_listed(lake, listed)


MAINTENANCE_REQUESTS = Janitor(
    "maintenance_requests",
    Layout.maintenance_requests_folder,
    # A replay of the request finds its answer in the record.
    lambda settings: max(seconds_of(settings.report_retention) * 1_000, key_age_ms(settings)),
    visit_maintenance_request,
)


def _lineage_feed(lake: Lake) -> Feed:
    return Feed(lake, LINEAGE_BATCHES)


async def visit_lineage(lake: Lake, listed: Listed) -> Outcome:
    """Delete a batch of lineage events when the retention has passed, and the pipeline has published them."""
    lake.layout.parse_lineage(listed.key)
    manifest = await lake.feature(PublishedDatasets).manifest()
    dataset = manifest.datasets.get("lineage")
    upto = dataset.watermark.get(LINEAGE_FEED, 0) if dataset else 0
    name = listed.key.removeprefix(lake.layout.lineage_folder())
    is_published = bool(upto) and bool(await lake.feature(_lineage_feed).passed([name], upto))
    return await delete_listed(lake, listed) if is_published else "kept"


LINEAGE = Janitor(
    "lineage",
    Layout.lineage_folder,
    lambda settings: seconds_of(settings.lineage_retention) * 1_000,
    visit_lineage,
)
