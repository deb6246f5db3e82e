"""The completion of a committed transaction on the pointers and names of its participants (T9)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from msgspec.structs import replace

from sandur.catalog.records import NameRecord, Participant, Pointer
from sandur.errors import Busy
from sandur.operations.lake import Lake
from sandur.operations.receipts import CatalogReceipts, Receipts
from sandur.operations.tables.names import active_record, bind_pointer
from sandur.operations.transactions.resolution import folded_pointer
from sandur.storage.cell import Attempts, Versioned, gather_all

FOLD_SECONDS_MAX: Final = 1.0
"""How long a transaction waits for this process to fold the one before. After that it reads what is there."""


class Folds:
    """The pointers on which this process is completing a transaction (T9), by the uuid of the table.

    A transaction that follows waits for that instead of losing its swap to it.
    """

    def __init__(self, _: Lake) -> None:
        self._running: dict[str, asyncio.Event] = {}

    @contextlib.asynccontextmanager
    async def fold(self, uuid: str) -> AsyncIterator[None]:
        ended = self._running[uuid] = asyncio.Event()
        try:
            yield
        finally:
            ended.set()
            if self._running.get(uuid) is ended:
                del self._running[uuid]

    async def wait(self, uuid: str) -> None:
        """Wait until no fold is running there, at most FOLD_SECONDS_MAX."""
        if ended := self._running.get(uuid):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FOLD_SECONDS_MAX):
                    await ended.wait()


async def finish_participant(
    lake: Lake, transaction: str, attempt: str, participant: Participant, *, held: Versioned[Pointer] | None = None
) -> None:
    """T9: complete a committed attempt on a participant, so that readers no longer need the transaction's record.

    The caller knows that the attempt committed, so its record is not read. `held` is the pointer as the attempt wrote
    it, which saves the first read. The pending is recognised by its ids, not by the version of the object: binding a
    pointer or fencing a rename swaps the object and keeps the pending.
    """
    if participant.creates:
        await _activate_created(lake, transaction, attempt, participant)
    cell = lake.pointer(participant.uuid)
    async for number in Attempts(lake.clock):
        found = held if held and not number else await cell.read()
        pending = found.value.pending if found else None
        if found is None or pending is None or (pending.transaction, pending.attempt) != (transaction, attempt):
            return
        receipts, table_uuid = lake.feature(Receipts), found.value.table_uuid
        await receipts.ensure_all(found.value)  # C5 (help), B4
        folded = replace(folded_pointer(found.value, pending), state="live")
        # The pointer does not move past the new head, so its receipt may be written beside the swap, as by a commit.
        _, swapped = await gather_all(
            (receipts.ensure(table_uuid, pending.head), cell.try_swap(folded, expected=found.version))
        )
        if swapped:
            return
    raise Busy(f"table {participant.uuid}: other requests keep changing its pointer")


async def _activate_created(lake: Lake, transaction: str, attempt: str, participant: Participant) -> None:
    """Bind the pointer of what the transaction created (N7 pending), activate its name, and write its receipt (E3)."""

    async def activate(name: NameRecord | None) -> NameRecord | None:
        if name is None or (name.state, name.transaction, name.attempt) != ("pending", transaction, attempt):
            return None  # Every request that changes the name binds the pointer first.
        pointer = await bind_pointer(lake.pointer(participant.uuid))
        if pointer and pointer.value.head:
            await lake.feature(Receipts).ensure(pointer.value.table_uuid, pointer.value.head)
        await lake.feature(CatalogReceipts).ensure(name.last_event)
        return active_record(name)

    await lake.name(participant.identifier).update(activate, is_idempotent=True)
