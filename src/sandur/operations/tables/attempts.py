"""The attempts of one commit request: its claim, its uncertain swaps, and how an applied one is recognised (C4–C11)."""

from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import AttemptedFile, Pointer, Request
from sandur.errors import Busy, Conflict, SandurError
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.idempotency import ClaimLost, KeyClaim
from sandur.operations.lake import Lake
from sandur.operations.receipts import Receipts
from sandur.operations.tables.documents import (
    Document,
    Family,
    is_written_by,
    logged_locations,
    pointer_document,
    replayed_document,
)
from sandur.operations.tables.names import ResolvedName
from sandur.storage.cell import Versioned

M = TypeVar("M", TableMetadata, ViewMetadata)

OPERATION: Final = "commit"


class Change(Protocol[M]):
    """What a commit changes."""

    @property
    def asserted_uuid(self) -> str | None:
        """The uuid that the table must have; None if the request asserts none."""
        ...

    def apply(self, base: M, *, now_ms: int) -> M:
        """The metadata after the commit, or `base` itself if nothing changes. Raises Conflict or Invalid."""
        ...

    def is_applied(self, current: M) -> bool:
        """Whether the metadata shows that this very change was made before (C9)."""
        ...

    def operation(self, next_metadata: M) -> str:
        """The kind of change, for the receipt; empty if the change does not touch the table's data."""
        ...


@dataclass
class CommitAttempts(Generic[M]):
    """One commit request over all its attempts, in this process and in earlier ones under the same key.

    `uncertain` holds the files whose swap may have been applied: swaps of ours without a definite answer, and the files
    of an attempt whose claim was taken over. `claim` is that of the table to which the request commits.
    """

    lake: Lake
    family: Family[M]
    identifier: Identifier
    change: Change[M]
    request: Request
    claim: KeyClaim | None = None
    uncertain: list[AttemptedFile] = field(default_factory=list)

    def claim_for(self, uuid: str) -> KeyClaim:
        """The claim of this request; its cell belongs to the first table that the request finds."""
        if self.claim is None:
            key_hash = self.request.key_hash
            cell = self.lake.commit_claim(uuid, key_hash) if key_hash else None
            self.claim = KeyClaim(self.lake, self.request, OPERATION, cell)
        return self.claim

    async def release(self) -> None:
        if self.claim:
            await self.claim.release()

    async def follow(self) -> Document[M] | None:
        """C8: the answer of the attempt that holds the key; None if this request has taken the key over."""
        if self.claim is None:
            raise Busy(f"{self.identifier}: the claim is not known yet")
        claim = await self.claim.follow()
        if claim.state == "done":
            return await replayed_document(self.lake, self.family, claim.location, claim.uuid)
        self.uncertain = list(claim.locations)
        return None

    async def answer(self, uuid: str, document: Document[M]) -> Document[M]:
        """Nothing is left to do: the current document is the answer."""
        await self.claim_for(uuid).done(uuid=uuid, location=document.location)
        return document

    async def refuse(self, pointer: Versioned[Pointer], document: Document[M], error: SandurError) -> Document[M]:
        """C9: a change that was made before is no conflict. Any other refusal is final and recorded (G3)."""
        is_ours = isinstance(error, Conflict) and is_written_by(self.family, document, self.request)
        if is_ours or self.change.is_applied(document.metadata):
            return await self.answer(pointer.value.uuid, document)
        uuid, asserted = pointer.value.uuid, self.change.asserted_uuid
        if asserted and asserted != pointer.value.table_uuid.lower():
            # C10: the name refers to another table than the one that the request is for.
            if applied := await self._find_in(asserted):
                return applied
            uuid = asserted
        await self.claim_for(uuid).done(uuid=uuid, error=error)
        raise error

    async def find_applied(self, uuid: str, document: Document[M]) -> Document[M] | None:
        """C5: the answer if an uncertain file is the head, in the log, or has a receipt; checked in this order."""
        logged = set(logged_locations(self.family, document)) if self.uncertain else set()
        for tried in self.uncertain:
            if tried.metadata_location in logged or await self.lake.feature(Receipts).exists(tried):
                await self.claim_for(uuid).done(uuid=uuid, location=tried.metadata_location)
                return await replayed_document(self.lake, self.family, tried.metadata_location, uuid)
        return None

    async def find_in_previous_table(self, found: ResolvedName) -> Document[M] | None:
        """The answer if the commit was made to the table that the name referred to before.

        If it was not, the request is about the table that the name refers to now. A request that asserts the uuid of
        the previous table is refused later.
        """
        uuid = self.claim.pinned_uuid if self.claim else None
        if uuid is None or uuid in {found.uuid, self.change.asserted_uuid}:
            return None
        document = await self._find_in(uuid)
        self.claim, self.uncertain = None, []
        return document

    async def find_without_name(self) -> Document[M]:
        """C10: the name is gone, but its table may show that the commit was made; otherwise raises NotFound."""
        missing = self.family.missing(self.identifier)
        pinned = self.claim.pinned_uuid if self.claim else None
        uuid = pinned or self.change.asserted_uuid or await self._previous_uuid()
        if uuid is None:
            raise missing
        if document := await self._find_in(uuid):
            return document
        await self.claim_for(uuid).done(uuid=uuid, error=missing)  # G3
        raise missing

    async def _previous_uuid(self) -> str | None:
        """The uuid that the name referred to before it was dropped or moved. Only a keyed request needs it."""
        name = await self.lake.name(self.identifier).read() if self.request.key else None
        return name.value.uuid if name and name.value.kind == self.family.kind else None

    async def _find_in(self, uuid: str) -> Document[M] | None:
        """C10: the answer if this commit was made to the table of that uuid, whatever its name is now."""
        if self.claim is None or self.claim.pinned_uuid != uuid:
            self.claim = None
            if await self.claim_for(uuid).read():
                raise ClaimLost
        pointer = await self.lake.pointer(uuid).read()
        document = await pointer_document(self.lake, self.family, pointer) if pointer else None
        if document is None:
            return None
        if applied := await self.find_applied(uuid, document):
            return applied
        return document if self.change.is_applied(document.metadata) else None

    def exhausted(self) -> SandurError:
        """C11: with a key the claim stays open. Without one, Conflict needs every lost swap to be definite."""
        if self.request.key or self.uncertain:
            return Busy(f"{self.identifier}: too many concurrent commits")
        return Conflict(f"{self.identifier}: too many concurrent commits, every swap was lost")
