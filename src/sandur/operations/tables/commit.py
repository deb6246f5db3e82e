"""The commit of one table or view (rules C1–C11): read or remember, decide, write aside, swap, finish.

Tables and views commit alike: they differ in their `Family` and in the `Change` of the request. Registrations that
replace a table's head and the participants of a transaction are made of the same steps.
"""

import contextlib
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import Head, Pointer, Request
from sandur.errors import Conflict, Invalid, SandurError, SwapLost
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.concurrency import CommitQueues, gather_all
from sandur.operations.idempotency import ClaimLost, KeyClaim
from sandur.operations.index import update
from sandur.operations.index.update import DeferredUpdate, changes_entry
from sandur.operations.lake import Lake
from sandur.operations.receipts import Receipts, commit_key_of, tried_of
from sandur.operations.tables.attempts import Change, CommitAttempts
from sandur.operations.tables.documents import (
    Document,
    Family,
    cache_document,
    cached_document,
    encode_document,
    load_document,
    prefetch_document,
    write_document,
)
from sandur.operations.tables.names import ResolvedName, activate_name, is_alive, resolve_name
from sandur.operations.transactions.resolution import TransactionAge, resolve_pending
from sandur.storage.cell import Versioned

M = TypeVar("M", TableMetadata, ViewMetadata)

_BACKOFF_SECONDS: Final = 0.002
_DELETES_OLD_FILES: Final = "write.metadata.delete-after-commit.enabled"


@dataclass(frozen=True)
class Base(Generic[M]):
    """The state that a commit is decided on, with the pointer as `resolve_pending` gives it.

    `is_remembered`: the state comes from the cache, so that no refusal may rest on it (G4).
    """

    found: ResolvedName
    pointer: Versioned[Pointer]
    head: Head
    document: Document[M]
    is_remembered: bool = False


class Draft(NamedTuple, Generic[M]):
    """The next document, and the head that points to it."""

    document: Document[M]
    head: Head


async def commit(
    lake: Lake, family: Family[M], identifier: Identifier, change: Change[M], request: Request
) -> Document[M]:
    """Apply a change and return the document that is current afterwards.

    Raises what refuses the change. After too many lost swaps: Conflict if no swap of this request can have been
    applied, otherwise Busy.
    """
    attempts = CommitAttempts(lake, family, identifier, change, request)
    listing = ListUpdate(lake, identifier)
    async with lake.feature(CommitQueues).turn(identifier) as queue:
        try:
            base = remembered_base(lake, family, identifier)  # C1
            for number in range(lake.settings.commit_attempts_max):
                try:
                    prepared = await _prepare(attempts, base or await _read(attempts, number), listing)
                except ClaimLost:
                    prepared = await attempts.follow()  # C8
                if isinstance(prepared, Document):
                    return prepared
                if prepared is not None:
                    try:
                        moved = prepared.moved_pointer(lake.clock.now_ms())
                        # C6, C7: the commit happens here.
                        pointer = await lake.pointer(moved.uuid).swap(moved, expected=prepared.base.pointer.version)
                    except SwapLost as lost:
                        await _note_loss(attempts, prepared.draft, lost)
                    else:
                        return await _succeed(attempts, prepared, pointer)
                base = None
                queue.note_contention()
            raise attempts.exhausted()  # C11
        except SandurError:
            # The claim names every file of this request, also one whose swap may still be applied (C4, C5).
            await attempts.release()
            raise
        finally:
            listing.end()


class Prepared(NamedTuple, Generic[M]):
    """A commit that is decided and written aside: only the swap is left."""

    base: Base[M]
    draft: Draft[M]

    def moved_pointer(self, now_ms: int) -> Pointer:
        return replace(self.base.pointer.value, state="live", head=self.draft.head, pending=None, updated_ms=now_ms)


async def _prepare(
    attempts: CommitAttempts[M], base: Base[M] | Document[M], listing: "ListUpdate"
) -> Prepared[M] | Document[M] | None:
    """Decide and write aside. Returns the answer if no swap is needed; None to read the state and start over."""
    if isinstance(base, Document):
        return base  # An earlier attempt of this request was applied.
    lake, family, change = attempts.lake, attempts.family, attempts.change
    claim = attempts.claim_for(base.found.uuid)
    now_ms = commit_time_ms(lake, base)
    try:
        metadata = change.apply(base.document.metadata, now_ms=now_ms)
    except (Conflict, Invalid) as error:
        return None if base.is_remembered else await attempts.refuse(base.pointer, base.document, error)
    if metadata is base.document.metadata:
        return None if base.is_remembered else await attempts.answer(base.found.uuid, base.document)
    draft = draft_next(lake, family, base, metadata, change.operation(metadata), attempts.request, now_ms=now_ms)
    return Prepared(base, draft) if await _write_aside(attempts, base, draft, claim, listing) else None


async def _note_loss(attempts: CommitAttempts[M], draft: Draft[M], lost: SwapLost) -> None:
    if lost.is_definite:
        await _abandon(attempts.lake, draft.document)
    else:
        attempts.uncertain.append(tried_of(draft.head))


async def _succeed(attempts: CommitAttempts[M], prepared: Prepared[M], pointer: Versioned[Pointer]) -> Document[M]:
    lake, family, (base, draft) = attempts.lake, attempts.family, prepared
    cache_document(lake, family, draft.document)
    done = ResolvedName(base.found.identifier, base.found.name, pointer)
    claim = attempts.claim_for(base.found.uuid)
    await lake.background.run("finish commit", _finish(lake, family, done, base.document, draft, claim))
    return draft.document


def remembered_base(lake: Lake, family: Family[M], identifier: Identifier) -> Base[M] | None:
    """C1: the state that this server saw last.

    None if the cache does not hold all of it, or if the store can tell without waiting that it is stale.
    """
    name = lake.name(identifier).recall()
    if name is None or name.value.state not in {"active", "new"} or name.value.kind != family.kind:
        return None
    pointer = lake.pointer(name.value.uuid).recall()
    if pointer is None or pointer.value.pending or pointer.value.head is None or pointer.value.state != "live":
        return None
    head = pointer.value.head
    document = cached_document(lake, family, head.metadata_location)
    if document is None:
        return None
    return Base(ResolvedName(identifier, name, pointer), pointer, head, document, is_remembered=True)


async def read_base(
    lake: Lake, family: Family[M], found: ResolvedName, *, older_than: TransactionAge | None = None
) -> Base[M] | None:
    """The state as it is now, with no transaction pending on it (T5); None if the table no longer lives."""
    current = found.iceberg_pointer
    pointer = await resolve_pending(lake, current, older_than=older_than) if current else None
    head = pointer.value.head if pointer else None
    if pointer is None or head is None or not is_alive(pointer):
        return None
    return Base(found, pointer, head, await load_document(lake, family, head.metadata_location))


async def _read(attempts: CommitAttempts[M], number: int) -> Base[M] | Document[M]:
    """The state to decide on, or the answer if an earlier attempt of this request was applied."""
    lake, family = attempts.lake, attempts.family
    if number > 1:
        await lake.clock.sleep(_BACKOFF_SECONDS * lake.clock.chance())
    found = await resolve_name(lake, attempts.identifier, prefetch=prefetch_document)
    if found is None or found.name.value.kind != family.kind:
        return await attempts.find_without_name()
    if document := await attempts.find_in_previous_table(found):
        return document
    base = await read_base(lake, family, found)
    if base is None:
        return await attempts.find_without_name()
    return await attempts.find_applied(found.uuid, base.document) or base


def commit_time_ms(lake: Lake, base: Base[M]) -> int:
    """The time of a commit. It is never before the time of its base, because logs are read in order of time."""
    return max(lake.clock.now_ms(), base.head.last_updated_ms)


def draft_next(
    lake: Lake, family: Family[M], base: Base[M], metadata: M, operation: str, request: Request, *, now_ms: int
) -> Draft[M]:
    """The next document under a fresh name (C3), and the head that points to it."""
    version = base.head.metadata_version + 1
    document = encode_document(lake, family, metadata, version=version, request=request)
    head = next_head(
        family.head(document.metadata, now_ms), base.head, version=version, operation=operation, request=request
    )
    return Draft(document, head)


def next_head(
    head: Head, before: Head, *, version: int, operation: str, request: Request, registration: str = ""
) -> Head:
    """A head with everything that its receipt says about its predecessor and its request (C5)."""
    return replace(
        head,
        metadata_version=version,
        previous_metadata_location=before.metadata_location,
        previous_commit_key=commit_key_of(before),
        operation=operation,
        registration=registration,
        source=request.source,
    )


async def _write_aside(
    attempts: CommitAttempts[M], base: Base[M], draft: Draft[M], claim: KeyClaim, listing: "ListUpdate"
) -> bool:
    """C2: one round of writes and checks before the swap.

    False if the remembered state turned out to be stale; raises if anything is not certain to be written.
    """
    lake, uuid = attempts.lake, base.found.uuid
    try:
        *_, is_current = await gather_all(
            [
                write_document(lake, draft.document),
                lake.feature(Receipts).ensure(base.pointer.value.table_uuid, base.head),  # C5 (help)
                claim.take(uuid=uuid, tried=tried_of(draft.head)),  # C4, C7 (fence)
                listing.begin(base.document.metadata, draft.document.metadata),  # I1
                _is_current(lake, base),
            ]
        )
    except ClaimLost:
        await _abandon(lake, draft.document)
        raise
    if not is_current:
        await _abandon(lake, draft.document)
    return bool(is_current)


async def _is_current(lake: Lake, base: Base[M]) -> bool:
    """Whether name and pointer are as remembered. A cached name is never trusted (C2)."""
    if not base.is_remembered:
        return True
    found = base.found
    name, pointer = lake.name(found.identifier).key, lake.pointer(found.uuid).key
    return await lake.store.are_current([(name, found.name.version), (pointer, base.pointer.version)])


async def _abandon(lake: Lake, document: Document[M]) -> None:
    """C3: delete the file of a definite loss in the background; no other attempt refers to it."""
    await lake.background.run("delete an unused file", lake.locations.remove(document.location))


async def _finish(
    lake: Lake, family: Family[M], done: ResolvedName, before: Document[M], draft: Draft[M], claim: KeyClaim
) -> None:
    """C6, after the answer: the receipt, the claim, a name that was `new`, and old files.

    A crash here leaves what the next commit or a janitor repairs.
    """
    after = draft.document
    work = [
        lake.feature(Receipts).ensure(done.pointer.value.table_uuid, draft.head),
        claim.finish(location=after.location),
        activate_name(lake, done),
    ]
    if after.metadata.properties.get(_DELETES_OLD_FILES, "").lower() == "true":
        work.append(_delete_old_files(lake, family, before, after))
    await gather_all(work)


async def _delete_old_files(lake: Lake, family: Family[M], before: Document[M], after: Document[M]) -> None:
    """Delete the files that left the log, for a table that asks for it. Their receipts exist by now (C5)."""
    for location in sorted(set(family.log(before.metadata)) - set(family.log(after.metadata)) - {after.location}):
        with contextlib.suppress(SandurError):
            await lake.locations.remove(location)


class ListUpdate:
    """The mark that keeps lists right while a commit changes an entry (I1): begun at most once, then ended."""

    def __init__(self, lake: Lake, identifier: Identifier) -> None:
        self._lake = lake
        self._identifier = identifier
        self._update: DeferredUpdate | None = None

    async def begin(self, before: M, after: M) -> None:
        """When this returns, the mark exists, if the change shows in lists."""
        if self._update is None and changes_entry(before, after):
            self._update = await update.begin_deferred_update(self._lake, self._identifier)

    def end(self) -> None:
        """The commit has ended, in any way: the mark is no longer needed for it."""
        if self._update:
            self._update.end()
            self._update = None
