"""Load a table: one round when it is warm, and never an answer that the store has not confirmed."""

from typing import Final

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import Head, NameRecord
from sandur.errors import NotFound
from sandur.iceberg.table_metadata import TableMetadata, encode_table_metadata, with_referenced_snapshots_only
from sandur.operations import transactions_met
from sandur.operations.documents import TABLES, Document, hinted, load_document, missing_file
from sandur.operations.grounds import note_standing, standing_location
from sandur.operations.lake import Lake
from sandur.operations.names import Found, look
from sandur.operations.results import LoadedTable, NotModified, Snapshots, etag_of
from sandur.operations.together import both
from sandur.storage.cell import Held

REPRESENTATION_OVERHEAD_BYTES: Final = 500


async def load_table(
    lake: Lake, identifier: Identifier, *, snapshots: Snapshots = "all", if_none_match: str | None = None
) -> LoadedTable | NotModified:
    """The table as it is now; NotModified when the client's ETag says that it has that already."""
    document = await current_document(lake, identifier)
    etag = etag_of(document.location, snapshots)
    if if_none_match == etag:
        return NotModified(etag)
    return _loaded(lake, document, snapshots, etag)


async def table_exists(lake: Lake, identifier: Identifier) -> bool:
    found = await look(lake, identifier)
    return found is not None and found.is_a("table")


async def current_document(lake: Lake, identifier: Identifier) -> Document[TableMetadata]:
    """The metadata file that is current, by name, pointer and, with a transaction on it, its record (T6)."""
    standing = standing_location(lake, identifier)
    if standing is not None:
        return await load_document(lake, TABLES, standing)
    seen = lake.name(identifier).last_seen
    found, confirmed = await both(
        look(lake, identifier, beside=hinted(lake, TABLES)), _remembered_file_exists(lake, seen)
    )
    if found is None or found.name.value.kind != "table" or found.name.value.format != "iceberg":
        raise TABLES.missing(identifier)
    location = (await effective_head(lake, found)).metadata_location
    was_cold = seen is None  # Then whatever is read is read now.
    is_confirmed = location == confirmed or was_cold or ("table", location) not in lake.documents
    if not is_confirmed and not await lake.locations.exists(location):
        raise missing_file(location)
    document = await load_document(lake, TABLES, location)
    note_standing(lake, found, location)
    return document


async def _remembered_file_exists(lake: Lake, name: Held[NameRecord] | None) -> str | None:
    """The location this server saw last, if the file is there.

    Asked in the same round as name and pointer: a cached table whose file was taken away is not served.
    """
    pointer = lake.pointer(name.value.uuid).last_seen if name else None
    if pointer is None or pointer.value.head is None:
        return None
    location = pointer.value.head.metadata_location
    return location if await lake.locations.exists(location) else None


async def effective_head(lake: Lake, found: Found) -> Head:
    head = (await transactions_met.effective(lake, found.pointer)).value.head
    if head is None:
        raise NotFound(f"{found.identifier} has no metadata", subject="table")
    return head


def loaded(lake: Lake, document: Document[TableMetadata], *, snapshots: Snapshots = "all") -> LoadedTable:
    """The answer made of a document."""
    return _loaded(lake, document, snapshots, etag_of(document.location, snapshots))


def _loaded(lake: Lake, document: Document[TableMetadata], snapshots: Snapshots, etag: str) -> LoadedTable:
    return LoadedTable(
        metadata=document.body if snapshots == "all" else _refs_body(lake, document),
        table_uuid=document.metadata.table_uuid or "",
        metadata_location=document.location,
        etag=etag,
        config={},
    )


def _refs_body(lake: Lake, document: Document[TableMetadata]) -> bytes:
    """A representation that is not the file itself is made once and kept."""
    cached: bytes | None = lake.documents.get(("refs", document.location))
    if cached is not None:
        return cached
    body = encode_table_metadata(with_referenced_snapshots_only(document.metadata))
    lake.documents.put(("refs", document.location), body, len(body) + REPRESENTATION_OVERHEAD_BYTES)
    return body
