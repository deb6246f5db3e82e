"""The tables and views of a transaction: each is decided by itself and made ready to change with the others (T3)."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import Head, NameRecord, Participant, Pending, Pointer
from sandur.catalog.sources import Request
from sandur.errors import Busy, Conflict, NotFound, SwapLost
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations import indexing, transactions_met
from sandur.operations.commit import Change
from sandur.operations.creation import taken
from sandur.operations.documents import (
    Document,
    Family,
    keep,
    load_document,
    new_location,
    version_in,
    write_document,
    written_as,
)
from sandur.operations.homes import confirm_namespace, look_up_namespace
from sandur.operations.names import Found, activated, bound_pointer, look, settle
from sandur.operations.together import together
from sandur.operations.workspace import Workspace
from sandur.storage.cell import Held
from sandur.storage.object_store import ABSENT, Expected

M = TypeVar("M", TableMetadata, ViewMetadata)

TRIES_MAX: Final = 8


class Attempt(Protocol):
    """What a participant has to know of the transaction: its ids (T1) and when its first attempt began (T5)."""

    @property
    def transaction(self) -> str: ...

    @property
    def attempt(self) -> str: ...

    @property
    def started_ms(self) -> int: ...


@dataclass
class Changed(Generic[M]):
    """Something that exists and is to be changed."""

    workspace: Workspace
    family: Family[M]
    identifier: Identifier
    change: Change[M]
    request: Request
    base: Document[M] | None = None
    pointer: Held[Pointer] | None = None
    planned: M | None = None

    async def read(self, attempt: Attempt) -> None:
        """The base to decide on. An undecided transaction in the way is pushed aside if ours is the older one (T5)."""
        found = await look(self.workspace, self.identifier)
        if found is None or found.name.value.kind != self.family.kind:
            raise self.family.missing(self.identifier)
        self.pointer = await transactions_met.pushed_aside(
            self.workspace, found.pointer, older_than_ms=attempt.started_ms
        )
        head = self.pointer.value.head
        if head is None:
            raise self.family.missing(self.identifier)
        self.base = await load_document(self.workspace, self.family, head.metadata_location)

    def is_replay(self) -> bool:
        """C9: whether the change was made before; asked only of what was read in this request."""
        return self.base is not None and self.change.is_in(self.base.metadata)

    def decide(self) -> None:
        """Plan what would become of it; Conflict or Invalid when it may not be."""
        base, pointer = self._state()
        now_ms = max(self.workspace.clock.now_ms(), pointer.value.head.last_updated_ms if pointer.value.head else 0)
        self.planned = self.change.applied_to(base.metadata, now_ms=now_ms)

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
        *_, is_pending = await together(
            [
                self.workspace.receipts.ensure(pointer.value.table_uuid, before),  # C5 (help)
                self._write(document, is_there=is_same),
                self._swap_in(pending, pointer),
            ]
        )
        return bool(is_pending)

    async def _write(self, document: Document[M], *, is_there: bool) -> None:
        if not is_there:
            await write_document(self.workspace, self.family, document)
            keep(self.workspace, self.family, document)

    async def _swap_in(self, pending: Pending, pointer: Held[Pointer]) -> bool:
        cell = self.workspace.pointer(pointer.value.uuid)
        try:
            self.pointer = await cell.swap(replace(pointer.value, pending=pending), expected=pointer.version)
        except SwapLost as lost:
            return not lost.is_definite and await self._holds(pending, pointer.value.uuid)
        return True

    async def _holds(self, pending: Pending, uuid: str) -> bool:
        found = await self.workspace.pointer(uuid).read()
        if found is None or found.value.pending != pending:
            return False
        self.pointer = found
        return True

    def _drafted(self, metadata: M, before: Head) -> tuple[Document[M], Head]:
        version = before.metadata_version + 1
        request_hash = self.request.key_hash or self.request.hash
        location = new_location(self.workspace, self.family, metadata, version=version, request_hash=request_hash)
        document = written_as(self.family, metadata, location)
        head = replace(
            self.family.head(document.metadata, before.last_updated_ms),
            metadata_version=version,
            previous_metadata_location=before.metadata_location,
            operation=self.change.operation_on(metadata),
            source=self.request.source,
        )
        return document, head

    async def confirm(self) -> None:
        """Nothing to confirm: the pointer can lose its pending only after the record has been decided (T4)."""

    async def finish(self) -> None:
        """Behind the answer: the end of the transaction is folded into the pointer, and its receipt is written."""
        _, pointer = self._state()
        found = await self.workspace.pointer(pointer.value.uuid).read()
        if found is None or found.value.pending is None or found.version != pointer.version:
            return  # Whoever swapped it has folded it in.
        head = found.value.pending.head
        if found.value.head != head:
            await self.workspace.receipts.ensure(found.value.table_uuid, head)
        with contextlib.suppress(SwapLost):
            await self.workspace.pointer(found.value.uuid).swap(
                replace(found.value, state="live", head=head, pending=None), expected=found.version
            )

    def participant(self) -> Participant:
        _, pointer = self._state()
        return Participant(uuid=pointer.value.uuid, identifier=self.identifier)

    def _state(self) -> tuple[Document[M], Held[Pointer]]:
        if self.base is None or self.pointer is None:
            raise Busy(f"{self.identifier}: it was not read")
        return self.base, self.pointer


@dataclass
class Created(Generic[M]):
    """Something that the transaction creates."""

    workspace: Workspace
    family: Family[M]
    identifier: Identifier
    metadata: M
    table_uuid: str
    request: Request
    uuid: str = ""
    home: str = ""
    expected: Expected | None = None
    name: Held[NameRecord] | None = None
    pointer: Held[Pointer] | None = None

    async def read(self, attempt: Attempt) -> None:
        """N1: the namespace and a free name; T5 for a name that another transaction is creating."""
        del attempt
        namespace, spot, in_use = await asyncio.gather(
            look_up_namespace(self.workspace, self.identifier.namespace),
            settle(self.workspace, self.identifier),
            self.workspace.pointer(self.table_uuid).read(),
        )
        if namespace is None:
            raise NotFound(f"Namespace does not exist: {self.identifier.namespace}", subject="namespace")
        if spot.live:
            self._refuse(spot.live)
        self.home, self.expected = namespace.value.id, spot.expected
        self.uuid = self.workspace.clock.new_uuid() if in_use else self.table_uuid

    def _refuse(self, live: Found) -> None:
        if live.name.value.kind == "table" and self.family.kind == "table":
            raise Conflict("Requirement failed: table already exists")
        raise taken(self.identifier, live.name.value, self.family)

    def is_replay(self) -> bool:
        return False

    def decide(self) -> None:
        """There is nothing to decide: what it will be was built from nothing."""

    async def prepare(self, attempt: Attempt) -> None:
        """T3: file and pointer, then the name `pending`; the name is settled again when its swap is lost."""
        request_hash = self.request.key_hash or self.request.hash
        location = new_location(self.workspace, self.family, self.metadata, version=0, request_hash=request_hash)
        document = written_as(self.family, self.metadata, location)
        now_ms = self.workspace.clock.now_ms()
        head = replace(
            self.family.head(document.metadata, now_ms),
            metadata_version=version_in(location),
            operation="create",
            source=self.request.source,
        )
        pointer = Pointer(
            uuid=self.uuid,
            table_uuid=self.table_uuid,
            state="unbound",
            kind=self.family.kind,
            made_for=self.identifier,
            made_by=request_hash,
            head=head,
            updated_ms=now_ms,
        )
        _, _, self.pointer = await together(
            [
                write_document(self.workspace, self.family, document),
                indexing.mark(self.workspace, self.identifier, self.uuid),  # I1
                self.workspace.pointer(self.uuid).create(pointer),
            ]
        )
        keep(self.workspace, self.family, document)
        await self._name_pending(attempt, location)

    async def _name_pending(self, attempt: Attempt, location: str) -> None:
        wanted = NameRecord(
            state="pending",
            uuid=self.uuid,
            kind=self.family.kind,
            transaction=attempt.transaction,
            attempt=attempt.attempt,
            metadata_location=location,
            updated_ms=self.workspace.clock.now_ms(),
        )
        cell = self.workspace.name(self.identifier)
        expected: Expected = self.expected or ABSENT
        for _ in range(TRIES_MAX):
            try:
                self.name = await cell.swap(wanted, expected=expected)
            except SwapLost:
                found = await cell.read()
                if found and found.value.uuid == self.uuid and found.value.state == "pending":
                    self.name = found
                    return
                spot = await settle(self.workspace, self.identifier)
                if spot.live:
                    self._refuse(spot.live)
                expected = spot.expected
                continue
            return
        raise Busy(f"{self.identifier}: the name keeps changing")

    async def confirm(self) -> None:
        """T3 namespace, T3 pointer: N4 and N5 for what a transaction creates, after its names and before it commits."""
        is_there, pointer = await asyncio.gather(
            confirm_namespace(self.workspace, self.identifier.namespace, self.home),
            bound_pointer(self.workspace, self.uuid, binds=False),
        )
        if not is_there:
            raise NotFound(f"Namespace does not exist: {self.identifier.namespace}", subject="namespace")
        if pointer is None:
            raise Busy(f"{self.identifier}: what was to be created was swept away")

    async def finish(self) -> None:
        """Behind the answer: the pointer is bound (N7 pending), then the name active, then receipt and index."""
        pointer = await bound_pointer(self.workspace, self.uuid)
        if pointer is None or pointer.value.head is None or self.name is None:
            return
        with contextlib.suppress(SwapLost):
            await self.workspace.name(self.identifier).swap(activated(self.name.value), expected=self.name.version)
        await self.workspace.receipts.ensure(pointer.value.table_uuid, pointer.value.head)
        await indexing.finish(self.workspace, self.identifier, self.uuid)

    def participant(self) -> Participant:
        return Participant(uuid=self.uuid, identifier=self.identifier, creates=True)
