"""The commit of one table or view (rules C1–C11): remember or read, decide, write aside, swap, finish.

Tables and views commit alike: they differ in their `Family` and in the `Change` of the request. Registrations that
replace a table's head and the participants of a transaction are made of the same steps.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, NamedTuple, cast

from msgspec.structs import replace

from sandur.catalog import locations
from sandur.catalog.identifiers import Identifier, checked_identifier
from sandur.catalog.records import AttemptedFile, Head, Pointer, Request
from sandur.catalog.security import Authority
from sandur.errors import Busy, Conflict, Forbidden, Hidden, Invalid, Renamed, SandurError, SwapLost, Unauthenticated
from sandur.iceberg.requests import AssertCreate, TableCommit
from sandur.iceberg.table_commit import deletes_old_files
from sandur.operations.access import name_chain, read_authority, record_chain, require
from sandur.operations.commit_queues import CommitQueue, CommitQueues
from sandur.operations.counters import COMMIT_ATTEMPTS, COMMIT_OUTCOMES, Counters, count_commit, outcome_of
from sandur.operations.idempotency import ClaimLost, KeyClaim, key_hash_of
from sandur.operations.index.update import ListUpdate
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import LocationClaims, Places
from sandur.operations.locations.placement import added_places, holder_of, locations_of
from sandur.operations.name_access import authorize_places
from sandur.operations.receipts import Receipts, commit_key_of, tried_of
from sandur.operations.tables.changes import Change, TableChange, check_updates, named_places, sets_paths
from sandur.operations.tables.create import create_by_commit
from sandur.operations.tables.documents import (
    TABLES,
    Document,
    Family,
    LoadedTable,
    M,
    cache_document,
    cached_document,
    encode_document,
    is_written_by,
    load_document,
    loaded_table,
    logged_locations,
    pointer_document,
    prefetch_document,
    replayed_document,
    write_document,
)
from sandur.operations.tables.drafts import find_committed
from sandur.operations.tables.names import (
    ResolvedName,
    activate_name,
    allowed_roots,
    is_alive,
    name_not_found,
    resolve_name,
)
from sandur.operations.tables.swept import check_not_swept
from sandur.operations.transactions.resolution import TransactionAge, resolve_pending
from sandur.storage.cell import Versioned, gather_all

_Confirmed = tuple[Authority | None, bool]

_OPERATION: Final = "commit"
SWAP_DELAY_MS_MAX: Final = 5_000
"""How long after the grants were read a swap may be sent. After a revocation, no later commit lands."""

_BACKOFF_SECONDS: Final = 0.002


async def commit_table(lake: Lake, identifier: Identifier, commit: TableCommit, request: Request) -> LoadedTable:
    """The table after the commit. A commit that asserts create creates the table; it needs no stage."""
    creates = any(isinstance(requirement, AssertCreate) for requirement in commit.requirements)
    if creates or sets_paths(commit.updates):
        await allowed_roots(lake, identifier.catalog)
    check_updates(commit.updates)
    if creates:
        checked_identifier(identifier)
        return await create_by_commit(lake, identifier, commit, request)
    await authorize_places(lake, identifier.catalog, named_places(commit.updates))
    return loaded_table(lake, await Commit(lake, TABLES, identifier, TableChange(commit), request).run())


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
    """The next document, the head that points to it, the places it adds (P9), and the state they were decided on."""

    base: Base[M]
    document: Document[M]
    head: Head
    added: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """All places of the table after the commit; they only grow, because old files stay where they are."""
        return (*self.base.pointer.value.places, *self.added)


@dataclass
class Commit(Generic[M]):
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
    _found: ResolvedName | None = None
    _is_contended: bool = False
    places: LocationClaims = field(init=False)

    def __post_init__(self) -> None:
        self.places = LocationClaims(self.lake)
        self._began_ms = self.lake.clock.now_ms()

    async def run(self) -> Document[M]:
        """Apply the change and return the document that is current afterwards.

        Raises what refuses the change. After too many lost swaps: Conflict if no swap of this request can have been
        applied, otherwise Busy.
        """
        lake, listing = self.lake, ListUpdate(self.lake, self.identifier)
        try:
            async with lake.feature(CommitQueues).turn(self.identifier) as queue:
                base = self._remember()  # C1
                if base is None or self.change.is_possible(base.document.metadata):
                    return await self._run(base, queue, listing)
            # Most likely refused. A fresh state decides (G4), out of turn: the commits in the queue need not wait.
            return await self._run(None, queue, listing)
        except SandurError as error:
            lake.feature(Counters).add(COMMIT_OUTCOMES, outcome_of(error))
            # The claim names every file of this request, also one whose swap may still be applied (C4, C5).
            if self.claim:
                await self.claim.release()
            await lake.background.run("withdraw location claims", self.places.withdraw())
            raise
        finally:
            listing.end()

    async def _run(self, base: Base[M] | None, queue: CommitQueue, listing: ListUpdate) -> Document[M]:
        """Decide on the base or on what is read, write aside, swap; start over if the state turns out to be stale."""
        lake, counters = self.lake, self.lake.feature(Counters)
        self._is_contended = queue.is_contended
        for number in range(lake.settings.commit_attempts_max):
            try:
                draft = await self._prepare(base or await self._read(number), listing)
            except ClaimLost:
                draft = await self._follow()  # C8
            if isinstance(draft, Document):
                counters.add(COMMIT_OUTCOMES, "replayed")
                return draft
            if draft is None:
                counters.add(COMMIT_ATTEMPTS, "stale")
            else:
                before, now_ms = draft.base.pointer, lake.clock.now_ms()
                moved = replace(before.value, state="live", head=draft.head, pending=None, updated_ms=now_ms)
                moved = replace(moved, places=draft.places) if draft.added else moved
                try:
                    # C6, C7: the commit happens here.
                    pointer = await lake.pointer(moved.uuid).swap(moved, expected=before.version)
                except SwapLost as lost:
                    counters.add(COMMIT_ATTEMPTS, "lost" if lost.is_definite else "unknown")
                    if lost.is_definite:
                        await self._abandon(draft)
                    else:
                        self.uncertain.append(tried_of(draft.head))
                else:
                    cache_document(lake, self.family, draft.document)
                    counters.add(COMMIT_ATTEMPTS, "won")
                    counters.add(COMMIT_OUTCOMES, "ok")
                    count_commit(lake, draft.head.operation, self.identifier)
                    await lake.background.run("finish commit", self._finish(draft, pointer))
                    return draft.document
            base = None
            queue.note_contention()
        raise self._exhausted()  # C11

    def _remember(self) -> Base[M] | None:
        """C1: the state that this server saw last.

        None if the cache does not hold all of it, or if the store can tell without waiting that it is stale.
        """
        name = self.lake.name(self.identifier).recall()
        if name is None or name.value.state not in {"active", "new"} or name.value.kind != self.family.kind:
            return None
        pointer = self.lake.pointer(name.value.uuid).recall()
        if pointer is None or pointer.value.pending or pointer.value.head is None or pointer.value.state != "live":
            return None
        head = pointer.value.head
        document = cached_document(self.lake, self.family, head.metadata_location)
        if document is None:
            return None
        return Base(ResolvedName(self.identifier, name, pointer), pointer, head, document, is_remembered=True)

    async def _read(self, number: int) -> Base[M] | Document[M]:
        """The state to decide on, or the answer if an earlier attempt of this request was applied."""
        if number > 1:
            await self.lake.clock.sleep(_BACKOFF_SECONDS * self.lake.clock.chance())
        authority, found = await gather_all(
            (read_authority(self.lake), resolve_name(self.lake, self.identifier, prefetch=prefetch_document))
        )
        if found is None or found.name.value.kind != self.family.kind:
            return await self._find_without_name()
        await self._authorize(authority, found)
        if document := await self._find_in_previous_table(found):
            return document
        base = await read_base(self.lake, self.family, found)
        if base is None:
            return await self._find_without_name()
        return await self._find_applied(found.uuid, base.document) or base

    async def _prepare(self, base: Base[M] | Document[M], listing: ListUpdate) -> Draft[M] | Document[M] | None:
        """Decide and write aside. Returns the answer if no swap is needed; None to read the state and start over."""
        if isinstance(base, Document):
            return base  # An earlier attempt of this request was applied.
        claim, self._found = self._claim_for(base.found.uuid), base.found
        now_ms = commit_time_ms(self.lake, base)
        try:
            metadata = self.change.apply(base.document.metadata, now_ms=now_ms)
        except (Conflict, Invalid) as error:
            return None if base.is_remembered else await self._refuse(base, error)
        if metadata is base.document.metadata:
            return None if base.is_remembered else await self._answer(base.found.uuid, base.document)
        if self.change.sets_paths and self.lake.access:
            if base.is_remembered:  # Nothing is claimed before the right is checked, on a fresh state (G4).
                return None
            await self._authorize(await read_authority(self.lake), base.found, base.document.metadata)
        try:
            if base.pointer.value.swept:
                await check_not_swept(self.lake, base.pointer.value, base.document.metadata, metadata)  # O5
            added: tuple[str, ...] = ()
            if self.change.sets_paths:
                added = await claim_added(self.places, base, metadata, self.request, began_ms=self._began_ms)
        except Invalid as error:
            return None if base.is_remembered else await self._refuse(base, error)
        operation = self.change.operation(metadata)
        draft = draft_next(self.lake, self.family, base, metadata, operation, self.request, now_ms=now_ms)
        draft = draft._replace(added=added)
        return draft if await self._write_aside(draft, claim, listing) else None

    async def _write_aside(self, draft: Draft[M], claim: KeyClaim, listing: ListUpdate) -> bool:
        """C2: one round of writes and checks before the swap.

        False if the remembered state turned out to be stale, or if the round took too long. Raises if anything is not
        certain to be written.
        """
        lake, base = self.lake, draft.base
        began_ms = lake.clock.now_ms()
        try:
            *_, confirmed = await gather_all(
                [
                    write_document(lake, draft.document),
                    lake.feature(Receipts).ensure(base.pointer.value.table_uuid, base.head),  # C5 (help)
                    claim.take(uuid=base.found.uuid, tried=tried_of(draft.head)),  # C4, C7 (fence)
                    listing.begin(base.document.metadata, draft.document.metadata),  # I1
                    self._confirm(base),
                ]
            )
            authority, is_current = cast("_Confirmed", confirmed)  # The calls return different types.
            if is_current:
                await self._authorize(authority, base.found, base.document.metadata)
        except (ClaimLost, Forbidden, Hidden, Renamed, Unauthenticated):
            await self._abandon(draft)
            raise
        is_late = authority is not None and lake.clock.now_ms() - began_ms > SWAP_DELAY_MS_MAX
        if is_late or not is_current:
            await self._abandon(draft)
        return is_current and not is_late

    async def _authorize(self, authority: Authority | None, found: ResolvedName, base: M | None = None) -> None:
        """A4, A6: check what the route declares on the table; with `base`, also what the change of it needs."""
        if authority is None:
            return
        missing = name_not_found(self.identifier, self.family.kind)
        try:
            chain = await name_chain(self.lake, authority, found, missing=missing)
            require(self.lake, authority, chain, missing=missing)
            if base is not None and self.change.relocates(base):
                require(self.lake, authority, chain, missing=missing, situation="relocate")
        except (Forbidden, Hidden):
            if self.uncertain:  # A7
                raise Busy(f"{self.identifier}: an earlier attempt of this request may still be applied") from None
            raise

    async def _confirm(self, base: Base[M]) -> "_Confirmed":
        """The grants, and whether name and pointer are as remembered.

        A6: the read of the grants begins after the version that will be swapped was known.
        """
        if self.lake.access is None and self.lake.names is None:
            return None, await self._is_current(base)
        if self.lake.store.has_instant_reads:  # Without tasks, which would cost more than these reads.
            return await read_authority(self.lake), await self._is_current(base)
        return await gather_all((read_authority(self.lake), self._is_current(base)))

    async def _is_current(self, base: Base[M]) -> bool:
        """Whether name and pointer are as remembered. A cached name is never trusted (C2).

        The swap itself confirms the pointer. On a bucket it is read before only if another server changed the table a
        moment ago: then a lost swap is likely, and costs more than the read.
        """
        if not base.is_remembered:
            return True
        name, pointer = self.lake.name(self.identifier).key, self.lake.pointer(base.found.uuid).key
        versions = [(name, base.found.name.version)]
        if self._is_contended or self.lake.store.has_instant_reads:
            versions.append((pointer, base.pointer.version))
        return await self.lake.store.are_current(versions)

    async def _abandon(self, draft: Draft[M]) -> None:
        """C3: delete the file of a definite loss in the background; no other attempt refers to it."""
        await self.lake.background.run("delete an unused file", self.lake.locations.remove(draft.document.location))

    async def _finish(self, draft: Draft[M], pointer: Versioned[Pointer]) -> None:
        """C6, after the answer: the receipt, a name that was `new`, and old files. The claim stays open (C8).

        A crash here leaves what the next commit or a janitor repairs.
        """
        found, after = draft.base.found, draft.document
        work = [
            self.lake.feature(Receipts).ensure(pointer.value.table_uuid, draft.head),
            activate_name(self.lake, found),
        ]
        if deletes_old_files(after.metadata.properties):
            work.append(self._delete_old_files(draft.base.document, after))
        await gather_all(work)

    async def _delete_old_files(self, before: Document[M], after: Document[M]) -> None:
        """Delete the files that left the log, for a table that asks for it. Their receipts exist by now (C5)."""
        needed = {locations.normalize_location(one) for one in self.family.log(after.metadata)}
        needed.add(locations.normalize_location(after.location))
        for location in sorted(set(self.family.log(before.metadata))):
            if locations.normalize_location(location) not in needed:
                try:
                    await self.lake.locations.remove(location)
                except SandurError as error:  # The other files can still be deleted.
                    self.lake.incidents.work_failed("delete an old file", error)

    def _claim_for(self, uuid: str) -> KeyClaim:
        """The claim of this request; its cell belongs to the first table that the request finds."""
        if self.claim is None:
            key_hash = key_hash_of(self.request)
            cell = self.lake.commit_claim(uuid, key_hash) if key_hash else None
            self.claim = KeyClaim(self.lake, self.request, _OPERATION, cell)
        return self.claim

    async def _follow(self) -> Document[M] | None:
        """C8: the answer of the attempt that holds the key; None if this request has taken the key over."""
        if self.claim is None:
            raise Busy(f"{self.identifier}: the claim is not known yet")
        if self._found:  # A9
            await self._authorize(await read_authority(self.lake), self._found)
        claim = await self.claim.follow(partial(find_committed, self.lake))
        if claim.state == "done":
            return await replayed_document(self.lake, self.family, claim.location, claim.uuid)
        self.uncertain = list(claim.locations)
        return None

    async def _answer(self, uuid: str, document: Document[M]) -> Document[M]:
        """Nothing is left to do: the current document is the answer."""
        await self._claim_for(uuid).done(uuid=uuid, location=document.location)
        return document

    async def _refuse(self, base: Base[M], error: SandurError) -> Document[M]:
        """C9: a change that was made before is no conflict. Any other refusal is final and recorded (G3)."""
        is_ours = isinstance(error, Conflict) and is_written_by(self.family, base.document, self.request)
        uuid, asserted = base.pointer.value.uuid, self.change.asserted_uuid
        if is_ours or self.change.is_applied(base.document.metadata):
            return await self._answer(uuid, base.document)
        if asserted and asserted != base.pointer.value.table_uuid.lower():
            # C10: the name refers to another table than the one that the request is for.
            if applied := await self._find_in(asserted):
                return applied
            uuid = asserted
        await self._claim_for(uuid).done(uuid=uuid, error=error)
        raise error

    async def _find_applied(self, uuid: str, document: Document[M]) -> Document[M] | None:
        """C5: the answer if an uncertain file is the head, in the log, or has a receipt; checked in this order."""
        logged = set(logged_locations(self.family, document)) if self.uncertain else set()
        for tried in self.uncertain:
            if tried.metadata_location in logged or await self.lake.feature(Receipts).exists(tried):
                await self._claim_for(uuid).done(uuid=uuid, location=tried.metadata_location)
                return await replayed_document(self.lake, self.family, tried.metadata_location, uuid)
        return None

    async def _find_in_previous_table(self, found: ResolvedName) -> Document[M] | None:
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

    async def _find_without_name(self) -> Document[M]:
        """C10: the name is gone, but its table may show that the commit was made; otherwise raises NotFound."""
        missing = name_not_found(self.identifier, self.family.kind)
        uuid = (self.claim.pinned_uuid if self.claim else None) or self.change.asserted_uuid
        if uuid is None and self.request.key:  # Only a keyed request needs the uuid that the name had before.
            name = await self.lake.name(self.identifier).read()
            uuid = name.value.uuid if name and name.value.kind == self.family.kind else None
        if uuid is None:
            raise missing
        if document := await self._find_in(uuid):
            return document
        await self._claim_for(uuid).done(uuid=uuid, error=missing)  # G3
        raise missing

    async def _find_in(self, uuid: str) -> Document[M] | None:
        """C10: the answer if this commit was made to the table of that uuid, whatever its name is now."""
        authority, pointer = await gather_all((read_authority(self.lake), self.lake.pointer(uuid).read()))
        if authority:  # A9: judged on the record that is left.
            missing = name_not_found(self.identifier, self.family.kind)
            chain = await record_chain(self.lake, authority, self.identifier, pointer, missing=missing)
            require(self.lake, authority, chain, missing=missing)
        if self.claim is None or self.claim.pinned_uuid != uuid:
            self.claim = None
            if await self._claim_for(uuid).read():
                raise ClaimLost
        document = await pointer_document(self.lake, self.family, pointer) if pointer else None
        if document is None:
            return None
        if applied := await self._find_applied(uuid, document):
            return applied
        return document if self.change.is_applied(document.metadata) else None

    def _exhausted(self) -> SandurError:
        """C11: with a key the claim stays open. Without one, Conflict needs every lost swap to be definite."""
        if self.request.key or self.uncertain:
            return Busy(f"{self.identifier}: too many concurrent commits")
        return Conflict(f"{self.identifier}: too many concurrent commits, every swap was lost")


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


async def claim_added(
    claims: LocationClaims, base: Base[M], metadata: M, request: Request, *, began_ms: int
) -> tuple[str, ...]:
    """P9: claim the places that a commit adds, then look. Raises Invalid or Busy if one is not free.

    The pointer was read before. After a lost swap the claim is written again, because it may have been removed.
    """
    lake, pointer, identifier = claims.lake, base.pointer.value, base.found.identifier
    before, after = locations_of(base.document.metadata), locations_of(metadata)
    added: Places = added_places(lake, identifier.catalog, pointer, before, after)
    if not added:
        return ()
    me = holder_of(lake, identifier, pointer.uuid, "iceberg", pointer.kind, request, began_ms=began_ms)
    if unfree := await claims.write(me, added) or await claims.look():
        raise unfree.error
    return tuple(map(str, added))


def commit_time_ms(lake: Lake, base: Base[M]) -> int:
    """The time of a commit. It is never before the time of its base, because logs are read in order of time."""
    return max(lake.clock.now_ms(), base.head.last_updated_ms)


def draft_next(
    lake: Lake, family: Family[M], base: Base[M], metadata: M, operation: str, request: Request, *, now_ms: int
) -> Draft[M]:
    """The next document under a fresh name (C3), and the head that points to it."""
    version = base.head.metadata_version + 1
    document = encode_document(lake, family, metadata, version=version, request=request)
    head = family.head(document.metadata, now_ms)
    return Draft(base, document, next_head(head, base.head, version=version, operation=operation, request=request))


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
