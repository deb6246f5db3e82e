"""Table metadata: decoded from the file of any engine, with the parts that nothing reads kept as bytes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar, cast

import msgspec

from sandur.errors import BadRequest, Invalid
from sandur.iceberg.partitioning import SPEC_ID_START, PartitionField, PartitionSpec, with_default_field_ids
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
    decode_object,
    decompress,
    encode,
    is_null,
    is_object,
    join_array,
    join_object,
    json_array,
)

FORMAT_VERSION_MAX = 3
FORMAT_VERSION_WITH_ROW_LINEAGE = 3
NO_SNAPSHOT_ID = -1

_WHAT = "table metadata"
_SEARCHES, _STORED_IDS = "searches", "stored ids"
_SEARCHES_MAX = 4

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
_LARGE_FIELDS = (
    "schema",
    "schemas",
    "partition-spec",
    "partition-specs",
    "sort-orders",
    "encryption-keys",
    "refs",
    "snapshots",
    "statistics",
    "partition-statistics",
    "snapshot-log",
    "metadata-log",
)


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


_HEAD_NAMES = frozenset(field.encode_name for field in msgspec.structs.fields(_Head))
_KNOWN_NAMES = _HEAD_NAMES | frozenset(_LARGE_FIELDS)


@dataclass(frozen=True, eq=False, kw_only=True)
class TableMetadata:
    """The metadata of one table.

    `metadata_location` is the file that it was read from; it is not part of the file. `current_snapshot_id` is absent
    for a table without a current snapshot. `unknown` holds the top-level fields that are unknown here. Lists are
    decoded only when they are read, and keep the bytes of what does not change.
    """

    format_version: int
    table_uuid: str | None
    location: str
    last_sequence_number: int
    last_updated_ms: int
    last_column_id: int
    current_schema_id: int
    schema_list: JsonArray[Schema]
    default_spec_id: int
    spec_list: JsonArray[PartitionSpec]
    last_partition_id: int
    default_sort_order_id: int
    sort_order_list: JsonArray[SortOrder]
    properties: Mapping[str, str]
    current_snapshot_id: int | None
    next_row_id: int
    encryption_key_list: JsonArray[EncryptedKey]
    ref_map: Mapping[str, JsonBytes]
    snapshot_list: JsonArray[Snapshot]
    statistics_list: JsonArray[StatisticsFile]
    partition_statistics_list: JsonArray[PartitionStatisticsFile]
    snapshot_log_list: JsonArray[SnapshotLogEntry]
    metadata_log_list: JsonArray[MetadataLogEntry]
    unknown: Mapping[str, JsonBytes]
    metadata_location: str | None = None

    @property
    def schemas(self) -> tuple[Schema, ...]:
        return self.schema_list.items

    @property
    def specs(self) -> tuple[PartitionSpec, ...]:
        return self.spec_list.items

    @property
    def sort_orders(self) -> tuple[SortOrder, ...]:
        return self.sort_order_list.items

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        return self.snapshot_list.items

    @property
    def snapshot_log(self) -> tuple[SnapshotLogEntry, ...]:
        return self.snapshot_log_list.items

    @property
    def metadata_log(self) -> tuple[MetadataLogEntry, ...]:
        return self.metadata_log_list.items

    @property
    def statistics(self) -> tuple[StatisticsFile, ...]:
        return self.statistics_list.items

    @property
    def partition_statistics(self) -> tuple[PartitionStatisticsFile, ...]:
        return self.partition_statistics_list.items

    @property
    def encryption_keys(self) -> tuple[EncryptedKey, ...]:
        return self.encryption_key_list.items

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
        return tuple(item.snapshot_id for item in self.snapshot_list.project(SnapshotId))

    @cached_property
    def snapshot_ids(self) -> frozenset[int]:
        return frozenset(self.snapshot_id_list)

    def has_snapshot(self, snapshot_id: int) -> bool:
        return any(item.snapshot_id == snapshot_id for item in self.snapshot_list.appended) or self.has_stored_snapshot(
            snapshot_id
        )

    def has_stored_snapshot(self, snapshot_id: int) -> bool:
        """Whether the snapshot is in the file that was read; costs one search through the bytes if it is not."""
        stored = self.snapshot_list
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
        stored = self.snapshot_list.elements()
        position = self.snapshot_id_list.index(snapshot_id)
        if position >= len(stored):
            return self.snapshot_list.appended[position - len(stored)]
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
    text = decompress(bytes(data), _WHAT)
    check_utf8(text, _WHAT)
    fields: dict[str, JsonBytes] = {
        name: value for name, value in decode_object(text, _WHAT).items() if not is_null(value)
    }
    version = _format_version_of(fields)
    if version == 1:
        fields = _complete_v1(fields)
    else:
        _check_required(fields, version)
    head = decode(join_object((name, fields[name]) for name in _HEAD_NAMES & fields.keys()), _Head, _WHAT)
    return _metadata_of(head, fields, text, metadata_location)


def _format_version_of(fields: Mapping[str, JsonBytes]) -> int:
    if "format-version" not in fields:
        raise BadRequest(f"{_WHAT} is malformed: missing format-version")
    version = decode(fields["format-version"], int, "format-version")
    if not 1 <= version <= FORMAT_VERSION_MAX:
        raise Invalid(f"Cannot read unsupported version {version} (supported: v{FORMAT_VERSION_MAX})")
    return version


def _check_required(fields: Mapping[str, JsonBytes], format_version: int) -> None:
    required = _REQUIRED_SINCE_V2 if format_version < FORMAT_VERSION_WITH_ROW_LINEAGE else _REQUIRED_SINCE_V3
    for name in required:
        if name not in fields:
            raise BadRequest(f"{name} must exist in format v{format_version}")


def _complete_v1(fields: Mapping[str, JsonBytes]) -> dict[str, JsonBytes]:
    """The fields of a v1 file with the lists that old writers left out."""
    implied: dict[str, JsonBytes] = dict(fields)
    if "schemas" not in fields:
        if "schema" not in fields:
            raise BadRequest("schema must exist in format v1")
        schema = {
            name: value for name, value in decode_object(fields["schema"], "schema").items() if not is_null(value)
        }
        schema_id = schema.get("schema-id", b"0")
        implied["schemas"] = join_array([join_object({**schema, "schema-id": schema_id}.items())])
        implied["current-schema-id"] = schema_id
    if "partition-specs" in fields:
        specs = decode(fields["partition-specs"], list[PartitionSpec], "partition-specs")
    else:
        stored = decode(fields.get("partition-spec", b"[]"), tuple[PartitionField, ...], "partition-spec")
        specs = [PartitionSpec(fields=stored, spec_id=SPEC_ID_START)]
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
    def lines(name: str, item_type: type[T]) -> JsonArray[T]:
        return json_array(fields.get(name), item_type, name, source=source)

    current_snapshot_id = None if head.current_snapshot_id == NO_SNAPSHOT_ID else head.current_snapshot_id
    return TableMetadata(
        format_version=head.format_version,
        table_uuid=head.table_uuid,
        location=without_trailing_slash(head.location),
        last_sequence_number=0 if head.format_version == 1 else head.last_sequence_number or 0,
        last_updated_ms=head.last_updated_ms,
        last_column_id=head.last_column_id,
        current_schema_id=head.current_schema_id,
        schema_list=lines("schemas", Schema),
        default_spec_id=head.default_spec_id,
        spec_list=lines("partition-specs", PartitionSpec),
        last_partition_id=head.last_partition_id,
        default_sort_order_id=head.default_sort_order_id,
        sort_order_list=lines("sort-orders", SortOrder),
        properties=head.properties or {},
        current_snapshot_id=current_snapshot_id,
        next_row_id=head.next_row_id or 0,
        encryption_key_list=lines("encryption-keys", EncryptedKey),
        ref_map=_refs_of(fields, current_snapshot_id),
        snapshot_list=lines("snapshots", Snapshot),
        statistics_list=lines("statistics", StatisticsFile),
        partition_statistics_list=lines("partition-statistics", PartitionStatisticsFile),
        snapshot_log_list=lines("snapshot-log", SnapshotLogEntry),
        metadata_log_list=lines("metadata-log", MetadataLogEntry),
        unknown={name: value for name, value in fields.items() if name not in _KNOWN_NAMES},
        metadata_location=metadata_location,
    )


def _refs_of(fields: Mapping[str, JsonBytes], current_snapshot_id: int | None) -> Mapping[str, JsonBytes]:
    """The references; a file of an old writer has none, and implies the main branch."""
    refs = fields.get("refs")
    if refs is not None:
        if not is_object(refs):
            raise BadRequest("refs is not an object")
        return dict(decode_object(refs, "refs"))
    if current_snapshot_id is None:
        return {}
    return {MAIN_BRANCH: encode(SnapshotRef(snapshot_id=current_snapshot_id, type=BRANCH))}


def without_trailing_slash(location: str) -> str:
    """The location without trailing slashes, except those of `scheme://`."""
    stripped = location.rstrip("/")
    return (
        location[: len(stripped) + 2] if stripped.endswith(":") and location.startswith(stripped + "//") else stripped
    )


def encode_table_metadata(metadata: TableMetadata) -> bytes:
    """Encode a metadata file: every list is present, no nulls that break readers, unknown fields last."""
    chunks: list[bytes | memoryview] = []
    for name, parts in _encoded_fields(metadata):
        chunks.append(_FIELD_PREFIXES.get(name) or _field_prefix(name))
        chunks.extend(parts)
    chunks[0] = b"{" + memoryview(chunks[0])[1:]  # Nothing comes before the first field.
    chunks.append(b"}")
    return b"".join(chunks)


def _field_prefix(name: str) -> bytes:
    """The separator and the name of a field that follows another."""
    return b"," + encode(name) + b":"


_FIELD_PREFIXES = {name: _field_prefix(name) for name in _KNOWN_NAMES}


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
    yield "schemas", metadata.schema_list.chunks()
    if version == 1:
        yield "partition-spec", [encode(metadata.default_spec.fields)]
    yield "default-spec-id", [encode(metadata.default_spec_id)]
    yield "partition-specs", metadata.spec_list.chunks()
    yield "last-partition-id", [encode(metadata.last_partition_id)]
    yield "default-sort-order-id", [encode(metadata.default_sort_order_id)]
    yield "sort-orders", metadata.sort_order_list.chunks()
    yield "properties", [encode(metadata.properties)]
    yield "current-snapshot-id", [_current_snapshot_id_json(metadata)]
    if version >= FORMAT_VERSION_WITH_ROW_LINEAGE:
        yield "next-row-id", [encode(metadata.next_row_id)]
    if not metadata.encryption_key_list.is_empty:
        yield "encryption-keys", metadata.encryption_key_list.chunks()
    yield "refs", [join_object(metadata.ref_map.items())]
    yield "snapshots", metadata.snapshot_list.chunks()
    yield "statistics", metadata.statistics_list.chunks()
    yield "partition-statistics", metadata.partition_statistics_list.chunks()
    yield "snapshot-log", metadata.snapshot_log_list.chunks()
    yield "metadata-log", metadata.metadata_log_list.chunks()
    for name, value in metadata.unknown.items():
        yield name, [memoryview(value)]


def _current_schema_json(metadata: TableMetadata) -> bytes | memoryview:
    """The bytes of the current schema in the list, so that unknown fields survive in both places."""
    position = metadata.schemas.index(metadata.current_schema)
    stored = metadata.schema_list.elements()
    return memoryview(stored[position]) if position < len(stored) else encode(metadata.current_schema)


def _current_snapshot_id_json(metadata: TableMetadata) -> bytes:
    if metadata.current_snapshot_id is not None:
        return encode(metadata.current_snapshot_id)
    # Readers of v1 and v2 expect a number; v3 readers expect null.
    return b"null" if metadata.format_version >= FORMAT_VERSION_WITH_ROW_LINEAGE else encode(NO_SNAPSHOT_ID)


def with_referenced_snapshots_only(metadata: TableMetadata) -> TableMetadata:
    """The metadata with only the snapshots that a branch or a tag refers to."""
    referenced = {ref.snapshot_id for ref in metadata.refs.values()}
    is_kept = [snapshot_id in referenced for snapshot_id in metadata.snapshot_id_list]
    if all(is_kept):
        return metadata
    return replace(metadata, snapshot_list=metadata.snapshot_list.keep(is_kept))
