"""Change a record by one swap, at most once per idempotency key."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import msgspec
from msgspec.structs import replace

from sandur.catalog.identifiers import Namespace
from sandur.catalog.index import Place
from sandur.catalog.records import Claim, Failure, LastChange, NamespaceRecord, failure_of
from sandur.catalog.sources import Request
from sandur.errors import Busy, NotFound, OutcomeUnknown, SandurError, SwapLost
from sandur.operations.concurrency import gather_all
from sandur.operations.idempotency import ClaimLost, claim_for, hold_claim, require_claim, run_exactly_once
from sandur.operations.index import update
from sandur.operations.lake import Lake
from sandur.storage.cell import Cell, Versioned
from sandur.storage.contract import ABSENT

CLAIM_TRIES_MAX: Final = 8


class Signed(Protocol):
    """A record that says which request made it what it is."""

    @property
    def change(self) -> LastChange | None: ...


def signature_of(lake: Lake, request: Request, operation: str) -> LastChange:
    """How a request signs the record that it writes; without a key by an id that nobody else has."""
    key_hash = request.key_hash
    return LastChange(key_hash, operation) if key_hash else LastChange(lake.clock.new_id())


def is_signed_by(record: Signed, change: LastChange) -> bool:
    """Whether the last change of the record is that of the request which signs so."""
    last = record.change
    return last is not None and (last.id, last.operation) == (change.id, change.operation)


def visible_properties(record: NamespaceRecord) -> Mapping[str, str]:
    """The properties as Iceberg clients see them: a comment is one of them, wherever it was given."""
    if record.comment is None:
        return record.properties
    return {"comment": record.comment, **record.properties}


def namespace_not_found(namespace: Namespace | None) -> NotFound:
    return NotFound(f"Namespace does not exist: {namespace}", subject="namespace")


def catalog_not_found(name: str) -> NotFound:
    return NotFound(f"Catalog does not exist: {name}", subject="catalog")


def parent_not_found(namespace: Namespace) -> NotFound:
    """That what a namespace would be in does not exist."""
    return namespace_not_found(namespace.parent) if namespace.parent else catalog_not_found(namespace.catalog)


def dropped_namespace(now_ms: int, change: LastChange | None = None) -> NamespaceRecord:
    """What stands where a namespace was, or would have been: it has no id that a child could find again.

    `change` is the drop that made it so; None for a child that never was.
    """
    return NamespaceRecord(state="dropped", id="", change=change, updated_ms=now_ms)


async def help_predecessor(lake: Lake, record: Signed | None, *, failed_by: SandurError | None = None) -> None:
    """G6: before a record is changed, the claim of the request that made it what it is says that this happened.

    A retry of that request can then never mistake it for something that did not happen, whatever becomes of the record.
    With `failed_by`, it did not happen: the record is a child whose parent was gone.
    """
    last = record.change if record else None
    if last is not None and last.operation:
        await _make_done(lake, last, failure_of(failed_by) if failed_by else None)


async def _make_done(lake: Lake, last: LastChange, failure: Failure | None) -> None:
    cell = lake.claim(last.operation, last.id)
    for _ in range(CLAIM_TRIES_MAX):
        claim = await cell.read()
        if claim is None or claim.value.state == "done":
            return
        try:
            await cell.swap(
                replace(claim.value, state="done", answer=last.answer, failure=failure), expected=claim.version
            )
        except SwapLost:
            continue
        return
    raise Busy(f"the claim of an earlier {last.operation} keeps changing")


RECORD_TRIES_MAX: Final = 16
_BACKOFF_SECONDS: Final = 0.002
_DOUBLINGS_MAX: Final = 6


R = TypeVar("R", bound=msgspec.Struct)


class RecordChange(Generic[R]):
    """One request to change a record with a field `change`.

    `decide` is given the record as it stands, None when there is none, and says what it shall be; it raises what makes
    that impossible. The record is signed with the request, and whoever changes it next first makes that request's claim
    done, with the answer in it (G6): a retry that holds the claim and does not find itself in the record was never
    carried out. A lost answer shows in the same way; without a key it stays unknown.

    `place` is the entry of a list index that shows the record; `look` reads it where its cell alone does not say
    whether it counts, and then `decide` refuses what is not there.
    """

    def __init__(
        self,
        lake: Lake,
        cell: Cell[R],
        request: Request,
        operation: str,
        decide: Callable[[R | None], R],
        *,
        place: Place | None = None,
        look: Callable[[], Awaitable[Versioned[R] | None]] | None = None,
    ) -> None:
        self._lake = lake
        self._cell = cell
        self._decide = decide
        self._place = place
        self._look = look or cell.read
        self._claim = claim_for(lake, request, operation)
        self._change = signature_of(lake, request, operation)
        self._mark = lake.clock.new_id()
        self._is_marked = False
        self._is_uncertain = False

    async def run(self) -> R:
        """The record as this request made it."""
        try:
            async with self._lake.turn(self._cell.key):
                return await run_exactly_once(self._claim, self._attempt, self._replay)
        finally:
            if self._is_marked and self._place:
                finishing = update.finish_place(self._lake, self._place, self._mark)
                await self._lake.background.run("index a record", finishing)

    async def _replay(self, claim: Claim) -> R:
        return msgspec.json.decode(claim.answer, type=self._cell.kind)

    async def _attempt(self, _: Claim | None) -> R:
        for tries in range(RECORD_TRIES_MAX):
            if tries:
                waits = _BACKOFF_SECONDS * self._lake.clock.chance() * (1 << min(tries, _DOUBLINGS_MAX))
                await self._lake.clock.sleep(waits)
            found = await self._look()
            if found and is_signed_by(_as_signed(found.value), self._change):
                require_claim(self._claim)
                return await self._done(found.value)
            if self._is_uncertain and not self._claim.is_keyed:
                raise OutcomeUnknown(
                    f"{self._cell.key}: it may have been changed by this request, and was changed since"
                )
            wanted = self._decide(found.value if found else None)
            if found and wanted == found.value:
                await self._claim.done(answer=_encode(wanted))
                return wanted
            if written := await self._swapped(found, wanted):
                return await self._done(written)
        raise Busy(f"{self._cell.key}: it keeps changing")

    async def _swapped(self, found: Versioned[R] | None, wanted: R) -> R | None:
        """What was written; None when somebody was faster."""
        unsigned = _with_change(wanted, None)
        answer = _encode(unsigned) if self._claim.is_keyed else ""
        signed = _with_change(unsigned, replace(self._change, answer=answer))
        self._is_marked = True
        await gather_all(
            [
                hold_claim(self._claim),  # C7
                self._marked(),  # I1
                help_predecessor(self._lake, _as_signed(found.value) if found else None),  # G6
            ]
        )
        try:
            held = await self._cell.swap(signed, expected=found.version if found else ABSENT)  # It happens here.
        except SwapLost as lost:
            self._is_uncertain |= not lost.is_definite
            return None
        return held.value

    async def _marked(self) -> None:
        if self._place:
            await update.mark_place(self._lake, self._place, self._mark)

    async def _done(self, record: R) -> R:
        await self._lake.background.run("finish a change", self._finish_claim(record))
        return record

    async def _finish_claim(self, record: R) -> None:
        if self._claim.is_open:
            with contextlib.suppress(ClaimLost):  # Whoever has it finds the answer in the record.
                await self._claim.done(answer=_encode(_with_change(record, None)))


def _as_signed(record: msgspec.Struct) -> Signed:
    return cast("Signed", record)  # Every kind of record that is changed so has the field.


def _with_change(record: R, change: LastChange | None) -> R:
    fields: dict[str, Any] = {"change": change}
    return replace(record, **fields)


def _encode(record: msgspec.Struct) -> str:
    return msgspec.json.encode(record).decode()
