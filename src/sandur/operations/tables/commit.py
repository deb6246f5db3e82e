"""The commit of one table or view (rules C1–C11): remember or read, decide, write aside, swap, finish.

Commits that wait for their turn may be made together (`tables/batch.py`); what is not made so is decided here.

Tables and views commit alike: they differ in their `Family` and in the `Change` of the request. Registrations that
replace a table's head and the participants of a transaction are made of the same steps.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, cast

from msgspec.structs import replace

from sandur.catalog import locations
from sandur.catalog.identifiers import Identifier, checked_identifier
from sandur.catalog.records import AttemptedFile, Head, Pointer, Request
from sandur.catalog.security.manifest import Authority
from sandur.errors import (
    Busy,
    Conflict,
    Forbidden,
    Hidden,
    Invalid,
    OutcomeUnknown,
    Renamed,
    SandurError,
    SwapLost,
    Unauthenticated,
)
from sandur.iceberg.requests import AssertCreate, TableCommit
from sandur.iceberg.table_commit import deletes_old_files
from sandur.operations.access import forget_refusals, read_authority, require
from sandur.operations.commit_queues import CommitQueue, CommitQueues
from sandur.operations.counters import COMMIT_ATTEMPTS, COMMIT_OUTCOMES, Counters, count_commit, outcome_of
from sandur.operations.idempotency import ClaimLost, KeyClaim, key_hash_of
from sandur.operations.index.update import ListUpdate
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import LocationClaims
from sandur.operations.locations.placement import allowed_roots
from sandur.operations.name_access import authorize_places
from sandur.operations.receipts import Receipts, tried_of
from sandur.operations.securable_chains import name_chain, record_chain
from sandur.operations.tables.batch import close_batch
from sandur.operations.tables.changes import (
    SWAP_DELAY_MS_MAX,
    Base,
    Change,
    Draft,
    TableChange,
    check_updates,
    claim_added,
    commit_time_ms,
    draft_next,
    named_places,
    read_base,
    remembered_base,
    sets_paths,
)
from sandur.operations.tables.create import create_by_commit
from sandur.operations.tables.documents import (
    TABLES,
    Document,
    Family,
    LoadedTable,
    M,
    cache_document,
    loaded_table,
    logged_locations,
    pointer_document,
    prefetch_document,
    write_document,
)
from sandur.operations.tables.drafts import fence_attempts, find_committed, is_written_by, replayed_document
from sandur.operations.tables.names import ResolvedName, activate_name, name_not_found, resolve_name
from sandur.operations.tables.swept import check_not_swept
from sandur.storage.cell import Versioned, gather_all

_Confirmed = tuple[Authority | None, bool]

_OPERATION: Final = "commit"
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


@dataclass
class Commit(Generic[M]):
    """One commit request over all its attempts, in this process and in earlier ones under the same key.

    `uncertain` holds the files whose swap may have been applied: swaps of ours without a definite answer, to the table
    of `uncertain_uuid`, and the files of an attempt whose claim was taken over. `claim` is that of the table to which
    the request commits.

    `outcome` is the answer or the failure that a batch gave it, `is_alone` says that it was in a batch.
    """

    lake: Lake
    family: Family[M]
    identifier: Identifier
    change: Change[M]
    request: Request
    claim: KeyClaim | None = None
    uncertain: list[AttemptedFile] = field(default_factory=list)
    uncertain_uuid: str = ""
    _found: ResolvedName | None = None
    _is_contended: bool = False
    outcome: Document[M] | BaseException | None = None
    is_alone: bool = False
    places: LocationClaims = field(init=False)
    listing: ListUpdate = field(init=False)

    def __post_init__(self) -> None:
        self.places = LocationClaims(self.lake)
        self.listing = ListUpdate(self.lake, self.identifier)
        self._began_ms = self.lake.clock.now_ms()

    async def run(self) -> Document[M]:
        """Apply the change and return the document that is current afterwards.

        Raises what refuses the change. After too many lost swaps: Conflict if no swap of this request can have been
        applied, otherwise Busy.
        """
        lake = self.lake
        try:
            async with lake.feature(CommitQueues).turn(self.identifier, self) as queue:
                base = None if self.is_alone else remembered_base(lake, self.family, self.identifier)  # C1
                self._is_contended = queue.is_contended
                if base and queue.waiting and (batch := close_batch(self, base, queue)):
                    base = None
                    await batch.run()
                if self.outcome is not None:
                    return self._outcome()
                if base is None or self.change.is_possible(base.document.metadata):
                    return await self._run(base, queue)
            # Most likely refused. A fresh state decides (G4), out of turn: the commits in the queue need not wait.
            return await self._run(None, queue)
        except SandurError as error:
            lake.feature(Counters).add(COMMIT_OUTCOMES, outcome_of(error))
            if isinstance(error, OutcomeUnknown):
                self.listing.leave()
            # The claim names every file of this request, also one whose swap may still be applied (C4, C5).
            if self.claim:
                await self.claim.release()
            await lake.background.run("withdraw location claims", self.places.withdraw())
            raise
        except asyncio.CancelledError:  # The swap may still be made: it was sent, or a batch sends it.
            self.listing.leave()
            raise
        finally:
            self.listing.end()

    def _outcome(self) -> Document[M]:
        """What the batch of this commit answers."""
        if isinstance(self.outcome, Document):
            return self.outcome
        raise self.outcome or Busy(f"{self.identifier}: it was not decided")

    async def _run(self, base: Base[M] | None, queue: CommitQueue) -> Document[M]:
        """Decide on the base or on what is read, write aside, swap; start over if the state turns out to be stale."""
        lake, counters = self.lake, self.lake.feature(Counters)
        for number in range(lake.settings.commit_attempts_max):
            try:
                draft = await self._prepare(base or await self._read(number))
            except ClaimLost:
                draft = await self._follow()  # C8
            except (Forbidden, Hidden):
                if base is None:
                    raise
                forget_refusals(lake)
                base = None  # G4: the owner that this server remembers may be another one by now.
                continue
            if isinstance(draft, Document):
                counters.add(COMMIT_OUTCOMES, "replayed")
                return draft
            if draft is None:
                counters.add(COMMIT_ATTEMPTS, "stale")
            else:
                before, now_ms = draft.base.pointer, lake.clock.now_ms()
                moved = replace(before.value, state="live", head=draft.head, passed=(), pending=None, updated_ms=now_ms)
                moved = replace(moved, places=draft.places) if draft.added else moved
                try:
                    # C6, C7: the commit happens here.
                    pointer = await lake.pointer(moved.uuid).swap(moved, expected=before.version)
                except SwapLost as lost:
                    counters.add(COMMIT_ATTEMPTS, "lost" if lost.is_definite else "unknown")
                    await self.note_lost(draft, lost)
                else:
                    cache_document(lake, self.family, draft.document)
                    counters.add(COMMIT_ATTEMPTS, "won")
                    counters.add(COMMIT_OUTCOMES, "ok")
                    count_commit(lake, draft.head.operation, self.identifier)
                    await lake.background.run("finish commit", self.finish(draft, pointer))
                    return draft.document
            base = None
            queue.note_contention()
        raise self._exhausted()  # C11

    async def _read(self, number: int) -> Base[M] | Document[M]:
        """The state to decide on, or the answer if an earlier attempt of this request was applied."""
        if number > 1:
            await self.lake.clock.sleep(_BACKOFF_SECONDS * self.lake.clock.chance())
        authority, found = await gather_all(
            (read_authority(self.lake), resolve_name(self.lake, self.identifier, prefetch=prefetch_document))
        )
        if found is None or found.name.value.kind != self.family.kind:
            return await self._find_without_name()
        await self.authorize(authority, found)
        if document := await self._find_in_previous_table(found):
            return document
        base = await read_base(self.lake, self.family, found)
        if base is None:
            return await self._find_without_name()
        return await self._find_applied(found.uuid, base.document, base.pointer.value.passed) or base

    async def _prepare(self, base: Base[M] | Document[M]) -> Draft[M] | Document[M] | None:
        """Decide and write aside. Returns the answer if no swap is needed; None to read the state and start over."""
        if isinstance(base, Document):
            return base  # An earlier attempt of this request was applied.
        claim, self._found = self.claim_for(base.found.uuid), base.found
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
            await self.authorize(await read_authority(self.lake), base.found, base.document.metadata)
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
        return draft if await self._write_aside(draft, claim) else None

    async def _write_aside(self, draft: Draft[M], claim: KeyClaim) -> bool:
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
                    lake.feature(Receipts).ensure_all(base.pointer.value),  # C5 (help), B4
                    claim.take(uuid=base.found.uuid, tried=tried_of(draft.head)),  # C4, C7 (fence)
                    self.listing.begin(base.found.uuid, base.document.metadata, draft.document.metadata),  # I1
                    self._confirm(base),
                ]
            )
            authority, is_current = cast("_Confirmed", confirmed)  # The calls return different types.
            if is_current:
                await self.authorize(authority, base.found, base.document.metadata)
        except (ClaimLost, Forbidden, Hidden, Renamed, Unauthenticated):
            await self.abandon(draft)
            raise
        is_late = authority is not None and lake.clock.now_ms() - began_ms > SWAP_DELAY_MS_MAX
        if is_late or not is_current:
            await self.abandon(draft)
        return is_current and not is_late

    async def authorize(self, authority: Authority | None, found: ResolvedName, base: M | None = None) -> None:
        """A4, A6: check what the route declares on the table; with `base`, also what the change of it needs."""
        if authority is None:
            return
        missing = name_not_found(self.identifier, self.family.kind)
        try:
            chain = await name_chain(self.lake, authority, found, missing=missing)
            require(self.lake, authority, chain, missing=missing)
            if base is not None and self.change.relocates(base):
                require(self.lake, authority, chain, missing=missing, situation="relocate")
        except (Forbidden, Hidden) as error:
            raise self._denied(error) from None

    def _denied(self, error: SandurError) -> SandurError:
        """A7: what to raise in place of a refusal by the grants, which would say that the commit was not made."""
        if self.uncertain:
            return Busy(f"{self.identifier}: an earlier attempt of this request may still be applied")
        return error

    async def _confirm(self, base: Base[M]) -> "_Confirmed":
        """The grants, and whether name and pointer are as remembered.

        A6: the read of the grants begins after the version that will be swapped was known.
        """
        if self.lake.access is None and self.lake.names is None:
            return None, await self.is_current(base)
        if self.lake.store.has_instant_reads:  # Without tasks, which would cost more than these reads.
            return await read_authority(self.lake), await self.is_current(base)
        return await gather_all((read_authority(self.lake), self.is_current(base)))

    async def is_current(self, base: Base[M]) -> bool:
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

    async def note_lost(self, draft: Draft[M], lost: SwapLost) -> None:
        """Note that the swap to a draft was lost; it may have been made, and then replaced."""
        if lost.is_definite:
            await self.abandon(draft)
        else:
            self.uncertain.append(tried_of(draft.head))
            self.uncertain_uuid = draft.base.found.uuid

    async def abandon(self, draft: Draft[M]) -> None:
        """C3: delete the file of a definite loss in the background; no other attempt refers to it."""
        await self.lake.background.run("delete an unused file", self.lake.locations.remove(draft.document.location))

    async def finish(self, draft: Draft[M], pointer: Versioned[Pointer]) -> None:
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

    def claim_for(self, uuid: str) -> KeyClaim:
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
            await self.authorize(await read_authority(self.lake), self._found)
        claim = await self.claim.follow(partial(find_committed, self.lake))
        if claim.state == "done":
            return await replayed_document(self.lake, self.family, claim.location, claim.uuid)
        self.uncertain = list(claim.locations)
        return None

    async def _answer(self, uuid: str, document: Document[M]) -> Document[M]:
        """Nothing is left to do: the current document is the answer."""
        await self.claim_for(uuid).done(uuid=uuid, location=document.location)
        return document

    async def _refuse(self, base: Base[M], error: SandurError) -> Document[M]:
        """C9: a change that was made before is no conflict. Any other refusal is final and recorded (G3)."""
        is_ours = isinstance(error, Conflict) and is_written_by(
            self.family, base.document, base.pointer.value.passed, self.request
        )
        uuid, asserted = base.pointer.value.uuid, self.change.asserted_uuid
        if is_ours or self.change.is_applied(base.document.metadata):
            return await self._answer(uuid, base.document)
        if asserted and asserted != base.pointer.value.table_uuid.lower():
            # C10: the name refers to another table than the one that the request is for.
            if applied := await self._find_in(asserted):
                return applied
            uuid = asserted
        await self.claim_for(uuid).done(uuid=uuid, error=error)
        raise error

    async def _find_applied(self, uuid: str, document: Document[M], passed: Sequence[Head]) -> Document[M] | None:
        """C5, B3: the answer if an uncertain file is the head, was passed, is in the log, or has a receipt.

        Checked in this order.
        """
        logged = {*logged_locations(self.family, document), *(head.metadata_location for head in passed)}
        for tried in self.uncertain:
            if tried.metadata_location in logged or await self.lake.feature(Receipts).exists(tried):
                await self.claim_for(uuid).done(uuid=uuid, location=tried.metadata_location)
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
        uuid = uuid or self.uncertain_uuid or None
        if uuid is None and self.request.key:  # Only a keyed request needs the uuid that the name had before.
            name = await self.lake.name(self.identifier).read()
            uuid = name.value.uuid if name and name.value.kind == self.family.kind else None
        if uuid is None:
            raise missing
        if document := await self._find_in(uuid):
            return document
        await self.claim_for(uuid).done(uuid=uuid, error=missing)  # G3
        raise missing

    async def _find_in(self, uuid: str, *, is_fenced: bool = False) -> Document[M] | None:
        """C10: the answer if this commit was made to the table of that uuid, whatever its name is now."""
        authority, pointer = await gather_all((read_authority(self.lake), self.lake.pointer(uuid).read()))
        if authority:  # A9: judged on the record that is left.
            missing = name_not_found(self.identifier, self.family.kind)
            chain = await record_chain(self.lake, authority, self.identifier, pointer, missing=missing)
            try:
                require(self.lake, authority, chain, missing=missing)
            except (Forbidden, Hidden) as error:
                raise self._denied(error) from None
        if self.claim is None or self.claim.pinned_uuid != uuid:
            self.claim = None
            if await self.claim_for(uuid).read():
                raise ClaimLost
        document = await pointer_document(self.lake, self.family, pointer) if pointer else None
        if document is None:
            return None
        if applied := await self._find_applied(uuid, document, pointer.value.passed if pointer else ()):
            return applied
        if self.change.is_applied(document.metadata):
            return document
        if not self.uncertain or is_fenced:
            return None
        await fence_attempts(self.lake, uuid)  # A swap of an attempt that was taken over may still arrive.
        return await self._find_in(uuid, is_fenced=True)

    def _exhausted(self) -> SandurError:
        """C11: with a key the claim stays open. Without one, Conflict needs every lost swap to be definite."""
        if self.request.key or self.uncertain:
            return Busy(f"{self.identifier}: too many concurrent commits")
        return Conflict(f"{self.identifier}: too many concurrent commits, every swap was lost")
