"""Tables, snapshots and commits to test with."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from sandur.errors import Invalid
from sandur.iceberg.requests import TableCommit, decode_table_commit
from sandur.iceberg.table_commit import next_metadata
from sandur.iceberg.table_metadata import TableMetadata, decode_table_metadata, encode_table_metadata

UUID = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d"
OTHER_UUID = "11111111-2222-3333-4444-555555555555"
LOCATION = "s3://bucket/table"
NOW_MS = 1_700_000_100_000
BASE_MS = 1_700_000_000_000
BASE_FILE = f"{LOCATION}/metadata/00003-x.metadata.json"

Json = dict[str, Any]


def column(field_id: int, name: str, kind: object = "long", **more: object) -> Json:
    return {"id": field_id, "name": name, "required": False, "type": kind, **more}


def schema(*fields: Json, **more: object) -> Json:
    return {"type": "struct", "fields": list(fields), **more}


COLUMNS = (
    column(1, "id", required=True),
    column(2, "ts", "timestamptz"),
    column(3, "place", schema(column(4, "city", "string"))),
    column(5, "tags", {"type": "list", "element-id": 6, "element": "string", "element-required": False}),
)


def snapshot(snapshot_id: int, sequence_number: int | None = None, parent: int | None = None, **more: object) -> Json:
    optional = {"sequence-number": sequence_number, "parent-snapshot-id": parent}
    return {
        "snapshot-id": snapshot_id,
        "timestamp-ms": BASE_MS + snapshot_id,
        "manifest-list": f"{LOCATION}/metadata/snap-{snapshot_id}.avro",
        "summary": {"operation": "append"},
        **{key: value for key, value in optional.items() if value is not None},
        **more,
    }


def document(version: int = 2, **more: object) -> Json:
    """A table with two snapshots (1 and 2, of which 2 is current), two specs and two orders."""
    numbered = version > 1
    snapshots = [
        snapshot(1, 1 if numbered else None, **_lineage(version, 0)),
        snapshot(2, 2 if numbered else None, parent=1, **_lineage(version, 10)),
    ]
    fields: Json = {
        "format-version": version,
        "table-uuid": UUID,
        "location": LOCATION,
        "last-updated-ms": BASE_MS,
        "last-column-id": 6,
        "current-schema-id": 0,
        "schemas": [schema(*COLUMNS, **{"schema-id": 0})],
        "default-spec-id": 0,
        "partition-specs": [
            {"spec-id": 0, "fields": []},
            {
                "spec-id": 1,
                "fields": [{"source-id": 1, "field-id": 1000, "name": "id_bucket", "transform": "bucket[8]"}],
            },
        ],
        "last-partition-id": 1000,
        "default-sort-order-id": 0,
        "sort-orders": [
            {"order-id": 0, "fields": []},
            {"order-id": 1, "fields": [sort_field(1)]},
        ],
        "properties": {"owner": "ada"},
        "current-snapshot-id": 2,
        "refs": {"main": {"snapshot-id": 2, "type": "branch"}, "first": {"snapshot-id": 1, "type": "tag"}},
        "snapshots": snapshots,
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [
            {"timestamp-ms": BASE_MS + 1, "snapshot-id": 1},
            {"timestamp-ms": BASE_MS + 2, "snapshot-id": 2},
        ],
        "metadata-log": [],
    }
    if version == 1:
        fields |= {"schema": fields["schemas"][0], "partition-spec": []}
    else:
        fields["last-sequence-number"] = 2
    if version >= 3:
        fields["next-row-id"] = 20
    return fields | more


def _lineage(version: int, first_row_id: int) -> Json:
    return {"first-row-id": first_row_id, "added-rows": 10} if version >= 3 else {}


def sort_field(source_id: int, transform: str = "identity") -> Json:
    return {"transform": transform, "source-id": source_id, "direction": "asc", "null-order": "nulls-first"}


def spec_field(source_id: int, name: str, transform: str = "identity", /, **more: object) -> Json:
    return {"source-id": source_id, "name": name, "transform": transform, **more}


def table(version: int = 2, /, **more: object) -> TableMetadata:
    return read(document(version, **more))


def read(fields: Json) -> TableMetadata:
    return decode_table_metadata(json.dumps(fields).encode(), metadata_location=BASE_FILE)


def written(metadata: TableMetadata) -> Json:
    fields: Json = json.loads(encode_table_metadata(metadata))
    return fields


def commit(updates: Sequence[Json], requirements: Sequence[Json] = ()) -> TableCommit:
    return decode_table_commit(json.dumps({"requirements": list(requirements), "updates": list(updates)}).encode())


def committed(
    base: TableMetadata | None, *updates: Json, requirements: Sequence[Json] = (), now_ms: int = NOW_MS
) -> TableMetadata:
    parsed = commit(updates, requirements)
    return next_metadata(base, parsed.requirements, parsed.updates, now_ms=now_ms)


def after(base: TableMetadata | None, *updates: Json, **more: Any) -> Json:
    """The content of the file that the commit writes."""
    return written(committed(base, *updates, **more))


def created(*updates: Json, version: int = 2, now_ms: int = NOW_MS) -> TableMetadata:
    return committed(None, *creation(version), *updates, requirements=[{"type": "assert-create"}], now_ms=now_ms)


def creation(version: int = 2) -> list[Json]:
    """The request of a client that creates a table."""
    return [
        {"action": "assign-uuid", "uuid": UUID},
        {"action": "upgrade-format-version", "format-version": version},
        {"action": "add-schema", "schema": schema(*COLUMNS), "last-column-id": 6},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": LOCATION},
        {"action": "set-properties", "updates": {"owner": "ada"}},
    ]


def add_snapshot(*args: Any, **more: Any) -> Json:
    return {"action": "add-snapshot", "snapshot": snapshot(*args, **more)}


def set_main(snapshot_id: int, **more: object) -> Json:
    return set_ref("main", snapshot_id, **more)


def set_ref(name: str, snapshot_id: int, kind: str = "branch", /, **more: object) -> Json:
    return {"action": "set-snapshot-ref", "ref-name": name, "snapshot-id": snapshot_id, "type": kind, **more}


def refusal(*updates: Json, version: int = 2, **more: object) -> str:
    with pytest.raises(Invalid) as refused:
        committed(table(version, **more), *updates)
    return str(refused.value)


def unchanged(*updates: Json, version: int = 2, **more: object) -> bool:
    base = table(version, **more)
    return committed(base, *updates) is base


def add_schema(*fields: Json, **more: object) -> Json:
    return {"action": "add-schema", "schema": schema(*fields, **more)}


def add_spec(*fields: Json, spec_id: int = 0) -> Json:
    return {"action": "add-spec", "spec": {"spec-id": spec_id, "fields": list(fields)}}


def add_order(*fields: Json, order_id: int = 1) -> Json:
    return {"action": "add-sort-order", "sort-order": {"order-id": order_id, "fields": list(fields)}}
