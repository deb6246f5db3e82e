"""Manifest lists and manifests: decoded from Avro, and the choice of manifests that a scan has to open."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from fastavro.schema import SchemaParseException

from sandur.avro.columns import Layout, read_columns
from sandur.avro.container import Container, open_container, read_records
from sandur.errors import Invalid
from sandur.iceberg.expressions.binding import result_type
from sandur.iceberg.expressions.evaluation import Facts, Mask, Values, comparable, may_match, no_values
from sandur.iceberg.expressions.predicates import BoundTerm, Filter
from sandur.iceberg.expressions.projection import inclusive_projection
from sandur.iceberg.expressions.values import value_from_bytes
from sandur.iceberg.partitioning import UNPARTITIONED, PartitionSpec, parse_transform
from sandur.iceberg.scan.columns import BOUNDS, COUNTS, DELETED, PARTITION, ManifestColumns
from sandur.iceberg.schema import Schema
from sandur.iceberg.types import FLOATS, Primitive, primitive
from sandur.splicing import Int32, Int64

DATA: Final = 0
DELETES: Final = 1

FIELDS: Final[Mapping[str, pa.DataType]] = {
    "status": pa.int8(),
    "snapshot_id": pa.int64(),
    "sequence_number": pa.int64(),
    "content": pa.int8(),
    "file_path": pa.string(),
    "file_format": pa.string(),
    "record_count": pa.int64(),
    "file_size_in_bytes": pa.int64(),
    "sort_order_id": pa.int32(),
    "first_row_id": pa.int64(),
    "key_metadata": pa.binary(),
    "split_offsets": pa.list_(pa.int64()),
    "equality_ids": pa.list_(pa.int32()),
    "referenced_data_file": pa.string(),
    "content_offset": pa.int64(),
    "content_size_in_bytes": pa.int64(),
}
_REQUIRED: Final = ("status", "file_path", "file_format", "record_count", "file_size_in_bytes")
_CONTENT_MAX: Final = 2
_FIELD_ID_START: Final = 1000
_PARTITION_TYPES: Final[Mapping[str, pa.DataType]] = {
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.binary(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "null": pa.int64(),
}
# Damaged bytes can break a decoder in any of these ways.
_BROKEN: Final = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
    pa.ArrowException,
    SchemaParseException,
)
_RENAMED: Final = {
    "added_data_files_count": "added_files_count",
    "existing_data_files_count": "existing_files_count",
    "deleted_data_files_count": "deleted_files_count",
}


class FieldSummary(msgspec.Struct, frozen=True):
    """The values of one partition field in all files of a manifest. Without a bound, there are only nulls or NaNs."""

    contains_null: bool
    contains_nan: bool | None = None
    lower_bound: bytes | None = None
    upper_bound: bytes | None = None


_UNKNOWN: Final = FieldSummary(contains_null=True)


class ManifestFile(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest in a manifest list. An absent count is unknown. Without a list, only the path is known."""

    manifest_path: str
    manifest_length: Int64 = 0
    partition_spec_id: Int32 = 0
    content: Int32 = DATA
    sequence_number: Int64 = 0
    min_sequence_number: Int64 = 0
    added_snapshot_id: Int64 | None = None
    added_files_count: Int32 | None = None
    existing_files_count: Int32 | None = None
    deleted_files_count: Int32 | None = None
    added_rows_count: Int64 | None = None
    existing_rows_count: Int64 | None = None
    deleted_rows_count: Int64 | None = None
    partitions: tuple[FieldSummary, ...] | None = None
    key_metadata: bytes | None = None
    first_row_id: Int64 | None = None

    @property
    def live_files(self) -> int | None:
        """The number of files that are not deleted; None if it is unknown or negative."""
        added, existing = self.added_files_count, self.existing_files_count
        return None if added is None or existing is None or min(added, existing) < 0 else added + existing


def manifest_file(record: Mapping[str, object]) -> ManifestFile:
    """A record of a manifest list of any format version; msgspec.ValidationError if it is not such a record."""
    plain = {_RENAMED.get(name, name): value for name, value in record.items() if value is not None}
    return msgspec.convert(plain, ManifestFile, builtin_types=(bytes,))


def partition_types(spec: PartitionSpec, schemas: Sequence[Schema]) -> dict[int, Primitive | None]:
    """The types of a spec's partition fields by id; None if a type is unknown.

    `schemas` begins with the schema of the scan. The others follow because a source column may have been dropped.
    """
    types: dict[int, Primitive | None] = {}
    for field in spec.fields:
        applied = parse_transform(field.transform)
        source = _source_type(field.sources[0], schemas) if len(field.sources) == 1 else None
        types[field.field_id or 0] = None if source is None or not applied.name else result_type(applied, source)
    return types


def _source_type(field_id: int, schemas: Sequence[Schema]) -> Primitive | None:
    found = next((schema.columns[field_id].type for schema in schemas if field_id in schema.columns), None)
    return primitive(found) if isinstance(found, str) else None


def manifests_to_open(
    manifests: Sequence[ManifestFile], found: Filter, specs: Mapping[int, PartitionSpec]
) -> list[ManifestFile]:
    """The manifests that may have a file with a matching row, in order. A manifest without live files has none."""
    kept: dict[int, bool] = {}
    by_spec: dict[int, list[int]] = {}
    for place, manifest in enumerate(manifests):
        if manifest.live_files != 0:
            by_spec.setdefault(manifest.partition_spec_id, []).append(place)
    for spec_id, places in by_spec.items():
        spec = specs.get(spec_id)
        projected: Filter = True if spec is None else inclusive_projection(found, spec)
        facts_of = partial(_facts, [manifests[place] for place in places], spec or UNPARTITIONED)
        mask = may_match(projected, facts_of, len(places))
        kept |= dict(zip(places, mask.tolist(), strict=True))
    return [manifest for place, manifest in enumerate(manifests) if kept.get(place, False)]


def _facts(manifests: Sequence[ManifestFile], spec: PartitionSpec, column: BoundTerm) -> Facts:
    """The facts of a partition field. The columns of a projected filter are the fields of its spec."""
    place = {field.field_id or 0: place for place, field in enumerate(spec.fields)}[column.id]
    kind, partitions = column.type, [manifest.partitions or () for manifest in manifests]
    summaries = [found[place] if place < len(found) else _UNKNOWN for found in partitions]
    return Facts(
        lower=_bound_values(kind, [one.lower_bound for one in summaries]),
        upper=_bound_values(kind, [one.upper_bound for one in summaries]),
        may_have_null=_mask(one.contains_null for one in summaries),
        is_only_null=_mask(_has_only_nulls(kind, one) for one in summaries),
        may_have_nan=_mask(one.contains_nan is not False for one in summaries),
        has_nan=_mask(one.contains_nan is True for one in summaries),
        is_only_nan=_mask(False for _ in summaries),
    )


def _mask(flags: Iterable[bool]) -> Mask:
    return np.fromiter(flags, dtype=np.bool_)


def _has_only_nulls(kind: Primitive, summary: FieldSummary) -> bool:
    """A field with nulls and without a lower bound has no other values, except NaNs, which bounds do not include."""
    if summary is _UNKNOWN or not summary.contains_null or summary.lower_bound is not None:
        return False
    return kind.name not in FLOATS or summary.contains_nan is False


def _bound_values(kind: Primitive, bounds: Sequence[bytes | None]) -> Values:
    found = no_values(kind, len(bounds))
    for row, data in enumerate(bounds):
        value = None if data is None else value_from_bytes(kind, data)
        if value is not None and value == value:  # noqa: PLR0124 - NaN is not a bound
            found.values[row] = comparable(value)
            found.valid[row] = True
    return found


class PartitionColumn(NamedTuple):
    """A partition field in a manifest's own schema."""

    id: int
    name: str
    type: pa.DataType


def decode_manifest_list(data: bytes, *, location: str) -> tuple[ManifestFile, ...]:
    """The manifests that a manifest list names; Invalid if the data is not a manifest list."""
    try:
        return tuple(manifest_file(record) for record in read_records(open_container(data)))
    except (msgspec.ValidationError, *_BROKEN) as error:
        raise _unreadable("manifest list", location, error) from error


def decode_manifest(data: bytes, *, location: str) -> ManifestColumns:
    """The live entries of a manifest as columns; Invalid if the data is not a manifest."""
    try:
        container = open_container(data)
        columns = read_columns(container, manifest_layout(partition_fields(container.schema)))
        return _checked(ManifestColumns(columns, header_of(container), len(columns["file_path"])))
    except _BROKEN as error:
        raise _unreadable("manifest", location, error) from error


class DeclaredSize(NamedTuple):
    """The number of records that an Avro file declares, and the most bytes that it can become."""

    records: int
    inflated_bytes_max: int


def declared_size(data: bytes) -> DeclaredSize:
    """The size of an Avro file before it is decompressed; zeros if the data is not an Avro file."""
    try:
        container = open_container(data)
        return DeclaredSize(container.records, container.inflated_bytes_max)
    except _BROKEN:
        return DeclaredSize(0, 0)


def manifest_layout(partition: Sequence[PartitionColumn]) -> Layout:
    return Layout(
        inner="data_file",
        anchor="file_path",
        fields=FIELDS,
        defaults={"content": 0},
        nested={f"{PARTITION}{field.id}": ("partition", field.name, field.type) for field in partition},
        maps={**dict.fromkeys(COUNTS, pa.int64()), **dict.fromkeys(BOUNDS, pa.binary())},
        skipped=("status", DELETED),
    )


def header_of(container: Container) -> dict[str, str]:
    kept = ("partition-spec-id", "content", "format-version")
    return {name: container.metadata[name].decode() for name in kept if name in container.metadata}


def partition_fields(schema: Mapping[str, Any]) -> list[PartitionColumn]:
    """The partition fields of a manifest, from its Avro schema."""
    file = _field(schema, "data_file")["type"]
    found: list[PartitionColumn] = []
    named: dict[str, str] = {}
    for place, field in enumerate(_without_null(_field(file, "partition")["type"])["fields"]):
        kind = _without_null(field["type"])
        if isinstance(kind, dict):
            # Avro defines a named type once. Fields of the same type that follow have only its name.
            named[kind.get("name", "")] = kind["type"]
            kind = kind["type"]
        column_type = _PARTITION_TYPES[named.get(kind, kind)]
        found.append(PartitionColumn(field.get("field-id", _FIELD_ID_START + place), field["name"], column_type))
    return found


def _field(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] | None = next((field for field in schema["fields"] if field["name"] == name), None)
    if found is None:
        raise ValueError(f"an entry has no {name}")
    return found


def _without_null(kind: Any) -> Any:  # noqa: ANN401 - a schema is any JSON
    return next((one for one in kind if one != "null"), "null") if isinstance(kind, list) else kind


def _checked(found: ManifestColumns) -> ManifestColumns:
    """The same columns; ValueError if an entry does not have what every file has."""
    for name in _REQUIRED:
        if found.column(name).null_count:
            raise ValueError(f"an entry has no {name}")
    content = found.numbers("content").values
    if len(content) and not 0 <= int(content.min()) <= int(content.max()) <= _CONTENT_MAX:
        raise ValueError("the content of an entry is neither data nor deletes")
    return found


def _unreadable(what: str, location: str, error: Exception) -> Invalid:
    return Invalid(f"{what} {location}: cannot be read: {type(error).__name__}: {str(error)[:200]}")
