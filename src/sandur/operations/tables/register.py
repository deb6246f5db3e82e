"""Register an existing metadata file as a table or view, or as the new head of an existing table."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier, Namespace, checked_identifier
from sandur.catalog.locations import canonical_address, checked_location
from sandur.catalog.property_keys import check_new_keys
from sandur.catalog.records import AttemptedFile, Head, Pointer, Request
from sandur.errors import Busy, Invalid, SandurError, SwapLost
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.validation import decode_foreign_table_metadata, decode_foreign_view_metadata
from sandur.operations.access import authorize_name, authorize_namespace
from sandur.operations.idempotency import FOLLOWS_MAX, ClaimLost, KeyClaim, claim_for
from sandur.operations.index import update
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import LocationClaims
from sandur.operations.locations.placement import (
    allowed_roots,
    check_not_anothers,
    end_generated,
    holder_of,
    locations_of,
    places_to_claim,
)
from sandur.operations.name_access import authorize_files, authorize_places
from sandur.operations.receipts import Receipts, tried_of
from sandur.operations.tables.changes import next_head
from sandur.operations.tables.create import DocumentDraft
from sandur.operations.tables.creation import Creation
from sandur.operations.tables.documents import (
    TABLES,
    VIEWS,
    Document,
    Family,
    LoadedTable,
    M,
    cache_document,
    is_gzip,
    load_document,
    loaded_table,
    missing_file,
    version_in_name,
)
from sandur.operations.tables.drafts import fence_attempts, replayed_document
from sandur.operations.tables.drop import check_not_purged
from sandur.operations.tables.manifest_places import check_registered_files
from sandur.operations.tables.names import ResolvedName, is_alive, name_not_found, namespace_not_found, resolve_name
from sandur.operations.tables.swept import check_not_swept, swept_list_of
from sandur.operations.tables.views import LoadedView, loaded_view
from sandur.operations.transactions.resolution import effective_pointer, resolve_pending
from sandur.storage.cell import Attempts, gather_all

REGISTER: Final = "register-table"
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
    """The table of a metadata file, which stays as it is, with its uuid."""
    identifier = checked_identifier(Identifier(*namespace, name))
    decode = partial(decode_foreign_table_metadata, metadata_location=metadata_location)
    await authorize_namespace(lake, namespace, missing=namespace_not_found(namespace))  # Before any file is read.
    document = await _read_document(lake, TABLES, namespace.catalog, metadata_location, decode)
    await check_registered_files(lake, identifier, document.metadata)  # M2
    uuid = document.metadata.table_uuid
    if uuid:
        await check_not_purged(lake, uuid)
    await _check_file(lake, identifier, document)
    if overwrite and (replaced := await _replace_head(lake, identifier, document, request)):
        return loaded_table(lake, replaced)
    await authorize_places(lake, namespace.catalog, locations_of(document.metadata))
    draft = dataclasses.replace(_draft(lake, TABLES, request, document, uuid), swept=await swept_list_of(lake, uuid))
    return loaded_table(lake, await Creation(lake, identifier, draft, request, REGISTER).run())


async def register_view(
    lake: Lake, namespace: Namespace, name: str, metadata_location: str, *, request: Request
) -> LoadedView:
    """The view of a metadata file, which stays as it is."""
    identifier = checked_identifier(Identifier(*namespace, name))
    decode = partial(decode_foreign_view_metadata, metadata_location=metadata_location)
    await authorize_namespace(lake, namespace, missing=namespace_not_found(namespace))  # Before any file is read.
    document = await _read_document(lake, VIEWS, namespace.catalog, metadata_location, decode)
    await _check_file(lake, identifier, document)
    await authorize_places(lake, namespace.catalog, locations_of(document.metadata))
    draft = _draft(lake, VIEWS, request, document, document.metadata.view_uuid)
    return loaded_view(await Creation(lake, identifier, draft, request, "register-view").run())


async def _read_document(
    lake: Lake, family: Family[M], catalog: str, location: str, decode: Callable[[bytes], M]
) -> Document[M]:
    roots = await allowed_roots(lake, catalog)
    await authorize_files(lake, catalog, [location])
    data = await lake.locations.read(checked_location(location, roots))
    if data is None:
        raise missing_file(location)
    if len(data) > FILE_BYTES_MAX:
        raise Invalid(f"Invalid metadata file {location}: {len(data)} bytes, at most {FILE_BYTES_MAX}")
    metadata = decode(data)
    for place in locations_of(metadata):
        checked_location(place, roots)
    check_new_keys(metadata.properties)
    return Document(location, family.encode(metadata) if is_gzip(data) else data, metadata)


async def _check_file(lake: Lake, identifier: Identifier, document: Document[M]) -> None:
    """Raise Invalid if the metadata file lies in the place of another table, and not in one of its own."""
    file = canonical_address(document.location)
    if not any(file.is_within(canonical_address(place)) for place in locations_of(document.metadata)):
        found = await resolve_name(lake, identifier)
        await check_not_anothers(lake, identifier.catalog, document.location, found.uuid if found else None)


def _draft(
    lake: Lake, family: Family[M], request: Request, document: Document[M], uuid: str | None
) -> DocumentDraft[M]:
    metadata, named = document.metadata, locations_of(document.metadata)
    return DocumentDraft(lake, family, request, lambda _: metadata, uuid, registered=document, named_locations=named)


async def _replace_head(
    lake: Lake, identifier: Identifier, document: Document[TableMetadata], request: Request
) -> Document[TableMetadata] | None:
    """Make the file the head of an existing table; None if there is no such table, so that it must be created."""
    claim, places = claim_for(lake, request, REGISTER), LocationClaims(lake)
    replacement = _Replacement(lake, identifier, document, request, claim, places)
    try:
        for _ in range(FOLLOWS_MAX):
            try:
                return await replacement.attempt()
            except ClaimLost:
                stored = await claim.read()
                if stored and stored.value.namespace_id:
                    return None  # An earlier attempt of this request found no table, and creates one.
                followed = await claim.follow()
                if followed.state == "done":
                    return await replayed_document(lake, TABLES, followed.location, followed.uuid)
                replacement.tried[:] = followed.locations
        raise Busy(f"{identifier}: other attempts of this request are registering it")
    except SandurError:
        await claim.release()
        await lake.background.run("withdraw location claims", places.withdraw())
        raise


@dataclass(frozen=True)
class _Replacement:
    """A commit whose file exists already, from the same steps as any commit.

    The file may have been current before, so neither the log nor the file's receipt shows that this request was carried
    out. Every attempt has a registration of its own, which its head and its receipt record (C5).
    """

    lake: Lake
    identifier: Identifier
    document: Document[TableMetadata]
    request: Request
    claim: KeyClaim
    places: LocationClaims
    tried: list[AttemptedFile] = field(default_factory=list)

    async def attempt(self) -> Document[TableMetadata] | None:
        is_fenced = False
        async for _ in Attempts(self.lake.clock):
            pinned = self.claim.pinned_uuid
            if pinned and await self._is_applied(pinned):
                await self.claim.done(location=self.document.location)
                return self.document
            found = await resolve_name(self.lake, self.identifier)
            table = found if found and found.is_a("table") else None
            if pinned and (table is None or table.uuid != pinned):
                if not is_fenced:  # C10
                    await fence_attempts(self.lake, pinned)
                    is_fenced = True
                    continue
                missing = name_not_found(self.identifier, "table")
                await self.claim.done(error=missing)  # G3
                raise missing
            if table is None:
                if await self.claim.read():
                    raise ClaimLost
                return None
            await self._authorize(table)
            if await self._swap(table):
                return cache_document(self.lake, TABLES, self.document)
        raise Busy(f"{self.identifier}: too many concurrent commits")

    async def _authorize(self, found: ResolvedName) -> None:
        missing = name_not_found(self.identifier, "table")
        await authorize_name(self.lake, found, missing=missing, situation="overwrite")

    async def _is_applied(self, uuid: str) -> bool:
        """C5: whether a registration of this request is the head or has a receipt; checked in this order."""
        pointer = await self.lake.pointer(uuid).read()
        head = (await effective_pointer(self.lake, pointer)).value.head if pointer else None
        if head and head.registration in {tried.registration for tried in self.tried}:
            return True
        return any(await gather_all(self.lake.feature(Receipts).exists(tried) for tried in self.tried))

    async def _swap(self, found: ResolvedName) -> bool:
        """Whether the file is the head now; False to read the state and start over."""
        current = found.iceberg_pointer
        pointer = await resolve_pending(self.lake, current) if current else None
        before = pointer.value.head if pointer else None
        if current is None or pointer is None or before is None or not is_alive(pointer):
            return False
        if pointer.version != current.version:  # A6: this version was not known when the grants were read.
            await self._authorize(found)
        if before.metadata_location == self.document.location:  # Nothing to do.
            await self.claim.done(uuid=found.uuid, location=self.document.location)
            return True
        try:
            await self._check_not_swept(pointer.value, before)
            added = await self._claim_places(pointer.value)
        except Invalid as error:
            await self.claim.done(uuid=found.uuid, error=error)  # G3
            raise
        head = next_head(
            TABLES.head(self.document.metadata, self.lake.clock.now_ms()),
            before,
            version=max(version_in_name(self.document.location), before.metadata_version + 1),
            operation="register",
            registration=self.lake.clock.new_id(),
            request=self.request,
        )
        await gather_all(
            [
                self.lake.feature(Receipts).ensure_all(pointer.value),  # C5 (help), B4
                self.claim.take(uuid=found.uuid, tried=tried_of(head)),  # C4, C7 (fence)
                update.mark(self.lake, self.identifier, head.registration, uuid=found.uuid),  # I1
            ]
        )
        self.tried.append(tried_of(head))
        table_uuid = self.document.metadata.table_uuid or found.uuid
        moved = replace(pointer.value, state="live", head=head, passed=(), pending=None, table_uuid=table_uuid)
        moved = replace(moved, places=(*moved.places, *added)) if added else moved
        try:
            await self.lake.pointer(found.uuid).swap(moved, expected=pointer.version)  # It happens here.
        except SwapLost as lost:
            if lost.is_definite or not await self._is_applied(found.uuid):
                return False
        await self.lake.background.run("finish register", self._finish(found.uuid, table_uuid, head))
        return True

    async def _check_not_swept(self, pointer: Pointer, before: Head) -> None:
        """O5: Invalid if the file refers to another file that was deleted, and the head does not."""
        if pointer.swept:
            known = await load_document(self.lake, TABLES, before.metadata_location)
            await check_not_swept(self.lake, pointer, known.metadata, self.document.metadata)

    async def _claim_places(self, pointer: Pointer) -> tuple[str, ...]:
        """P9: claim the places that the file adds to the table, then look; Invalid or Busy if one is not free."""
        lake, identifier = self.lake, self.identifier
        known = [canonical_address(place) for place in pointer.places]
        further = [
            location
            for location in locations_of(self.document.metadata)
            if not any(canonical_address(location).is_within(outer) for outer in known)
        ]
        table_uuid = self.document.metadata.table_uuid
        added = places_to_claim(lake, identifier, pointer.uuid, further, table_uuid=table_uuid)
        if not added:
            return ()
        await authorize_places(lake, identifier.catalog, added.values())
        now_ms = lake.clock.now_ms()
        me = holder_of(lake, identifier, pointer.uuid, "iceberg", "table", self.request, began_ms=now_ms)
        if unfree := await self.places.write(me, added) or await self.places.look():
            raise unfree.error
        for address, location in added.items():
            if address.generated_for:
                await end_generated(lake, address, partial(authorize_files, lake, identifier.catalog, [location]))
        return tuple(map(str, added))

    async def _finish(self, uuid: str, table_uuid: str, head: Head) -> None:
        await self.lake.feature(Receipts).ensure(table_uuid, head)
        await update.finish(self.lake, self.identifier, head.registration, uuid=uuid)
        await self.claim.finish(location=self.document.location)
