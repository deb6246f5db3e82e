"""Decodes manifests and manifest lists from Avro."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from fastavro.schema import SchemaParseException

from sandur.avro.container import Container, open_container
from sandur.avro.records import read_records
from sandur.errors import Invalid
from sandur.iceberg.scan.arrow_columns import together
from sandur.iceberg.scan.batch_decoder import decoded_columns
from sandur.iceberg.scan.batch_reader import Unreadable
from sandur.iceberg.scan.columns import ManifestColumns, checked, columns_of
from sandur.iceberg.scan.manifest_list import ManifestFile, manifest_file

RECORDS_AT_ONCE: Final = 1_000
"""As records, entries take a hundred times the room that they take as columns."""

_FIELD_ID_START: Final = 1000
_KEPT_AS: Final[Mapping[str, pa.DataType]] = {
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


class PartitionField(NamedTuple):
    """A partition field in a manifest's own schema."""

    id: int
    name: str
    kept_as: pa.DataType


def decoded_manifest_list(data: bytes, *, location: str) -> tuple[ManifestFile, ...]:
    """The manifests that a manifest list names; Invalid when it is none."""
    try:
        return tuple(manifest_file(record) for record in read_records(open_container(data)))
    except (msgspec.ValidationError, *_BROKEN) as error:
        raise _unreadable("manifest list", location, error) from error


def decoded_manifest(data: bytes, *, location: str) -> ManifestColumns:
    """The live entries of a manifest as columns; Invalid when it is none."""
    try:
        container = open_container(data)
        fields = partition_fields(container.schema)
        try:
            columns = decoded_columns(container, fields)
            return checked(ManifestColumns(columns, header_of(container), len(columns["file_path"])))
        except Unreadable:
            return checked(_read_one_by_one(container, fields))
    except _BROKEN as error:
        raise _unreadable("manifest", location, error) from error


# Bytes that are not what they seem break a decoder in any of these ways.
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


def records_said(data: bytes) -> int:
    """How many records a manifest or a list of them says that it holds; 0 when it is none."""
    try:
        return open_container(data).records
    except _BROKEN:
        return 0


def header_of(container: Container) -> dict[str, str]:
    kept = ("partition-spec-id", "content", "format-version")
    return {name: container.metadata[name].decode() for name in kept if name in container.metadata}


def partition_fields(schema: Mapping[str, Any]) -> list[PartitionField]:
    """The partition fields of a manifest, from its Avro schema."""
    file = _field(schema, "data_file")["type"]
    partition = _without_null(_field(file, "partition")["type"])
    return [
        PartitionField(field.get("field-id", _FIELD_ID_START + place), field["name"], _kept_as(field["type"]))
        for place, field in enumerate(partition["fields"])
    ]


def _field(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] | None = next((field for field in schema["fields"] if field["name"] == name), None)
    if found is None:
        raise ValueError(f"an entry has no {name}")
    return found


def _without_null(kind: Any) -> Any:  # noqa: ANN401 - a schema is any JSON
    return next((one for one in kind if one != "null"), "null") if isinstance(kind, list) else kind


def _kept_as(kind: Any) -> pa.DataType:  # noqa: ANN401 - a schema is any JSON
    plain = _without_null(kind)
    return _KEPT_AS[plain["type"] if isinstance(plain, dict) else plain]


def _read_one_by_one(container: Container, fields: Sequence[PartitionField]) -> ManifestColumns:
    header, records = header_of(container), read_records(container)
    pieces = [columns_of(islice(records, RECORDS_AT_ONCE), fields, header)]
    while piece := list(islice(records, RECORDS_AT_ONCE)):
        pieces.append(columns_of(piece, fields, header))
    counts = [piece.count for piece in pieces]
    return ManifestColumns(together([piece.columns for piece in pieces], counts), header, sum(counts))


def _unreadable(what: str, location: str, error: Exception) -> Invalid:
    return Invalid(f"{what} {location}: cannot be read: {type(error).__name__}: {str(error)[:200]}")
