"""The creation of anything with a name (rules N1-N9): files and pointer first, the name last."""

import contextlib
import dataclasses
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from sandur.catalog.identifiers import Format, Identifier, Kind
from sandur.catalog.records import AttemptedFile, BoundRecord, Claim, NameRecord, Pointer, head_of
from sandur.catalog.sources import Request
from sandur.errors import AlreadyExists, Busy, NotFound, SandurError, SwapLost
from sandur.operations.concurrency import gather_all
from sandur.operations.idempotency import ClaimLost, KeyClaim
from sandur.operations.index import update
from sandur.operations.index.update import PreparedInsert, insert_entry, is_insert_current, prepare_insert
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import activate_name
from sandur.operations.tables.documents import missing_file
from sandur.operations.tables.names import (
    NameSlot,
    ResolvedName,
    bind_pointer,
    confirm_namespace,
    resolve_namespace,
    settle_name,
)
from sandur.storage.cell import Cell, Versioned

T = TypeVar("T")

TRIES_MAX: Final = 8


@dataclass(frozen=True)
class NewRecord(Generic[T]):
    """What a creation writes before the name: the pointer as it will be, and what is answered.

    `hint` is the location that the name remembers, and `tried` what the claim does, where there is a metadata file.
    """

    pointer: BoundRecord
    answer: T
    hint: str = ""
    tried: AttemptedFile | None = None


class Draft(Protocol[T]):
    """What is to be created: its kind and format, and what a client gets when it is."""

    @property
    def kind(self) -> Kind: ...

    @property
    def format(self) -> Format: ...

    @property
    def uuid(self) -> str | None:
        """The uuid it must have; None when it may be any."""
        ...

    @property
    def is_named_by_uuid(self) -> bool:
        """Whether a thing of that uuid under the name means that this very request was carried out before (C9)."""
        ...

    def made(self, uuid: str) -> NewRecord[T]:
        """What is written for that uuid; Creation itself says for which name and by whom."""
        ...

    async def write(self, made: NewRecord[T]) -> None:
        """Write the files that the pointer speaks of; when this returns they are there."""
        ...

    async def found(self, pointer: Versioned[BoundRecord]) -> T | None:
        """What a pointer stands for; None when its files are not there."""
        ...

    async def answered(self, claim: Claim) -> T:
        """What was answered to a request whose claim is done."""
        ...

    async def finish(self, pointer: BoundRecord) -> None:
        """Behind the answer: the receipt."""
        ...

    def refusal(self, identifier: Identifier, by: NameRecord) -> SandurError:
        """What to say when the name belongs to another; see `taken`."""
        ...

    def spent(self, pointer: BoundRecord) -> SandurError | None:
        """What to say when the uuid belongs to another request; None when a fresh one will do as well."""
        ...


@dataclass
class Creation(Generic[T]):
    """One request to create something under a name."""

    lake: Lake
    identifier: Identifier
    draft: Draft[T]
    request: Request
    operation: str
    _aside: tuple[str, NewRecord[T]] | None = None
    _ride: PreparedInsert | None = None
    _is_listed: bool = False
    # Whether the name may have been written for this uuid before: then the pointer is asked after the name (N7).
    _is_retry: bool = False

    async def run(self) -> T:
        """The document that was created; AlreadyExists, or NotFound when there is no such namespace."""
        key_hash = self.request.key_hash
        cell = self.lake.claim(self.operation, key_hash) if key_hash else None
        self.claim = KeyClaim(self.lake, self.request, self.operation, cell)
        try:
            return await self._first_attempt()
        except ClaimLost:
            return await self._retried()
        except SandurError:
            await self.claim.let_go()
            raise

    async def _first_attempt(self) -> T:
        namespace, spot, uuid = await gather_all(
            (  # N1
                resolve_namespace(self.lake, self.identifier.namespace),
                settle_name(self.lake, self.identifier),
                self._free_uuid(),
            )
        )
        if namespace is None:
            raise await self._refused(self._no_namespace(), uuid)
        return await self._create(uuid, namespace.value.id, spot)

    async def _free_uuid(self) -> str:
        """What the name will refer to: the uuid of the metadata, unless it was in use before by another request."""
        wanted = self.draft.uuid
        if wanted is None:
            return self.lake.clock.new_uuid()
        pointer = await self._cell(wanted).read()
        if pointer is None:
            return wanted
        if self.draft.is_named_by_uuid and self._is_ours(pointer) and pointer.value.state != "killed":
            self._is_retry = True
            return wanted
        if spent := self.draft.spent(pointer.value):
            raise await self._refused(spent, wanted)
        return self.lake.clock.new_uuid()

    def _cell(self, uuid: str) -> Cell[BoundRecord]:
        return self.lake.bound_record(uuid, self.draft.format)

    async def _retried(self) -> T:
        """C8: what was answered before, or the same creation again, with the uuid and the namespace of the claim."""
        claim = await self.claim.follow()
        if claim.state == "done":
            return await self.draft.answered(claim)
        try:
            self._is_retry = True
            spot = await settle_name(self.lake, self.identifier)  # The name first, then the pointer.
            return await self._create(claim.uuid, claim.namespace_id, spot)
        except ClaimLost:
            raise Busy(f"{self.identifier}: is being created") from None
        except SandurError:
            await self.claim.let_go()
            raise

    async def _create(self, uuid: str, home: str, spot: NameSlot) -> T:
        """From a settled name to the answer; `home` is the id of the namespace the name is made for."""
        for _ in range(TRIES_MAX):
            # The name was read before the pointer: live or dropped, it shows that an attempt of ours happened (N7).
            if self._is_retry and (happened := await self._happened(uuid)):
                return (await self._answered(happened)).value
            outcome = await (self._found_live(uuid, spot.live) if spot.live else self._bind(uuid, home, spot))
            if isinstance(outcome, _Answer):
                return outcome.value
            uuid = outcome.uuid if outcome else uuid
            self._is_retry = True
            spot = await settle_name(self.lake, self.identifier)
        raise Busy(f"{self.identifier}: the name keeps changing")

    async def _found_live(self, uuid: str, live: ResolvedName) -> "_Answer[T] | None":
        """The name is taken: by what this request made, or by another. None to settle the name again."""
        if (live.uuid == uuid and self._is_ours(live.pointer)) or self._is_replay(live):
            return await self._done(live)
        error = self.draft.refusal(self.identifier, live.name.value)
        if self.claim.held:
            return await self._kill(uuid, error)
        raise await self._refused(error, uuid)

    def _is_replay(self, live: ResolvedName) -> bool:
        """C9, S2: a table of the uuid that this very request asks for; the uuid alone is no proof."""
        is_same = self.draft.is_named_by_uuid and live.pointer.value.table_uuid == self.draft.uuid
        return is_same and self._is_ours(live.pointer)

    def _is_ours(self, pointer: Versioned[BoundRecord]) -> bool:
        """S2: whether an attempt of this very request made the pointer."""
        return pointer.value.made_by == self._made_by()

    async def _bind(self, uuid: str, home: str, spot: NameSlot) -> "_Answer[T] | _Fresh | None":
        """N2, N3: the files, then the name: it happens here, subject to N4.

        None to settle the name again; another uuid when this one can never be ours.
        """
        made = await self._write_aside(uuid, home)
        if not isinstance(made, NewRecord):
            return made
        wanted = NameRecord(
            state="new",
            uuid=uuid,
            kind=self.draft.kind,
            format=self.draft.format,
            namespace_id=home,
            metadata_location=made.hint,
            updated_ms=self.lake.clock.now_ms(),
        )
        try:
            name = await self.lake.name(self.identifier).swap(wanted, expected=spot.expected)
        except SwapLost:
            return None
        return await self._confirm(uuid, home, name)

    async def _write_aside(self, uuid: str, home: str) -> "NewRecord[T] | _Fresh | None":
        """N2: everything the name will stand for, all known to be there before the name is written; once."""
        if self._aside and self._aside[0] == uuid:
            return self._aside[1]
        made = self._drafted(uuid)
        _, is_made, _, _ = await gather_all(
            [
                self.draft.write(made),
                self._create_pointer(made.pointer),
                self.claim.take(uuid=uuid, namespace_id=home, tried=made.tried),
                self._board(uuid),  # I1
            ]
        )
        if not is_made:
            outcome = await self._take_pointer(made)
            if not isinstance(outcome, NewRecord):
                return outcome
            made = outcome
        self._aside = (uuid, made)
        return made

    def _drafted(self, uuid: str) -> NewRecord[T]:
        made = self.draft.made(uuid)
        signed = replace(
            made.pointer,
            state="unbound",
            made_for=self.identifier,
            made_by=self._made_by(),
            updated_ms=self.lake.clock.now_ms(),
        )
        return dataclasses.replace(made, pointer=signed)

    async def _board(self, uuid: str) -> None:
        self._ride = await prepare_insert(self.lake, self.identifier, uuid)

    async def _create_pointer(self, pointer: BoundRecord) -> bool:
        """Whether the pointer is ours as it stands; otherwise there is one, of an earlier attempt or another's."""
        try:
            await self._cell(pointer.uuid).create(pointer)
        except SwapLost:
            return False
        return True

    async def _take_pointer(self, made: NewRecord[T]) -> "NewRecord[T] | _Fresh | None":
        """S3: a pointer of this uuid is there already. What it stands for once it is ours.

        None when it may have happened, which the name and the pointer tell; another uuid when it can never be ours.
        """
        wanted = made.pointer
        cell = self._cell(wanted.uuid)
        found = await cell.read()
        if found is None:
            raise Busy(f"{self.identifier}: its pointer is not known to be there")
        if found.value.state == "killed" or not self._is_ours(found):
            return await self._fresh(found.value)
        if found.value.state not in {"unbound", "condemned"}:
            return None
        if earlier := await self.draft.found(found):
            head = head_of(found.value)
            return NewRecord(found.value, earlier, head.metadata_location if head else "")
        # The attempt that made it died before its file was there. It may not be dead: mark, look, act (G5).
        try:
            condemned = await cell.swap(replace(found.value, state="condemned"), expected=found.version)
            name = await self.lake.name(self.identifier).read()
            if name and name.value.uuid == wanted.uuid and name.value.state in {"new", "active"}:
                return None
            await cell.swap(wanted, expected=condemned.version)
        except SwapLost:
            return None
        return made

    async def _fresh(self, taken_by: BoundRecord) -> "_Fresh":
        """N10: with that uuid it never happens; go on with a fresh one, if any will do."""
        if spent := self.draft.spent(taken_by):
            raise await self._refused(spent, taken_by.uuid)
        fresh = self.lake.clock.new_uuid()
        await self.claim.repin(uuid=fresh)
        return _Fresh(fresh)

    async def _confirm(self, uuid: str, home: str, name: Versioned[NameRecord]) -> "_Answer[T]":
        """N4, N5: the name is written; it counts once namespace and pointer are seen to be there."""
        is_there, pointer, self._is_listed = await gather_all(
            (
                confirm_namespace(self.lake, self.identifier.namespace, home),
                bind_pointer(self._cell(uuid), binds=False),
                self._listed(name.value),
            )
        )
        if is_there and pointer:
            return await self._done(ResolvedName(self.identifier, name, pointer))
        if happened := await self._happened(uuid):
            return await self._answered(happened)
        await self._give_back(name)
        unlisted = update.finish(self.lake, self.identifier, uuid)
        await self.lake.background.run("take an entry back", unlisted)
        if not is_there:
            raise await self._refused(self._no_namespace(), uuid)
        raise Busy(f"{self.identifier}: what was to be created was swept away")

    async def _listed(self, name: NameRecord) -> bool:
        """Whether the index shows the name already; if what is confirmed beside it fails, `finish` takes it back."""
        if self._ride is None or self._aside is None:
            return False
        return await insert_entry(self.lake, self._ride, name, self._aside[1].pointer)

    async def _happened(self, uuid: str) -> Versioned[BoundRecord] | None:
        """N7: our pointer, live or dropped, proves that the creation happened, wherever the name is by now."""
        pointer = await self._cell(uuid).read()
        if pointer is None or not self._is_ours(pointer):
            return None
        return pointer if pointer.value.state in {"live", "dropped"} else None

    async def _kill(self, uuid: str, error: SandurError) -> "_Answer[T] | None":
        """N8: before a refusal is answered, no attempt under the key may still succeed. None to settle again."""
        cell = self._cell(uuid)
        found = await cell.read()
        if found and not self._is_ours(found):  # S2: another request with this uuid; ours cannot happen with it.
            raise await self._refused(error, uuid)
        if found and found.value.state in {"live", "dropped"}:  # N7
            return await self._answered(found)
        try:
            if found is None:
                await cell.create(_killed(self._drafted(uuid).pointer))
            elif found.value.state != "killed":
                condemned = await cell.swap(replace(found.value, state="condemned"), expected=found.version)
                name = await self.lake.name(self.identifier).read()
                if name and name.value.uuid == uuid and name.value.state in {"new", "active", "pending"}:
                    return None  # N4 name: another attempt wrote it; what that means is for `settle` to say.
                await cell.swap(replace(found.value, state="killed"), expected=condemned.version)
        except SwapLost:
            return None
        raise await self._refused(error, uuid)

    async def _give_back(self, name: Versioned[NameRecord]) -> None:
        """The name of a creation that did not happen is free again; not dropped, for nothing was."""
        free = replace(name.value, state="free", updated_ms=self.lake.clock.now_ms())
        with contextlib.suppress(SwapLost):
            await self.lake.name(self.identifier).swap(free, expected=name.version)

    async def _done(self, found: ResolvedName) -> "_Answer[T]":
        answer = await self._answer_of(found.pointer)
        await self.lake.background.run("finish create", self._finish(found))
        return answer

    async def _answered(self, happened: Versioned[BoundRecord]) -> "_Answer[T]":
        """The answer to a creation of which it turned out that it happened before."""
        answer = await self._answer_of(happened)
        await self.lake.background.run("finish create", self._finish_claim(happened.value))
        return answer

    async def _answer_of(self, pointer: Versioned[BoundRecord]) -> "_Answer[T]":
        answer = await self.draft.found(pointer)
        if answer is None:
            head = head_of(pointer.value)
            raise missing_file(head.metadata_location if head else str(self.identifier))
        return _Answer(answer)

    async def _finish(self, found: ResolvedName) -> None:
        """Behind the answer: the pointer is bound, the name active, receipt, index and claim are right."""
        pointer = await bind_pointer(self._cell(found.uuid), found.pointer)
        await gather_all(
            [
                self._finish_name(found, pointer),
                self._finish_index(found.uuid),
                self._finish_claim(found.pointer.value),
            ]
        )

    async def _finish_name(self, found: ResolvedName, pointer: Versioned[BoundRecord] | None) -> None:
        """Nothing is left to do for a table that was dropped meanwhile."""
        if pointer:
            await gather_all([activate_name(self.lake, found), self.draft.finish(pointer.value)])

    async def _finish_index(self, uuid: str) -> None:
        is_right = self._is_listed and self._ride is not None and await is_insert_current(self.lake, self._ride)
        await update.finish(self.lake, self.identifier, uuid, is_right=is_right)

    async def _finish_claim(self, pointer: BoundRecord) -> None:
        head = head_of(pointer)
        location = head.metadata_location if head else ""
        with contextlib.suppress(ClaimLost):
            await self.claim.done(uuid=pointer.uuid, location=location)

    async def _refused(self, error: SandurError, uuid: str) -> SandurError:
        """G3: with a key, the refusal is kept before it is answered."""
        await self.claim.done(uuid=uuid, error=error)
        return error

    def _no_namespace(self) -> NotFound:
        return NotFound(f"Namespace does not exist: {self.identifier.namespace}", subject="namespace")

    def _made_by(self) -> str:
        return self.request.key_hash or self.request.hash


@dataclass(frozen=True)
class _Answer(Generic[T]):
    """That it is done, and what is answered."""

    value: T


class _Fresh(NamedTuple):
    """Another uuid to go on with."""

    uuid: str


def _killed(record: BoundRecord) -> BoundRecord:
    """A record that only says that its creation failed: it names no metadata file."""
    if isinstance(record, Pointer):
        return replace(record, state="killed", head=None)
    return replace(record, state="killed")


def name_taken(identifier: Identifier, by: NameRecord, kind: Kind) -> AlreadyExists:
    """All kinds share one name space; clients tell by the text which kind is in the way."""
    if by.kind == kind:
        return AlreadyExists(f"{kind.capitalize()} already exists: {identifier}", subject=by.kind)
    return AlreadyExists(f"{by.kind.capitalize()} with same name already exists: {identifier}", subject=by.kind)
