"""The tables and views of a transaction: each is decided alone and prepared to change with the others (T3, T9).

A participant takes the same steps as a commit or a creation of its own, except that the swap writes a pending, which
counts once the record of the transaction is committed.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, NamedTuple

from msgspec.structs import replace

from sandur.catalog.events import EventSubject
from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import BoundRecord, NameRecord, Participant, Pending, Pointer, Request
from sandur.catalog.security.manifest import Authority
from sandur.errors import Busy, Conflict, Forbidden, Hidden, Invalid, NotFound, SandurError, SwapLost
from sandur.iceberg.table_metadata import TableMetadata
from sandur.operations.access import forget_refusals, read_authority, require
from sandur.operations.commit_queues import CommitQueue
from sandur.operations.events import event_of
from sandur.operations.index import update
from sandur.operations.index.update import ListUpdate
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import LocationClaims
from sandur.operations.locations.placement import (
    end_generated,
    holder_of,
    is_uuid_taken,
    places_to_claim,
    resolve_placed_namespace,
    uuid_taken,
)
from sandur.operations.name_access import authorize_files
from sandur.operations.receipts import Receipts
from sandur.operations.securable_chains import name_chain, namespace_chain, record_chain
from sandur.operations.tables.changes import (
    Base,
    Change,
    Draft,
    claim_added,
    commit_time_ms,
    draft_next,
    read_base,
    remembered_base,
)
from sandur.operations.tables.create import DocumentDraft, create_refusal
from sandur.operations.tables.documents import Family, M, cache_document, pointer_document, write_document
from sandur.operations.tables.drafts import discard_creation, is_made_by, is_proof, is_written_by, sign_record
from sandur.operations.tables.names import (
    bind_pointer,
    confirm_namespace,
    freed_record,
    name_not_found,
    namespace_not_found,
    resolve_name,
    settle_name,
)
from sandur.operations.tables.stages import finish_stage
from sandur.operations.tables.swept import check_not_swept
from sandur.operations.transactions.completion import Folds, finish_participant
from sandur.operations.transactions.resolution import TransactionAge
from sandur.storage.cell import Attempts, Versioned, gather_all
from sandur.storage.contract import ABSENT, Expected


class Attempt(NamedTuple):
    """T1: the ids of one attempt of a transaction, and the time of its first attempt (T5)."""

    transaction: str
    attempt: str
    started_ms: int


class Replayed(Exception):
    """The transaction was carried out before: this participant shows its change."""


class Overtaken(Exception):
    """Another request was faster and nothing was decided: another attempt may succeed."""


@dataclass
class ChangedTable(Generic[M]):
    """A table or view that exists and is to be changed.

    `is_applied`: what was read shows that the change was made before (C9). `applied_elsewhere` is the uuid of the table
    that shows it, if the name refers to another one now (C10). `refusal`: why it cannot be made. `places` are the
    claims of the places that it adds, over all attempts of the transaction (P9). `is_decided_again`: a swap was lost,
    so the version that was replaced was not known when the attempt began to write.
    """

    lake: Lake
    family: Family[M]
    identifier: Identifier
    change: Change[M]
    request: Request
    places: LocationClaims
    queue: CommitQueue
    base: Base[M] | None = None
    planned: M | None = None
    is_applied: bool = False
    applied_elsewhere: str = ""
    refusal: SandurError | None = None
    is_decided_again: bool = False
    listing: ListUpdate = field(init=False)
    # The pointer with the pending of this attempt, as it was written.
    _held: Versioned[Pointer] | None = None
    _attempt: Attempt | None = None

    def __post_init__(self) -> None:
        self.listing = ListUpdate(self.lake, self.identifier)

    async def read(self, attempt: Attempt) -> None:
        """Find the base to decide on: what this server saw last, or what is there now."""
        self._attempt = attempt
        if self.is_decided_again or not await self._remember():
            await self._read(attempt)

    async def _remember(self) -> bool:
        """C1: whether the state that this server saw last will do. Only its name is read (C2), as by a commit.

        The swap of the pending confirms the pointer. On a folder a read costs less than a lost swap, and so it does if
        another server changed the table a moment ago. No refusal rests on this state (G4), and no replay.
        """
        lake = self.lake
        if lake.store.has_instant_reads or self.queue.is_contended or self.change.sets_paths:
            return False
        if name := lake.name(self.identifier).last_seen:
            await lake.feature(Folds).wait(name.value.uuid)
        base = remembered_base(lake, self.family, self.identifier)
        if base is None or base.pointer.value.swept or self.change.is_applied(base.document.metadata):
            return False
        try:
            planned = self.change.apply(base.document.metadata, now_ms=commit_time_ms(lake, base))
        except (Conflict, Invalid):
            return False
        if not await lake.store.are_current([(lake.name(self.identifier).key, base.found.name.version)]):
            return False
        self.base, self.planned, self.refusal, self.is_applied = base, planned, None, False
        return True

    async def _read(self, attempt: Attempt) -> None:
        """Read the base. A younger transaction that is pending there is aborted (T5)."""
        self.planned = None
        age = TransactionAge(attempt.started_ms, attempt.transaction)
        found = await resolve_name(self.lake, self.identifier)
        is_found = found is not None and found.name.value.kind == self.family.kind
        self.base = await read_base(self.lake, self.family, found, older_than=age) if found and is_found else None
        if self.base is None:
            self.refusal = name_not_found(self.identifier, self.family.kind)
            self.is_applied = await self._is_applied_elsewhere()
            return
        self.refusal = None
        self.is_applied = self.change.is_applied(self.base.document.metadata)
        asserted = self.change.asserted_uuid
        if not self.is_applied and asserted and asserted != self.base.pointer.value.table_uuid.lower():
            self.is_applied = await self._is_applied_elsewhere()
            self.applied_elsewhere = asserted if self.is_applied else ""

    async def authorize(self, authority: Authority | None) -> None:
        """Check what the route declares on this table.

        A name that does not exist is refused here, too, unless the caller may change what it referred to (A9): then the
        order of the refusals does not reveal whether a hidden name exists.
        """
        if authority is None or (self.base is None and self.refusal is None):  # It could not be read.
            return
        missing = name_not_found(self.identifier, self.family.kind)
        if self.base is None:
            name = await self.lake.name(self.identifier).read()
            await self._authorize_record(authority, self.change.asserted_uuid or (name.value.uuid if name else ""))
            return
        chain = await name_chain(self.lake, authority, self.base.found, missing=missing)
        try:
            require(self.lake, authority, chain, missing=missing, situation=self._situation)
            if self.change.relocates(self.base.document.metadata):
                require(self.lake, authority, chain, missing=missing, situation="relocate")
        except (Forbidden, Hidden):
            if self._held or self._attempt is None or not self.base.is_remembered:
                raise
            forget_refusals(self.lake)  # G4: the owner that this server remembers may be another one by now.
            authority, _ = await gather_all((read_authority(self.lake), self._read(self._attempt)))
            await self.authorize(authority)
            return
        if self.applied_elsewhere:
            try:
                await self._authorize_record(authority, self.applied_elsewhere)
            except (Forbidden, NotFound):
                self.is_applied = False  # What the caller may not change proves nothing to it.

    @property
    def _situation(self) -> str:
        return "view" if self.family.kind == "view" else ""

    async def _authorize_record(self, authority: Authority, uuid: str) -> None:
        """The same for a table that is not under the name now."""
        missing = name_not_found(self.identifier, self.family.kind)
        pointer = await self.lake.pointer(uuid).read() if uuid else None
        chain = await record_chain(self.lake, authority, self.identifier, pointer, missing=missing)
        require(self.lake, authority, chain, missing=missing, situation=self._situation)

    async def _is_applied_elsewhere(self) -> bool:
        """C10: the name refers to nothing or to another table; the asserted table may show the change."""
        uuid = self.change.asserted_uuid
        pointer = await self.lake.pointer(uuid).read() if uuid else None
        document = await pointer_document(self.lake, self.family, pointer) if pointer else None
        if document is None:
            return False
        passed = pointer.value.passed if pointer else ()
        return self.change.is_applied(document.metadata) or is_written_by(self.family, document, passed, self.request)

    def decide(self) -> None:
        """Plan the change. Raises Conflict or Invalid if it is refused, Replayed if it was made before."""
        if self.refusal:
            raise self.refusal
        if self.planned is not None:  # On what this server remembers.
            return
        base = self._known_base()
        try:
            self.planned = self.change.apply(base.document.metadata, now_ms=commit_time_ms(self.lake, base))
        except Conflict:
            if is_written_by(self.family, base.document, base.pointer.value.passed, self.request):  # C9
                raise Replayed from None
            raise

    async def prepare(self, attempt: Attempt) -> None:
        """T3: write the file and the receipt of the head, and set `pending`; decide again if the swap is lost."""
        async for _ in Attempts(self.lake.clock):
            if self.planned is None:
                await self.read(attempt)
                if self.is_applied:  # C9: the other parts may show it, too. Another attempt reads all of them.
                    raise Overtaken
                self.decide()
            elif await self._set_pending(attempt, self.planned):
                return
            else:
                self.planned, self.is_decided_again = None, True
                self.queue.note_contention()
        raise Busy(f"{self.identifier}: too many concurrent commits")

    async def _set_pending(self, attempt: Attempt, metadata: M) -> bool:
        """One round: nothing of it is visible before the record commits, so no write has to wait for another."""
        base = self._known_base()
        await check_not_swept(self.lake, base.pointer.value, base.document.metadata, metadata)  # O5
        added: tuple[str, ...] = ()
        if self.change.sets_paths:  # P9: the claims come before the pending.
            added = await claim_added(self.places, base, metadata, self.request, began_ms=attempt.started_ms)
        draft = Draft(base, base.document, base.head)
        work: list[Awaitable[object]] = [
            self.lake.feature(Receipts).ensure_all(base.pointer.value)  # C5 (help), B4
        ]
        # If nothing changes, the pending keeps the head: the transaction then holds for this table too.
        if metadata is not base.document.metadata:
            operation, now_ms = self.change.operation(metadata), commit_time_ms(self.lake, base)
            draft = draft_next(self.lake, self.family, base, metadata, operation, self.request, now_ms=now_ms)
            work.append(write_document(self.lake, draft.document))
            work.append(self.listing.begin(base.found.uuid, base.document.metadata, metadata))  # I1
        pending = Pending(transaction=attempt.transaction, attempt=attempt.attempt, head=draft.head, places=added)
        *_, is_pending = await gather_all([*work, self._swap_in(pending, base.pointer)])
        cache_document(self.lake, self.family, draft.document)
        return bool(is_pending)

    async def _swap_in(self, pending: Pending, pointer: Versioned[Pointer]) -> bool:
        cell = self.lake.pointer(pointer.value.uuid)
        try:
            self._held = await cell.swap(replace(pointer.value, pending=pending), expected=pointer.version)
        except SwapLost as lost:
            self._held = None if lost.is_definite else await cell.read()
            return self._held is not None and self._held.value.pending == pending
        return True

    async def confirm(self) -> None:
        """Nothing to confirm: the pointer can lose its pending only after the record is decided (T4)."""

    async def finish(self, attempt: Attempt) -> None:
        """After the answer: complete the transaction on the pointer, and write its receipt."""
        participant = self.participant()
        async with self.lake.feature(Folds).fold(participant.uuid):
            await finish_participant(self.lake, attempt.transaction, attempt.attempt, participant, held=self._held)
        self.release()

    def release(self) -> None:
        """The attempt has ended: lists no longer need its mark."""
        self.listing.end()

    async def discard(self) -> None:
        """The transaction was refused. Its file stays until garbage collection: the pointer may still name it."""

    def participant(self) -> Participant:
        return Participant(uuid=self._known_base().pointer.value.uuid, identifier=self.identifier)

    def _known_base(self) -> Base[M]:
        if self.base is None:
            raise Busy(f"{self.identifier}: it was not read")
        return self.base


@dataclass
class CreatedTable(Generic[M]):
    """A table or view that the transaction creates. `expected` is what the swap of its settled name expects."""

    lake: Lake
    family: Family[M]
    identifier: Identifier
    metadata: M
    table_uuid: str
    request: Request
    places: LocationClaims
    uuid: str = ""
    namespace_id: str = ""
    expected: Expected = ABSENT
    # The pointer that an earlier attempt of this request left, if its creation did not happen.
    left: Versioned[Pointer] | None = None
    is_applied: bool = False
    refusal: SandurError | None = None
    is_decided_again: bool = False
    _location: str = ""

    async def read(self, attempt: Attempt) -> None:
        """N1: the namespace and a free name. A transaction that is creating the name is resolved first (T5)."""
        del attempt
        namespace, slot, in_use, is_taken = await gather_all(
            (
                resolve_placed_namespace(self.lake, self.identifier.namespace),
                settle_name(self.lake, self.identifier),
                self.lake.pointer(self.table_uuid).read(),
                is_uuid_taken(self.lake, self.table_uuid),
            )
        )
        live, self.expected = slot.live, slot.expected
        self.is_applied = self._is_proof(in_use) or (live is not None and self._is_proof(live.pointer))
        if namespace is None:
            self.refusal = namespace_not_found(self.identifier.namespace)
        elif live:
            self.namespace_id = namespace.value.id
            self.refusal = create_refusal(self.identifier, live.name.value, self.family.kind)
        else:
            self.namespace_id = namespace.value.id
            self.refusal = uuid_taken(self.table_uuid) if is_taken else None
        is_left = in_use is not None and self._is_ours(in_use) and in_use.value.state in {"unbound", "condemned"}
        is_left = is_left and not self.is_applied
        self.left = in_use if is_left else None
        self.uuid = self.table_uuid if in_use is None or is_left else self.lake.clock.new_uuid()

    async def authorize(self, authority: Authority | None) -> None:
        """The right to create, on the namespace that the name will belong to; NotFound if there is no namespace."""
        if authority is None or (not self.namespace_id and self.refusal is None):  # It could not be read.
            return
        namespace = self.identifier.namespace
        missing = namespace_not_found(namespace)
        if not self.namespace_id:
            raise missing
        chain = await namespace_chain(self.lake, authority, namespace, self.namespace_id, missing=missing)
        situation = "create view" if self.family.kind == "view" else "create"
        require(self.lake, authority, chain, missing=missing, situation=situation)

    def _is_ours(self, pointer: Versioned[BoundRecord]) -> bool:
        """S2: whether an attempt of this very request made the pointer."""
        return pointer.value.table_uuid == self.table_uuid and is_made_by(pointer, self.request)

    def _is_proof(self, pointer: Versioned[BoundRecord] | None) -> bool:
        """N7: a pointer of this request that is live or dropped proves the creation."""
        return pointer is not None and self._is_ours(pointer) and is_proof(pointer, self.request)

    def decide(self) -> None:
        """The metadata is built already; raise what refuses it."""
        if self.refusal:
            raise self.refusal

    async def prepare(self, attempt: Attempt) -> None:
        """T3: write the file and the pointer, then the name as `pending`."""
        draft = DocumentDraft(self.lake, self.family, self.request, lambda _: self.metadata, self.table_uuid)
        made = draft.made(self.uuid)
        places = await self._claim_places(made.locations, attempt)
        document, pointer = made.answer, sign_record(self.lake, made.pointer, self.identifier, self.request)
        pointer = replace(pointer, places=places) if places else pointer
        self._location = document.location
        aside = [
            write_document(self.lake, document),
            update.mark(self.lake, self.identifier, self.uuid),  # I1
        ]
        if self.left is None:
            aside.append(self._write_pointer(pointer, ABSENT))
        await gather_all(aside)
        if self.left:  # Only after the file exists: that pointer may have a name by now.
            await self._write_pointer(pointer, self.left.version)
        cache_document(self.lake, self.family, document)
        await self._write_name(attempt, document.location)

    async def _claim_places(self, locations: Sequence[str], attempt: Attempt) -> tuple[str, ...]:
        """P3, P4: claim the places that were not generated for the table; Invalid or Busy if one is not free."""
        claimed = places_to_claim(self.lake, self.identifier, self.uuid, locations, table_uuid=self.table_uuid)
        if not claimed:
            return ()
        kind, began_ms = self.family.kind, attempt.started_ms
        me = holder_of(self.lake, self.identifier, self.uuid, "iceberg", kind, self.request, began_ms=began_ms)
        if unfree := await self.places.write(me, claimed) or await self.places.look():
            raise unfree.error
        for address, location in claimed.items():
            if address.generated_for:
                authorize = partial(authorize_files, self.lake, self.identifier.catalog, [location])
                await end_generated(self.lake, address, authorize)
        return tuple(map(str, claimed))

    async def _write_pointer(self, pointer: BoundRecord, expected: Expected) -> None:
        if await self.lake.bound_record(self.uuid, "iceberg").try_swap(pointer, expected=expected) is None:
            raise Overtaken

    async def _write_name(self, attempt: Attempt, location: str) -> None:
        """Write the name as `pending`; settle it again if the swap is lost."""
        subject = EventSubject(self.family.kind, self.uuid, self.identifier, "iceberg")
        wanted = NameRecord(
            state="pending",
            uuid=self.uuid,
            kind=self.family.kind,
            namespace_id=self.namespace_id,
            transaction=attempt.transaction,
            attempt=attempt.attempt,
            metadata_location=location,
            updated_ms=self.lake.clock.now_ms(),
            last_event=await event_of(self.lake, "created", subject, self.request.source),
        )
        cell = self.lake.name(self.identifier)
        expected = self.expected
        async for _ in Attempts(self.lake.clock):
            if await cell.try_swap(wanted, expected=expected):
                return
            found = await cell.read()
            if found and (found.value.state, found.value.attempt) == ("pending", attempt.attempt):  # T1
                return
            slot, self.is_decided_again = await settle_name(self.lake, self.identifier), True
            if slot.live:
                raise Overtaken
            expected = slot.expected
        raise Busy(f"{self.identifier}: other requests keep changing the name")

    async def confirm(self) -> None:
        """T3 namespace, T3 pointer: N4 and N5, after the names are written and before the transaction commits."""
        has_namespace, pointer = await gather_all(
            (
                confirm_namespace(self.lake, self.identifier.namespace, self.namespace_id),
                bind_pointer(self.lake.pointer(self.uuid), binds=False),
            )
        )
        if not has_namespace:
            raise namespace_not_found(self.identifier.namespace)
        if pointer is None:
            raise Busy(f"{self.identifier}: a janitor removed the pointer before the name was confirmed")

    async def finish(self, attempt: Attempt) -> None:
        """After the answer: bind the pointer (N7 pending), activate the name, write the receipt, update the index."""
        await finish_participant(self.lake, attempt.transaction, attempt.attempt, self.participant())
        work: list[Awaitable[object]] = [update.finish(self.lake, self.identifier, self.uuid)]
        if isinstance(self.metadata, TableMetadata):
            work.append(finish_stage(self.lake, self.identifier, self.metadata, location=self._location))
        await gather_all(work)

    def release(self) -> None:
        """The mark of a creation stays until a janitor has seen that the creation did not happen."""

    async def discard(self) -> None:
        """The transaction was refused: free the name, and delete the file."""
        if not self._location:
            return
        slot, cell = await settle_name(self.lake, self.identifier), self.lake.name(self.identifier)
        name = await cell.read()
        if slot.live is None and name and (name.value.uuid, name.value.state) == (self.uuid, "pending"):
            free = replace(freed_record(name.value), updated_ms=self.lake.clock.now_ms())
            await cell.try_swap(free, expected=slot.expected)
        await discard_creation(self.lake, self.identifier, self.uuid, self.request)

    def participant(self) -> Participant:
        return Participant(uuid=self.uuid, identifier=self.identifier, creates=True)
