"""Metadata files: read once, cached as bytes and as values, written under fresh names."""

import contextlib
import dataclasses
import gzip
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from sandur.catalog.identifiers import Identifier, Kind
from sandur.catalog.records import BoundRecord, Head, NameRecord, head_of
from sandur.errors import NotFound, SandurError
from sandur.iceberg.table_metadata import TableMetadata, decode_table_metadata, encode_table_metadata
from sandur.iceberg.view_metadata import ViewMetadata, decode_view_metadata, encode_view_metadata
from sandur.operations.lake import Lake
from sandur.operations.transactions import resolution
from sandur.storage.cell import Versioned

M = TypeVar("M", TableMetadata, ViewMetadata)

HASH_LENGTH: Final = 32
_GZIP_LEVEL: Final = 6


@dataclass(frozen=True)
class Document(Generic[M]):
    """A metadata file: where it lies, its bytes as clients get them (never compressed), and what they say."""

    location: str
    body: bytes
    metadata: M


@dataclass(frozen=True)
class Family(Generic[M]):
    """What tables and views do alike, each in its own way."""

    kind: Kind
    noun: str
    decode: Callable[[bytes, str], M]
    encode: Callable[[M], bytes]
    log: Callable[[M], Iterable[str]]
    head: Callable[[M, int], Head]
    folder: Callable[[M], str]
    compresses: Callable[[M], bool]
    placed: Callable[[M, str], M]

    def missing(self, identifier: Identifier) -> NotFound:
        return NotFound(f"{self.noun} does not exist: {identifier}", subject=self.kind)


def _table_head(metadata: TableMetadata, now_ms: int) -> Head:
    return Head(
        metadata_location=metadata.metadata_location or "",
        last_updated_ms=metadata.last_updated_ms or now_ms,
        snapshot_id=metadata.current_snapshot_id,
        last_sequence_number=metadata.last_sequence_number,
        refs={name: ref.snapshot_id for name, ref in metadata.refs.items()},
    )


def _view_head(metadata: ViewMetadata, now_ms: int) -> Head:
    # A view's file says neither when it was written nor what came before it.
    return Head(metadata_location=metadata.metadata_location or "", last_updated_ms=now_ms)


def _folder(metadata: TableMetadata | ViewMetadata) -> str:
    return (metadata.properties.get("write.metadata.path") or f"{metadata.location}/metadata").rstrip("/")


def _compresses(metadata: TableMetadata | ViewMetadata) -> bool:
    return metadata.properties.get("write.metadata.compression-codec", "").lower() == "gzip"


TABLES: Final = Family[TableMetadata](
    kind="table",
    noun="Table",
    decode=lambda data, location: decode_table_metadata(data, metadata_location=location),
    encode=encode_table_metadata,
    log=lambda metadata: [entry.metadata_file for entry in metadata.metadata_log],
    head=_table_head,
    folder=_folder,
    compresses=_compresses,
    placed=lambda metadata, location: dataclasses.replace(metadata, metadata_location=location),
)

VIEWS: Final = Family[ViewMetadata](
    kind="view",
    noun="View",
    decode=lambda data, location: decode_view_metadata(data, metadata_location=location),
    encode=encode_view_metadata,
    log=lambda metadata: (),  # noqa: ARG005 - the format has no log of metadata files
    head=_view_head,
    folder=_folder,
    compresses=_compresses,
    placed=lambda metadata, location: dataclasses.replace(metadata, metadata_location=location),
)


async def load_document(lake: Lake, family: Family[M], location: str) -> Document[M]:
    """The metadata file at a location; NotFound when it is gone. Files never change, so what was read once is kept."""
    cached: Document[M] | None = lake.documents.get((family.kind, location))
    if cached is not None:
        return cached
    data = await lake.locations.read(location)
    if data is None:
        raise missing_file(location)
    metadata = family.decode(data, location)
    body = data if not data.startswith(b"\x1f\x8b") else family.encode(metadata)
    return cache_document(lake, family, Document(location, body, metadata))


def prefetch_hint(lake: Lake, family: Family[M]) -> Callable[[NameRecord], Awaitable[None]]:
    """Reads, beside the pointer, the file that was current when the name was written: often it still is."""

    async def read(name: NameRecord) -> None:
        if name.kind == family.kind and name.metadata_location:
            with contextlib.suppress(SandurError):  # Only a hint; what counts is read by what the pointer says.
                await load_document(lake, family, name.metadata_location)

    return read


def missing_file(location: str) -> NotFound:
    return NotFound(f"Failed to open input stream for file: {location}", subject="file")


def cache_document(lake: Lake, family: Family[M], document: Document[M]) -> Document[M]:
    """Remember a document; what is parsed of it costs about as much again as its bytes."""
    lake.documents.put((family.kind, document.location), document, 2 * len(document.body) + 2_000)
    return document


def new_location(lake: Lake, family: Family[M], metadata: M, *, version: int, request_hash: str) -> str:
    """C3: a name that no other attempt has, made of version, request and a nonce; nobody adopts another's file."""
    nonce = lake.clock.new_uuid().replace("-", "")[:12]
    suffix = ".gz.metadata.json" if family.compresses(metadata) else ".metadata.json"
    return f"{family.folder(metadata)}/{version:05d}-{request_hash[:HASH_LENGTH]}-{nonce}{suffix}"


def encode_document(family: Family[M], metadata: M, location: str) -> Document[M]:
    """The document that the metadata will be under a location."""
    return Document(location, family.encode(metadata), family.placed(metadata, location))


async def write_document(lake: Lake, family: Family[M], document: Document[M]) -> None:
    """Write a new metadata file; when this returns it is there."""
    data = document.body
    if family.compresses(document.metadata):
        data = gzip.compress(data, _GZIP_LEVEL, mtime=0)
    await lake.locations.create(document.location, data)


def request_hash_of(location: str) -> str:
    """The request's hash in the name of a metadata file that we wrote; empty for a name of another form."""
    parts = location.rpartition("/")[2].split("-")
    return parts[1] if len(parts) == 3 and len(parts[1]) == HASH_LENGTH else ""  # noqa: PLR2004 - see new_location


def logged_locations(family: Family[M], document: Document[M]) -> Sequence[str]:
    """The file itself and the files before it that its log still names (C5)."""
    return (document.location, *family.log(document.metadata))


def version_in_name(location: str) -> int:
    """The number a metadata file's name begins with; 0 when it has none."""
    number = location.rpartition("/")[2].partition("-")[0].removeprefix("v").partition(".")[0]
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 10 else 0  # noqa: PLR2004 - fits


async def replayed_document(lake: Lake, family: Family[M], location: str, uuid: str) -> Document[M]:
    """The document that was answered before.

    A table may ask that its old files be deleted. An answer whose file is gone is then what is current: a request that
    was carried out is never told that something is missing while its table is there.
    """
    try:
        return await load_document(lake, family, location)
    except NotFound:
        pointer = await lake.pointer(uuid).read()
        if pointer and (document := await pointer_document(lake, family, pointer)):
            return document
        raise


async def pointer_document(lake: Lake, family: Family[M], pointer: Versioned[BoundRecord]) -> Document[M] | None:
    """The document a pointer stands for; None when it is of another kind, or its file is gone, as after a purge."""
    head = head_of((await resolution.effective_record(lake, pointer)).value)
    if head is None or pointer.value.kind != family.kind:
        return None
    try:
        return await load_document(lake, family, head.metadata_location)
    except NotFound:
        return None
