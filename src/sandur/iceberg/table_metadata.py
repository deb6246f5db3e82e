"""Table metadata: decoded from the file of any engine, with the parts that nothing reads kept as bytes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar, cast

import msgspec

from sandur.errors import BadRequest, Invalid
from sandur.iceberg.partitioning import UNPARTITIONED_LAST_ID, PartitionField, PartitionSpec, with_default_field_ids
from sandur.iceberg.schema import Schema
from sandur.iceberg.snapshots import (
    BRANCH,
    MAIN_BRANCH,
    EncryptedKey,
    MetadataLogEntry,
    PartitionStatisticsFile,
    Snapshot,
    SnapshotId,
    SnapshotLogEntry,
    SnapshotRef,
    StatisticsFile,
)
from sandur.iceberg.sort_order import UNSORTED, SortOrder
from sandur.splicing import (
    Int32,
    Int64,
    JsonArray,
    JsonBytes,
    check_utf8,
    decode,
    decode_fields,
    decompress,
    empty_array,
    encode,
    join_array,
    join_object,
    json_array,
)

# Version 4 is experimental: Iceberg 1.11 accepts tables of it, and treats their metadata like that of version 3.
FORMAT_VERSION_MAX = 4
FORMAT_VERSION_WITH_ROW_LINEAGE = 3
NO_SNAPSHOT_ID = -1

_WHAT = "table metadata"
_SEARCHES, _STORED_IDS = "searches", "stored ids"
_SEARCHES_MAX = 4

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")

_REQUIRED_SINCE_V2 = (
    "table-uuid",
    "last-sequence-number",
    "schemas",
    "current-schema-id",
    "partition-specs",
    "default-spec-id",
    "last-partition-id",
    "sort-orders",
    "default-sort-order-id",
)
_REQUIRED_SINCE_V3 = (*_REQUIRED_SINCE_V2, "next-row-id")


class _Head(msgspec.Struct, frozen=True, rename="kebab"):
    """The small fields of a metadata file."""

    format_version: Int32
    location: str
    last_updated_ms: Int64
    last_column_id: Int32
    current_schema_id: Int32
    default_spec_id: Int32
    last_partition_id: Int32
    default_sort_order_id: Int32
    table_uuid: str | None = None
    last_sequence_number: Int64 | None = None
    properties: dict[str, str] | None = None
    current_snapshot_id: Int64 | None = None
    next_row_id: Int64 | None = None


_KNOWN_NAMES = frozenset({*_Head.__struct_encode_fields__, "schema", "partition-spec", "refs"})


@dataclass(frozen=True, eq=False, kw_only=True)
class TableMetadata:
    """The metadata of one table. The defaults are those of a new table before its first update.

    `metadata_location` is the file that it was read from; it is not part of the file. `current_snapshot_id` is absent
    for a table without a current snapshot. `unknown` holds the top-level fields that are unknown here. Lists are
    decoded only when they are read, and keep the bytes of what does not change.
    """

    format_version: int
    table_uuid: str | None = None
    location: str = ""
    last_sequence_number: int = 0
    last_updated_ms: int = 0
    last_column_id: int = 0
    current_schema_id: int = 0
    schemas: JsonArray[Schema] = empty_array(Schema)
    default_spec_id: int = 0
    specs: JsonArray[PartitionSpec] = empty_array(PartitionSpec)
    last_partition_id: int = UNPARTITIONED_LAST_ID
    default_sort_order_id: int = 0
    sort_orders: JsonArray[SortOrder] = empty_array(SortOrder)
    properties: Mapping[str, str] = field(default_factory=dict)
    current_snapshot_id: int | None = None
    next_row_id: int = 0
    encryption_keys: JsonArray[EncryptedKey] = empty_array(EncryptedKey)
    ref_map: Mapping[str, JsonBytes] = field(default_factory=dict)
    snapshots: JsonArray[Snapshot] = empty_array(Snapshot)
    statistics: JsonArray[StatisticsFile] = empty_array(StatisticsFile)
    partition_statistics: JsonArray[PartitionStatisticsFile] = empty_array(PartitionStatisticsFile)
    snapshot_log: JsonArray[SnapshotLogEntry] = empty_array(SnapshotLogEntry)
    metadata_log: JsonArray[MetadataLogEntry] = empty_array(MetadataLogEntry)
    unknown: Mapping[str, JsonBytes] = field(default_factory=dict)
    metadata_location: str | None = None

    @cached_property
    def refs(self) -> dict[str, SnapshotRef]:
        return {name: decode(value, SnapshotRef, "ref") for name, value in self.ref_map.items()}

    def ref(self, name: str) -> SnapshotRef | None:
        """The branch or tag with that name; no other one is decoded."""
        value = self.ref_map.get(name)
        return None if value is None else decode(value, SnapshotRef, "ref")

    @property
    def current_schema(self) -> Schema:
        return _find(self.schemas, lambda item: item.schema_id, self.current_schema_id, "current schema")

    @property
    def default_spec(self) -> PartitionSpec:
        return _find(self.specs, lambda item: item.spec_id, self.default_spec_id, "default partition spec")

    @property
    def default_sort_order(self) -> SortOrder:
        return _find(self.sort_orders, lambda item: item.order_id, self.default_sort_order_id, "default sort order")

    @cached_property
    def snapshot_id_list(self) -> tuple[int, ...]:
        """The ids of the snapshots, in the order of the list."""
        return tuple(item.snapshot_id for item in self.snapshots.project(SnapshotId))

    @cached_property
    def snapshot_ids(self) -> frozenset[int]:
        return frozenset(self.snapshot_id_list)

    def has_snapshot(self, snapshot_id: int) -> bool:
        is_appended = any(item.snapshot_id == snapshot_id for item in self.snapshots.appended)
        return is_appended or self.has_stored_snapshot(snapshot_id)

    def has_stored_snapshot(self, snapshot_id: int) -> bool:
        """Whether the snapshot is in the file that was read; costs one search through the bytes if it is not."""
        stored = self.snapshots
        # Once the ids are decoded, or after many searches, a set is faster than a search.
        searches = cast("int", stored.memory.get(_SEARCHES, 0))
        if SnapshotId not in stored.memory and searches < _SEARCHES_MAX:
            stored.memory[_SEARCHES] = searches + 1
            if not stored.may_contain(b"%d" % snapshot_id):
                return False
        if _STORED_IDS not in stored.memory:
            stored.memory[_STORED_IDS] = frozenset(item.snapshot_id for item in stored.project_stored(SnapshotId))
        return snapshot_id in cast("frozenset[int]", stored.memory[_STORED_IDS])

    def snapshot(self, snapshot_id: int) -> Snapshot | None:
        """The snapshot with that id; no other one is decoded."""
        if not self.has_snapshot(snapshot_id):
            return None
        stored = self.snapshots.elements()
        position = self.snapshot_id_list.index(snapshot_id)
        if position >= len(stored):
            return self.snapshots.appended[position - len(stored)]
        return decode(stored[position], Snapshot, "snapshot")

    @property
    def current_snapshot(self) -> Snapshot | None:
        return None if self.current_snapshot_id is None else self.snapshot(self.current_snapshot_id)


def _find(items: Iterable[T], id_of: Callable[[T], int | None], wanted: int, what: str) -> T:
    # An id that an old writer left out counts as 0.
    found = next((item for item in items if (id_of(item) or 0) == wanted), None)
    if found is None:
        raise Invalid(f"Invalid table metadata: Cannot find {what} {wanted}")
    return found


def decode_table_metadata(data: bytes, *, metadata_location: str | None = None) -> TableMetadata:
    """Decode a metadata file, plain or compressed with gzip; raises `BadRequest` or `Invalid` if it is malformed.

    Only the small fields and the shape of the document are checked; the content of its lists is trusted. Decode a file
    that another program wrote with `decode_foreign_table_metadata`, which checks everything.
    """
    text, stored, version = decode_document(data, _WHAT)
    if not 1 <= version <= FORMAT_VERSION_MAX:
        raise Invalid(f"Cannot read unsupported version {version} (supported: v{FORMAT_VERSION_MAX})")
    fields: Mapping[str, JsonBytes] = _complete_v1(stored) if version == 1 else stored
    required = _REQUIRED_SINCE_V2 if version < FORMAT_VERSION_WITH_ROW_LINEAGE else _REQUIRED_SINCE_V3
    missing = next((name for name in required if version > 1 and name not in fields), None)
    if missing is not None:
        raise BadRequest(f"{missing} must exist in format v{version}")
    return _metadata_of(decode_head(fields, _Head, _WHAT), fields, text, metadata_location)


def decode_document(data: bytes, what: str) -> tuple[bytes, dict[str, msgspec.Raw], int]:
    """The text of a metadata file, its fields that are not null, and its format version."""
    text = decompress(bytes(data), what)
    check_utf8(text, what)
    fields = decode_fields(text, what)
    if "format-version" not in fields:
        raise BadRequest(f"{what} is malformed: missing format-version")
    return text, fields, decode(fields["format-version"], int, "format-version")


def decode_head(fields: Mapping[str, JsonBytes], wanted: type[S], what: str) -> S:
    """The fields of a metadata file that `wanted` has."""
    names = (name for name in wanted.__struct_encode_fields__ if name in fields)
    return decode(join_object((name, fields[name]) for name in names), wanted, what)


def _complete_v1(fields: Mapping[str, JsonBytes]) -> dict[str, JsonBytes]:
    """The fields of a v1 file with the lists that old writers left out."""
    implied: dict[str, JsonBytes] = dict(fields)
    if "schemas" not in fields:
        if "schema" not in fields:
            raise BadRequest("schema must exist in format v1")
        schema = decode_fields(fields["schema"], "schema")
        schema_id = schema.get("schema-id", b"0")
        implied["schemas"] = join_array([join_object({**schema, "schema-id": schema_id}.items())])
        implied["current-schema-id"] = schema_id
    if "partition-specs" in fields:
        specs = decode(fields["partition-specs"], list[PartitionSpec], "partition-specs")
    else:
        stored = decode(fields.get("partition-spec", b"[]"), tuple[PartitionField, ...], "partition-spec")
        specs = [PartitionSpec(fields=stored, spec_id=0)]
        implied["default-spec-id"] = b"0"
    if "partition-specs" not in fields or any(field.field_id is None for spec in specs for field in spec.fields):
        specs = list(map(with_default_field_ids, specs))
        implied["partition-specs"] = encode(specs)
    implied.setdefault("last-partition-id", encode(max((s.highest_field_id for s in specs), default=0)))
    if "sort-orders" not in fields:
        implied["sort-orders"] = encode([UNSORTED])
        implied["default-sort-order-id"] = b"0"
    return implied


def _metadata_of(
    head: _Head, fields: Mapping[str, JsonBytes], source: bytes, metadata_location: str | None
) -> TableMetadata:
    others = dict(fields)

    def lines(name: str, item_type: type[T]) -> JsonArray[T]:
        return json_array(others.pop(name, None), item_type, name, source=source)

    current_snapshot_id = None if head.current_snapshot_id == NO_SNAPSHOT_ID else head.current_snapshot_id
    return TableMetadata(
        format_version=head.format_version,
        table_uuid=head.table_uuid,
        location=without_trailing_slash(head.location),
        last_sequence_number=0 if head.format_version == 1 else head.last_sequence_number or 0,
        last_updated_ms=head.last_updated_ms,
        last_column_id=head.last_column_id,
        current_schema_id=head.current_schema_id,
        schemas=lines("schemas", Schema),
        default_spec_id=head.default_spec_id,
        specs=lines("partition-specs", PartitionSpec),
        last_partition_id=head.last_partition_id,
        default_sort_order_id=head.default_sort_order_id,
        sort_orders=lines("sort-orders", SortOrder),
        properties=head.properties or {},
        current_snapshot_id=current_snapshot_id,
        next_row_id=head.next_row_id or 0,
        encryption_keys=lines("encryption-keys", EncryptedKey),
        ref_map=_refs_of(fields, current_snapshot_id),
        snapshots=lines("snapshots", Snapshot),
        statistics=lines("statistics", StatisticsFile),
        partition_statistics=lines("partition-statistics", PartitionStatisticsFile),
        snapshot_log=lines("snapshot-log", SnapshotLogEntry),
        metadata_log=lines("metadata-log", MetadataLogEntry),
        # Last: by then, all lists that are known are taken out.
        unknown={name: value for name, value in others.items() if name not in _KNOWN_NAMES},
        metadata_location=metadata_location,
    )


def _refs_of(fields: Mapping[str, JsonBytes], current_snapshot_id: int | None) -> Mapping[str, JsonBytes]:
    """The references; a file of an old writer has none, and implies the main branch."""
    refs = fields.get("refs")
    if refs is not None:
        if bytes(memoryview(refs)[:1]) != b"{":
            raise BadRequest("refs is not an object")
        return {**decode(refs, dict[str, msgspec.Raw], "refs")}
    if current_snapshot_id is None:
        return {}
    return {MAIN_BRANCH: encode(SnapshotRef(snapshot_id=current_snapshot_id, type=BRANCH))}


def without_trailing_slash(location: str) -> str:
    """The location without trailing slashes, except those of `scheme://`."""
    stripped = location.rstrip("/")
    is_root = stripped.endswith(":") and location.startswith(stripped + "//")
    return location[: len(stripped) + 2] if is_root else stripped


def encode_table_metadata(metadata: TableMetadata) -> bytes:
    """Encode a metadata file: every list is present, no nulls that break readers, unknown fields last."""
    chunks: list[bytes | memoryview] = []
    for name, parts in _encoded_fields(metadata):
        chunks += (b",", encode(name), b":", *parts)
    chunks[0] = b"{"
    chunks.append(b"}")
    return b"".join(chunks)


def _encoded_fields(metadata: TableMetadata) -> Iterator[tuple[str, list[bytes | memoryview]]]:
    version = metadata.format_version
    yield "format-version", [encode(version)]
    if metadata.table_uuid is not None:
        yield "table-uuid", [encode(metadata.table_uuid)]
    yield "location", [encode(metadata.location)]
    if version > 1:
        yield "last-sequence-number", [encode(metadata.last_sequence_number)]
    yield "last-updated-ms", [encode(metadata.last_updated_ms)]
    yield "last-column-id", [encode(metadata.last_column_id)]
    if version == 1:
        yield "schema", [_current_schema_json(metadata)]
    yield "current-schema-id", [encode(metadata.current_schema_id)]
    yield "schemas", metadata.schemas.chunks()
    if version == 1:
        yield "partition-spec", [encode(metadata.default_spec.fields)]
    yield "default-spec-id", [encode(metadata.default_spec_id)]
    yield "partition-specs", metadata.specs.chunks()
    yield "last-partition-id", [encode(metadata.last_partition_id)]
    yield "default-sort-order-id", [encode(metadata.default_sort_order_id)]
    yield "sort-orders", metadata.sort_orders.chunks()
    yield "properties", [encode(metadata.properties)]
    # Readers of v1 and v2 expect a number; v3 readers expect null.
    no_snapshot_id = None if version >= FORMAT_VERSION_WITH_ROW_LINEAGE else NO_SNAPSHOT_ID
    current = metadata.current_snapshot_id
    yield "current-snapshot-id", [encode(no_snapshot_id if current is None else current)]
    if version >= FORMAT_VERSION_WITH_ROW_LINEAGE:
        yield "next-row-id", [encode(metadata.next_row_id)]
    if not metadata.encryption_keys.is_empty:
        yield "encryption-keys", metadata.encryption_keys.chunks()
    yield "refs", [join_object(metadata.ref_map.items())]
    yield "snapshots", metadata.snapshots.chunks()
    yield "statistics", metadata.statistics.chunks()
    yield "partition-statistics", metadata.partition_statistics.chunks()
    yield "snapshot-log", metadata.snapshot_log.chunks()
    yield "metadata-log", metadata.metadata_log.chunks()
    for name, value in metadata.unknown.items():
        yield name, [memoryview(value)]


def _current_schema_json(metadata: TableMetadata) -> bytes | memoryview:
    """The bytes of the current schema in the list, so that unknown fields survive in both places."""
    position = metadata.schemas.index(metadata.current_schema)
    stored = metadata.schemas.elements()
    return memoryview(stored[position]) if position < len(stored) else encode(metadata.current_schema)


def with_referenced_snapshots_only(metadata: TableMetadata) -> TableMetadata:
    """The metadata with only the snapshots that a branch or a tag refers to."""
    referenced = {ref.snapshot_id for ref in metadata.refs.values()}
    is_kept = [snapshot_id in referenced for snapshot_id in metadata.snapshot_id_list]
    return metadata if all(is_kept) else replace(metadata, snapshots=metadata.snapshots.keep(is_kept))
