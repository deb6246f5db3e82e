"""Drafts of what is to be created under a name, and how records and files show what a request made (S2, N7, C5, C9).

`discard_creation` deletes the file that a refused request left (G5).
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from msgspec.structs import replace

from sandur.catalog.identifiers import Format, Identifier, Kind
from sandur.catalog.records import AttemptedFile, BoundRecord, Claim, Head, NameRecord, Pointer, Request, head_of
from sandur.errors import AlreadyExists, NotFound, SandurError
from sandur.operations.lake import Lake
from sandur.operations.receipts import Receipts
from sandur.operations.tables.documents import (
    Document,
    Family,
    M,
    load_document,
    load_head,
    logged_locations,
    pointer_document,
    request_id,
    request_part,
    request_part_of,
)
from sandur.operations.tables.names import is_alive
from sandur.operations.transactions.resolution import effective_pointer
from sandur.storage.cell import Versioned

T = TypeVar("T")
B = TypeVar("B", bound=BoundRecord)


@dataclass(frozen=True)
class NewRecord(Generic[T]):
    """What a creation writes before the name: the pointer, and the answer to the client.

    If there is a metadata file, `hint` is the location that the name remembers and `tried` is what the claim records.
    `locations` are the folders of its files.
    """

    pointer: BoundRecord
    answer: T
    hint: str = ""
    tried: AttemptedFile | None = None
    locations: Sequence[str] = ()


class Draft(Protocol[T]):
    """What is to be created: its kind and format, its files, and the answer to the client.

    `uuid` is the uuid that it must have; None if the creation chooses it. `is_named_by_uuid`: a thing of that uuid
    under the name means that this very request was carried out before (C9). `situation` is the one for which the route
    declares the right to create, empty for its main rule.
    """

    format: Format
    uuid: str | None = None
    is_named_by_uuid: bool = False
    situation: str = ""

    @property
    def kind(self) -> Kind: ...

    @property
    def named_locations(self) -> Sequence[str]:
        """The folders that the client chose; the catalog chooses the others."""
        return ()

    @property
    def is_registered(self) -> bool:
        """Whether its files exist already; they may lie where those of a dropped table lay (P2)."""
        return False

    def made(self, uuid: str) -> NewRecord[T]:
        """The record for that uuid; `Creation` adds the name, the state, the request and the places.

        It is called after the namespace was read, for `default_location`.
        """

    async def write(self, made: NewRecord[T]) -> None:
        """Write the files that the pointer refers to, if there are any; when this returns, they exist."""
        del made

    async def found(self, pointer: Versioned[BoundRecord]) -> T | None:
        """What a pointer refers to; None if its files do not exist."""

    async def answered(self, claim: Claim) -> T:
        """The answer to an earlier attempt whose claim is done."""

    async def finish(self, pointer: BoundRecord) -> None:
        """Write the receipt, if there is one, after the answer."""
        del pointer

    def refusal(self, identifier: Identifier, by: NameRecord) -> SandurError:
        """The error if the name is taken."""
        return name_taken(identifier, by, self.kind)

    def spent(self, pointer: BoundRecord) -> SandurError | None:
        """The error if another request used the uuid; None if a fresh uuid will do."""
        del pointer
        return None


def sign_record(lake: Lake, record: B, identifier: Identifier, request: Request) -> B:
    """The record of a creation that is not confirmed yet, with its name, its request (S2) and its owner."""
    signed = replace(
        record,
        state="unbound",
        made_for=identifier,
        made_by=request_id(request),
        updated_ms=lake.clock.now_ms(),
        owner=request.source.principal,
        owner_id=request.source.principal_id,
    )
    # A3 (minted): grants name an id that no client chose.
    if not isinstance(signed, Pointer):
        return signed
    source, now_ms = request.source, lake.clock.now_ms()
    return replace(signed, object_id=lake.clock.new_uuid(), created_ms=now_ms, created_by=source.principal)


def metadata_location_of(record: BoundRecord) -> str:
    """The metadata file that a record refers to; empty if it has none."""
    head = head_of(record)
    return head.metadata_location if head else ""


def is_made_by(pointer: Versioned[BoundRecord] | None, request: Request) -> bool:
    """S2: whether an attempt of this very request made the pointer. The uuid alone is no proof."""
    return pointer is not None and pointer.value.made_by == request_id(request)


def is_proof(pointer: Versioned[BoundRecord] | None, request: Request) -> bool:
    """N7: a pointer of this request that is live or dropped, or was before (U5), proves that the creation happened."""
    if pointer is None or not is_made_by(pointer, request):
        return False
    return pointer.value.state in {"live", "dropped", "purging"} or bool(pointer.value.life)


async def find_committed(lake: Lake, claim: Claim) -> Claim | None:
    """C8: a claim that was left open, as if it were done, if one of its files became current; otherwise None.

    C5, B3: such a file is the head, was passed by the last swap, is in the log, or has a receipt; looked up in this
    order, after what is remembered.
    """
    receipts = lake.feature(Receipts)
    for tried in claim.locations:
        if receipts.is_known(tried):
            return _as_done(claim, tried)
    if not claim.locations:
        return None
    pointer = await lake.pointer(claim.uuid).read()
    known: set[str] = set()
    registration = ""
    # N7: the head of an unbound pointer belongs to a creation that has not happened.
    if pointer and (pointer.value.state in {"live", "dropped", "purging"} or pointer.value.life):
        effective = (await effective_pointer(lake, pointer)).value
        if head := effective.head:
            registration, known = head.registration, {head.metadata_location}
            with contextlib.suppress(NotFound):  # Purged: the files in its log have receipts.
                known = set((await load_head(lake, effective.kind, head)).logged)
            known.update(passed.metadata_location for passed in pointer.value.passed)
    for tried in claim.locations:
        # A registered file may have been current before; its registration id is unique (see `Head`).
        is_known = tried.registration == registration if tried.registration else tried.metadata_location in known
        if is_known or await receipts.exists(tried):
            return _as_done(claim, tried)
    return None


def is_written_by(family: Family[M], document: Document[M], passed: Sequence[Head], request: Request) -> bool:
    """C9, B3: whether a file of this very request is the head, was passed by the last swap, or is in the log.

    Only committed files get there.
    """
    named = (*logged_locations(family, document), *(head.metadata_location for head in passed))
    return request_part(request_id(request)) in map(request_part_of, named)


async def replayed_document(lake: Lake, family: Family[M], location: str, uuid: str) -> Document[M]:
    """The document of an answer that was given before.

    A table may ask for the deletion of its old files. If the file of the answer is gone, the current document takes its
    place: a request that was carried out must not get "not found" while its table exists.
    """
    try:
        return await load_document(lake, family, location)
    except NotFound:
        pointer = await lake.pointer(uuid).read()
        if pointer and (document := await pointer_document(lake, family, pointer)):
            return document
        raise


async def fence_attempts(lake: Lake, uuid: str) -> None:
    """C10 fence: a swap of this pointer that was decided before loses from here on.

    Called after a claim was taken over, before it is refused without a swap of this pointer. A bump that is lost is as
    good: another request has swapped the pointer.
    """
    cell = lake.pointer(uuid)
    found = await cell.read()
    if found and is_alive(found):
        await cell.try_swap(found.value, expected=found.version)


async def discard_creation(lake: Lake, identifier: Identifier, uuid: str, request: Request) -> None:
    """Delete the file of a create that was definitely refused, once no attempt of it can succeed any more.

    G5, as in N8: condemn the pointer, look at the name, kill the pointer, and only then delete. What is lost here, a
    janitor and garbage collection find later.
    """
    cell = lake.pointer(uuid)
    found = await cell.read()
    if found is None or not is_made_by(found, request) or is_proof(found, request):
        return
    if found.value.state != "killed":
        condemned = await cell.try_swap(replace(found.value, state="condemned"), expected=found.version)
        name = await lake.name(identifier).read()
        is_named = name is not None and name.value.uuid == uuid and name.value.state not in {"free", "dropped"}
        if condemned is None or is_named:
            return
        if await cell.try_swap(replace(found.value, state="killed"), expected=condemned.version) is None:
            return
    if location := metadata_location_of(found.value):
        await lake.locations.remove(location)


def _as_done(claim: Claim, tried: AttemptedFile) -> Claim:
    return replace(claim, state="done", location=tried.metadata_location)


def name_taken(identifier: Identifier, by: NameRecord, kind: Kind) -> AlreadyExists:
    """All kinds share one name space; clients read from the text which kind has the name."""
    if by.kind == kind:
        return AlreadyExists(f"{kind.capitalize()} already exists: {identifier}", subject=by.kind)
    return AlreadyExists(f"{by.kind.capitalize()} with same name already exists: {identifier}", subject=by.kind)
