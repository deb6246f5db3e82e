"""Iceberg manifests and manifest lists of tables without partitions, as Avro.

fastavro, which planning needs anyway, writes them: PyIceberg's writer would add a dozen packages to `sandur[spark]`.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import fastavro

from sandur.avro.container import open_container, read_records
from sandur.errors import Invalid

_ADDED: Final = 1
_DELETED: Final = 2


def _record(name: str, fields: str, **records: Mapping[str, object]) -> dict[str, Any]:
    """An Avro record type from lines `name type field-id`; `?` after the type marks an optional field."""
    parsed: list[dict[str, object]] = []
    for field_name, kind, field_id in (line.split() for line in fields.strip().splitlines()):
        plain = kind.removesuffix("?")
        field: dict[str, object] = {"name": field_name, "type": records.get(plain, plain), "field-id": int(field_id)}
        parsed.append({**field, "type": ["null", plain], "default": None} if kind.endswith("?") else field)
    return {"type": "record", "name": name, "fields": parsed}


_DATA_FILE: Final = _record(
    "r2",
    """
    content int 134
    file_path string 100
    file_format string 101
    partition r102 102
    record_count long 103
    file_size_in_bytes long 104
    """,
    r102=_record("r102", ""),
)
_ENTRY: Final = _record(
    "manifest_entry",
    """
    status int 0
    snapshot_id long? 1
    sequence_number long? 3
    file_sequence_number long? 4
    data_file r2 2
    """,
    r2=_DATA_FILE,
)
_LISTED: Final = _record(
    "manifest_file",
    """
    manifest_path string 500
    manifest_length long 501
    partition_spec_id int 502
    content int 517
    sequence_number long 515
    min_sequence_number long 516
    added_snapshot_id long 503
    added_files_count int 504
    existing_files_count int 505
    deleted_files_count int 506
    added_rows_count long 512
    existing_rows_count long 513
    deleted_rows_count long 514
    """,
)
_LISTED_NAMES: Final = [str(field["name"]) for field in _LISTED["fields"]]
_ENTRY_SCHEMA: Final = fastavro.parse_schema(_ENTRY)
_LISTED_SCHEMA: Final = fastavro.parse_schema(_LISTED)


class DataFile(NamedTuple):
    """A Parquet file of a table."""

    path: str
    rows: int
    size_bytes: int


class SnapshotIds(NamedTuple):
    """The numbers of a snapshot that its manifests repeat."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int


def encode_manifest(files: Sequence[DataFile], *, schema_json: str, schema_id: int, snapshot_id: int) -> bytes:
    """A manifest that adds the files."""
    inherited = {"snapshot_id": snapshot_id, "sequence_number": None, "file_sequence_number": None}
    constant = {"content": 0, "file_format": "PARQUET", "partition": {}}
    entries = [
        {
            "status": _ADDED,
            **inherited,
            "data_file": {
                **constant,
                "file_path": file.path,
                "record_count": file.rows,
                "file_size_in_bytes": file.size_bytes,
            },
        }
        for file in files
    ]
    header = {
        "schema": schema_json,
        "schema-id": str(schema_id),
        "partition-spec": "[]",
        "partition-spec-id": "0",
        "format-version": "2",
        "content": "data",
    }
    return _encode(_ENTRY_SCHEMA, entries, header)


def list_entry(path: str, data: bytes, files: Sequence[DataFile], ids: SnapshotIds) -> Mapping[str, Any]:
    """The entry of a manifest list for a manifest that adds the files."""
    return {
        **dict.fromkeys(_LISTED_NAMES, 0),
        "manifest_path": path,
        "manifest_length": len(data),
        "sequence_number": ids.sequence_number,
        "min_sequence_number": ids.sequence_number,
        "added_snapshot_id": ids.snapshot_id,
        "added_files_count": len(files),
        "added_rows_count": sum(file.rows for file in files),
    }


def encode_manifest_list(manifests: Sequence[Mapping[str, Any]], ids: SnapshotIds) -> bytes:
    header = {
        "snapshot-id": str(ids.snapshot_id),
        "parent-snapshot-id": "null" if ids.parent_id is None else str(ids.parent_id),
        "sequence-number": str(ids.sequence_number),
        "format-version": "2",
    }
    return _encode(_LISTED_SCHEMA, manifests, header)


def decode_manifest_list(data: bytes) -> Sequence[Mapping[str, Any]]:
    """The entries of a manifest list; raises Invalid if it is not one."""
    return [{name: _list_field(record, name) for name in _LISTED_NAMES} for record in _decode(data)]


def _list_field(record: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - a value of a record
    """A field of an entry; some writers use an older name for the counts of files, or omit them."""
    older = name.replace("_files_count", "_data_files_count")
    return record.get(name, record.get(older, 0))


def decode_manifest(data: bytes) -> Sequence[DataFile]:
    """The files that a manifest adds or keeps; raises Invalid if it is not one."""
    files = [record["data_file"] for record in _decode(data) if record["status"] != _DELETED]
    return [DataFile(file["file_path"], file["record_count"], file["file_size_in_bytes"]) for file in files]


def _decode(data: bytes) -> Sequence[Any]:
    try:
        return list(read_records(open_container(data)))
    except Exception as error:  # Bytes that are not Avro raise anything at all.
        raise Invalid(f"manifest: cannot be decoded: {type(error).__name__}: {error}") from error


def _encode(schema: Any, records: Sequence[Mapping[str, Any]], header: Mapping[str, str]) -> bytes:  # noqa: ANN401
    sink = io.BytesIO()
    fastavro.writer(sink, schema, records, codec="deflate", metadata=dict(header))
    return sink.getvalue()
