"""How a record of its own is made, changed or taken away: one swap, at most once per key."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
from msgspec.structs import replace

from sandur.catalog.index import Place
from sandur.catalog.records import Claim, LastChange
from sandur.catalog.sources import Request
from sandur.errors import Busy, OutcomeUnknown, SwapLost
from sandur.operations import indexing
from sandur.operations.concurrency import gather_all
from sandur.operations.idempotency import ClaimLost, claim_for, hold_claim, require_claim, run_exactly_once
from sandur.operations.lake import Lake
from sandur.operations.namespace_changes import Signed, change_of, help_predecessor, is_by
from sandur.storage.cell import Cell, Held
from sandur.storage.contract import ABSENT

TRIES_MAX: Final = 16
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
        look: Callable[[], Awaitable[Held[R] | None]] | None = None,
    ) -> None:
        self._lake = lake
        self._cell = cell
        self._decide = decide
        self._place = place
        self._look = look or cell.read
        self._claim = claim_for(lake, request, operation)
        self._change = change_of(lake, request, operation)
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
                finishing = indexing.finish_place(self._lake, self._place, self._mark)
                await self._lake.background.run("index a record", finishing)

    async def _replay(self, claim: Claim) -> R:
        return msgspec.json.decode(claim.answer, type=self._cell.kind)

    async def _attempt(self, _: Claim | None) -> R:
        for tries in range(TRIES_MAX):
            if tries:
                waits = _BACKOFF_SECONDS * self._lake.clock.chance() * (1 << min(tries, _DOUBLINGS_MAX))
                await self._lake.clock.sleep(waits)
            found = await self._look()
            if found and is_by(_signed(found.value), self._change):
                require_claim(self._claim)
                return await self._done(found.value)
            if self._is_uncertain and not self._claim.is_keyed:
                raise OutcomeUnknown(
                    f"{self._cell.key}: it may have been changed by this request, and was changed since"
                )
            wanted = self._decide(found.value if found else None)
            if found and wanted == found.value:
                await self._claim.done(answer=_spelled(wanted))
                return wanted
            if written := await self._swapped(found, wanted):
                return await self._done(written)
        raise Busy(f"{self._cell.key}: it keeps changing")

    async def _swapped(self, found: Held[R] | None, wanted: R) -> R | None:
        """What was written; None when somebody was faster."""
        unsigned = _with_change(wanted, None)
        answer = _spelled(unsigned) if self._claim.is_keyed else ""
        signed = _with_change(unsigned, replace(self._change, answer=answer))
        self._is_marked = True
        await gather_all(
            [
                hold_claim(self._claim),  # C7
                self._marked(),  # I1
                help_predecessor(self._lake, _signed(found.value) if found else None),  # G6
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
            await indexing.mark_place(self._lake, self._place, self._mark)

    async def _done(self, record: R) -> R:
        await self._lake.background.run("finish a change", self._finish_claim(record))
        return record

    async def _finish_claim(self, record: R) -> None:
        if self._claim.is_open:
            with contextlib.suppress(ClaimLost):  # Whoever has it finds the answer in the record.
                await self._claim.done(answer=_spelled(_with_change(record, None)))


def _signed(record: msgspec.Struct) -> Signed:
    return cast("Signed", record)  # Every kind of record that is changed so has the field.


def _with_change(record: R, change: LastChange | None) -> R:
    fields: dict[str, Any] = {"change": change}
    return replace(record, **fields)


def _spelled(record: msgspec.Struct) -> str:
    return msgspec.json.encode(record).decode()
