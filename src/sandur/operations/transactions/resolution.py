"""Resolve the pending transaction that a reader or writer finds on a pointer or a name (T5, T6)."""

from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from sandur.catalog.records import BoundRecord, NameRecord, Pending, Pointer, Transaction
from sandur.errors import Busy
from sandur.operations.lake import Lake
from sandur.storage.cell import Versioned

Outcome = Literal["committed", "aborted", "undecided", "gone"]

TRIES_MAX: Final = 8
WAITS_MAX: Final = 3
_WAIT_SECONDS: Final = 0.05


class TransactionAge(NamedTuple):
    """When the first attempt of a transaction began (T5). The id breaks ties, so that no two transactions are equal."""

    started_ms: int
    transaction: str


def outcome_of(record: Transaction | None, attempt: str) -> Outcome:
    """T1: the outcome of one attempt by the record. An attempt that the record does not name is aborted."""
    if record is None:
        return "gone"
    if record.attempt != attempt:
        return "aborted"
    return "undecided" if record.state == "preparing" else record.state


async def effective_pointer(lake: Lake, pointer: Versioned[Pointer]) -> Versioned[Pointer]:
    """The pointer as a reader sees it (T6): a pending of a committed transaction is its head, any other is ignored.

    The version is that of the stored object, so a swap from it also completes the transaction on this pointer. An
    undecided pending stays in `pending`; the head is valid until the decision.
    """
    for _ in range(TRIES_MAX):
        pending = pointer.value.pending
        if pending is None:
            return pointer
        record = await lake.transaction(pending.transaction).read()
        match outcome_of(record.value if record else None, pending.attempt):
            case "committed":
                return Versioned(folded_pointer(pointer.value, pending), pointer.version)
            case "aborted":
                return Versioned(replace(pointer.value, pending=None), pointer.version)
            case "undecided":
                return pointer
            case "gone":
                again = await lake.pointer(pointer.value.uuid).read()
                if again is None or again.version == pointer.version:
                    return Versioned(replace(pointer.value, pending=None), pointer.version)
                pointer = again
    raise Busy(f"table {pointer.value.uuid}: other requests keep changing its pointer")


def folded_pointer(pointer: Pointer, pending: Pending) -> Pointer:
    """The pointer after its transaction has committed, with the places that the transaction added (P9).

    The transaction has written the receipts of the head and of what it passed before it committed (T3, B4).
    """
    places = tuple(dict.fromkeys((*pointer.places, *pending.places)))
    return replace(pointer, head=pending.head, passed=(), pending=None, places=places)


async def effective_record(lake: Lake, found: Versioned[BoundRecord]) -> Versioned[BoundRecord]:
    """As `effective_pointer`; a record of another format takes part in no transaction and is returned unchanged."""
    if not isinstance(found.value, Pointer) or found.value.pending is None:
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
    """The pointer as `effective_pointer` returns it, with no undecided transaction on it (T5).

    Waits a little for an undecided transaction. It is aborted if it is stale, if it is younger than `older_than` (the
    older transaction wins), or if the table is being dropped. Otherwise raises Busy, never Conflict.
    """
    for tries in range(WAITS_MAX + 1):
        found = await effective_pointer(lake, pointer)
        pending = found.value.pending
        if pending is None:
            return found
        if await _abort(lake, pending.transaction, pending.attempt, drops=drops, older_than=older_than):
            return Versioned(replace(found.value, pending=None), found.version)
        if tries < WAITS_MAX:
            await lake.clock.sleep(_WAIT_SECONDS)
        again = await lake.pointer(pointer.value.uuid).read()
        if again is None:
            break
        pointer = again
    raise Busy(f"table {pointer.value.uuid}: another transaction on it is active")


async def _abort(lake: Lake, transaction: str, attempt: str, *, drops: bool, older_than: TransactionAge | None) -> bool:
    """Abort an undecided attempt, unless it is too young for that. Returns whether the attempt is aborted."""

    def abort(record: Transaction | None) -> Transaction | None:
        if record is None or outcome_of(record, attempt) != "undecided":
            return None
        stale_ms = record.attempt_ms + lake.settings.transaction_timeout_ms
        is_younger = older_than is not None and older_than < TransactionAge(record.started_ms, transaction)
        may_abort = drops or is_younger or stale_ms < lake.clock.now_ms()
        return replace(record, state="aborted") if may_abort else None

    record = await lake.transaction(transaction).update(abort, is_idempotent=True)
    return record is not None and outcome_of(record.value, attempt) == "aborted"


async def pending_name_outcome(lake: Lake, name: Versioned[NameRecord]) -> Outcome:
    """The outcome of a `pending` name. `gone` means aborted if the name, read again, is unchanged."""
    record = await lake.transaction(name.value.transaction).read()
    return outcome_of(record.value if record else None, name.value.attempt)


async def resolve_pending_name(lake: Lake, name: Versioned[NameRecord]) -> None:
    """T5 for a name: when this returns, the transaction is decided or the name has changed. Raises Busy."""
    for tries in range(WAITS_MAX + 1):
        if await pending_name_outcome(lake, name) != "undecided":
            return
        record = name.value
        if await _abort(lake, record.transaction, record.attempt, drops=False, older_than=None):
            return
        if tries < WAITS_MAX:
            await lake.clock.sleep(_WAIT_SECONDS)
    raise Busy("another transaction is creating the name")
