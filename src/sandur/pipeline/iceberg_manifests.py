"""Iceberg's manifests and manifest lists for tables without partitions: the Avro that names a snapshot's files."""

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import fastavro

from sandur.avro.container import open_container
from sandur.avro.records import read_records
from sandur.errors import Invalid

_EXISTING_OR_ADDED: Final = (0, 1)
_ADDED: Final = 1


def _record(name: str, *fields: Mapping[str, object]) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields)}


def _field(name: str, kind: object, field_id: int) -> dict[str, object]:
    return {"name": name, "type": kind, "field-id": field_id}


def _optional(name: str, kind: object, field_id: int) -> dict[str, object]:
    return {**_field(name, ["null", kind], field_id), "default": None}


_ENTRY: Final = _record(
    "manifest_entry",
    _field("status", "int", 0),
    _optional("snapshot_id", "long", 1),
    _optional("sequence_number", "long", 3),
    _optional("file_sequence_number", "long", 4),
    _field(
        "data_file",
        _record(
            "r2",
            _field("content", "int", 134),
            _field("file_path", "string", 100),
            _field("file_format", "string", 101),
            _field("partition", _record("r102"), 102),
            _field("record_count", "long", 103),
            _field("file_size_in_bytes", "long", 104),
        ),
        2,
    ),
)
_LISTED: Final = _record(
    "manifest_file",
    _field("manifest_path", "string", 500),
    _field("manifest_length", "long", 501),
    _field("partition_spec_id", "int", 502),
    _field("content", "int", 517),
    _field("sequence_number", "long", 515),
    _field("min_sequence_number", "long", 516),
    _field("added_snapshot_id", "long", 503),
    _field("added_files_count", "int", 504),
    _field("existing_files_count", "int", 505),
    _field("deleted_files_count", "int", 506),
    _field("added_rows_count", "long", 512),
    _field("existing_rows_count", "long", 513),
    _field("deleted_rows_count", "long", 514),
)
_ENTRY_SCHEMA: Final = fastavro.parse_schema(_ENTRY)
_LISTED_SCHEMA: Final = fastavro.parse_schema(_LISTED)


class DataFile(NamedTuple):
    """A Parquet file of a table."""

    path: str
    rows: int
    size_bytes: int


class SnapshotIds(NamedTuple):
    """What every file of a snapshot is marked with."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int


def manifest_of(files: Sequence[DataFile], *, schema_json: str, schema_id: int, snapshot_id: int) -> bytes:
    """A manifest that adds the files."""
    entries = [
        {
            "status": _ADDED,
            "snapshot_id": snapshot_id,
            "sequence_number": None,
            "file_sequence_number": None,
            "data_file": {
                "content": 0,
                "file_path": file.path,
                "file_format": "PARQUET",
                "partition": {},
                "record_count": file.rows,
                "file_size_in_bytes": file.size_bytes,
            },
        }
        for file in files
    ]
    about = {
        "schema": schema_json,
        "schema-id": str(schema_id),
        "partition-spec": "[]",
        "partition-spec-id": "0",
        "format-version": "2",
        "content": "data",
    }
    return _avro(_ENTRY_SCHEMA, entries, about)


def listed_manifest(path: str, data: bytes, files: Sequence[DataFile], ids: SnapshotIds) -> Mapping[str, object]:
    """How a manifest list names a manifest that adds the files."""
    return {
        "manifest_path": path,
        "manifest_length": len(data),
        "partition_spec_id": 0,
        "content": 0,
        "sequence_number": ids.sequence_number,
        "min_sequence_number": ids.sequence_number,
        "added_snapshot_id": ids.snapshot_id,
        "added_files_count": len(files),
        "existing_files_count": 0,
        "deleted_files_count": 0,
        "added_rows_count": sum(file.rows for file in files),
        "existing_rows_count": 0,
        "deleted_rows_count": 0,
    }


def manifest_list_of(manifests: Sequence[Mapping[str, object]], ids: SnapshotIds) -> bytes:
    about = {
        "snapshot-id": str(ids.snapshot_id),
        "parent-snapshot-id": "null" if ids.parent_id is None else str(ids.parent_id),
        "sequence-number": str(ids.sequence_number),
        "format-version": "2",
    }
    return _avro(_LISTED_SCHEMA, manifests, about)


def read_manifest_list(data: bytes) -> Sequence[Mapping[str, Any]]:
    """The manifests of a snapshot, as a list names them; Invalid when it is none of ours."""
    wanted = [str(field["name"]) for field in _fields(_LISTED)]
    return [{name: _counted(record, name) for name in wanted} for record in _records(data)]


def _counted(record: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - a value of a record
    """A field of a manifest list; some writers call the counts of files by an older name, or leave them out."""
    older = name.replace("_files_count", "_data_files_count")
    return record.get(name, record.get(older, 0))


def read_manifest(data: bytes) -> Sequence[DataFile]:
    """The files that a manifest adds or keeps."""
    return [
        DataFile(file["file_path"], file["record_count"], file["file_size_in_bytes"])
        for record in _records(data)
        if record["status"] in _EXISTING_OR_ADDED
        for file in (record["data_file"],)
    ]


def _fields(record: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    fields = record["fields"]
    return fields if isinstance(fields, list) else []


def _records(data: bytes) -> Sequence[Any]:
    try:
        return list(read_records(open_container(data)))
    except Exception as error:  # Anything at all is raised over bytes that are not Avro.
        raise Invalid(f"manifest: cannot be read: {type(error).__name__}: {error}") from error


def _avro(schema: Any, records: Sequence[Mapping[str, object]], about: Mapping[str, str]) -> bytes:  # noqa: ANN401
    sink = io.BytesIO()
    fastavro.writer(sink, schema, records, codec="deflate", metadata=dict(about))
    return sink.getvalue()
