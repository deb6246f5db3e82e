"""Metadata files: read once, cached as bytes and as values, written under fresh names."""

import contextlib
import dataclasses
import gzip
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from sandur.catalog.identifiers import Identifier, Kind
from sandur.catalog.records import BoundRecord, Head, NameRecord, Request, head_of
from sandur.errors import NotFound, SandurError
from sandur.iceberg.table_metadata import TableMetadata, decode_table_metadata, encode_table_metadata
from sandur.iceberg.view_metadata import ViewMetadata, decode_view_metadata, encode_view_metadata
from sandur.operations.lake import BytesLruCache, Lake
from sandur.operations.transactions.resolution import effective_record
from sandur.storage.cell import Versioned

M = TypeVar("M", TableMetadata, ViewMetadata)

HASH_LENGTH: Final = 32
_GZIP_LEVEL: Final = 6
_TABLE_BYTES_MAX: Final = 160 << 20
_VIEW_BYTES_MAX: Final = 16 << 20


@dataclass(frozen=True)
class Document(Generic[M]):
    """A metadata file: its location, its bytes as clients get them (never compressed), and its decoded content."""

    location: str
    body: bytes
    metadata: M


@dataclass(frozen=True)
class Family(Generic[M]):
    """The operations on metadata that differ between tables and views."""

    kind: Kind
    noun: str
    decode: Callable[[bytes, str], M]
    encode: Callable[[M], bytes]
    log: Callable[[M], Iterable[str]]
    head: Callable[[M, int], Head]
    placed: Callable[[M, str], M]
    cache: Callable[["DocumentCache"], BytesLruCache[str, Document[M]]]

    def missing(self, identifier: Identifier) -> NotFound:
        return NotFound(f"{self.noun} does not exist: {identifier}", subject=self.kind)


class DocumentCache:
    """The metadata files of one lake that were read or written last."""

    def __init__(self, _lake: Lake) -> None:
        self.tables: BytesLruCache[str, Document[TableMetadata]] = BytesLruCache(_TABLE_BYTES_MAX)
        self.views: BytesLruCache[str, Document[ViewMetadata]] = BytesLruCache(_VIEW_BYTES_MAX)


def _table_head(metadata: TableMetadata, now_ms: int) -> Head:
    return Head(
        metadata_location=metadata.metadata_location or "",
        last_updated_ms=metadata.last_updated_ms or now_ms,
        snapshot_id=metadata.current_snapshot_id,
        last_sequence_number=metadata.last_sequence_number,
        refs={name: ref.snapshot_id for name, ref in metadata.refs.items()},
    )


def _view_head(metadata: ViewMetadata, now_ms: int) -> Head:
    # The metadata of a view has neither a time of writing nor a log of earlier files.
    return Head(metadata_location=metadata.metadata_location or "", last_updated_ms=now_ms)


TABLES: Final = Family[TableMetadata](
    kind="table",
    noun="Table",
    decode=lambda data, location: decode_table_metadata(data, metadata_location=location),
    encode=encode_table_metadata,
    log=lambda metadata: [entry.metadata_file for entry in metadata.metadata_log],
    head=_table_head,
    cache=lambda documents: documents.tables,
    placed=lambda metadata, location: dataclasses.replace(metadata, metadata_location=location),
)

VIEWS: Final = Family[ViewMetadata](
    kind="view",
    noun="View",
    decode=lambda data, location: decode_view_metadata(data, metadata_location=location),
    encode=encode_view_metadata,
    log=lambda metadata: (),  # noqa: ARG005 - the format has no log of metadata files
    head=_view_head,
    cache=lambda documents: documents.views,
    placed=lambda metadata, location: dataclasses.replace(metadata, metadata_location=location),
)


def cached_document(lake: Lake, family: Family[M], location: str) -> Document[M] | None:
    """The cached metadata file; the file itself may be gone meanwhile."""
    return family.cache(lake.feature(DocumentCache)).get(location)


async def load_document(lake: Lake, family: Family[M], location: str) -> Document[M]:
    """Read the metadata file at a location, from the cache if possible: files never change. Raises NotFound."""
    if cached := cached_document(lake, family, location):
        return cached
    data = await lake.locations.read(location)
    if data is None:
        raise missing_file(location)
    metadata = family.decode(data, location)
    body = data if not is_gzip(data) else family.encode(metadata)
    return cache_document(lake, family, Document(location, body, metadata))


async def prefetch_document(lake: Lake, name: NameRecord) -> None:
    """Read the file that was current when the name was written into the cache: often it still is."""
    if not name.metadata_location:
        return
    with contextlib.suppress(SandurError):  # Only a hint: the pointer decides which file is current.
        if name.kind == "table":
            await load_document(lake, TABLES, name.metadata_location)
        elif name.kind == "view":
            await load_document(lake, VIEWS, name.metadata_location)


async def pointer_document(lake: Lake, family: Family[M], pointer: Versioned[BoundRecord]) -> Document[M] | None:
    """The document that a pointer refers to; None if it is of another kind or its file is gone, as after a purge."""
    head = head_of((await effective_record(lake, pointer)).value)
    if head is None or pointer.value.kind != family.kind:
        return None
    try:
        return await load_document(lake, family, head.metadata_location)
    except NotFound:
        return None


async def replayed_document(lake: Lake, family: Family[M], location: str, uuid: str) -> Document[M]:
    """The document of an answer that was given before.

    A table may ask for the deletion of its old files. If the file of the answer is gone, the current document takes its
    place: a request that was carried out must not get "not found" while its table exists.
    """
    try:
        return await load_document(lake, family, location)
    except NotFound:
        pointer = await lake.pointer(uuid).read()
        if pointer and (document := await pointer_document(lake, family, pointer)):
            return document
        raise


def missing_file(location: str) -> NotFound:
    return NotFound(f"Failed to open input stream for file: {location}", subject="file")


def cache_document(lake: Lake, family: Family[M], document: Document[M]) -> Document[M]:
    # The decoded metadata takes about as much memory as the bytes.
    family.cache(lake.feature(DocumentCache)).put(document.location, document, 2 * len(document.body) + 2_000)
    return document


def encode_document(lake: Lake, family: Family[M], metadata: M, *, version: int, request: Request) -> Document[M]:
    """C3: the document of new metadata, under a name that no other attempt has: version, request and a nonce."""
    nonce = lake.clock.new_uuid().replace("-", "")[:12]
    suffix = ".gz.metadata.json" if _compresses(metadata) else ".metadata.json"
    folder = (metadata.properties.get("write.metadata.path") or f"{metadata.location}/metadata").rstrip("/")
    location = f"{folder}/{version:05d}-{request_id(request)[:HASH_LENGTH]}-{nonce}{suffix}"
    return Document(location, family.encode(metadata), family.placed(metadata, location))


async def write_document(lake: Lake, document: Document[M]) -> None:
    """Write a new metadata file; when this returns, it exists."""
    data = document.body
    if _compresses(document.metadata):
        data = gzip.compress(data, _GZIP_LEVEL, mtime=0)
    await lake.locations.create(document.location, data)


def _compresses(metadata: TableMetadata | ViewMetadata) -> bool:
    return metadata.properties.get("write.metadata.compression-codec", "").lower() == "gzip"


def is_gzip(data: bytes) -> bool:
    return data.startswith(b"\x1f\x8b")


def request_id(request: Request) -> str:
    """The hash that signs what a request writes: of its key or, without a key, of the request."""
    return request.key_hash or request.hash


def request_hash_of(location: str) -> str:
    """The hash of the request in the name of a metadata file; empty if the name has another form."""
    parts = location.rpartition("/")[2].split("-")
    return parts[1] if len(parts) == 3 and len(parts[1]) == HASH_LENGTH else ""  # noqa: PLR2004 - see encode_document


def is_written_by(family: Family[M], document: Document[M], request: Request) -> bool:
    """C9: whether a file of this very request is the head or in its log; only committed files get there."""
    return request_id(request)[:HASH_LENGTH] in map(request_hash_of, logged_locations(family, document))


def logged_locations(family: Family[M], document: Document[M]) -> Sequence[str]:
    """The file itself and the earlier files that its log still names (C5)."""
    return (document.location, *family.log(document.metadata))


def version_in_name(location: str) -> int:
    """The number at the start of a metadata file's name; 0 if there is no number."""
    number = location.rpartition("/")[2].partition("-")[0].removeprefix("v").partition(".")[0]
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 10 else 0  # noqa: PLR2004 - fits
