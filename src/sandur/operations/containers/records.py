"""Change a record by one swap, at most once per idempotency key.

Each record carries the signature of the request that changed it last. Before the next request changes the record, it
marks the claim of that last request as done (G6). So a retry always learns whether its first attempt took effect: from
the signature while its change is the last one, from the claim afterwards. The event of a change lies in the same swap,
and its receipt exists before the next one (E2); the signature and the claim take the place of the events tried (E7).
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec
from msgspec.structs import replace

from sandur.catalog.events import CatalogEvent, EventKind, EventSubject
from sandur.catalog.identifiers import Namespace
from sandur.catalog.index import Place
from sandur.catalog.record_versions import Record, in_place_of
from sandur.catalog.records import Claim, LastChange, NamespaceRecord, Request, failure_of
from sandur.errors import Busy, NotFound, OutcomeUnknown, SandurError, SwapLost
from sandur.operations.commit_queues import CommitQueues
from sandur.operations.events import adoption_of, changed_fields, event_in, event_of, is_adoptable, with_event
from sandur.operations.idempotency import claim_for, hold_claim, key_hash_of, require_claim, run_exactly_once
from sandur.operations.index import update
from sandur.operations.lake import Lake
from sandur.operations.receipts import CatalogReceipts
from sandur.operations.tables.names import namespace_not_found
from sandur.storage.cell import Attempts, Cell, Versioned, gather_all
from sandur.storage.contract import ABSENT

R = TypeVar("R", bound=Record)
S = TypeVar("S", bound=msgspec.Struct)


class Signed(Protocol):
    """A record with the signature of the request that changed it last."""

    @property
    def change(self) -> LastChange | None: ...


def signature_of(lake: Lake, request: Request, operation: str) -> LastChange:
    """The signature of a request: its idempotency key, or a unique id without one."""
    key_hash = key_hash_of(request)
    return LastChange(key_hash, operation) if key_hash else LastChange(lake.clock.new_id())


def is_signed_by(record: Signed, change: LastChange) -> bool:
    """Whether the request with this signature made the last change of the record."""
    last = record.change
    return last is not None and (last.id, last.operation) == (change.id, change.operation)


async def help_predecessor(lake: Lake, record: Signed | None, *, failed_by: SandurError | None = None) -> None:
    """G6: mark the claim of the request that changed the record last as done, before the record changes again.

    A retry of that request then never takes its change for one that did not happen. With `failed_by` the change has
    failed: the record is a child whose parent was dropped. Busy if the claim keeps changing.
    """
    last = record.change if record else None
    if last is None or not last.operation:
        return
    failure = failure_of(failed_by) if failed_by else None

    def done(claim: Claim | None) -> Claim | None:
        if claim is None or claim.state == "done":
            return None
        return replace(claim, state="done", answer=last.answer, failure=failure)

    claim = lake.claim(last.operation, last.id)
    await claim.update(done, is_idempotent=True, subject=f"the claim of an earlier {last.operation}")


@dataclass
class RecordChange(Generic[R]):
    """One request to change a record that has a field `change`.

    `decide` gets the current record, or None, and returns the new one; it raises an error if the change is not
    possible. A record that it returns unchanged is not written. `read` replaces the read of the cell where the cell
    alone does not show whether the record is visible. `place` is the entry of the record in a list index. `answer`
    makes the text of the answer from the changed record. `write_aside` writes what the new record refers to, before
    the swap. `authorize` raises unless the caller may change the record as it was read (A6).

    `subject` is what the event of the change is about; None for a change that is no event. `details` name what changed;
    a change of nothing that has a name is a bump, and no event either (E4).

    `uuid` is that of an object with a name, which another request may rename meanwhile (I5).

    `is_followed`: another step of the request follows, after which a retry no longer finds the record where this step
    looks for it. So the claim is complete before that step.
    """

    lake: Lake
    cell: Cell[R]
    request: Request
    operation: str
    decide: Callable[[R | None], R]
    place: Place | None = None
    read: Callable[[], Awaitable[Versioned[R] | None]] | None = None
    answer: Callable[[R], bytes] = msgspec.json.encode
    write_aside: Callable[[R], Awaitable[None]] | None = None
    authorize: Callable[[R | None], Awaitable[None]] | None = None
    subject: Callable[[R], EventSubject] | None = None
    details: Callable[[R | None, R], Iterable[str]] = changed_fields
    uuid: str = ""
    is_followed: bool = False

    def __post_init__(self) -> None:
        self._claim = claim_for(self.lake, self.request, self.operation)
        self.signature = signature_of(self.lake, self.request, self.operation)
        self._mark = self.lake.clock.new_id()
        self._is_marked = False
        self._is_uncertain = False
        self._record: R | None = None

    async def run(self) -> R:
        """Change the record and return it; a replay returns the record as the first attempt changed it."""
        answer = await self.run_for_answer()
        return self._record or msgspec.json.decode(answer, type=self.cell.kind)

    async def run_for_answer(self) -> str:
        """As `run`, but return the text of the answer; a replay returns the same text."""
        async with (
            update.finishing(self.lake, "index a record", self._finish_index),
            self.lake.feature(CommitQueues).turn(self.cell.key),
        ):
            return await run_exactly_once(self._claim, self._attempt, self._replay)

    async def _finish_index(self) -> None:
        if self._is_marked and self.place:
            await update.finish(self.lake, self.place, self._mark, uuid=self.uuid)

    async def _replay(self, claim: Claim) -> str:
        return claim.answer

    async def _attempt(self, _: Claim | None) -> str:
        async for _attempt in Attempts(self.lake.clock):
            found = await self._read()
            last = _as_signed(found.value).change if found else None
            if found and last and is_signed_by(_as_signed(found.value), self.signature):
                require_claim(self._claim)
                self._record = found.value
                return await self._finish(last.answer or self._render(found.value))
            if self._is_uncertain and not self._claim.is_keyed:
                raise OutcomeUnknown(f"{self.cell.key}: this request may have changed it; it has changed again since")
            if found and await self._adopt(found):
                continue
            wanted = self.decide(found.value if found else None)
            if found and wanted == found.value:
                self._record = wanted
                answer = self._render(wanted)
                await self._claim.done(answer=answer)
                return answer
            if await self._swap(found, wanted):
                return await self._finish(self._render(wanted))
        raise Busy(f"{self.cell.key} keeps changing")

    async def _read(self) -> Versioned[R] | None:
        """The record to decide on, which the caller may change."""
        found = await (self.read or self.cell.read)()
        if self.authorize:
            await self.authorize(found.value if found else None)
        return found

    async def _adopt(self, found: Versioned[R]) -> bool:
        """V5: whether the record was older than events, so that it must be read again with its first event."""
        if self.subject is None or not is_adoptable(found.value):
            return False
        event = await adoption_of(self.lake, self.subject(found.value))
        if event is None:
            return False
        await self.cell.try_swap(with_event(found.value, event), expected=found.version)
        return True

    async def _event(self, before: R | None, wanted: R) -> CatalogEvent | None:
        """The event of this attempt; the one of the record if it is no event (E4)."""
        last = event_in(before) if before is not None else None
        if self.subject is None:
            return last
        kind, details = _kind_of(before, wanted), tuple(self.details(before, wanted))
        if kind == "changed" and not details:
            return last
        subject = self.subject(wanted)
        source = self.request.source
        return await event_of(self.lake, kind, subject, source, before=last, details=details) or last

    async def _swap(self, found: Versioned[R] | None, wanted: R) -> bool:
        """Whether the change happened; False if another writer was faster."""
        answer = self._render(wanted) if self._claim.is_keyed else ""
        event = await self._event(found.value if found else None, wanted)
        self._is_marked = True
        await gather_all(
            [
                hold_claim(self._claim),  # C7
                self._write_mark(),  # I1
                help_predecessor(self.lake, _as_signed(found.value) if found else None),  # G6
                self.lake.feature(CatalogReceipts).ensure(event_in(found.value) if found else None),  # E2
                *([self.write_aside(wanted)] if self.write_aside else []),
            ]
        )
        signed = with_event(_with_change(wanted, replace(self.signature, answer=answer)), event)
        try:
            written = await self.cell.swap(signed, expected=found.version if found else ABSENT)  # It happens here.
        except SwapLost as lost:
            self._is_uncertain |= not lost.is_definite
            return False
        self._record = written.value
        return True

    async def _write_mark(self) -> None:
        if self.place:
            await update.mark(self.lake, self.place, self._mark, uuid=self.uuid)

    def _render(self, record: R) -> str:
        return self.answer(with_event(_with_change(record, None), None)).decode()

    async def _finish(self, answer: str) -> str:
        # If the claim was taken over, the new owner finds the answer in the record.
        if self.is_followed:
            await self._claim.finish(answer=answer)
        event = event_in(self._record) if self._record is not None else None
        work = gather_all((self._claim.finish(answer=answer), self.lake.feature(CatalogReceipts).ensure(event)))
        await self.lake.background.run("finish a change", work)
        return answer


def _kind_of(before: Record | None, after: Record) -> EventKind:
    """A record that replaces a dropped one is another object (E8)."""
    if getattr(after, "state", "") == "dropped":
        return "dropped"
    return "created" if before is None or getattr(before, "state", "") == "dropped" else "changed"


def _as_signed(record: msgspec.Struct) -> Signed:
    return cast("Signed", record)  # Every record that a RecordChange changes has the field.


def _with_change(record: R, change: LastChange | None) -> R:
    fields: dict[str, Any] = {"change": change}
    return replace(record, **fields)


def with_creation(lake: Lake, record: S, request: Request) -> S:
    """The record with its owner and the time and principal of its creation, for records that have these fields."""
    now_ms, principal = lake.clock.now_ms(), request.source.principal
    fields: dict[str, Any] = {"created_ms": now_ms, "created_by": principal, "owner": principal}
    fields["owner_id"] = request.source.principal_id
    return replace(record, **fields, changed_ms=now_ms, changed_by=principal)


def visible_properties(record: NamespaceRecord) -> Mapping[str, str]:
    """The properties that Iceberg clients see: a comment set through another API is one of them."""
    if record.comment is None:
        return record.properties
    return {"comment": record.comment, **record.properties}


def dropped_namespace(
    found: NamespaceRecord, now_ms: int, change: LastChange | None = None, event: CatalogEvent | None = None
) -> NamespaceRecord:
    """The record that replaces a dropped namespace. It has no id, so no child can be confirmed by it.

    `change` signs the drop, and `event` is its event; both are None for a namespace that was never confirmed. The owner
    is kept for replays (A9).
    """
    owner_id = found.owner_id if change else ""
    dropped = NamespaceRecord(
        state="dropped", id="", change=change, updated_ms=now_ms, owner_id=owner_id, last_event=event
    )
    return in_place_of(found, dropped)


def catalog_not_found(name: str) -> NotFound:
    return NotFound(f"Catalog does not exist: {name}", subject="catalog")


def parent_not_found(namespace: Namespace) -> NotFound:
    """The parent namespace does not exist, or the catalog of a namespace on the first level."""
    return namespace_not_found(namespace.parent) if namespace.parent else catalog_not_found(namespace.catalog)
