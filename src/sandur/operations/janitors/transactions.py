"""Records of transactions (T9): what was abandoned is aborted, what was committed is folded in; then they go."""

from typing import Final

from msgspec.structs import replace

from sandur.catalog.records import Participant, Transaction
from sandur.errors import Busy, SwapLost
from sandur.operations import transactions_met
from sandur.operations.janitors.sweeping import Janitor, Outcome, is_older, key_age_ms
from sandur.operations.names import activated, bound_pointer, is_alive
from sandur.operations.together import together
from sandur.operations.workspace import Workspace
from sandur.storage.layout import Layout
from sandur.storage.object_store import Listed

ABANDONED_MS: Final = 3_600_000
TRIES_MAX: Final = 8
PARTICIPANTS_AT_ONCE: Final = 32


async def visit(workspace: Workspace, listed: Listed) -> Outcome:
    transaction = workspace.layout.read_transaction(listed.key)
    cell = workspace.transaction(transaction)
    found = await cell.read()
    if found is None or found.version != listed.version:
        return "changed"
    record = found.value
    is_replayable = not is_older(workspace, listed, key_age_ms(workspace.settings))
    match record.state:
        case "preparing":
            await cell.swap(replace(record, state="aborted"), expected=found.version)
            return "settled"
        case "committed":
            await _fold_in(workspace, transaction, record)
            if is_replayable:
                return "kept"
        case "aborted":
            if record.failure and is_replayable:  # T8: the refusal that a retry is told again.
                return "kept"
    await cell.empty(expected=found.version)
    return "removed"


async def _fold_in(workspace: Workspace, transaction: str, record: Transaction) -> None:
    """When this returns, nobody has to ask the record any more what became of a participant."""
    for start in range(0, len(record.participants), PARTICIPANTS_AT_ONCE):
        some = record.participants[start : start + PARTICIPANTS_AT_ONCE]
        await together(_finalize(workspace, transaction, record.attempt, participant) for participant in some)


async def _finalize(workspace: Workspace, transaction: str, attempt: str, participant: Participant) -> None:
    if participant.creates:
        await _activate(workspace, transaction, attempt, participant)
    cell = workspace.pointer(participant.uuid)
    for _ in range(TRIES_MAX):
        found = await cell.read()
        pending = found.value.pending if found else None
        if found is None or pending is None or (pending.transaction, pending.attempt) != (transaction, attempt):
            return
        folded = await transactions_met.effective(workspace, found)
        if found.value.head:
            await workspace.receipts.ensure(found.value.table_uuid, found.value.head)  # C5 (help)
        await workspace.receipts.ensure(found.value.table_uuid, pending.head)
        try:
            await cell.swap(replace(folded.value, state="live"), expected=folded.version)
        except SwapLost:
            continue
        return
    raise Busy(f"table {participant.uuid}: its pointer keeps changing")


async def _activate(workspace: Workspace, transaction: str, attempt: str, participant: Participant) -> None:
    """What the transaction created: its pointer is bound (N7 pending), then its name is active."""
    cell = workspace.name(participant.identifier)
    for _ in range(TRIES_MAX):
        name = await cell.read()
        if name is None or (name.value.state, name.value.transaction, name.value.attempt) != (
            "pending",
            transaction,
            attempt,
        ):
            return  # Whoever changed it bound the pointer first.
        pointer = await bound_pointer(workspace, participant.uuid)
        if pointer and is_alive(pointer) and pointer.value.head:
            await workspace.receipts.ensure(pointer.value.table_uuid, pointer.value.head)
        try:
            await cell.swap(activated(name.value), expected=name.version)
        except SwapLost:
            continue
        return
    raise Busy(f"{participant.identifier}: the name keeps changing")


TRANSACTIONS = Janitor("transactions", Layout.transactions_folder, lambda _: ABANDONED_MS, visit)
