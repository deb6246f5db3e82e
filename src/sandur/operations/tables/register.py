"""Register an existing metadata file as a table or view, or as the new head of an existing table."""

import contextlib
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier, Namespace, checked_identifier
from sandur.catalog.locations import checked_location
from sandur.catalog.records import AttemptedFile, Head
from sandur.catalog.sources import Request
from sandur.errors import Busy, Invalid, SandurError, SwapLost
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.validation import decode_foreign_table_metadata, decode_foreign_view_metadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.concurrency import gather_all
from sandur.operations.idempotency import ClaimLost, KeyClaim
from sandur.operations.index import update
from sandur.operations.lake import Lake
from sandur.operations.receipts import commit_key_of, tried_of
from sandur.operations.tables.create import create_document
from sandur.operations.tables.documents import (
    TABLES,
    VIEWS,
    Document,
    cache_document,
    missing_file,
    replayed_document,
    version_in_name,
)
from sandur.operations.tables.drop import check_not_purged
from sandur.operations.tables.load import LoadedTable, LoadedView, loaded_table
from sandur.operations.tables.locations import allowed_roots
from sandur.operations.tables.names import ResolvedName, is_alive, resolve_name
from sandur.operations.transactions import resolution

M = TypeVar("M", TableMetadata, ViewMetadata)

REGISTER: Final = "register-table"
TRIES_MAX: Final = 8
FILE_BYTES_MAX: Final = 512 << 20


async def register_table(
    lake: Lake,
    namespace: Namespace,
    name: str,
    metadata_location: str,
    *,
    overwrite: bool = False,
    request: Request,
) -> LoadedTable:
    """The table of a metadata file, which is kept as it is, uuid and all."""
    identifier = checked_identifier(Identifier(*namespace, name))
    roots = await allowed_roots(lake, namespace.catalog)
    data = await _file(lake, metadata_location, roots)
    metadata = decode_foreign_table_metadata(data, metadata_location=metadata_location)
    checked_location(metadata.location, roots)
    if metadata.table_uuid:
        await check_not_purged(lake, metadata.table_uuid)
    document = Document(metadata_location, TABLES.encode(metadata) if _is_gzip(data) else data, metadata)
    if overwrite and (replaced := await _Overwrite(lake, identifier, document, request).run()):
        return loaded_table(lake, replaced)
    draft = _Registered(document, metadata.table_uuid)
    created = await create_document(lake, TABLES, identifier, draft, request=request, operation=REGISTER)
    return loaded_table(lake, created)


async def register_view(
    lake: Lake, namespace: Namespace, name: str, metadata_location: str, *, request: Request
) -> LoadedView:
    """The view of a metadata file, which is kept as it is."""
    identifier = checked_identifier(Identifier(*namespace, name))
    roots = await allowed_roots(lake, namespace.catalog)
    data = await _file(lake, metadata_location, roots)
    metadata = decode_foreign_view_metadata(data, metadata_location=metadata_location)
    checked_location(metadata.location, roots)
    document = Document(metadata_location, VIEWS.encode(metadata) if _is_gzip(data) else data, metadata)
    draft = _Registered(document, metadata.view_uuid)
    created = await create_document(lake, VIEWS, identifier, draft, request=request, operation="register-view")
    return LoadedView(created.body, created.metadata.view_uuid, created.location)


async def _file(lake: Lake, metadata_location: str, roots: tuple[str, ...]) -> bytes:
    checked_location(metadata_location, roots)
    data = await lake.locations.read(metadata_location)
    if data is None:
        raise missing_file(metadata_location)
    if len(data) > FILE_BYTES_MAX:
        raise Invalid(f"Invalid metadata file {metadata_location}: {len(data)} bytes, at most {FILE_BYTES_MAX}")
    return data


def _is_gzip(data: bytes) -> bool:
    return data.startswith(b"\x1f\x8b")


@dataclass(frozen=True)
class _Registered(Generic[M]):
    """Something whose metadata file is there already."""

    found: Document[M]
    uuid: str | None
    is_named_by_uuid: bool = False
    is_written: bool = True

    def document(self, uuid: str) -> Document[M]:
        del uuid  # The file has its own.
        return self.found


class _Overwrite:
    """One request to let a table's name stand for another metadata file. The pointer is swapped, as in a commit.

    The file may have been current before, so that neither the log nor the file's own receipt tells whether this request
    was carried out: every attempt has a registration of its own, which the head keeps and its receipt after it (C5).
    """

    def __init__(self, lake: Lake, identifier: Identifier, document: Document[TableMetadata], request: Request) -> None:
        key_hash = request.key_hash
        self._lake = lake
        self._identifier = identifier
        self._document = document
        self._request = request
        self._claim = KeyClaim(lake, request, REGISTER, lake.claim(REGISTER, key_hash) if key_hash else None)
        self._tried: list[AttemptedFile] = []

    async def run(self) -> Document[TableMetadata] | None:
        """The document that is current from now on; None when there is no such table, so that one is created."""
        try:
            return await self._run()
        except SandurError:
            await self._claim.let_go()
            raise

    async def _run(self) -> Document[TableMetadata] | None:
        for _ in range(TRIES_MAX):
            try:
                return await self._attempts()
            except ClaimLost:
                found = await self._claim.read()
                if found and found.value.namespace_id:
                    return None  # An earlier attempt of this request found no table, and creates one.
                claim = await self._claim.follow()
                if claim.state == "done":
                    return await replayed_document(self._lake, TABLES, claim.location, claim.uuid)
                self._tried = list(claim.locations)
        raise Busy(f"{self._identifier}: is being registered")

    async def _attempts(self) -> Document[TableMetadata] | None:
        for _ in range(TRIES_MAX):
            held = self._claim.held.value if self._claim.held else None
            if held and await self._is_made(held.uuid):
                await self._claim.done(location=self._document.location)
                return self._document
            found = await resolve_name(self._lake, self._identifier)
            is_there = found is not None and found.is_a("table")
            if held and (not found or not is_there or found.uuid != held.uuid):
                await self._claim.done(error=TABLES.missing(self._identifier))  # G3
                raise TABLES.missing(self._identifier)
            if not found or not is_there:
                if await self._claim.read():
                    raise ClaimLost
                return None
            if await self._swapped(found):
                return cache_document(self._lake, TABLES, self._document)
        raise Busy(f"{self._identifier}: too many commits at once")

    async def _is_made(self, uuid: str) -> bool:
        """C5: whether one of our registrations is the head, or has a receipt; asked in this order."""
        pointer = await self._lake.pointer(uuid).read()
        head = (await resolution.effective_pointer(self._lake, pointer)).value.head if pointer else None
        if head and head.registration in {tried.registration for tried in self._tried}:
            return True
        return any(await gather_all(self._lake.receipts.exists(tried) for tried in self._tried))

    async def _swapped(self, found: ResolvedName) -> bool:
        current = found.iceberg_pointer
        pointer = await resolution.resolve_pending(self._lake, current) if current else None
        metadata = self._document.metadata
        if pointer is None or pointer.value.head is None or not is_alive(pointer):
            return False
        before = pointer.value.head
        if before.metadata_location == self._document.location:  # Nothing to do.
            await self._claim.done(uuid=found.uuid, location=self._document.location)
            return True
        head = replace(
            TABLES.head(metadata, self._lake.clock.now_ms()),
            metadata_version=max(version_in_name(self._document.location), before.metadata_version + 1),
            previous_metadata_location=before.metadata_location,
            previous_commit_key=commit_key_of(before),
            registration=self._lake.clock.new_id(),
            operation="register",
            source=self._request.source,
        )
        await gather_all(
            [
                self._lake.receipts.ensure(pointer.value.table_uuid, before),  # C5 (help)
                self._claim.take(uuid=found.uuid, tried=tried_of(head)),  # C4, C7 (fence)
                update.mark(self._lake, self._identifier, head.registration),
            ]
        )
        self._tried.append(tried_of(head))
        table_uuid = metadata.table_uuid or found.uuid
        moved = replace(pointer.value, state="live", head=head, pending=None, table_uuid=table_uuid)
        try:
            await self._lake.pointer(found.uuid).swap(moved, expected=pointer.version)  # It happens here.
        except SwapLost as lost:
            if lost.is_definite or not await self._is_made(found.uuid):
                return False
        await self._lake.background.run("finish register", self._finish(table_uuid, head))
        return True

    async def _finish(self, table_uuid: str, head: Head) -> None:
        await self._lake.receipts.ensure(table_uuid, head)
        await update.finish(self._lake, self._identifier, head.registration)
        if self._claim.is_open:
            with contextlib.suppress(ClaimLost):
                await self._claim.done(location=self._document.location)
