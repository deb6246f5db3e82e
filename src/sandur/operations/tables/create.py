"""Create tables: at once, staged, or by a commit that asserts create."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from sandur.catalog import locations
from sandur.catalog.identifiers import Format, Identifier, Kind, Namespace, checked_identifier
from sandur.catalog.records import BoundRecord, Claim, NameRecord, Pointer, Stage, head_of
from sandur.catalog.sources import Request
from sandur.errors import Busy, Conflict, NotFound, SandurError, SwapLost, Unsupported
from sandur.iceberg.requests import CreateTable
from sandur.iceberg.table_commit import next_metadata
from sandur.iceberg.table_create import create_table_metadata
from sandur.iceberg.table_metadata import TableMetadata, encode_table_metadata
from sandur.iceberg.updates import AssignUuid, SetLocation, Update
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.idempotency import ClaimLost, KeyClaim
from sandur.operations.lake import Lake
from sandur.operations.receipts import tried_of
from sandur.operations.tables.changes import TableChange, check_updates
from sandur.operations.tables.creation import Creation, NewRecord, name_taken
from sandur.operations.tables.documents import (
    TABLES,
    Document,
    Family,
    cache_document,
    encode_document,
    new_location,
    pointer_document,
    replayed_document,
    version_in_name,
    write_document,
)
from sandur.operations.tables.load import LoadedTable, loaded_table
from sandur.operations.tables.locations import allowed_roots, chosen_location, create_directories, default_location
from sandur.operations.tables.names import resolve_name, resolve_namespace
from sandur.settings import seconds_of
from sandur.storage.cell import Versioned

M = TypeVar("M", TableMetadata, ViewMetadata)


class DocumentDraft(Protocol[M]):
    """The first metadata file of what is to be created."""

    @property
    def uuid(self) -> str | None:
        """The uuid its metadata has; None when it may be any."""
        ...

    @property
    def is_named_by_uuid(self) -> bool:
        """Whether a thing of that uuid under the name means that this very request was carried out before (C9)."""
        ...

    @property
    def is_written(self) -> bool:
        """Whether the metadata file is there already, as when it is registered."""
        ...

    def document(self, uuid: str) -> Document[M]:
        """The first metadata file, for that uuid."""
        ...


Refusal = Callable[[Identifier, NameRecord, Kind], SandurError]


async def create_document(
    lake: Lake,
    family: Family[M],
    identifier: Identifier,
    draft: DocumentDraft[M],
    *,
    request: Request,
    operation: str,
    refusal: Refusal = name_taken,
) -> Document[M]:
    """The document that was created; AlreadyExists as `refusal` says it, or NotFound when there is no namespace."""
    whole = _Draft(lake, family, draft, request, refusal)
    return await Creation(lake, identifier, whole, request, operation).run()


@dataclass(frozen=True)
class _Draft(Generic[M]):
    """A metadata file as the protocol of creation sees it."""

    lake: Lake
    family: Family[M]
    draft: DocumentDraft[M]
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
        document = self.draft.document(uuid)
        head = replace(
            self.family.head(document.metadata, self.lake.clock.now_ms()),
            metadata_version=version_in_name(document.location),
            registration=uuid if self.draft.is_written else "",
            operation="register" if self.draft.is_written else "create",
            source=self.request.source,
        )
        pointer = Pointer(
            uuid=uuid, table_uuid=self.draft.uuid or uuid, state="unbound", kind=self.family.kind, head=head
        )
        return NewRecord(pointer, document, document.location, tried_of(head))

    async def write(self, made: NewRecord[Document[M]]) -> None:
        if not self.draft.is_written:
            if self.family.kind == "table":
                create_directories(self.lake, made.answer.metadata.location)
            await write_document(self.lake, self.family, made.answer)
        cache_document(self.lake, self.family, made.answer)

    async def found(self, pointer: Versioned[BoundRecord]) -> Document[M] | None:
        return await pointer_document(self.lake, self.family, pointer)

    async def answered(self, claim: Claim) -> Document[M]:
        return await replayed_document(self.lake, self.family, claim.location, claim.uuid)

    async def finish(self, pointer: BoundRecord) -> None:
        if head := head_of(pointer):
            await self.lake.receipts.ensure(pointer.table_uuid, head)

    def refusal(self, identifier: Identifier, by: NameRecord) -> SandurError:
        return self.refuse(identifier, by, self.family.kind)

    def spent(self, pointer: BoundRecord) -> SandurError | None:
        del pointer  # The name may refer to another uuid than the metadata has.
        return None


STAGE = "stage-table"


async def stage_table(
    lake: Lake, identifier: Identifier, metadata_of: Callable[[str], TableMetadata], request: Request
) -> LoadedTable:
    """What the table would be. Nothing lies under its location but empty folders, and nobody sees it.

    With a key, a retry gets the stage that the first attempt made: the claim pins its uuid.
    """
    if not lake.settings.stage_create:
        raise Unsupported("stage-create is switched off (setting stage_create)")
    key_hash = request.key_hash
    claim = KeyClaim(lake, request, STAGE, lake.claim(STAGE, key_hash) if key_hash else None)
    uuid = lake.clock.new_uuid()
    try:
        return await _staged(lake, identifier, metadata_of(uuid), claim)
    except ClaimLost:
        return await _staged_before(lake, identifier, metadata_of, claim)
    except SandurError:
        await claim.let_go()
        raise


async def _staged(lake: Lake, identifier: Identifier, metadata: TableMetadata, claim: KeyClaim) -> LoadedTable:
    uuid = metadata.table_uuid or ""
    namespace, found = await asyncio.gather(
        resolve_namespace(lake, identifier.namespace), resolve_name(lake, identifier)
    )
    refusal: SandurError | None = None
    if namespace is None:
        refusal = NotFound(f"Namespace does not exist: {identifier.namespace}", subject="namespace")
    elif found:
        refusal = name_taken(identifier, found.name.value, "table")
    if refusal:
        await claim.done(uuid=uuid, error=refusal)
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


async def _staged_before(
    lake: Lake, identifier: Identifier, metadata_of: Callable[[str], TableMetadata], claim: KeyClaim
) -> LoadedTable:
    """A retry: the stage of the first attempt, or, if it did not get that far, one with the same uuid."""
    followed = await claim.follow()
    stage = await lake.stage(identifier, followed.uuid).read()
    if stage:
        return LoadedTable(metadata=bytes(stage.value.metadata), table_uuid=followed.uuid)
    if followed.state == "done":  # Committed or expired since; what was answered is still what the client asked for.
        return LoadedTable(metadata=encode_table_metadata(metadata_of(followed.uuid)), table_uuid=followed.uuid)
    try:
        return await _staged(lake, identifier, metadata_of(followed.uuid), claim)
    except ClaimLost:
        raise Busy(f"{identifier}: is being staged") from None


async def forget_stage(lake: Lake, identifier: Identifier, uuid: str) -> None:
    """The stage of a table that was committed; if this is lost, the janitor takes it when it expires."""
    cell = lake.stage(identifier, uuid)
    if stage := await cell.read():
        with contextlib.suppress(SwapLost):
            await cell.empty(expected=stage.version)


CREATE: Final = "create-table"
CREATE_BY_COMMIT: Final = "create-table-by-commit"


async def create_table(lake: Lake, namespace: Namespace, create: CreateTable, request: Request) -> LoadedTable:
    """The new table, or, when the request says so, one that is only staged."""
    identifier = checked_identifier(Identifier(*namespace, create.name))
    properties = create.properties or {}
    locations.check_property_keys(properties)
    roots = await allowed_roots(lake, namespace.catalog)
    locations.check_paths(properties, roots)
    draft = _Created(lake, identifier, create, request, roots)
    if create.stage_create:
        return await stage_table(lake, identifier, draft.metadata, request)
    document = await create_document(lake, TABLES, identifier, draft, request=request, operation=CREATE)
    return loaded_table(lake, document)


async def create_by_commit(lake: Lake, identifier: Identifier, change: TableChange, request: Request) -> LoadedTable:
    """The end of a create transaction: built from nothing by the commit's own updates, whatever was staged."""
    checked_identifier(identifier)
    roots = await allowed_roots(lake, identifier.catalog)
    metadata = created_metadata(lake, identifier, change, roots)
    draft = _Built(lake, metadata, request)
    document = await create_document(
        lake, TABLES, identifier, draft, request=request, operation=CREATE_BY_COMMIT, refusal=create_conflict
    )
    await lake.background.run("forget stage", forget_stage(lake, identifier, metadata.table_uuid or ""))
    return loaded_table(lake, document)


def created_metadata(lake: Lake, identifier: Identifier, change: TableChange, roots: tuple[str, ...]) -> TableMetadata:
    """What the updates of a create transaction make of nothing; a uuid or a location they leave out is given."""
    updates: list[Update] = list(change.commit.updates)
    check_updates(updates, None, roots)
    uuid = next((update.uuid for update in updates if isinstance(update, AssignUuid)), None)
    if uuid is None:
        uuid = lake.clock.new_uuid()
        updates.insert(0, AssignUuid(uuid=uuid))
    if not any(isinstance(update, SetLocation) for update in updates):
        updates.append(SetLocation(location=default_location(roots[0], identifier, uuid)))
    return next_metadata(None, change.commit.requirements, updates, now_ms=lake.clock.now_ms())


def create_conflict(identifier: Identifier, by: NameRecord, kind: Kind) -> SandurError:
    """The commit route speaks of requirements; a view in the way is told as everywhere."""
    if by.kind == "table":
        return Conflict("Requirement failed: table already exists")
    return name_taken(identifier, by, kind)


@dataclass(frozen=True)
class _Created:
    """A table as a create request describes it; its uuid is not known yet."""

    lake: Lake
    identifier: Identifier
    create: CreateTable
    request: Request
    roots: tuple[str, ...]
    uuid: str | None = None
    is_named_by_uuid: bool = False
    is_written: bool = False

    def metadata(self, uuid: str) -> TableMetadata:
        location = chosen_location(self.create.location, self.roots, self.identifier, uuid)
        now_ms = self.lake.clock.now_ms()
        return create_table_metadata(self.create, location=location, table_uuid=uuid, now_ms=now_ms)

    def document(self, uuid: str) -> Document[TableMetadata]:
        return first_document(self.lake, self.metadata(uuid), self.request)


@dataclass(frozen=True)
class _Built:
    """A table as a create transaction built it; a table of its uuid under the name is this very one (C9)."""

    lake: Lake
    built: TableMetadata
    request: Request
    is_named_by_uuid: bool = True
    is_written: bool = False

    @property
    def uuid(self) -> str | None:
        return self.built.table_uuid

    def document(self, uuid: str) -> Document[TableMetadata]:
        del uuid  # The metadata has its own.
        return first_document(self.lake, self.built, self.request)


def first_document(lake: Lake, metadata: TableMetadata, request: Request) -> Document[TableMetadata]:
    location = new_location(lake, TABLES, metadata, version=0, request_hash=request.key_hash or request.hash)
    return encode_document(TABLES, metadata, location)
