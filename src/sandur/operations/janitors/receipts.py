"""Receipts that nobody needs any more: of attempts, after a day; of commits, long after the history holds them."""

from typing import Final

from sandur.operations.janitors.sweeping import DAY_MS, Janitor, Outcome
from sandur.operations.lake import Lake
from sandur.settings import Settings, seconds_of
from sandur.storage.contract import Listed
from sandur.storage.layout import Layout

PENDING_KEPT_MS: Final = DAY_MS


async def visit_pending(lake: Lake, listed: Listed) -> Outcome:
    """What an attempt announced: of use to nobody after a day, whatever became of it."""
    return await _removed(lake, listed, state="pending")


async def visit_committed(lake: Lake, listed: Listed) -> Outcome:
    """The proof of a commit (C5), which no request can ask for any more. Whoever calls knows its history has it."""
    return await _removed(lake, listed, state="committed")


async def _removed(lake: Lake, listed: Listed, *, state: str) -> Outcome:
    if lake.layout.parse_receipt(listed.key).state != state:
        return "kept"
    await lake.store.delete(listed.key, expected=listed.version)
    return "removed"


def _committed_kept_ms(settings: Settings) -> int:
    return seconds_of(settings.receipt_retention) * 1_000


PENDING_RECEIPTS = Janitor("pending_receipts", Layout.events_folder, lambda _: PENDING_KEPT_MS, visit_pending)
COMMITTED_RECEIPTS = Janitor("committed_receipts", Layout.events_folder, _committed_kept_ms, visit_committed)
