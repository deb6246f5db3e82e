"""Records of transactions (T9): what was abandoned is aborted, what was committed is folded in; then they go."""

from typing import Final

from msgspec.structs import replace

from sandur.catalog.records import Transaction
from sandur.operations.concurrency import gather_all
from sandur.operations.janitors.sweeping import Janitor, Outcome, is_older, key_age_ms
from sandur.operations.lake import Lake
from sandur.operations.transactions.participants import finish_participant
from sandur.storage.contract import Listed
from sandur.storage.layout import Layout

ABANDONED_MS: Final = 3_600_000
PARTICIPANTS_AT_ONCE: Final = 32


async def visit(lake: Lake, listed: Listed) -> Outcome:
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


TRANSACTIONS = Janitor("transactions", Layout.transactions_folder, lambda _: ABANDONED_MS, visit)
