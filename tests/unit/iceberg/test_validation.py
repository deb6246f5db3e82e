"""Table files of other programs: every contradiction is refused before anything uses them."""

import json

import pytest

from sandur.errors import BadRequest, Invalid
from sandur.iceberg.validation import decode_foreign_table_metadata
from tests.unit.iceberg.tables import BASE_MS, COLUMNS, Json, column, document, schema, snapshot, spec_field, written
from tests.unit.iceberg.test_table_updates import STATISTICS

LATE = [{"timestamp-ms": BASE_MS, "snapshot-id": 1}, {"timestamp-ms": BASE_MS - 60_001, "snapshot-id": 2}]
FILES = [{"timestamp-ms": BASE_MS, "metadata-file": "a"}, {"timestamp-ms": BASE_MS - 60_001, "metadata-file": "b"}]


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_good_file_is_read(version: int) -> None:
    data = json.dumps(document(version)).encode()

    assert written(decode_foreign_table_metadata(data, metadata_location="m")) == document(version)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"location": ""}, "Table location is required in format v2"),
        ({"last-column-id": 5}, "Invalid last column ID: 5 < 6 (highest field ID)"),
        ({"current-schema-id": 9}, "Invalid table metadata: Cannot find current schema 9"),
        ({"default-spec-id": 9}, "Invalid table metadata: Cannot find default partition spec 9"),
        ({"default-sort-order-id": 9}, "Invalid table metadata: Cannot find default sort order 9"),
        (
            {"schemas": [schema(*COLUMNS, **{"schema-id": 0})] * 2},
            "Invalid table metadata: multiple entries for schema 0",
        ),
        (
            {"schemas": [schema(column(1, "v", "variant"), **{"schema-id": 0})]},
            "Invalid schema for v2:\n- Invalid type for v: variant is not supported until v3",
        ),
        (
            {"partition-specs": [{"spec-id": 0, "fields": [spec_field(9, "x", **{"field-id": 1000})]}]},
            "Cannot find source column for partition field: 1000: x: identity(9)",
        ),
        (
            {"snapshots": [snapshot(1, 1), snapshot(2, 2), snapshot(2, 2)]},
            "Invalid table metadata: multiple entries for snapshot 2",
        ),
        (
            {"snapshots": [snapshot(1, 1), snapshot(2, 3)]},
            "Invalid snapshot with sequence number 3 greater than last sequence number 2",
        ),
        (
            {"snapshots": [snapshot(2, 2)]},
            "Snapshot for reference first does not exist in the existing snapshots list",
        ),
        ({"current-snapshot-id": 1}, "Current snapshot ID does not match main branch (1 != 2)"),
        ({"current-snapshot-id": None}, "Current snapshot is not set, but main branch exists: 2"),
        ({"refs": {}, "current-snapshot-id": 7}, "Invalid table metadata: Cannot find current version"),
        ({"refs": {"main": {"snapshot-id": 2, "type": "x"}}}, "Invalid snapshot ref type: x"),
        ({"snapshot-log": LATE}, f"Expected sorted snapshot log entries: {BASE_MS - 60_001} follows {BASE_MS}"),
        ({"metadata-log": FILES}, f"Expected sorted metadata log entries: {BASE_MS - 60_001} follows {BASE_MS}"),
        (
            {"statistics": [STATISTICS, STATISTICS]},
            "Invalid table metadata: multiple entries for statistics file for snapshot 1",
        ),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(wrong: Json, text: str) -> None:
    with pytest.raises(Invalid) as refused:
        decode_foreign_table_metadata(json.dumps(document() | wrong).encode())

    assert str(refused.value) == text


def test_an_id_that_is_not_an_integer_is_refused() -> None:
    data = json.dumps(document()).replace('"snapshot-id": 1,', '"snapshot-id": 1e0,', 1).encode()

    with pytest.raises((BadRequest, Invalid)):
        decode_foreign_table_metadata(data)


def test_damage_inside_a_list_is_found() -> None:
    data = json.dumps(document()).replace('"operation": "append"', '"operation" "append"').encode()

    with pytest.raises(BadRequest, match="malformed"):
        decode_foreign_table_metadata(data)
