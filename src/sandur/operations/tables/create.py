"""Create tables: at once, or staged for a later commit. Views and registrations use `create_document` too."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from sandur.catalog import locations
from sandur.catalog.identifiers import Format, Identifier, Kind, Namespace, checked_identifier
from sandur.catalog.records import BoundRecord, Claim, NameRecord, Pointer, Request, Stage, head_of
from sandur.errors import Busy, SandurError, SwapLost, Unsupported
from sandur.iceberg.requests import CreateTable
from sandur.iceberg.table_create import create_table_metadata
from sandur.iceberg.table_metadata import TableMetadata, encode_table_metadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.concurrency import gather_all
from sandur.operations.idempotency import ClaimLost, KeyClaim, claim_for
from sandur.operations.lake import Lake
from sandur.operations.receipts import Receipts, tried_of
from sandur.operations.tables.creation import Creation, NewRecord, name_taken
from sandur.operations.tables.documents import (
    TABLES,
    Document,
    Family,
    LoadedTable,
    cache_document,
    encode_document,
    loaded_table,
    pointer_document,
    replayed_document,
    version_in_name,
    write_document,
)
from sandur.operations.tables.locations import allowed_roots, chosen_location, create_directories
from sandur.operations.tables.names import namespace_not_found, resolve_name, resolve_namespace
from sandur.settings import seconds_of
from sandur.storage.cell import Versioned

M = TypeVar("M", TableMetadata, ViewMetadata)

CREATE: Final = "create-table"
STAGE: Final = "stage-table"


async def create_table(lake: Lake, namespace: Namespace, create: CreateTable, request: Request) -> LoadedTable:
    """The new table or, if the request says so, one that is only staged."""
    identifier = checked_identifier(Identifier(*namespace, create.name))
    properties = create.properties or {}
    locations.check_property_keys(properties)
    roots = await allowed_roots(lake, namespace.catalog)
    locations.check_paths(properties, roots)

    def metadata(uuid: str) -> TableMetadata:
        location = chosen_location(create.location, roots, identifier, uuid)
        return create_table_metadata(create, location=location, table_uuid=uuid, now_ms=lake.clock.now_ms())

    def document(uuid: str) -> Document[TableMetadata]:
        return encode_document(lake, TABLES, metadata(uuid), version=0, request=request)

    if create.stage_create:
        return await _stage_table(lake, identifier, metadata, request)
    draft = FirstDocument(document)
    return loaded_table(lake, await create_document(lake, TABLES, identifier, draft, request=request, operation=CREATE))


@dataclass(frozen=True)
class FirstDocument(Generic[M]):
    """The first metadata file of a new table or view.

    `document` returns it for the uuid of the table. `uuid` is set if the metadata has one already. `is_named_by_uuid`
    is as in `Draft`. `is_written`: the file exists already, as in a registration.
    """

    document: Callable[[str], Document[M]]
    uuid: str | None = None
    is_named_by_uuid: bool = False
    is_written: bool = False


Refusal = Callable[[Identifier, NameRecord, Kind], SandurError]


async def create_document(
    lake: Lake,
    family: Family[M],
    identifier: Identifier,
    draft: FirstDocument[M],
    *,
    request: Request,
    operation: str,
    refusal: Refusal = name_taken,
) -> Document[M]:
    """Create a table or view and return its document.

    Raises what `refusal` returns if the name is taken, and NotFound if the namespace does not exist.
    """
    whole = _DocumentCreation(lake, family, draft, request, refusal)
    return await Creation(lake, identifier, whole, request, operation).run()


def new_document_record(
    lake: Lake,
    family: Family[M],
    document: Document[M],
    request: Request,
    *,
    uuid: str,
    table_uuid: str,
    registers: bool,
) -> NewRecord[Document[M]]:
    """The pointer of a new table or view, with the head that points to its first document."""
    head = replace(
        family.head(document.metadata, lake.clock.now_ms()),
        metadata_version=version_in_name(document.location),
        registration=uuid if registers else "",
        operation="register" if registers else "create",
        source=request.source,
    )
    pointer = Pointer(uuid=uuid, table_uuid=table_uuid, state="unbound", kind=family.kind, head=head)
    return NewRecord(pointer, document, document.location, tried_of(head))


@dataclass(frozen=True)
class _DocumentCreation(Generic[M]):
    """The creation of a table or view from its first metadata file, as the creation protocol sees it."""

    lake: Lake
    family: Family[M]
    draft: FirstDocument[M]
    request: Request
    refuse: Refusal
    format: Format = "iceberg"

    @property
    def kind(self) -> Kind:
        return self.family.kind

    @property
    def uuid(self) -> str | None:
        return self.draft.uuid

    @property
    def is_named_by_uuid(self) -> bool:
        return self.draft.is_named_by_uuid

    def made(self, uuid: str) -> NewRecord[Document[M]]:
        return new_document_record(
            self.lake,
            self.family,
            self.draft.document(uuid),
            self.request,
            uuid=uuid,
            table_uuid=self.draft.uuid or uuid,
            registers=self.draft.is_written,
        )

    async def write(self, made: NewRecord[Document[M]]) -> None:
        if not self.draft.is_written:
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
        return self.refuse(identifier, by, self.family.kind)

    def spent(self, pointer: BoundRecord) -> SandurError | None:
        del pointer  # The name may refer to another uuid than the metadata has.
        return None


async def _stage_table(
    lake: Lake, identifier: Identifier, metadata_of: Callable[[str], TableMetadata], request: Request
) -> LoadedTable:
    """Validate a create and keep it as a stage, which no reader sees: only empty directories exist at its location.

    With a key, a retry gets the stage of the first attempt, because the claim pins its uuid.
    """
    if not lake.settings.stage_create:
        raise Unsupported("stage-create is disabled (setting stage_create)")
    claim = claim_for(lake, request, STAGE)
    try:
        return await _write_stage(lake, identifier, metadata_of(lake.clock.new_uuid()), claim)
    except ClaimLost:
        return await _continue_stage(lake, identifier, metadata_of, claim)
    except SandurError:
        await claim.release()
        raise


async def _continue_stage(
    lake: Lake, identifier: Identifier, metadata_of: Callable[[str], TableMetadata], claim: KeyClaim
) -> LoadedTable:
    """The stage of the first attempt or, if that attempt did not get so far, one with the same uuid."""
    followed = await claim.follow()
    if stage := await lake.stage(identifier, followed.uuid).read():
        return LoadedTable(metadata=bytes(stage.value.metadata), table_uuid=followed.uuid)
    metadata = metadata_of(followed.uuid)
    if followed.state == "done":  # Committed or expired since; the first answer is still what the client wants.
        return LoadedTable(metadata=encode_table_metadata(metadata), table_uuid=followed.uuid)
    try:
        return await _write_stage(lake, identifier, metadata, claim)
    except ClaimLost:
        raise Busy(f"{identifier}: another attempt of this request is staging it") from None


async def _write_stage(lake: Lake, identifier: Identifier, metadata: TableMetadata, claim: KeyClaim) -> LoadedTable:
    uuid = metadata.table_uuid or ""
    namespace, found = await gather_all((resolve_namespace(lake, identifier.namespace), resolve_name(lake, identifier)))
    refusal: SandurError | None = None
    if namespace is None:
        refusal = namespace_not_found(identifier.namespace)
    elif found:
        refusal = name_taken(identifier, found.name.value, "table")
    if refusal:
        await claim.done(uuid=uuid, error=refusal)  # G3
        raise refusal
    await claim.take(uuid=uuid)
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
    )
    with contextlib.suppress(SwapLost):  # An earlier attempt of this request wrote it.
        await lake.stage(identifier, uuid).create(stage)
    await claim.done(uuid=uuid, location=metadata.location)
    return LoadedTable(metadata=body, table_uuid=uuid)


async def forget_stage(lake: Lake, identifier: Identifier, uuid: str) -> None:
    """Delete the stage of a table that was committed. If this is lost, a janitor deletes the stage when it expires."""
    cell = lake.stage(identifier, uuid)
    if stage := await cell.read():
        with contextlib.suppress(SwapLost):
            await cell.empty(expected=stage.version)
