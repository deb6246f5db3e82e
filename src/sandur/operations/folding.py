"""The end of a transaction, folded into what took part in it: nobody has to ask its record any more (T9)."""

from typing import Final

from msgspec.structs import replace

from sandur.catalog.records import Participant
from sandur.errors import Busy, SwapLost
from sandur.operations import transactions_met
from sandur.operations.lake import Lake
from sandur.operations.names import activated, bound_pointer

TRIES_MAX: Final = 8


async def fold_in(lake: Lake, transaction: str, attempt: str, participant: Participant) -> None:
    """What a committed attempt made of a participant stands by itself when this returns.

    The pending is known by its ids and not by the version of the object: others may swap that and keep the pending, as
    who binds a pointer or fences a rename does.
    """
    if participant.creates:
        await _activate(lake, transaction, attempt, participant)
    cell = lake.pointer(participant.uuid)
    for _ in range(TRIES_MAX):
        found = await cell.read()
        pending = found.value.pending if found else None
        if found is None or pending is None or (pending.transaction, pending.attempt) != (transaction, attempt):
            return
        folded = await transactions_met.effective(lake, found)
        if found.value.head:
            await lake.receipts.ensure(found.value.table_uuid, found.value.head)  # C5 (help)
        await lake.receipts.ensure(found.value.table_uuid, pending.head)
        try:
            await cell.swap(replace(folded.value, state="live"), expected=folded.version)
        except SwapLost:
            continue
        return
    raise Busy(f"table {participant.uuid}: its pointer keeps changing")


async def _activate(lake: Lake, transaction: str, attempt: str, participant: Participant) -> None:
    """What the transaction created: its pointer is bound (N7 pending), then its name is active."""
    cell = lake.name(participant.identifier)
    for _ in range(TRIES_MAX):
        name = await cell.read()
        if name is None or (name.value.state, name.value.transaction, name.value.attempt) != (
            "pending",
            transaction,
            attempt,
        ):
            return  # Whoever changed it bound the pointer first.
        pointer = await bound_pointer(lake.pointer(participant.uuid))
        if pointer and pointer.value.head:
            await lake.receipts.ensure(pointer.value.table_uuid, pointer.value.head)
        try:
            await cell.swap(activated(name.value), expected=name.version)
        except SwapLost:
            continue
        return
    raise Busy(f"{participant.identifier}: the name keeps changing")
