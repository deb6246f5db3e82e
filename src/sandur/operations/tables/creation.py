"""The creation of anything with a name (rules N1–N10): files and pointer first, the name last."""

import contextlib
import dataclasses
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from sandur.catalog.events import EventSubject
from sandur.catalog.identifiers import Identifier
from sandur.catalog.location_claims import Holder
from sandur.catalog.records import BoundRecord, Definite, NameRecord, NamespaceRecord, Pointer, Request
from sandur.errors import Busy, Invalid, OutcomeUnknown, Renamed, SandurError, SwapLost, Unavailable
from sandur.operations.access import authorize_namespace, check_names_early, is_unlisted
from sandur.operations.events import event_of
from sandur.operations.idempotency import ClaimLost, claim_for
from sandur.operations.index import update
from sandur.operations.index.update import PreparedInsert, insert_entry, is_insert_current, prepare_insert
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import LocationClaims, Refusal
from sandur.operations.locations.placement import (
    end_generated,
    holder_of,
    is_uuid_taken,
    named_early,
    places_to_claim,
    remembered_placed_namespace,
    resolve_placed_namespace,
    uuid_taken,
)
from sandur.operations.name_access import authorize_files
from sandur.operations.receipts import CatalogReceipts
from sandur.operations.tables.changes import SWAP_DELAY_MS_MAX
from sandur.operations.tables.documents import missing_file
from sandur.operations.tables.drafts import (
    Draft,
    NewRecord,
    discard_creation,
    is_made_by,
    is_proof,
    metadata_location_of,
    sign_record,
)
from sandur.operations.tables.names import (
    NameSlot,
    ResolvedName,
    activate_name,
    bind_pointer,
    confirm_namespace,
    freed_record,
    namespace_not_found,
    settle_name,
)
from sandur.storage.cell import Attempts, Cell, Versioned, gather_all
from sandur.storage.contract import ABSENT

T = TypeVar("T")


@dataclass
class Creation(Generic[T]):
    """One request to create something under a name."""

    lake: Lake
    identifier: Identifier
    draft: Draft[T]
    request: Request
    operation: str
    _aside: tuple[str, NewRecord[T]] | None = None
    _insert: PreparedInsert | None = None
    _is_listed: bool = False
    # Why the places that the client chose are not free, as found in the first round.
    _unfree: Refusal | None = None
    # Why the uuid that the client chose cannot be used.
    _taken: SandurError | None = None
    # Whether the name may have been written for this uuid before: then the pointer is read after the name (N7).
    _is_retry: bool = False
    _answered_uuid: str = ""
    _read_ms: int = 0  # When the grants were read last.
    _has_name: bool = False  # The name was written, and not freed: what fails now may have happened.
    _places: LocationClaims = field(init=False)

    def __post_init__(self) -> None:
        self._places = LocationClaims(self.lake)
        self._began_ms = self.lake.clock.now_ms()

    async def run(self) -> T:
        """Create it and return the answer. Raises AlreadyExists, or NotFound if the namespace does not exist."""
        self.claim = claim_for(self.lake, self.request, self.operation)
        try:
            try:
                return await self._first_attempt()
            except ClaimLost:
                return await self._retry()
        except SandurError as error:
            await self.claim.release()
            if isinstance(error, (*Definite, Renamed)) and self._aside and not self.draft.is_registered:
                await self.lake.background.run("delete the file of a lost create", self._forget_aside(self._aside[0]))
            if isinstance(error, Unavailable) and self._has_name:  # G2
                raise OutcomeUnknown(f"{self.identifier}: it may have been created: {error}") from error
            raise
        finally:
            if self._places.is_unused_by(self._answered_uuid):
                await self.lake.background.run("withdraw location claims", self._places.withdraw())

    async def _first_attempt(self) -> T:
        early = named_early(self.lake, self.identifier, self.draft.named_locations)
        wanted = self.draft.uuid or self.lake.clock.new_uuid()
        seen = remembered_placed_namespace(self.lake, self.identifier.namespace)
        ahead = self._drafted_ahead(wanted, seen) if seen else None
        reads = gather_all(  # N1
            (
                resolve_placed_namespace(self.lake, self.identifier.namespace),
                settle_name(self.lake, self.identifier),
                self._free_uuid(wanted),
                self._places.write(self._holder(wanted), early) if early else _nothing(),  # P3
            )
        )
        (namespace, slot, uuid, self._unfree), *_ = await gather_all(
            (reads, check_names_early(self.lake), self._write(wanted, ahead) if ahead else _nothing())
        )
        if self._aside and not _is_unchanged(seen, namespace):
            await self.lake.background.run("delete the file of a lost create", self._forget_aside(uuid))
            self._aside, uuid = None, self.lake.clock.new_uuid()
        missing = namespace_not_found(self.identifier.namespace)
        if namespace is None:
            raise await self._refused(missing, uuid)
        await self._authorize(namespace.value.id)
        if self._taken:
            raise await self._refused(self._taken, uuid)
        return await self._create(uuid, namespace.value.id, slot)

    def _drafted_ahead(self, uuid: str, namespace: Versioned[NamespaceRecord]) -> NewRecord[T] | None:
        """N2 ahead: the record to write beside the reads of the name, which saves a round; None to read first.

        Only a bucket has a round to save. Nothing is written for a name that was taken when this process read the list,
        and nothing before a right is checked, a key is claimed, or a place that the client chose.
        """
        lake, draft = self.lake, self.draft
        if namespace.value.state != "active" or not is_unlisted(lake, self.identifier):
            return None
        if any((lake.store.has_instant_reads, lake.access, self.claim.is_keyed, draft.format != "iceberg")):
            return None
        if any((draft.uuid, draft.named_locations, draft.is_registered)):
            return None
        with contextlib.suppress(SandurError):  # It is raised again, after the reads that come first.
            made = self._drafted(uuid)
            return None if places_to_claim(lake, self.identifier, uuid, made.locations) else made
        return None

    async def _forget_aside(self, uuid: str) -> None:
        await discard_creation(self.lake, self.identifier, uuid, self.request)
        await update.finish(self.lake, self.identifier, uuid)

    async def _authorize(self, namespace_id: str) -> None:
        """The right to create, on the namespace that the name will belong to. A stage is no permission."""
        namespace = self.identifier.namespace
        situation = self.draft.situation
        missing, self._read_ms = namespace_not_found(namespace), self.lake.clock.now_ms()
        await authorize_namespace(self.lake, namespace, missing=missing, namespace_id=namespace_id, situation=situation)

    async def _free_uuid(self, wanted: str) -> str:
        """The uuid that the name will refer to: that of the draft, unless another request used it before."""
        if self.draft.uuid is None:
            return wanted
        pointer, is_taken = await gather_all((self._cell(wanted).read(), self._is_uuid_taken(wanted)))
        if is_taken:
            self._taken = uuid_taken(wanted)
            return wanted
        if pointer is None:
            return wanted
        if self.draft.is_named_by_uuid and is_made_by(pointer, self.request) and pointer.value.state != "killed":
            self._is_retry = True
            return wanted
        if spent := self.draft.spent(pointer.value):
            raise await self._refused(spent, wanted)
        return self.lake.clock.new_uuid()

    async def _is_uuid_taken(self, uuid: str) -> bool:
        return self.draft.format == "iceberg" and await is_uuid_taken(self.lake, uuid)

    async def _retry(self) -> T:
        """C8: the earlier answer, or the same creation again with the uuid and the namespace of the claim."""
        held = await self.claim.read()
        await self._authorize(held.value.namespace_id if held else "")  # A9
        claim = await self.claim.follow()
        if claim.state == "done":
            return await self.draft.answered(claim)
        self._is_retry = True
        try:
            # The name first, then the pointer. The namespace may say where its tables lie.
            slot, _ = await gather_all(
                (
                    settle_name(self.lake, self.identifier),
                    resolve_placed_namespace(self.lake, self.identifier.namespace),
                )
            )
            return await self._create(claim.uuid, claim.namespace_id, slot)
        except ClaimLost:
            raise Busy(f"{self.identifier}: another attempt of this request is creating it") from None

    async def _create(self, uuid: str, namespace_id: str, slot: NameSlot) -> T:
        """From a settled name to the answer; the name is made for the namespace of that id."""
        async for _ in Attempts(self.lake.clock):
            # The name was read before the pointer, so a live or dropped pointer proves an attempt of ours (N7).
            if self._is_retry and (happened := await self._proof(uuid)):
                return (await self._answer(happened)).value
            outcome = await (self._use_live(uuid, slot.live) if slot.live else self._bind(uuid, namespace_id, slot))
            if isinstance(outcome, _Answer):
                return outcome.value
            uuid = outcome.uuid if outcome else uuid
            self._is_retry = True
            slot = await settle_name(self.lake, self.identifier)
        raise Busy(f"{self.identifier}: other requests keep changing the name")

    async def _use_live(self, uuid: str, live: ResolvedName) -> "_Answer[T] | None":
        """The name is taken, by this request or by another one. None to settle the name again."""
        is_ours = is_made_by(live.pointer, self.request)
        # C9, S2: a table of the uuid that this very request asserts.
        is_replay = self.draft.is_named_by_uuid and live.pointer.value.table_uuid == self.draft.uuid
        if is_ours and (live.uuid == uuid or is_replay):
            return await self._answer(live.pointer, live)
        return await self._refuse(uuid, self.draft.refusal(self.identifier, live.name.value))

    async def _refuse(self, uuid: str, error: SandurError) -> "_Answer[T] | None":
        """Raise the error once no attempt of this request can succeed. None to settle the name again."""
        if self.claim.held:
            return await self._kill(uuid, error)
        raise await self._refused(error, uuid)

    def _holder(self, uuid: str) -> Holder:
        kind, record = self.draft.kind, self.draft.format
        return holder_of(self.lake, self.identifier, uuid, record, kind, self.request, began_ms=self._began_ms)

    async def _secure(self, uuid: str, made: NewRecord[T]) -> NewRecord[T] | SandurError:
        """P3, P4: claim the places that are not generated for this uuid, then look; the error if one is not free."""
        unfree, self._unfree = self._unfree, None
        try:
            claimed = places_to_claim(
                self.lake,
                self.identifier,
                uuid,
                made.locations,
                table_uuid=self.draft.uuid,
                is_registered=self.draft.is_registered,
            )
            if not claimed:
                return made
            me = self._holder(uuid)
            unfree = unfree or await self._places.write(me, self._places.needs(me, claimed))
            if unfree := unfree or await self._places.look():
                return unfree.error
            for address, location in claimed.items():
                if address.generated_for not in {None, uuid.lower()}:
                    authorize = partial(authorize_files, self.lake, self.identifier.catalog, [location])
                    await end_generated(self.lake, address, authorize)
        except Invalid as error:
            return error
        pointer = replace(made.pointer, places=tuple(map(str, claimed)))
        return dataclasses.replace(made, pointer=pointer)

    async def _bind(self, uuid: str, namespace_id: str, slot: NameSlot) -> "_Answer[T] | _FreshUuid | None":
        """N2–N5: write everything aside, then the name, then confirm.

        None to settle the name again; another uuid if this one can never belong to this request.
        """
        made = await self._write_aside(uuid, namespace_id)
        if not isinstance(made, NewRecord):
            return made
        subject = EventSubject(self.draft.kind, uuid, self.identifier, self.draft.format)
        details = ("registered",) if self.draft.is_registered else ()
        event = await event_of(self.lake, "created", subject, self.request.source, details=details)
        wanted = NameRecord(
            state="new",
            uuid=uuid,
            kind=self.draft.kind,
            format=self.draft.format,
            namespace_id=namespace_id,
            metadata_location=made.hint,
            updated_ms=self.lake.clock.now_ms(),
            last_event=event,
        )
        if self.lake.clock.now_ms() - self._read_ms > SWAP_DELAY_MS_MAX:
            await self._authorize(namespace_id)  # The grants were read too long ago.
        # N3: the creation happens here, subject to N4.
        name = await self.lake.name(self.identifier).try_swap(wanted, expected=slot.expected)
        self._has_name = name is not None
        return await self._confirm(uuid, namespace_id, name) if name else None

    async def _write_aside(self, uuid: str, namespace_id: str) -> "NewRecord[T] | _Answer[T] | _FreshUuid | None":
        """N2: write everything that the name will refer to, once per uuid; it exists before the name is written."""
        if self._aside and self._aside[0] == uuid:
            return self._aside[1]
        made = self._drafted(uuid)
        if made.locations:
            secured = await self._secure(uuid, made)
            if isinstance(secured, SandurError):
                if (await settle_name(self.lake, self.identifier)).live:
                    return None  # By now the name says why, and perhaps that an attempt of this request succeeded.
                return await self._refuse(uuid, secured)
            made = secured
        if not await self._write(uuid, made, namespace_id):  # Of an earlier attempt, or of another request.
            taken = await self._take_pointer(made)
            if not isinstance(taken, NewRecord):
                return taken
            self._aside = (uuid, made := taken)
        return made

    async def _write(self, uuid: str, made: NewRecord[T], namespace_id: str = "") -> bool:
        """The one round of N2; False if a pointer of that uuid exists."""
        _, created, _, self._insert = await gather_all(
            (
                self.draft.write(made),
                self._cell(uuid).try_swap(made.pointer, expected=ABSENT),
                self.claim.take(uuid=uuid, namespace_id=namespace_id, tried=made.tried),
                prepare_insert(self.lake, self.identifier, uuid),  # I1
            )
        )
        if created:
            self._aside = (uuid, made)
        return created is not None

    def _drafted(self, uuid: str) -> NewRecord[T]:
        made = self.draft.made(uuid)
        return dataclasses.replace(made, pointer=sign_record(self.lake, made.pointer, self.identifier, self.request))

    async def _take_pointer(self, made: NewRecord[T]) -> "NewRecord[T] | _FreshUuid | None":
        """S3: a pointer of this uuid exists already; take it over if it is of this request and has not happened.

        None if the creation may have happened, which name and pointer tell; another uuid if it can never be ours.
        """
        wanted = made.pointer
        cell = self._cell(wanted.uuid)
        found = await cell.read()
        if found is None:
            raise Busy(f"{self.identifier}: the pointer was neither created nor found")
        if found.value.state == "killed" or not is_made_by(found, self.request):
            return await self._fresh_uuid(found.value)
        if found.value.state not in {"unbound", "condemned"} or found.value.life:
            return None
        if earlier := await self.draft.found(found):
            return NewRecord(found.value, earlier, metadata_location_of(found.value))
        # The attempt that made the pointer wrote no file. It may still be running: mark, look, act (G5).
        condemned = await cell.try_swap(replace(found.value, state="condemned"), expected=found.version)
        if condemned is None or await self._is_named(wanted.uuid, {"new", "active"}):
            return None
        return made if await cell.try_swap(wanted, expected=condemned.version) else None

    async def _is_named(self, uuid: str, states: set[str]) -> bool:
        name = await self.lake.name(self.identifier).read()
        return name is not None and name.value.uuid == uuid and name.value.state in states

    async def _fresh_uuid(self, taken_by: BoundRecord) -> "_FreshUuid":
        """N10: the creation can never happen with that uuid; continue with a fresh one if the draft allows it."""
        if spent := self.draft.spent(taken_by):
            raise await self._refused(spent, taken_by.uuid)
        fresh = self.lake.clock.new_uuid()
        await self.claim.repin(uuid=fresh)
        return _FreshUuid(fresh)

    async def _confirm(self, uuid: str, namespace_id: str, name: Versioned[NameRecord]) -> "_Answer[T]":
        """N4, N5: the name is written; it counts once its namespace and its pointer are confirmed."""
        has_namespace, pointer, self._is_listed = await gather_all(
            (
                confirm_namespace(self.lake, self.identifier.namespace, namespace_id),
                bind_pointer(self._cell(uuid), binds=False),
                self._list_entry(name.value),
            )
        )
        if has_namespace and pointer:
            return await self._answer(pointer, ResolvedName(self.identifier, name, pointer))
        if happened := await self._proof(uuid):
            return await self._answer(happened)
        free = replace(freed_record(name.value), updated_ms=self.lake.clock.now_ms())
        await self.lake.name(self.identifier).try_swap(free, expected=name.version)
        self._has_name = False
        await self.lake.background.run("remove an index entry", update.finish(self.lake, self.identifier, uuid))
        if not has_namespace:
            raise await self._refused(namespace_not_found(self.identifier.namespace), uuid)
        raise Busy(f"{self.identifier}: a janitor removed the pointer before the name was confirmed")

    async def _list_entry(self, name: NameRecord) -> bool:
        """Whether the index shows the name. If the confirmation fails, `update.finish` removes the entry."""
        if self._insert is None or self._aside is None:
            return False
        return await insert_entry(self.lake, self._insert, name, self._aside[1].pointer)

    async def _proof(self, uuid: str) -> Versioned[BoundRecord] | None:
        """N7: the pointer, if it proves that the creation happened, whatever the name is now."""
        pointer = await self._cell(uuid).read()
        return pointer if is_proof(pointer, self.request) else None

    async def _kill(self, uuid: str, error: SandurError) -> "_Answer[T] | None":
        """N8: before a refusal is answered, no attempt under the key may still succeed. None to settle again."""
        cell = self._cell(uuid)
        found = await cell.read()
        if found and not is_made_by(found, self.request):  # S2: this request can never happen with that uuid.
            raise await self._refused(error, uuid)
        if found and is_proof(found, self.request):  # N7
            return await self._answer(found)
        try:
            if found is None:
                await cell.create(_killed(self._drafted(uuid).pointer))
            elif found.value.state != "killed":
                condemned = await cell.swap(replace(found.value, state="condemned"), expected=found.version)
                if await self._is_named(uuid, {"new", "active", "pending"}):
                    return None  # N4 name: another attempt wrote it; `settle_name` decides what that means.
                await cell.swap(replace(found.value, state="killed"), expected=condemned.version)
        except SwapLost:
            return None
        raise await self._refused(error, uuid)

    async def _answer(self, pointer: Versioned[BoundRecord], found: ResolvedName | None = None) -> "_Answer[T]":
        """The answer to a creation that happened; `found` is None if an earlier attempt completed it."""
        answer = await self.draft.found(pointer)
        if answer is None:
            raise missing_file(metadata_location_of(pointer.value) or str(self.identifier))
        self._answered_uuid = pointer.value.uuid
        work = self._finish(found) if found else self._finish_claim(pointer.value)
        await self.lake.background.run("finish create", work)
        return _Answer(answer)

    async def _finish(self, found: ResolvedName) -> None:
        """After the answer: bind the pointer, activate the name, write the receipt, update the index and the claim."""
        pointer = await bind_pointer(self._cell(found.uuid), found.pointer)
        work = [self._finish_index(found.uuid), self._finish_claim(found.pointer.value)]
        if pointer:  # Otherwise it was dropped in the meantime.
            work += [activate_name(self.lake, found), self.draft.finish(pointer.value)]
        # E3: namespace and pointer were seen after the name.
        work.append(self.lake.feature(CatalogReceipts).ensure(found.name.value.last_event))
        await gather_all(work)

    async def _finish_index(self, uuid: str) -> None:
        is_right = self._is_listed and self._insert is not None and await is_insert_current(self.lake, self._insert)
        await update.finish(self.lake, self.identifier, uuid, is_right=is_right)

    async def _finish_claim(self, pointer: BoundRecord) -> None:
        with contextlib.suppress(ClaimLost):
            await self.claim.done(uuid=pointer.uuid, location=metadata_location_of(pointer))

    async def _refused(self, error: SandurError, uuid: str) -> SandurError:
        """G3: with a key, a definite refusal is recorded before it is answered."""
        if isinstance(error, Definite):
            await self.claim.done(uuid=uuid, error=error)
        return error

    def _cell(self, uuid: str) -> Cell[BoundRecord]:
        return self.lake.bound_record(uuid, self.draft.format)


async def _nothing() -> None:
    return None


@dataclass(frozen=True)
class _Answer(Generic[T]):
    """The creation is done, with this answer."""

    value: T


class _FreshUuid(NamedTuple):
    """Another uuid to continue with."""

    uuid: str


def _is_unchanged(seen: Versioned[NamespaceRecord] | None, found: Versioned[NamespaceRecord] | None) -> bool:
    """N2 ahead: whether the namespace is still as this process knew it."""
    return (seen and seen.version) == (found and found.version)


def _killed(record: BoundRecord) -> BoundRecord:
    """The record of a creation that failed: it refers to no metadata file."""
    if isinstance(record, Pointer):
        return replace(record, state="killed", head=None)
    return replace(record, state="killed")
