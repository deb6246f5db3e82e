"""Write Iceberg manifests and manifest lists of tables without partitions, as Avro.

fastavro, which planning needs anyway, writes them: PyIceberg's writer would add a dozen packages to `sandur[spark]`.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import fastavro

from sandur.iceberg.scan.manifests import ManifestFile, decode_manifest

_ADDED: Final = 1


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
    path: str
    rows: int
    size_bytes: int


class SnapshotIds(NamedTuple):
    """The numbers of a snapshot that its manifests repeat."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int


def encode_manifest(files: Sequence[DataFile], *, schema_json: str, schema_id: int, snapshot_id: int) -> bytes:
    entries = [
        {
            "status": _ADDED,
            "snapshot_id": snapshot_id,
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
    header = {
        "schema": schema_json,
        "schema-id": str(schema_id),
        "partition-spec": "[]",
        "partition-spec-id": "0",
        "format-version": "2",
        "content": "data",
    }
    return _encode(_ENTRY_SCHEMA, entries, header)


def list_entry(path: str, data: bytes, files: Sequence[DataFile], ids: SnapshotIds) -> ManifestFile:
    """The entry of a manifest list for a manifest that adds the files."""
    return ManifestFile(
        manifest_path=path,
        manifest_length=len(data),
        sequence_number=ids.sequence_number,
        min_sequence_number=ids.sequence_number,
        added_snapshot_id=ids.snapshot_id,
        added_files_count=len(files),
        existing_files_count=0,
        added_rows_count=sum(file.rows for file in files),
    )


def encode_manifest_list(manifests: Sequence[ManifestFile], ids: SnapshotIds) -> bytes:
    header = {
        "snapshot-id": str(ids.snapshot_id),
        "parent-snapshot-id": "null" if ids.parent_id is None else str(ids.parent_id),
        "sequence-number": str(ids.sequence_number),
        "format-version": "2",
    }
    # Some writers omit counts; ours are required.
    records = [{name: getattr(one, name) or 0 for name in _LISTED_NAMES} for one in manifests]
    return _encode(_LISTED_SCHEMA, records, header)


def files_of(data: bytes, *, location: str) -> Sequence[DataFile]:
    """The files that a manifest adds or keeps; raises Invalid if it is not one."""
    found = decode_manifest(data, location=location)
    names = ("file_path", "record_count", "file_size_in_bytes")
    return [DataFile(*file) for file in zip(*(found.column(name).to_pylist() for name in names), strict=True)]


def _encode(schema: Any, records: Sequence[Mapping[str, Any]], header: Mapping[str, str]) -> bytes:  # noqa: ANN401
    sink = io.BytesIO()
    fastavro.writer(sink, schema, records, codec="deflate", metadata=dict(header))
    return sink.getvalue()
