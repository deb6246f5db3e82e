"""Load a table: one round when it is warm, and never an answer that the store has not confirmed."""

from typing import Final

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import Head, NameRecord
from sandur.errors import NotFound
from sandur.iceberg.representation import with_referenced_snapshots_only
from sandur.iceberg.table_metadata import TableMetadata, encode_table_metadata
from sandur.operations import transactions_met
from sandur.operations.documents import TABLES, Document, hinted, load_document, missing_file
from sandur.operations.grounds import note_standing, standing_location
from sandur.operations.names import Found, look
from sandur.operations.results import LoadedTable, NotModified, Snapshots, etag_of
from sandur.operations.together import both
from sandur.operations.workspace import Workspace
from sandur.storage.cell import Held

REPRESENTATION_OVERHEAD_BYTES: Final = 500


async def load_table(
    workspace: Workspace, identifier: Identifier, *, snapshots: Snapshots = "all", if_none_match: str | None = None
) -> LoadedTable | NotModified:
    """The table as it is now; NotModified when the client's ETag says that it has that already."""
    document = await current_document(workspace, identifier)
    etag = etag_of(document.location, snapshots)
    if if_none_match == etag:
        return NotModified(etag)
    return _loaded(workspace, document, snapshots, etag)


async def table_exists(workspace: Workspace, identifier: Identifier) -> bool:
    found = await look(workspace, identifier)
    return found is not None and found.is_a("table")


async def current_document(workspace: Workspace, identifier: Identifier) -> Document[TableMetadata]:
    """The metadata file that is current, by name, pointer and, with a transaction on it, its record (T6)."""
    standing = standing_location(workspace, identifier)
    if standing is not None:
        return await load_document(workspace, TABLES, standing)
    seen = workspace.name(identifier).last_seen
    found, confirmed = await both(
        look(workspace, identifier, beside=hinted(workspace, TABLES)), _remembered_file_exists(workspace, seen)
    )
    if found is None or found.name.value.kind != "table" or found.name.value.format != "iceberg":
        raise TABLES.missing(identifier)
    location = (await effective_head(workspace, found)).metadata_location
    was_cold = seen is None  # Then whatever is read is read now.
    is_confirmed = location == confirmed or was_cold or ("table", location) not in workspace.documents
    if not is_confirmed and not await workspace.locations.exists(location):
        raise missing_file(location)
    document = await load_document(workspace, TABLES, location)
    note_standing(workspace, found, location)
    return document


async def _remembered_file_exists(workspace: Workspace, name: Held[NameRecord] | None) -> str | None:
    """The location this server saw last, if the file is there.

    Asked in the same round as name and pointer: a cached table whose file was taken away is not served.
    """
    pointer = workspace.pointer(name.value.uuid).last_seen if name else None
    if pointer is None or pointer.value.head is None:
        return None
    location = pointer.value.head.metadata_location
    return location if await workspace.locations.exists(location) else None


async def effective_head(workspace: Workspace, found: Found) -> Head:
    head = (await transactions_met.effective(workspace, found.pointer)).value.head
    if head is None:
        raise NotFound(f"{found.identifier} has no metadata", subject="table")
    return head


def loaded(workspace: Workspace, document: Document[TableMetadata], *, snapshots: Snapshots = "all") -> LoadedTable:
    """The answer made of a document."""
    return _loaded(workspace, document, snapshots, etag_of(document.location, snapshots))


def _loaded(workspace: Workspace, document: Document[TableMetadata], snapshots: Snapshots, etag: str) -> LoadedTable:
    return LoadedTable(
        metadata=document.body if snapshots == "all" else _refs_body(workspace, document),
        table_uuid=document.metadata.table_uuid or "",
        metadata_location=document.location,
        etag=etag,
        config={},
    )


def _refs_body(workspace: Workspace, document: Document[TableMetadata]) -> bytes:
    """A representation that is not the file itself is made once and kept."""
    cached: bytes | None = workspace.documents.get(("refs", document.location))
    if cached is not None:
        return cached
    body = encode_table_metadata(with_referenced_snapshots_only(document.metadata))
    workspace.documents.put(("refs", document.location), body, len(body) + REPRESENTATION_OVERHEAD_BYTES)
    return body
