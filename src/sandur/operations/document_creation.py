"""Create what is described by a metadata file: Iceberg tables and views, new ones and those that are registered."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from msgspec.structs import replace

from sandur.catalog.identifiers import Format, Identifier, Kind
from sandur.catalog.records import Claim, NameRecord, Pointer
from sandur.catalog.sources import Request
from sandur.errors import SandurError
from sandur.events.receipts import tried_of
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.creation import Creation, Made, taken
from sandur.operations.documents import Document, Family, keep, version_in, write_document
from sandur.operations.lake import Lake
from sandur.operations.placing import make_room
from sandur.operations.replays import answered_document, document_of
from sandur.storage.cell import Held

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
    refusal: Refusal = taken,
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

    def made(self, uuid: str) -> Made[Document[M]]:
        document = self.draft.document(uuid)
        head = replace(
            self.family.head(document.metadata, self.lake.clock.now_ms()),
            metadata_version=version_in(document.location),
            registration=uuid if self.draft.is_written else "",
            operation="register" if self.draft.is_written else "create",
            source=self.request.source,
        )
        pointer = Pointer(
            uuid=uuid, table_uuid=self.draft.uuid or uuid, state="unbound", kind=self.family.kind, head=head
        )
        return Made(pointer, document, document.location, tried_of(head))

    async def write(self, made: Made[Document[M]]) -> None:
        if not self.draft.is_written:
            if self.family.kind == "table":
                make_room(self.lake, made.answer.metadata.location)
            await write_document(self.lake, self.family, made.answer)
        keep(self.lake, self.family, made.answer)

    async def found(self, pointer: Held[Pointer]) -> Document[M] | None:
        return await document_of(self.lake, self.family, pointer)

    async def answered(self, claim: Claim) -> Document[M]:
        return await answered_document(self.lake, self.family, claim.location, claim.uuid)

    async def finish(self, pointer: Pointer) -> None:
        if pointer.head:
            await self.lake.receipts.ensure(pointer.table_uuid, pointer.head)

    def refusal(self, identifier: Identifier, by: NameRecord) -> SandurError:
        return self.refuse(identifier, by, self.family.kind)

    def spent(self, pointer: Pointer) -> SandurError | None:
        del pointer  # The name may refer to another uuid than the metadata has.
        return None
