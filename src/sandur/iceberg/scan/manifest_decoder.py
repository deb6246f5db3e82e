"""Decodes manifests and manifest lists from Avro."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from fastavro.schema import SchemaParseException

from sandur.avro.batch_decoder import Layout
from sandur.avro.columns import Record, columns_of, read_columns
from sandur.avro.container import Container, open_container, read_records
from sandur.errors import Invalid
from sandur.iceberg.scan.columns import BOUNDS, COUNTS, DELETED, PARTITION, ManifestColumns
from sandur.iceberg.scan.manifest_list import ManifestFile, manifest_file

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


def declared_records(data: bytes) -> int:
    """The number of records that an Avro file declares; 0 if the data is not an Avro file."""
    try:
        return open_container(data).records
    except _BROKEN:
        return 0


def manifest_columns(
    records: Iterable[Record], partition: Sequence[PartitionColumn], header: Mapping[str, str]
) -> ManifestColumns:
    """The columns of manifest entries that were read one by one."""
    columns = columns_of(records, manifest_layout(partition))
    return ManifestColumns(columns, header, len(columns["file_path"]))


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
    partition = _without_null(_field(file, "partition")["type"])
    return [
        PartitionColumn(field.get("field-id", _FIELD_ID_START + place), field["name"], _column_type(field["type"]))
        for place, field in enumerate(partition["fields"])
    ]


def _field(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] | None = next((field for field in schema["fields"] if field["name"] == name), None)
    if found is None:
        raise ValueError(f"an entry has no {name}")
    return found


def _without_null(kind: Any) -> Any:  # noqa: ANN401 - a schema is any JSON
    return next((one for one in kind if one != "null"), "null") if isinstance(kind, list) else kind


def _column_type(kind: Any) -> pa.DataType:  # noqa: ANN401 - a schema is any JSON
    plain = _without_null(kind)
    return _PARTITION_TYPES[plain["type"] if isinstance(plain, dict) else plain]


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
