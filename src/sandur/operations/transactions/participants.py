"""The tables and views of a transaction: each is decided alone and prepared to change with the others (T3, T9)."""

import asyncio
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import BoundRecord, Head, NameRecord, Participant, Pending, Pointer
from sandur.catalog.sources import Request
from sandur.errors import Busy, Conflict, NotFound, SandurError, SwapLost
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.concurrency import gather_all
from sandur.operations.index import update
from sandur.operations.index.memory import DeferredUpdate
from sandur.operations.index.update import changes_entry
from sandur.operations.lake import Lake
from sandur.operations.receipts import commit_key_of
from sandur.operations.tables.commit import Change
from sandur.operations.tables.creation import name_taken
from sandur.operations.tables.documents import (
    HASH_LENGTH,
    Document,
    Family,
    cache_document,
    encode_document,
    load_document,
    logged_locations,
    new_location,
    pointer_document,
    request_hash_of,
    version_in_name,
    write_document,
)
from sandur.operations.tables.names import (
    ResolvedName,
    active_record,
    bind_pointer,
    confirm_namespace,
    is_alive,
    resolve_name,
    resolve_namespace,
    settle_name,
)
from sandur.operations.transactions import resolution
from sandur.storage.cell import Versioned
from sandur.storage.contract import ABSENT, Expected

TRIES_MAX: Final = 8


async def finish_participant(lake: Lake, transaction: str, attempt: str, participant: Participant) -> None:
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
        folded = await resolution.effective_pointer(lake, found)
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
        pointer = await bind_pointer(lake.pointer(participant.uuid))
        if pointer and pointer.value.head:
            await lake.receipts.ensure(pointer.value.table_uuid, pointer.value.head)
        try:
            await cell.swap(active_record(name.value), expected=name.version)
        except SwapLost:
            continue
        return
    raise Busy(f"{participant.identifier}: the name keeps changing")


M = TypeVar("M", TableMetadata, ViewMetadata)


class Attempt(Protocol):
    """What a participant has to know of the transaction: its ids (T1) and when its first attempt began (T5)."""

    @property
    def transaction(self) -> str: ...

    @property
    def attempt(self) -> str: ...

    @property
    def started_ms(self) -> int: ...


class Replayed(Exception):
    """The transaction was carried out before: what it made of this participant is there."""


class Overtaken(Exception):
    """Somebody was faster, and nothing was decided: another attempt may succeed."""


@dataclass
class Changed(Generic[M]):
    """Something that exists and is to be changed.

    `is_made`: what was read shows that the change was made before (C9). `refusal`: why it cannot be made now.
    """

    lake: Lake
    family: Family[M]
    identifier: Identifier
    change: Change[M]
    request: Request
    base: Document[M] | None = None
    pointer: Versioned[Pointer] | None = None
    planned: M | None = None
    is_made: bool = False
    relisting: DeferredUpdate | None = None
    refusal: SandurError | None = None

    async def read(self, attempt: Attempt) -> None:
        """The base to decide on. An undecided transaction in the way is pushed aside if ours is the older one (T5)."""
        found = await resolve_name(self.lake, self.identifier)
        if found is None or found.name.value.kind != self.family.kind:
            return await self._read_elsewhere()
        current = found.iceberg_pointer
        if current is None:
            return await self._read_elsewhere()
        self.pointer = await resolution.resolve_pending(
            self.lake, current, older_than=resolution.TransactionAge(attempt.started_ms, attempt.transaction)
        )
        head = self.pointer.value.head
        if head is None or not is_alive(self.pointer):
            return await self._read_elsewhere()
        self.base = await load_document(self.lake, self.family, head.metadata_location)
        self.is_made = self.change.is_in(self.base.metadata)
        asserted = self.change.asserted_uuid
        if not self.is_made and asserted and asserted != self.pointer.value.table_uuid.lower():
            await self._read_elsewhere()
        return None

    async def _read_elsewhere(self) -> None:
        """C10: the name stands for nothing, or for another table; the one that is asserted may show the change."""
        self.refusal = None if self.base else self.family.missing(self.identifier)
        uuid = self.change.asserted_uuid
        pointer = await self.lake.pointer(uuid).read() if uuid else None
        document = await pointer_document(self.lake, self.family, pointer) if pointer else None
        self.is_made = document is not None and (self.change.is_in(document.metadata) or self._is_by_us(document))

    def _is_by_us(self, document: Document[M]) -> bool:
        """C9: whether a file of this very request is the head or in its log; only what was committed gets there."""
        return self._hash()[:HASH_LENGTH] in map(request_hash_of, logged_locations(self.family, document))

    def decide(self) -> None:
        """Plan what would become of it; Conflict or Invalid when it may not be, Replayed when it was made before."""
        if self.refusal:
            raise self.refusal
        base, pointer = self._state()
        now_ms = max(self.lake.clock.now_ms(), pointer.value.head.last_updated_ms if pointer.value.head else 0)
        try:
            self.planned = self.change.applied_to(base.metadata, now_ms=now_ms)
        except Conflict:
            if self._is_by_us(base):
                raise Replayed from None
            raise

    async def prepare(self, attempt: Attempt) -> None:
        """T3: the file, the receipt of the head, and `pending` on the pointer; decided again when the swap is lost."""
        for _ in range(TRIES_MAX):
            if self.planned is None:
                await self.read(attempt)
                self.decide()
            elif await self._is_pending(attempt, self.planned):
                return
            else:
                self.planned = None
        raise Busy(f"{self.identifier}: too many commits at once")

    async def _is_pending(self, attempt: Attempt, metadata: M) -> bool:
        """One round: nothing of it shows before the record is committed, so that nothing has to wait for another."""
        base, pointer = self._state()
        before = pointer.value.head
        if before is None:
            raise self.family.missing(self.identifier)
        # When nothing changes, the pending says so all the same: the transaction holds for this one too.
        is_same = metadata is base.metadata
        document, head = (base, before) if is_same else self._drafted(metadata, before)
        pending = Pending(transaction=attempt.transaction, attempt=attempt.attempt, head=head)
        *_, is_pending = await gather_all(
            [
                self.lake.receipts.ensure(pointer.value.table_uuid, before),  # C5 (help)
                self._write(document, is_there=is_same),
                self._relist(base.metadata, metadata),  # I1
                self._swap_in(pending, pointer),
            ]
        )
        return bool(is_pending)

    async def _relist(self, before: M, after: M) -> None:
        if self.relisting is None and changes_entry(before, after):
            self.relisting = await update.begin_deferred_update(self.lake, self.identifier)

    async def _write(self, document: Document[M], *, is_there: bool) -> None:
        if not is_there:
            await write_document(self.lake, self.family, document)
            cache_document(self.lake, self.family, document)

    async def _swap_in(self, pending: Pending, pointer: Versioned[Pointer]) -> bool:
        cell = self.lake.pointer(pointer.value.uuid)
        try:
            self.pointer = await cell.swap(replace(pointer.value, pending=pending), expected=pointer.version)
        except SwapLost as lost:
            return not lost.is_definite and await self._holds(pending, pointer.value.uuid)
        return True

    async def _holds(self, pending: Pending, uuid: str) -> bool:
        found = await self.lake.pointer(uuid).read()
        if found is None or found.value.pending != pending:
            return False
        self.pointer = found
        return True

    def _drafted(self, metadata: M, before: Head) -> tuple[Document[M], Head]:
        version = before.metadata_version + 1
        location = new_location(self.lake, self.family, metadata, version=version, request_hash=self._hash())
        document = encode_document(self.family, metadata, location)
        head = replace(
            self.family.head(document.metadata, before.last_updated_ms),
            metadata_version=version,
            previous_metadata_location=before.metadata_location,
            previous_commit_key=commit_key_of(before),
            operation=self.change.operation_on(metadata),
            source=self.request.source,
        )
        return document, head

    async def confirm(self) -> None:
        """Nothing to confirm: the pointer can lose its pending only after the record has been decided (T4)."""

    async def finish(self, attempt: Attempt) -> None:
        """Behind the answer: the end of the transaction is folded into the pointer, and its receipt is written."""
        await finish_participant(self.lake, attempt.transaction, attempt.attempt, self.participant())
        self.let_go()

    def let_go(self) -> None:
        """The attempt has ended, and what it said to lists may be looked at: the mark is not needed for it any more."""
        if self.relisting:
            self.relisting.end()
            self.relisting = None

    def participant(self) -> Participant:
        _, pointer = self._state()
        return Participant(uuid=pointer.value.uuid, identifier=self.identifier)

    def _state(self) -> tuple[Document[M], Versioned[Pointer]]:
        if self.base is None or self.pointer is None:
            raise Busy(f"{self.identifier}: it was not read")
        return self.base, self.pointer

    def _hash(self) -> str:
        return self.request.key_hash or self.request.hash


@dataclass
class Created(Generic[M]):
    """Something that the transaction creates."""

    lake: Lake
    family: Family[M]
    identifier: Identifier
    metadata: M
    table_uuid: str
    request: Request
    uuid: str = ""
    home: str = ""
    expected: Expected | None = None
    # The pointer that an earlier attempt of this request left, when there is one that did not happen.
    left: Versioned[Pointer] | None = None
    is_made: bool = False
    refusal: SandurError | None = None

    async def read(self, attempt: Attempt) -> None:
        """N1: the namespace and a free name; T5 for a name that another transaction is creating."""
        del attempt
        namespace, spot, in_use = await asyncio.gather(
            resolve_namespace(self.lake, self.identifier.namespace),
            settle_name(self.lake, self.identifier),
            self.lake.pointer(self.table_uuid).read(),
        )
        is_left = in_use is not None and self._is_ours(in_use) and in_use.value.state in {"unbound", "condemned"}
        self.is_made = self._is_proof(in_use) or (spot.live is not None and self._is_proof(spot.live.pointer))
        if namespace is None:
            self.refusal = NotFound(f"Namespace does not exist: {self.identifier.namespace}", subject="namespace")
        elif spot.live:
            self.refusal = self._taken(spot.live)
        else:
            self.home, self.expected = namespace.value.id, spot.expected
        self.left = in_use if is_left else None
        self.uuid = self.table_uuid if in_use is None or is_left else self.lake.clock.new_uuid()

    def _is_ours(self, pointer: Versioned[BoundRecord]) -> bool:
        """S2: whether an attempt of this very request made the pointer; the uuid alone is no proof."""
        return (pointer.value.table_uuid, pointer.value.made_by) == (self.table_uuid, self._hash())

    def _is_proof(self, pointer: Versioned[BoundRecord] | None) -> bool:
        """N7: a pointer of ours that is live or dropped shows that the creation happened."""
        return pointer is not None and self._is_ours(pointer) and pointer.value.state in {"live", "dropped"}

    def _taken(self, live: ResolvedName) -> SandurError:
        if live.name.value.kind == "table" and self.family.kind == "table":
            return Conflict("Requirement failed: table already exists")
        return name_taken(self.identifier, live.name.value, self.family.kind)

    def decide(self) -> None:
        """What it will be was built from nothing; there is only to see whether it may be."""
        if self.refusal:
            raise self.refusal

    async def prepare(self, attempt: Attempt) -> None:
        """T3: file and pointer, then the name `pending`; the name is settled again when its swap is lost."""
        location = new_location(self.lake, self.family, self.metadata, version=0, request_hash=self._hash())
        document = encode_document(self.family, self.metadata, location)
        now_ms = self.lake.clock.now_ms()
        head = replace(
            self.family.head(document.metadata, now_ms),
            metadata_version=version_in_name(location),
            operation="create",
            source=self.request.source,
        )
        pointer = Pointer(
            uuid=self.uuid,
            table_uuid=self.table_uuid,
            state="unbound",
            kind=self.family.kind,
            made_for=self.identifier,
            made_by=self._hash(),
            head=head,
            updated_ms=now_ms,
        )
        aside = [
            write_document(self.lake, self.family, document),
            update.mark(self.lake, self.identifier, self.uuid),  # I1
        ]
        if self.left is None:
            aside.append(self._write_pointer(pointer, ABSENT))
        await gather_all(aside)
        if self.left:  # Only now that our file is there: that pointer may have a name by now.
            await self._write_pointer(pointer, self.left.version)
        cache_document(self.lake, self.family, document)
        await self._name_pending(attempt, location)

    async def _write_pointer(self, pointer: Pointer, expected: Expected) -> None:
        try:
            await self.lake.pointer(self.uuid).swap(pointer, expected=expected)
        except SwapLost:
            raise Overtaken from None

    async def _name_pending(self, attempt: Attempt, location: str) -> None:
        wanted = NameRecord(
            state="pending",
            uuid=self.uuid,
            kind=self.family.kind,
            transaction=attempt.transaction,
            attempt=attempt.attempt,
            metadata_location=location,
            updated_ms=self.lake.clock.now_ms(),
        )
        cell = self.lake.name(self.identifier)
        expected: Expected = self.expected or ABSENT
        for _ in range(TRIES_MAX):
            try:
                await cell.swap(wanted, expected=expected)
            except SwapLost:
                found = await cell.read()
                if found and (found.value.state, found.value.attempt) == ("pending", attempt.attempt):  # T1
                    return
                spot = await settle_name(self.lake, self.identifier)
                if spot.live:
                    raise Overtaken from None
                expected = spot.expected
                continue
            return
        raise Busy(f"{self.identifier}: the name keeps changing")

    async def confirm(self) -> None:
        """T3 namespace, T3 pointer: N4 and N5 for what a transaction creates, after its names and before it commits."""
        is_there, pointer = await asyncio.gather(
            confirm_namespace(self.lake, self.identifier.namespace, self.home),
            bind_pointer(self.lake.pointer(self.uuid), binds=False),
        )
        if not is_there:
            raise NotFound(f"Namespace does not exist: {self.identifier.namespace}", subject="namespace")
        if pointer is None:
            raise Busy(f"{self.identifier}: what was to be created was swept away")

    async def finish(self, attempt: Attempt) -> None:
        """Behind the answer: the pointer is bound (N7 pending), then the name active, then receipt and index."""
        await finish_participant(self.lake, attempt.transaction, attempt.attempt, self.participant())
        await update.finish(self.lake, self.identifier, self.uuid)

    def let_go(self) -> None:
        """The mark of a creation stays until the janitor has seen that nothing came of it."""

    def participant(self) -> Participant:
        return Participant(uuid=self.uuid, identifier=self.identifier, creates=True)

    def _hash(self) -> str:
        return self.request.key_hash or self.request.hash
