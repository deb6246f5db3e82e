"""Create tables: at once, by a commit, or staged for a later one. Views and registrations use `DocumentDraft` too."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from msgspec.structs import replace

from sandur.catalog import locations
from sandur.catalog.identifiers import Format, Identifier, Kind, Namespace, checked_identifier
from sandur.catalog.property_keys import check_new_keys
from sandur.catalog.records import BoundRecord, Claim, NameRecord, Pointer, Request, head_of
from sandur.errors import Conflict, SandurError
from sandur.iceberg.requests import CreateTable, TableCommit
from sandur.iceberg.table_commit import next_metadata
from sandur.iceberg.table_create import create_table_metadata
from sandur.iceberg.table_metadata import TableMetadata, without_trailing_slash
from sandur.iceberg.updates import AssignUuid, SetLocation, Update
from sandur.operations.lake import Lake
from sandur.operations.locations.placement import (
    allowed_roots,
    default_location,
    locations_of,
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
    version_in_name,
    write_document,
)
from sandur.operations.tables.drafts import Draft, NewRecord, name_taken, replayed_document
from sandur.operations.tables.manifest_places import check_added_manifests
from sandur.operations.tables.stages import Staging, create_directories, finish_stage, note_failed_finalize
from sandur.storage.cell import Versioned


async def create_table(
    lake: Lake, namespace: Namespace, create: CreateTable, request: Request, *, stage_id: str = ""
) -> LoadedTable:
    """The new table or, if the request says so, one that is only staged, under the stage id of the client if any."""
    identifier = checked_identifier(Identifier(*namespace, create.name))
    named = await named_locations(lake, namespace.catalog, create.location, create.properties or {})

    def metadata(uuid: str) -> TableMetadata:
        location = chosen_location(lake, create.location, identifier, uuid)
        return create_table_metadata(create, location=location, table_uuid=uuid, now_ms=lake.clock.now_ms())

    if create.stage_create:
        return await Staging(lake, identifier, metadata, named, request, stage_id).run()
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
    uuid = metadata.table_uuid or ""
    try:
        created = await Creation(lake, identifier, draft, request, "create-table-by-commit").run()
    except SandurError as error:
        await lake.background.run("note a failed finalize", note_failed_finalize(lake, identifier, uuid, error))
        raise
    await lake.background.run(
        "forget stage", finish_stage(lake, identifier, created.metadata, location=created.location)
    )
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
    already. `registered` is a file that exists already and becomes the first one. `swept` is the list of files that
    maintenance deleted from the table when it was registered before (O5).
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
    swept: str = ""

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
        table_uuid = self.uuid or uuid
        pointer = Pointer(
            uuid=uuid, table_uuid=table_uuid, state="unbound", kind=self.kind, head=head, swept=self.swept
        )
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


def chosen_location(lake: Lake, wanted: str | None, identifier: Identifier, uuid: str) -> str:
    """The requested location, in the form of the request; without a request the default."""
    if not wanted:
        return locations.hadoop_form(default_location(lake, identifier, uuid))
    return without_trailing_slash(wanted)
