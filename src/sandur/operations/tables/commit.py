"""The commit of one table or view (rules C1-C11): read or remember, decide, write aside, swap, finish.

Tables and views commit alike; what differs stands in their `Family` and in the `Change` that is asked for.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import AttemptedFile, Head, NameRecord, Pointer, head_of
from sandur.catalog.sources import Request
from sandur.errors import Busy, Conflict, Invalid, SandurError, SwapLost
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.concurrency import CommitQueue, gather_all
from sandur.operations.grounds import as_last_seen
from sandur.operations.idempotency import ClaimLost, KeyClaim
from sandur.operations.index import update
from sandur.operations.index.memory import DeferredUpdate
from sandur.operations.index.update import changes_entry
from sandur.operations.lake import Lake
from sandur.operations.receipts import commit_key_of, tried_of
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
    prefetch_hint,
    replayed_document,
    request_hash_of,
    write_document,
)
from sandur.operations.tables.names import ResolvedName, active_record, is_alive, resolve_name
from sandur.operations.transactions import resolution
from sandur.storage.cell import Cell, Versioned

M = TypeVar("M", TableMetadata, ViewMetadata)

_DELETES_OLD_FILES = "write.metadata.delete-after-commit.enabled"


async def finish_commit(
    lake: Lake, family: Family[M], found: ResolvedName, before: Document[M], after: Document[M], claim: KeyClaim
) -> None:
    """C6: our own receipt, the claim, the name of a table that is committed to for the first time, and old files."""
    head = head_of(found.pointer.value)
    if head is None:
        return
    work = [lake.receipts.ensure(found.pointer.value.table_uuid, head)]
    if claim.is_keyed:
        work.append(_finish_claim(claim, after.location))
    if found.name.value.state == "new":
        work.append(activate_name(lake, found))
    if after.metadata.properties.get(_DELETES_OLD_FILES, "").lower() == "true":
        work.append(_delete_old_files(lake, family, before, after))
    await gather_all(work)


async def _finish_claim(claim: KeyClaim, location: str) -> None:
    with contextlib.suppress(ClaimLost):  # Taken over: whoever has it finds the commit by C5.
        await claim.done(location=location)


async def activate_name(lake: Lake, found: ResolvedName) -> None:
    """A `new` name whose pointer is bound has nothing left to confirm. Whoever changed it meanwhile is right."""
    if found.name.value.state == "new":
        with contextlib.suppress(SwapLost):
            await lake.name(found.identifier).swap(active_record(found.name.value), expected=found.name.version)


async def _delete_old_files(lake: Lake, family: Family[M], before: Document[M], after: Document[M]) -> None:
    """Files that fell out of the log, for a table that asks for it; their receipts exist, or we had not come here."""
    for location in sorted(set(family.log(before.metadata)) - set(family.log(after.metadata)) - {after.location}):
        with contextlib.suppress(SandurError):
            await lake.locations.remove(location)


OPERATION: Final = "commit"
_BACKOFF_SECONDS: Final = 0.002


class Change(Protocol[M]):
    """What a commit asks for."""

    @property
    def asserted_uuid(self) -> str | None:
        """The uuid the table must have, when the request says so."""
        ...

    def applied_to(self, base: M, *, now_ms: int) -> M:
        """The metadata after the commit, `base` itself when nothing changes; Conflict or Invalid when it may not be."""
        ...

    def is_in(self, current: M) -> bool:
        """Whether the metadata shows that this very change was made before (natural replay, C9)."""
        ...

    def operation_on(self, next_metadata: M) -> str:
        """What kind of change this is, for the receipt; empty when the table's data is not touched."""
        ...


@dataclass(frozen=True)
class Base(Generic[M]):
    """What a commit is decided on. `is_remembered`: from the cache, so that no refusal may rest on it (G4)."""

    found: ResolvedName
    pointer: Versioned[Pointer]
    head: Head
    document: Document[M]
    is_remembered: bool


@dataclass
class Commit(Generic[M]):
    """One request to commit, from its first look to its answer."""

    lake: Lake
    family: Family[M]
    identifier: Identifier
    change: Change[M]
    request: Request
    # Taken with the first file that is written; its place depends on the table's uuid.
    claim: KeyClaim | None = None
    # Files of which it is not known that their swap was lost: ours with no answer, or those of who we took over from.
    uncertain: list[AttemptedFile] = field(default_factory=list)
    # Begun once it turns out that lists will show something else.
    relisting: DeferredUpdate | None = None

    async def run(self) -> Document[M]:
        """The document that is current after the commit."""
        async with self.lake.turn(self.identifier) as turn:
            try:
                return await self._run(turn)
            except SandurError:
                # Whoever goes on finds in the claim every file of ours, also one whose swap may still land (C4, C5).
                if self.claim:
                    await self.claim.let_go()
                raise
            finally:
                if self.relisting:
                    self.relisting.end()

    async def _run(self, turn: CommitQueue) -> Document[M]:
        base = self._remembered()
        for attempt in range(self.lake.settings.commit_attempts_max):
            try:
                read = base or await self._read(attempt)
                outcome = read if isinstance(read, Document) else await self._attempt(read)
            except ClaimLost:
                outcome = await self._followed()
            if outcome is not None:
                return outcome
            base = None
            turn.note_contention()
        # C11: with a key the claim stays open; without one, 409 is right only if none of our swaps is unknown.
        if self.request.key or self.uncertain:
            raise Busy(f"{self.identifier}: too many commits at once")
        raise Conflict(f"{self.identifier}: too many commits at once, the swap was lost every time")

    async def _attempt(self, base: Base[M]) -> Document[M] | None:
        """Decide on the base and try to commit; None to read again and start over."""
        self._claim_of(base.found.uuid)
        try:
            metadata = self.change.applied_to(base.document.metadata, now_ms=self._now_ms(base))
        except (Conflict, Invalid) as error:
            return None if base.is_remembered else await self._refused(base, error)
        if metadata is base.document.metadata:
            return None if base.is_remembered else await self._unchanged(base)
        document, head = self._drafted(base, metadata)
        if not await self._write_aside(base, document, head):
            return None
        return await self._swap(base, document, head)

    def _drafted(self, base: Base[M], metadata: M) -> tuple[Document[M], Head]:
        """The next document under a fresh name (C3), and the head that would point to it."""
        version = base.head.metadata_version + 1
        location = new_location(self.lake, self.family, metadata, version=version, request_hash=self._hash())
        document = encode_document(self.family, metadata, location)
        head = replace(
            self.family.head(document.metadata, self._now_ms(base)),
            metadata_version=version,
            previous_metadata_location=base.head.metadata_location,
            previous_commit_key=commit_key_of(base.head),
            operation=self.change.operation_on(metadata),
            source=self.request.source,
        )
        return document, head

    async def _write_aside(self, base: Base[M], document: Document[M], head: Head) -> bool:
        """C2: round 1. False when what was decided on is not so any more; raises when anything is not certain."""
        uuid = base.found.uuid
        try:
            *_, is_still = await gather_all(
                [
                    write_document(self.lake, self.family, document),
                    self.lake.receipts.ensure(base.pointer.value.table_uuid, base.head),  # C5 (help)
                    self._claim_of(uuid).take(uuid=uuid, tried=tried_of(head)),  # C4, C7 (fence)
                    self._relist(base, document),  # I1
                    self._is_still(base),
                ]
            )
        except ClaimLost:
            await self._abandon(document)
            raise
        if not is_still:
            await self._abandon(document)
        return bool(is_still)

    async def _relist(self, base: Base[M], document: Document[M]) -> None:
        if self.relisting is None and changes_entry(base.document.metadata, document.metadata):
            self.relisting = await update.begin_deferred_update(self.lake, self.identifier)

    async def _is_still(self, base: Base[M]) -> bool:
        """Whether name and pointer are as remembered: asked every time, for a cached name is never trusted (C2)."""
        if not base.is_remembered:
            return True
        name_cell, pointer_cell = self._name(), self.lake.pointer(base.found.uuid)
        name, pointer = await asyncio.gather(name_cell.read(), pointer_cell.read())
        seen = (name.version if name else None, pointer.version if pointer else None)
        return seen == (base.found.name.version, base.pointer.version)

    async def _swap(self, base: Base[M], document: Document[M], head: Head) -> Document[M] | None:
        """C6, C7: round 2, where the commit happens. None when the swap was lost."""
        moved = replace(base.pointer.value, state="live", head=head, pending=None, updated_ms=self.lake.clock.now_ms())
        cell = self.lake.pointer(base.found.uuid)
        try:
            pointer = await cell.swap(moved, expected=base.pointer.version)  # The commit happens here.
        except SwapLost as lost:
            if lost.is_definite:
                await self._abandon(document)
            else:
                self.uncertain.append(tried_of(head))
            return None
        cache_document(self.lake, self.family, document)
        done = ResolvedName(self.identifier, base.found.name, pointer)
        await self.lake.background.run(
            "finish commit",
            finish_commit(self.lake, self.family, done, base.document, document, self._claim_of(done.uuid)),
        )
        return document

    async def _read(self, attempt: int) -> Base[M] | Document[M]:
        """The table as it is now; the answer itself, when it shows that an uncertain swap of ours was applied."""
        if attempt > 1:
            await self.lake.clock.sleep(_BACKOFF_SECONDS * self.lake.clock.chance())
        found = await resolve_name(self.lake, self.identifier, beside=prefetch_hint(self.lake, self.family))
        if found is None or found.name.value.kind != self.family.kind:
            return await self._without_name()
        if document := await self._made_before_the_name_changed(found):
            return document
        current = found.iceberg_pointer
        pointer = await resolution.resolve_pending(self.lake, current) if current else None
        if pointer is None or pointer.value.head is None or not is_alive(pointer):
            return await self._without_name()
        head = pointer.value.head
        document = await load_document(self.lake, self.family, head.metadata_location)
        if committed := await self._committed(document):
            return await self._replayed(committed, found.uuid)
        return Base(found, pointer, head, document, is_remembered=False)

    def _remembered(self) -> Base[M] | None:
        """C1: what this server saw last; None when that is not enough to decide on.

        Where a look takes no waiting, name and pointer are asked for here (C2), before work is spent on what is over.
        """
        name_cell = self._name()
        name = name_cell.last_seen
        if name is None or name.value.state not in {"active", "new"} or name.value.kind != self.family.kind:
            return None
        pointer_cell = self.lake.pointer(name.value.uuid)
        pointer = pointer_cell.last_seen
        if pointer is None or pointer.value.pending or pointer.value.head is None or pointer.value.state != "live":
            return None
        document = self.lake.documents.get((self.family.kind, pointer.value.head.metadata_location))
        is_so = as_last_seen(self.lake, (name_cell.key, name.version), (pointer_cell.key, pointer.version))
        if document is None or is_so is False:
            return None
        found = ResolvedName(self.identifier, name, pointer)
        # A `new` name is confirmed by its namespace only (N4), for which `_read` asks.
        is_remembered = is_so is None or name.value.state == "new"
        return Base(found, pointer, pointer.value.head, document, is_remembered=is_remembered)

    async def _committed(self, document: Document[M]) -> AttemptedFile | None:
        """C5: the one of our uncertain files that is head, in the log, or has a receipt; asked in this order."""
        known = set(logged_locations(self.family, document)) if self.uncertain else set()
        for tried in self.uncertain:
            if tried.metadata_location in known or await self.lake.receipts.exists(tried):
                return tried
        return None

    async def _replayed(self, tried: AttemptedFile, uuid: str) -> Document[M]:
        """An earlier swap of this request was applied after all."""
        await self._claim_of(uuid).done(uuid=uuid, location=tried.metadata_location)
        return await replayed_document(self.lake, self.family, tried.metadata_location, uuid)

    async def _refused(self, base: Base[M], error: SandurError) -> Document[M]:
        """C9: a change that is there already is no conflict. Otherwise the refusal is final, and kept (G3)."""
        is_ours = isinstance(error, Conflict) and self._hash() in map(
            request_hash_of, logged_locations(self.family, base.document)
        )
        if is_ours or self.change.is_in(base.document.metadata):
            return await self._unchanged(base)
        uuid = base.found.uuid
        asserted = self.change.asserted_uuid
        if asserted and asserted != base.pointer.value.table_uuid.lower():
            # C10: the name stands for another table than the one the request is about.
            if document := await self._made_to(asserted):
                return document
            uuid = asserted
        await self._claim_of(uuid).done(uuid=uuid, error=error)
        raise error

    async def _unchanged(self, base: Base[M]) -> Document[M]:
        """Nothing to do: what is current is the answer."""
        await self._claim_of(base.found.uuid).done(uuid=base.found.uuid, location=base.document.location)
        return base.document

    async def _without_name(self) -> Document[M]:
        """C10: the name is gone, but the table it stood for may show that the commit was made."""
        missing = self.family.missing(self.identifier)
        held = self.claim.held if self.claim else None
        uuid = held.value.uuid if held else self.change.asserted_uuid or await self._uuid_before()
        if uuid is None:
            raise missing
        if document := await self._made_to(uuid):
            return document
        await self._claim_of(uuid).done(uuid=uuid, error=missing)  # G3
        raise missing

    async def _uuid_before(self) -> str | None:
        """What the name stood for before it was dropped or moved; only a key finds anything there."""
        name = await self._name().read() if self.request.key else None
        return name.value.uuid if name and name.value.kind == self.family.kind else None

    async def _made_before_the_name_changed(self, found: ResolvedName) -> Document[M] | None:
        """The claim may be that of a table which the name stood for when it was looked at first.

        If the commit was not made to that one, what the name stands for now is what the request is about; unless it
        asserts the other one's uuid, which is then refused in its turn.
        """
        held = self.claim.held if self.claim else None
        if held is None or held.value.uuid in {found.uuid, self.change.asserted_uuid}:
            return None
        document = await self._made_to(held.value.uuid)
        self.claim, self.uncertain = None, []
        return document

    async def _made_to(self, uuid: str) -> Document[M] | None:
        """C10: what shows that this commit was made to the table of that uuid, wherever it is by now."""
        if not self._holds_claim_of(uuid):
            self.claim = None
            if await self._claim_of(uuid).read():
                raise ClaimLost
        pointer = await self.lake.pointer(uuid).read()
        document = await pointer_document(self.lake, self.family, pointer) if pointer else None
        if document is None:
            return None
        if committed := await self._committed(document):
            return await self._replayed(committed, uuid)
        return document if self.change.is_in(document.metadata) else None

    async def _followed(self) -> Document[M] | None:
        """C8: another attempt of this request has the key. Its answer, or None when it is ours to go on with."""
        if self.claim is None:
            raise Busy(f"{self.identifier}: the claim is not known yet")
        claim = await self.claim.follow()
        if claim.state == "done":
            return await replayed_document(self.lake, self.family, claim.location, claim.uuid)
        self.uncertain = list(claim.locations)
        return None

    async def _abandon(self, document: Document[M]) -> None:
        """C3: a loser may delete its own file after a definite loss; nobody else knows of it."""
        await self.lake.background.run("delete a file not used", self.lake.locations.remove(document.location))

    def _holds_claim_of(self, uuid: str) -> bool:
        held = self.claim.held if self.claim else None
        return held is not None and held.value.uuid == uuid

    def _claim_of(self, uuid: str) -> KeyClaim:
        if self.claim is None:
            key_hash = self.request.key_hash
            cell = self.lake.commit_claim(uuid, key_hash) if key_hash else None
            self.claim = KeyClaim(self.lake, self.request, OPERATION, cell)
        return self.claim

    def _now_ms(self, base: Base[M]) -> int:
        """The time of this commit. Not before that of the base: logs are read in order of time."""
        return max(self.lake.clock.now_ms(), base.head.last_updated_ms)

    def _hash(self) -> str:
        return (self.request.key_hash or self.request.hash)[:HASH_LENGTH]

    def _name(self) -> Cell[NameRecord]:
        return self.lake.name(self.identifier)
