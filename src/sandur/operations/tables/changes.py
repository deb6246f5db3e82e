"""What a commit changes: the change of a request, the state that it is decided on, and its draft.

A draft is the next document, and the head that will point to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Protocol

from msgspec.structs import replace

from sandur.catalog import locations
from sandur.catalog.identifiers import Identifier
from sandur.catalog.property_keys import check_new_keys
from sandur.catalog.records import Head, Pointer, Request
from sandur.errors import Conflict, Invalid
from sandur.iceberg.requests import AssertTableUuid, TableCommit, check_requirements
from sandur.iceberg.table_commit import check_references_stay, is_replay, next_metadata
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.updates import AddSnapshot, RemoveProperties, SetLocation, SetProperties, Update
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import LocationClaims, Places
from sandur.operations.locations.placement import added_places, holder_of, locations_of
from sandur.operations.receipts import commit_key_of
from sandur.operations.tables.documents import Document, Family, M, cached_document, encode_document, load_document
from sandur.operations.tables.manifest_places import check_added_manifests
from sandur.operations.tables.names import ResolvedName, is_alive
from sandur.operations.transactions.resolution import TransactionAge, resolve_pending
from sandur.storage.cell import Versioned

SWAP_DELAY_MS_MAX: Final = 5_000
"""How long after the grants were read a swap may be sent. After a revocation, no later commit lands."""


def sets_paths(updates: Sequence[Update]) -> bool:
    return any(
        isinstance(update, SetLocation)
        or (isinstance(update, SetProperties) and any(key in locations.PATH_PROPERTIES for key in update.updates))
        for update in updates
    )


def check_updates(updates: Sequence[Update]) -> None:
    """Refuse changes of reserved properties."""
    for update in updates:
        match update:
            case SetProperties():
                check_new_keys(update.updates)
            case RemoveProperties():
                locations.check_property_keys(update.removals)


def changes_places(updates: Sequence[Update], location: str | None, properties: Mapping[str, str]) -> bool:
    """Whether the updates change the location, a path property or a `gc.` property of a table or view."""
    for update in updates:
        match update:
            case SetLocation() if location is None or not locations.is_same(update.location, location):
                return True
            case SetProperties():
                changed = [key for key, value in update.updates.items() if properties.get(key) != value]
            case RemoveProperties():
                changed = [key for key in update.removals if key in properties]
            case _:
                changed = []
        if any(key in locations.PATH_PROPERTIES or key.startswith("gc.") for key in changed):
            return True
    return False


def named_places(updates: Sequence[Update]) -> Sequence[str]:
    """The locations and paths that the updates of a commit name."""
    places = [update.location for update in updates if isinstance(update, SetLocation)]
    for update in updates:
        if isinstance(update, SetProperties):
            places += locations.paths_of(update.updates)
    return places


class Change(Protocol[M]):
    """What a commit changes."""

    @property
    def asserted_uuid(self) -> str | None:
        """The uuid that the table must have; None if the request asserts none."""

    def apply(self, base: M, *, now_ms: int) -> M:
        """The metadata after the commit, or `base` itself if nothing changes. Raises Conflict or Invalid."""

    def is_possible(self, base: M) -> bool:
        """Whether the metadata meets the requirements; the updates may still be refused."""

    def relocates(self, base: M) -> bool:
        """Whether it changes where files lie or who may delete them, which needs more than the right to commit."""

    def is_applied(self, current: M) -> bool:
        """Whether the metadata shows that this very change was made before (C9)."""

    def operation(self, next_metadata: M) -> str:
        """The kind of change, for the receipt; empty if the change does not touch the table's data."""

    @property
    def sets_paths(self) -> bool:
        """Whether the change may add a place (P9)."""


class TableChange(NamedTuple):
    """The commit of one table."""

    commit: TableCommit

    @property
    def asserted_uuid(self) -> str | None:
        asserted = (r.uuid for r in self.commit.requirements if isinstance(r, AssertTableUuid))
        return next((uuid.lower() for uuid in asserted), None)

    def apply(self, base: TableMetadata, *, now_ms: int) -> TableMetadata:
        after = next_metadata(base, self.commit.requirements, self.commit.updates, now_ms=now_ms)
        check_added_manifests(self.commit.updates, base, after)  # M1
        check_references_stay(base, self.commit.updates, after)
        return after

    def is_possible(self, base: TableMetadata) -> bool:
        try:
            check_requirements(base, self.commit.requirements)
        except (Conflict, Invalid):
            return False
        return True

    def relocates(self, base: TableMetadata) -> bool:
        return changes_places(self.commit.updates, base.location, base.properties)

    def is_applied(self, current: TableMetadata) -> bool:
        return is_replay(current, self.commit.requirements, self.commit.updates)

    def operation(self, next_metadata: TableMetadata) -> str:
        for update in self.commit.updates:
            if isinstance(update, AddSnapshot) and update.snapshot.snapshot_id == next_metadata.current_snapshot_id:
                return (update.snapshot.summary or {}).get("operation", "")
        return ""

    @property
    def sets_paths(self) -> bool:
        return sets_paths(self.commit.updates)


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
