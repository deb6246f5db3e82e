"""Resolve the pending transaction that a reader or writer finds on a pointer or a name (T5, T6)."""

from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from sandur.catalog.records import BoundRecord, NameRecord, Pointer, Transaction
from sandur.errors import Busy, SwapLost
from sandur.operations.lake import Lake
from sandur.storage.cell import Versioned

Outcome = Literal["committed", "aborted", "undecided", "gone"]

TRIES_MAX: Final = 8
WAITS_MAX: Final = 3
_WAIT_SECONDS: Final = 0.05


class TransactionAge(NamedTuple):
    """When the first attempt of a transaction began (T5). No two are equal: two that wait for each other would be."""

    started_ms: int
    transaction: str


def outcome_of(record: Transaction | None, attempt: str) -> Outcome:
    """T1: what a record says about one attempt; a pending of another attempt than the record's is aborted."""
    if record is None:
        return "gone"
    if record.attempt != attempt:
        return "aborted"
    return "undecided" if record.state == "preparing" else record.state


async def effective_pointer(lake: Lake, pointer: Versioned[Pointer]) -> Versioned[Pointer]:
    """The pointer as a reader takes it (T6): the pending of a committed transaction is its head, any other is nothing.

    The version is that of the object read, so that a swap from it folds the end of the transaction in. A pending that
    is still undecided stays in `pending`, beside the head that counts until then.
    """
    for _ in range(TRIES_MAX):
        pending = pointer.value.pending
        if pending is None:
            return pointer
        record = await lake.transaction(pending.transaction).read()
        match outcome_of(record.value if record else None, pending.attempt):
            case "committed":
                return Versioned(replace(pointer.value, head=pending.head, pending=None), pointer.version)
            case "aborted":
                return Versioned(replace(pointer.value, pending=None), pointer.version)
            case "undecided":
                return pointer
            case "gone":
                again = await lake.pointer(pointer.value.uuid).read()
                if again is None or again.version == pointer.version:
                    return Versioned(replace(pointer.value, pending=None), pointer.version)
                pointer = again
    raise Busy(f"table {pointer.value.uuid}: its pointer keeps changing")


async def effective_record(lake: Lake, found: Versioned[BoundRecord]) -> Versioned[BoundRecord]:
    """As `effective_pointer`; a record of another format takes part in no transaction and is returned unchanged."""
    if not isinstance(found.value, Pointer):
        return found
    return await effective_pointer(lake, Versioned(found.value, found.version))


async def abort_pending(lake: Lake, found: Versioned[BoundRecord]) -> Versioned[BoundRecord]:
    """A record that is about to be dropped, with no transaction undecided on it (T5)."""
    if not isinstance(found.value, Pointer):
        return found
    return await resolve_pending(lake, Versioned(found.value, found.version), drops=True)


async def resolve_pending(
    lake: Lake, pointer: Versioned[Pointer], *, drops: bool = False, older_than: TransactionAge | None = None
) -> Versioned[Pointer]:
    """The pointer as `effective` gives it, with no transaction undecided on it (T5).

    An undecided one is waited for a little; it is aborted when it is stale, when it is younger than `older_than` (the
    older transaction wins), or when the table is being dropped. Otherwise Busy: never a conflict.
    """
    for tries in range(WAITS_MAX + 1):
        found = await effective_pointer(lake, pointer)
        pending = found.value.pending
        if pending is None:
            return found
        is_last = tries == WAITS_MAX
        if await _aborted(lake, pending.transaction, pending.attempt, drops=drops, older_than=older_than):
            return Versioned(replace(found.value, pending=None), found.version)
        if not is_last:
            await lake.clock.sleep(_WAIT_SECONDS)
        again = await lake.pointer(pointer.value.uuid).read()
        if again is None:
            break
        pointer = again
    raise Busy(f"table {pointer.value.uuid}: a transaction on it is under way")


async def _aborted(
    lake: Lake, transaction: str, attempt: str, *, drops: bool, older_than: TransactionAge | None
) -> bool:
    """Whether the attempt is certain never to commit, by our swap if need be; False when it is too young for that."""
    cell = lake.transaction(transaction)
    record = await cell.read()
    if record is None or outcome_of(record.value, attempt) != "undecided":
        return False  # Decided meanwhile: look again.
    stale_ms = record.value.attempt_ms + lake.settings.transaction_timeout_ms
    is_younger = older_than is not None and older_than < TransactionAge(record.value.started_ms, transaction)
    if not (drops or is_younger or stale_ms < lake.clock.now_ms()):
        return False
    try:
        await cell.swap(replace(record.value, state="aborted"), expected=record.version)
    except SwapLost:
        return False
    return True


async def pending_name_outcome(lake: Lake, name: Versioned[NameRecord]) -> Outcome:
    """What became of a `pending` name; `gone` means: read the name again, and if it is the same, it is aborted."""
    record = await lake.transaction(name.value.transaction).read()
    return outcome_of(record.value if record else None, name.value.attempt)


async def resolve_pending_name(lake: Lake, name: Versioned[NameRecord]) -> None:
    """T5 for a name: when this returns the transaction is decided, or the name has changed; otherwise Busy."""
    for tries in range(WAITS_MAX + 1):
        if await pending_name_outcome(lake, name) != "undecided":
            return
        record = name.value
        if await _aborted(lake, record.transaction, record.attempt, drops=False, older_than=None):
            return
        if tries < WAITS_MAX:
            await lake.clock.sleep(_WAIT_SECONDS)
    raise Busy("the name is being created by a transaction under way")
