"""Metadata files: read once, cached as bytes and as values, written under fresh names; and the load of a table."""

import contextlib
import dataclasses
import gzip
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from sandur.catalog.garbage import written_version
from sandur.catalog.identifiers import Identifier, Kind
from sandur.catalog.property_keys import without_client_keys
from sandur.catalog.records import BoundRecord, Head, NameRecord, Request, head_of
from sandur.catalog.security.manifest import Authority
from sandur.catalog.security.privileges import Chain
from sandur.errors import Busy, NotFound, SandurError, Unavailable
from sandur.iceberg.table_metadata import (
    TableMetadata,
    decode_table_metadata,
    encode_table_metadata,
    with_referenced_snapshots_only,
)
from sandur.iceberg.view_metadata import ViewMetadata, decode_view_metadata, encode_view_metadata
from sandur.operations.access import (
    READS_MAX,
    Security,
    Versions,
    manifest_versions,
    read_authority,
    read_both,
    remembered_versions,
    require,
    resolve_authorized,
    versions_read,
)
from sandur.operations.caches import BytesLruCache, LruCache
from sandur.operations.idempotency import key_hash_of
from sandur.operations.lake import Lake
from sandur.operations.securable_chains import name_chain
from sandur.operations.tables.names import ResolvedName, effective_head, name_not_found, namespaces_behind, resolve_name
from sandur.operations.transactions.resolution import effective_record
from sandur.storage.cell import Versioned, gather_all
from sandur.storage.contract import Version

M = TypeVar("M", TableMetadata, ViewMetadata)

_HASH_LENGTH: Final = 32
_REQUEST_PART_LENGTH: Final = 23
_GZIP_LEVEL: Final = 6
_TABLES_SHARE: Final = 5 / 16
_VIEWS_SHARE: Final = 1 / 32


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
    decode: Callable[[bytes, str], M]
    encode: Callable[[M], bytes]
    log: Callable[[M], Iterable[str]]
    head: Callable[[M, int], Head]
    cache: Callable[["DocumentCache"], BytesLruCache[str, Document[M]]]


class DocumentCache(NamedTuple):
    """The metadata files of one lake that were read or written last."""

    tables: BytesLruCache[str, Document[TableMetadata]]
    views: BytesLruCache[str, Document[ViewMetadata]]


def document_cache(lake: Lake) -> DocumentCache:
    return DocumentCache(BytesLruCache(lake.cache_bytes(_TABLES_SHARE)), BytesLruCache(lake.cache_bytes(_VIEWS_SHARE)))


def _table_head(metadata: TableMetadata, now_ms: int) -> Head:
    return Head(
        metadata_location=metadata.metadata_location or "",
        last_updated_ms=metadata.last_updated_ms or now_ms,
        snapshot_id=metadata.current_snapshot_id,
        last_sequence_number=metadata.last_sequence_number,
        refs={name: ref.snapshot_id for name, ref in metadata.refs.items()},
        spec_id=metadata.default_spec_id,
    )


TABLES: Final = Family[TableMetadata](
    kind="table",
    decode=lambda data, location: decode_table_metadata(data, metadata_location=location),
    encode=encode_table_metadata,
    log=lambda metadata: [entry.metadata_file for entry in metadata.metadata_log],
    head=_table_head,
    cache=lambda documents: documents.tables,
)

VIEWS: Final = Family[ViewMetadata](
    kind="view",
    decode=lambda data, location: decode_view_metadata(data, metadata_location=location),
    encode=encode_view_metadata,
    log=lambda metadata: (),  # noqa: ARG005 - the format has no log of metadata files
    # Nor a time of writing.
    head=lambda metadata, now_ms: Head(metadata_location=metadata.metadata_location or "", last_updated_ms=now_ms),
    cache=lambda documents: documents.views,
)

_FAMILIES: Final[Mapping[Kind, Family[Any]]] = {"table": TABLES, "view": VIEWS}


def cached_document(lake: Lake, family: Family[M], location: str) -> Document[M] | None:
    """The cached metadata file; the file itself may be gone meanwhile."""
    return family.cache(lake.feature(document_cache)).get(location)


async def load_document(lake: Lake, family: Family[M], location: str) -> Document[M]:
    """Read the metadata file at a location, from the cache if possible: files never change. Raises NotFound."""
    if cached := cached_document(lake, family, location):
        return cached
    data = await lake.locations.read(location)
    if data is None:
        raise missing_file(location)
    metadata = family.decode(data, location)
    properties = without_client_keys(metadata.properties)
    is_whole = properties is metadata.properties
    metadata = metadata if is_whole else dataclasses.replace(metadata, properties=properties)
    body = data if is_whole and not is_gzip(data) else family.encode(metadata)
    return cache_document(lake, family, Document(location, body, metadata))


class LoadedHead(NamedTuple):
    """The metadata of a head of either kind, and the metadata files that it names, with itself."""

    metadata: TableMetadata | ViewMetadata
    logged: Sequence[str]


async def load_head(lake: Lake, kind: Kind, head: Head) -> LoadedHead:
    """Read the metadata file of a table or a view; NotFound if it is missing."""
    document = await load_document(lake, _FAMILIES[kind], head.metadata_location)
    return LoadedHead(document.metadata, logged_locations(_FAMILIES[kind], document))


async def prefetch_document(lake: Lake, name: NameRecord) -> None:
    """Read the file that was current when the name was written into the cache: often it still is."""
    if name.metadata_location:
        with contextlib.suppress(SandurError):  # Only a hint: the pointer decides which file is current.
            await load_document(lake, _FAMILIES[name.kind], name.metadata_location)


async def pointer_document(lake: Lake, family: Family[M], pointer: Versioned[BoundRecord]) -> Document[M] | None:
    """The document that a pointer refers to; None if it is of another kind or its file is gone, as after a purge."""
    head = head_of((await effective_record(lake, pointer)).value)
    if head is None or pointer.value.kind != family.kind:
        return None
    try:
        return await load_document(lake, family, head.metadata_location)
    except NotFound:
        return None


def missing_file(location: str) -> NotFound:
    return NotFound(f"Failed to open input stream for file: {location}", subject="file")


def cache_document(lake: Lake, family: Family[M], document: Document[M]) -> Document[M]:
    # The decoded metadata takes about as much memory as the bytes.
    family.cache(lake.feature(document_cache)).put(document.location, document, 2 * len(document.body) + 2_000)
    return document


def encode_document(lake: Lake, family: Family[M], metadata: M, *, version: int, request: Request) -> Document[M]:
    """C3: the document of new metadata, under a name that no other attempt has: version, request and a nonce.

    Request and nonce are a UUID of version 8, because the table specification asks for `<version>-<uuid>`.
    """
    nonce = lake.clock.new_uuid().replace("-", "")[:12]
    suffix = ".gz.metadata.json" if _compresses(metadata) else ".metadata.json"
    folder = (metadata.properties.get("write.metadata.path") or f"{metadata.location}/metadata").rstrip("/")
    location = f"{folder}/{version:05d}-{request_part(request_id(request))}-{nonce}{suffix}"
    return Document(location, family.encode(metadata), dataclasses.replace(metadata, metadata_location=location))


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
    return key_hash_of(request) or request.hash


def request_part(request_hash: str) -> str:
    """The part of a file's name that identifies its request: 74 bits of a hash, as the beginning of a UUID."""
    digits = hashlib.sha256(request_hash[:_HASH_LENGTH].encode()).hexdigest()
    variant = "89ab"[int(digits[15], 16) % 4]
    return f"{digits[:8]}-{digits[8:12]}-8{digits[12:15]}-{variant}{digits[16:19]}"


def request_part_of(location: str) -> str:
    """The request that wrote a metadata file, as `request_part` names it; empty if the catalog did not write it."""
    if written_version(location) is None:
        return ""
    attempt = location.rpartition("/")[2].partition("-")[2]
    is_old = attempt.find("-") == _HASH_LENGTH  # Earlier releases wrote the hash itself.
    return request_part(attempt) if is_old else attempt[:_REQUEST_PART_LENGTH]


def logged_locations(family: Family[M], document: Document[M]) -> Sequence[str]:
    """The file itself and the earlier files that its log still names (C5)."""
    return (document.location, *family.log(document.metadata))


def version_in_name(location: str) -> int:
    """The number at the start of a metadata file's name; 0 if there is no number."""
    number = location.rpartition("/")[2].partition("-")[0].removeprefix("v").partition(".")[0]
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 10 else 0  # noqa: PLR2004 - fits


REPRESENTATION_OVERHEAD_BYTES: Final = 500
_REFS_SHARE: Final = 1 / 16
ETAG_LENGTH: Final = 32
_NOT_SEEN: Final = ""

Snapshots = Literal["all", "refs"]


class LoadedTable(NamedTuple):
    """A table as a client gets it; `metadata` is JSON. A staged table has a stage id, but no location and no ETag."""

    metadata: bytes
    table_uuid: str
    metadata_location: str | None = None
    etag: str | None = None
    stage_id: str = ""


class NotModified(NamedTuple):
    """The client already has the current state."""

    etag: str


async def load_table(
    lake: Lake, identifier: Identifier, *, snapshots: Snapshots = "all", if_none_match: str | None = None
) -> LoadedTable | NotModified:
    """The table as it is now; NotModified if the client's ETag matches it."""
    document = (await current_table(lake, identifier)).document
    if if_none_match is not None and if_none_match == etag_of(document.location, snapshots):
        return NotModified(if_none_match)
    return loaded_table(lake, document, snapshots=snapshots)


async def table_exists(lake: Lake, identifier: Identifier) -> bool:
    return await name_exists(lake, identifier, "table")


async def name_exists(lake: Lake, identifier: Identifier, kind: Kind) -> bool:
    """Whether the caller sees a table or view of Iceberg with that name; Forbidden if it sees it without a right."""
    try:
        missing = name_not_found(identifier, kind)
        await resolve_authorized(lake, identifier, lambda found: found.is_a(kind), missing=missing)
    except NotFound:
        return False
    return True


class CurrentTable(NamedTuple):
    """A table at one moment: its metadata file, and what the caller's rights on it depend on (A2).

    `uuid` is that of its record, `places` are the addresses that the record has. Without a caller to check there is no
    authority, and the chain is empty.
    """

    document: Document[TableMetadata]
    uuid: str
    places: tuple[str, ...]
    authority: Authority | None
    chain: Chain


async def current_document(lake: Lake, identifier: Identifier) -> Document[TableMetadata]:
    """The current metadata file of a table."""
    return (await current_table(lake, identifier)).document


async def current_table(lake: Lake, identifier: Identifier, *, situation: str = "") -> CurrentTable:
    """The current metadata file, by name, pointer and, if a transaction is pending on it, its record (T6).

    A cached file counts only if it still exists. Its existence is checked in the same round as name and pointer, unless
    reads are instant: then there is no round to save. The grants are read in that round, too (A1).
    """
    for _ in range(READS_MAX):
        if lake.store.has_instant_reads and (known := await _known_table(lake, identifier, situation)):
            return known
        if found := await _read_table(lake, identifier, situation):
            return found
    raise Busy(f"{identifier}: it or the grants keep changing")


async def _known_table(lake: Lake, identifier: Identifier, situation: str) -> CurrentTable | None:
    """The document that an earlier load found, if nothing that it depends on has changed; only with instant reads."""
    head = lake.named_feature(_validated_heads).get(identifier)
    authority = lake.feature(Security).last if lake.access else None
    if head is None or (lake.access and (authority is None or authority.version != head.grants_version)):
        return None
    if lake.names and not lake.access and lake.store.version_now(lake.layout.security_manifest()) != head.names_version:
        return None
    # A1, A2: the grants are looked at first, so what the load found was valid at that moment.
    if not await lake.store.are_current(head.versions):
        return None
    if authority:
        missing = partial(name_not_found, identifier, "table")
        require(lake, authority, head.chain, missing=missing, situation=situation)
    document = await load_document(lake, TABLES, head.location)
    return CurrentTable(document, head.uuid, head.places, authority, head.chain)


async def _read_table(lake: Lake, identifier: Identifier, situation: str) -> CurrentTable | None:
    """The table as the store has it now; None to read again, because it or the grants changed meanwhile (A2)."""
    await read_both(lake, identifier)
    confirmed, before = None, remembered_versions(lake, identifier)
    if lake.store.has_instant_reads:
        authority = await read_authority(lake)
        found = await resolve_name(lake, identifier, prefetch=prefetch_document)
    else:
        # The check comes first: it depends on what this server saw before the name is read.
        confirmed, found, authority = await gather_all(
            (
                _confirm_last_head(lake, identifier),
                resolve_name(lake, identifier, prefetch=prefetch_document),
                read_authority(lake),
            )
        )
    if found is None or not found.is_a("table"):
        raise name_not_found(identifier, "table")
    unconfirmed: Versions = ()
    chain: Chain = ()
    if authority:
        missing = name_not_found(identifier, "table")
        chain = await name_chain(lake, authority, found, missing=missing)
        require(lake, authority, chain, missing=missing, situation=situation)
        now = versions_read(lake, authority, found)
        unconfirmed = now if now != before else ()
    location = (await effective_head(lake, found)).metadata_location
    is_cached = location in lake.feature(document_cache).tables
    if is_cached and confirmed not in {location, _NOT_SEEN} and not await lake.locations.exists(location):
        raise missing_file(location)
    if unconfirmed:
        document, is_current = await gather_all(
            (load_document(lake, TABLES, location), lake.store.are_current(unconfirmed))
        )
        if not is_current:
            return None
    else:
        document = await load_document(lake, TABLES, location)
    if lake.store.has_instant_reads:
        _remember_head(lake, authority, chain, found, location)
    return CurrentTable(document, found.uuid, found.pointer.value.places, authority, chain)


class _ValidatedHead(NamedTuple):
    """The current metadata file of a table, as long as all these objects are at these versions.

    If grants are checked, their manifest is the first of the objects, and `chain` is what they are checked on.
    """

    location: str
    uuid: str
    places: tuple[str, ...]
    versions: Versions
    grants_version: str
    chain: Chain
    names_version: Version | None


def _validated_heads(lake: Lake) -> LruCache[Identifier, _ValidatedHead]:
    """The heads that earlier loads found, by the name of the table."""
    return LruCache(lake.settings.cache_records_max)


def _remember_head(lake: Lake, authority: Authority | None, chain: Chain, found: ResolvedName, location: str) -> None:
    """Remember what a load found, if it depends only on the grants, the name, its namespaces, the pointer and the file.

    A pending pointer depends on its transaction, too (T6).
    """
    store, key = lake.locations.holder(location)
    pointer, namespaces = found.iceberg_pointer, namespaces_behind(lake, found)
    if store is not lake.store or pointer is None or pointer.value.pending or namespaces is None:
        return
    file_version = None
    with contextlib.suppress(Unavailable):  # The load itself has succeeded.
        file_version = store.version_now(key)
    if file_version:
        lake.named_feature(_validated_heads)[found.identifier] = _ValidatedHead(
            location,
            found.uuid,
            pointer.value.places,
            (
                *(manifest_versions(lake, authority) if authority else ()),
                (lake.layout.name(found.identifier), found.name.version),
                (lake.layout.pointer(found.uuid), pointer.version),
                (key, file_version),
                *namespaces,
            ),
            authority.version if authority else "",
            chain,
            _names_version(lake),
        )


def _names_version(lake: Lake) -> Version | None:
    """The version of the object that has the aliases, as this request read it; None if it does not exist."""
    held = lake.security().last_seen
    return held.version if held else None


async def _confirm_last_head(lake: Lake, identifier: Identifier) -> str | None:
    """The location of the head that this server saw last, if the file still exists; it is read unless it is cached.

    `_NOT_SEEN` if this server has not seen the table: then its file is read in this request.
    """
    name = lake.name(identifier).last_seen
    if name is None:
        return _NOT_SEEN
    pointer = lake.pointer(name.value.uuid).last_seen
    if pointer is None or pointer.value.head is None:
        return None
    location = pointer.value.head.metadata_location
    if location in lake.feature(document_cache).tables:
        return location if await lake.locations.exists(location) else None
    with contextlib.suppress(SandurError):  # A later read of the current file gets the error.
        await load_document(lake, TABLES, location)
        return location
    return None


def loaded_table(
    lake: Lake, document: Document[TableMetadata], *, snapshots: Snapshots = "all", etag: str = ""
) -> LoadedTable:
    """The answer to a request, from a document. Its ETag is given if it depends on more than the document."""
    return LoadedTable(
        metadata=document.body if snapshots == "all" else _body_with_refs(lake, document),
        table_uuid=document.metadata.table_uuid or "",
        metadata_location=document.location,
        etag=etag or etag_of(document.location, snapshots),
    )


def etag_of(metadata_location: str, snapshots: Snapshots) -> str:
    """T7: the id of a table's state and representation: the effective location, never a pointer's version."""
    return hashlib.sha256(f"{snapshots}\n{metadata_location}".encode()).hexdigest()[:ETAG_LENGTH]


def _refs_cache(lake: Lake) -> BytesLruCache[str, bytes]:
    """Representations with referenced snapshots only, by the location of the file."""
    return BytesLruCache(lake.cache_bytes(_REFS_SHARE))


def _body_with_refs(lake: Lake, document: Document[TableMetadata]) -> bytes:
    """The representation with referenced snapshots only, which is cached too."""
    cache = lake.feature(_refs_cache)
    if cached := cache.get(document.location):
        return cached
    body = encode_table_metadata(with_referenced_snapshots_only(document.metadata))
    cache.put(document.location, body, len(body) + REPRESENTATION_OVERHEAD_BYTES)
    return body
