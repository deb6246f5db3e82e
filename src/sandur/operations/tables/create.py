"""Create tables: at once, by a commit, or staged for a later one. Views and registrations use `DocumentDraft` too."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

import msgspec
from msgspec.structs import replace

from sandur.catalog import locations
from sandur.catalog.identifiers import Format, Identifier, Kind, Namespace, checked_identifier
from sandur.catalog.location_claims import Holder
from sandur.catalog.property_keys import check_new_keys
from sandur.catalog.records import BoundRecord, Claim, NameRecord, Pointer, Request, Stage, head_of
from sandur.errors import Busy, Conflict, SandurError, SwapLost, Unsupported
from sandur.iceberg.requests import CreateTable, TableCommit
from sandur.iceberg.table_commit import next_metadata
from sandur.iceberg.table_create import create_table_metadata
from sandur.iceberg.table_metadata import TableMetadata, encode_table_metadata, without_trailing_slash
from sandur.iceberg.updates import AssignUuid, SetLocation, Update
from sandur.operations.access import authorize_namespace
from sandur.operations.idempotency import ClaimLost, claim_for
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import LocationClaims, Refusal
from sandur.operations.locations.placement import (
    holder_of,
    locations_of,
    named_early,
    places_to_claim,
    resolve_placed_namespace,
)
from sandur.operations.name_access import authorize_places
from sandur.operations.receipts import Receipts, tried_of
from sandur.operations.tables.changes import named_places
from sandur.operations.tables.creation import Creation
from sandur.operations.tables.documents import (
    TABLES,
    Document,
    Family,
    LoadedTable,
    M,
    cache_document,
    encode_document,
    loaded_table,
    pointer_document,
    replayed_document,
    version_in_name,
    write_document,
)
from sandur.operations.tables.drafts import Draft, NewRecord, name_taken
from sandur.operations.tables.manifest_places import check_added_manifests
from sandur.operations.tables.names import (
    allowed_roots,
    default_location,
    namespace_not_found,
    resolve_name,
)
from sandur.settings import seconds_of
from sandur.storage.cell import Versioned, gather_all
from sandur.storage.contract import ABSENT


async def create_table(lake: Lake, namespace: Namespace, create: CreateTable, request: Request) -> LoadedTable:
    """The new table or, if the request says so, one that is only staged."""
    identifier = checked_identifier(Identifier(*namespace, create.name))
    named = await named_locations(lake, namespace.catalog, create.location, create.properties or {})

    def metadata(uuid: str) -> TableMetadata:
        location = chosen_location(lake, create.location, identifier, uuid)
        return create_table_metadata(create, location=location, table_uuid=uuid, now_ms=lake.clock.now_ms())

    if create.stage_create:
        return await _Staging(lake, identifier, metadata, named, request).run()
    draft = DocumentDraft(lake, TABLES, request, metadata, named_locations=named)
    return loaded_table(lake, await Creation(lake, identifier, draft, request, "create-table").run())


async def named_locations(
    lake: Lake, catalog: str, location: str | None, properties: Mapping[str, str]
) -> Sequence[str]:
    """The folders that a client chooses for a new table or view; raises unless it may have them and the properties."""
    check_new_keys(properties)
    await allowed_roots(lake, catalog)
    named = [*([location] if location else []), *locations.paths_of(properties)]
    await authorize_places(lake, catalog, named)
    return named


async def create_by_commit(lake: Lake, identifier: Identifier, commit: TableCommit, request: Request) -> LoadedTable:
    """The end of a create transaction: the commit's own updates build the table, whatever was staged."""
    if needs_location(commit):
        await resolve_placed_namespace(lake, identifier.namespace)
    await authorize_places(lake, identifier.catalog, named_places(commit.updates))
    metadata = created_metadata(lake, identifier, commit)
    # A table of its uuid under the name is this very one (C9).
    draft = DocumentDraft(
        lake,
        TABLES,
        request,
        lambda _: metadata,
        metadata.table_uuid,
        is_named_by_uuid=True,
        named_locations=locations_of(metadata),
        situation="create",
    )
    created = await Creation(lake, identifier, draft, request, "create-table-by-commit").run()
    await lake.background.run("forget stage", forget_stage(lake, identifier, metadata.table_uuid or ""))
    return loaded_table(lake, created)


def created_metadata(lake: Lake, identifier: Identifier, commit: TableCommit) -> TableMetadata:
    """The metadata that the updates of a commit build from nothing."""
    updates = with_defaults(lake, identifier, commit)
    made = next_metadata(None, commit.requirements, updates, now_ms=lake.clock.now_ms())
    check_added_manifests(updates, None, made)  # M1
    return made


def needs_location(commit: TableCommit) -> bool:
    """Whether a commit that creates leaves the location to the catalog."""
    return not any(isinstance(update, SetLocation) for update in commit.updates)


def with_defaults(lake: Lake, identifier: Identifier, commit: TableCommit) -> Sequence[Update]:
    """The updates that create a table or view, with a uuid and a location if they set none.

    If they set no location, the caller has read the namespace in the same request.
    """
    complete = list(commit.updates)
    uuid = next((update.uuid for update in complete if isinstance(update, AssignUuid)), None)
    if uuid is None:
        uuid = lake.clock.new_uuid()
        complete.insert(0, AssignUuid(uuid=uuid))
    if needs_location(commit):
        complete.append(SetLocation(location=locations.hadoop_form(default_location(lake, identifier, uuid))))
    return complete


def create_refusal(identifier: Identifier, by: NameRecord, kind: Kind) -> SandurError:
    """The refusal of a commit that creates, in terms of its requirements; another kind is refused as everywhere."""
    if by.kind == kind == "table":
        return Conflict("Requirement failed: table already exists")
    return name_taken(identifier, by, kind)


@dataclass(frozen=True)
class DocumentDraft(Draft[Document[M]], Generic[M]):
    """A table or view to be created from its first metadata file, as the creation protocol sees it.

    `metadata` returns the content of that file for the uuid of the table. `uuid` is set if the metadata has one
    already. `registered` is a file that exists already and becomes the first one.
    """

    lake: Lake
    family: Family[M]
    request: Request
    metadata: Callable[[str], M]
    uuid: str | None = None
    is_named_by_uuid: bool = False
    registered: Document[M] | None = None
    named_locations: Sequence[str] = ()
    format: Format = "iceberg"
    situation: str = ""

    @property
    def is_registered(self) -> bool:
        return self.registered is not None

    @property
    def kind(self) -> Kind:
        return self.family.kind

    def made(self, uuid: str) -> NewRecord[Document[M]]:
        lake, family, request = self.lake, self.family, self.request
        document = self.registered or encode_document(lake, family, self.metadata(uuid), version=0, request=request)
        head = replace(
            family.head(document.metadata, lake.clock.now_ms()),
            metadata_version=version_in_name(document.location),
            registration=uuid if self.registered else "",
            operation="register" if self.registered else "create",
            source=request.source,
        )
        pointer = Pointer(uuid=uuid, table_uuid=self.uuid or uuid, state="unbound", kind=self.kind, head=head)
        return NewRecord(pointer, document, document.location, tried_of(head), locations_of(document.metadata))

    async def write(self, made: NewRecord[Document[M]]) -> None:
        if self.registered is None:
            if self.family.kind == "table":
                create_directories(self.lake, made.answer.metadata.location)
            await write_document(self.lake, made.answer)
        cache_document(self.lake, self.family, made.answer)

    async def found(self, pointer: Versioned[BoundRecord]) -> Document[M] | None:
        return await pointer_document(self.lake, self.family, pointer)

    async def answered(self, claim: Claim) -> Document[M]:
        return await replayed_document(self.lake, self.family, claim.location, claim.uuid)

    async def finish(self, pointer: BoundRecord) -> None:
        if head := head_of(pointer):
            await self.lake.feature(Receipts).ensure(pointer.table_uuid, head)

    def refusal(self, identifier: Identifier, by: NameRecord) -> SandurError:
        refuse = create_refusal if self.is_named_by_uuid else name_taken
        return refuse(identifier, by, self.kind)


@dataclass
class _Staging:
    """One request to validate a create and keep it as a stage, which no reader sees.

    Only empty directories exist at its location. A location that the client chose is claimed until the stage expires
    (P3). With a key, a retry gets the stage of the first attempt, because the claim pins its uuid.
    """

    lake: Lake
    identifier: Identifier
    metadata_of: Callable[[str], TableMetadata]
    named: Sequence[str]
    request: Request

    def __post_init__(self) -> None:
        self._claim = claim_for(self.lake, self.request, "stage-table")
        self._places = LocationClaims(self.lake)
        self._began_ms = self.lake.clock.now_ms()

    async def run(self) -> LoadedTable:
        if not self.lake.settings.stage_create:
            raise Unsupported("stage-create is disabled (setting stage_create)")
        try:
            return await self._write(self.lake.clock.new_uuid())
        except ClaimLost:  # The namespace was authorized before the claim was taken (A9).
            await self._withdraw()
            return await self._follow(await self._claim.follow())
        except SandurError:
            await self._claim.release()
            await self._withdraw()
            raise

    async def _withdraw(self) -> None:
        await self.lake.background.run("withdraw location claims", self._places.withdraw())

    async def _follow(self, followed: Claim) -> LoadedTable:
        """The stage of the first attempt or, if that attempt did not get so far, one with the same uuid."""
        if stage := await self.lake.stage(self.identifier, followed.uuid).read():
            return LoadedTable(metadata=bytes(stage.value.metadata), table_uuid=followed.uuid)
        if followed.state == "done":  # Committed or expired since; the first answer is still what the client wants.
            await resolve_placed_namespace(self.lake, self.identifier.namespace)
            metadata = encode_table_metadata(self.metadata_of(followed.uuid))
            return LoadedTable(metadata=metadata, table_uuid=followed.uuid)
        try:
            return await self._write(followed.uuid)
        except ClaimLost:
            raise Busy(f"{self.identifier}: another attempt of this request is staging it") from None

    async def _write(self, uuid: str) -> LoadedTable:
        lake, identifier = self.lake, self.identifier
        early = named_early(lake, identifier, self.named)
        me = holder_of(lake, identifier, uuid, "iceberg", "table", self.request, began_ms=self._began_ms)
        namespace, found, unfree = await gather_all(
            (
                resolve_placed_namespace(lake, identifier.namespace),
                resolve_name(lake, identifier),
                self._places.write(me, early),  # P3
            )
        )
        missing = namespace_not_found(identifier.namespace)
        if namespace:
            await authorize_namespace(lake, identifier.namespace, missing=missing, namespace_id=namespace.value.id)
        refusal: SandurError | None
        if namespace is None:
            refusal = missing
        elif found:
            refusal = name_taken(identifier, found.name.value, "table")
        else:
            unfree = unfree or await self._secure(me, uuid)
            refusal = unfree.error if unfree else None
        if isinstance(refusal, Busy):
            raise refusal
        if refusal:
            await self._claim.done(uuid=uuid, error=refusal)  # G3
            raise refusal
        return await self._keep(uuid, self.metadata_of(uuid))

    async def _secure(self, me: Holder, uuid: str) -> Refusal | None:
        """P3, P4: claim the places that the client chose, then look. Raises Invalid for a reserved folder."""
        places = places_to_claim(self.lake, self.identifier, uuid, locations_of(self.metadata_of(uuid)))
        return await self._places.write(me, self._places.needs(me, places)) or await self._places.look()

    async def _keep(self, uuid: str, metadata: TableMetadata) -> LoadedTable:
        lake, identifier = self.lake, self.identifier
        await self._claim.take(uuid=uuid)
        create_directories(lake, metadata.location)
        body = encode_table_metadata(metadata)
        now_ms = lake.clock.now_ms()
        stage = Stage(
            table_uuid=uuid,
            identifier=identifier,
            location=metadata.location,
            created_ms=now_ms,
            expires_ms=now_ms + seconds_of(lake.settings.stage_ttl) * 1_000,
            metadata=msgspec.Raw(body),
            principal_id=self.request.source.principal_id,
        )
        await lake.stage(identifier, uuid).try_swap(stage, expected=ABSENT)  # An earlier attempt may have written it.
        await self._claim.done(uuid=uuid, location=metadata.location)
        return LoadedTable(metadata=body, table_uuid=uuid)


async def forget_stage(lake: Lake, identifier: Identifier, uuid: str) -> None:
    """Delete the stage of a table that was committed. If this is lost, a janitor deletes the stage when it expires."""
    cell = lake.stage(identifier, uuid)
    if stage := await cell.read():
        with contextlib.suppress(SwapLost):
            await cell.empty(expected=stage.version)


def chosen_location(lake: Lake, wanted: str | None, identifier: Identifier, uuid: str) -> str:
    """The requested location, in the form of the request; without a request the default."""
    if not wanted:
        return locations.hadoop_form(default_location(lake, identifier, uuid))
    return without_trailing_slash(wanted)


def create_directories(lake: Lake, location: str) -> None:
    """Create the directories of a table on a file system: some engines write only into directories that exist."""
    lake.locations.make_folders(*_directories(location))


def remove_empty_directories(lake: Lake, location: str) -> None:
    """Remove the directories of a table that was never created. A table with metadata was created."""
    metadata, data = _directories(location)
    if lake.locations.remove_empty_folder(metadata):
        lake.locations.remove_empty_folder(data)


def _directories(location: str) -> tuple[str, str]:
    return f"{location}/metadata", f"{location}/data"
