"""Metadata files: what is written and read for each format version, and which unknown fields are kept."""

import gzip
import json

import pytest

from sandur.errors import BadRequest, Invalid, SandurError
from sandur.iceberg.table_metadata import decode_table_metadata, encode_table_metadata
from sandur.iceberg.validation import decode_foreign_table_metadata
from tests.unit.iceberg.tables import (
    BASE_MS,
    COLUMNS,
    LOCATION,
    UUID,
    Json,
    add_snapshot,
    after,
    committed,
    created,
    document,
    read,
    schema,
    set_main,
    snapshot,
    table,
    written,
)

ALWAYS_WRITTEN: Json = {
    "refs": {},
    "snapshots": [],
    "statistics": [],
    "partition-statistics": [],
    "snapshot-log": [],
    "metadata-log": [],
}


class TestWriting:
    def test_an_empty_v1_table(self) -> None:
        columns = schema(*COLUMNS, **{"schema-id": 0})

        assert written(created(version=1, now_ms=5)) == {
            "format-version": 1,
            "table-uuid": UUID,
            "location": LOCATION,
            "last-updated-ms": 5,
            "last-column-id": 6,
            "schema": columns,
            "current-schema-id": 0,
            "schemas": [columns],
            "partition-spec": [],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": {"owner": "ada"},
            "current-snapshot-id": -1,
            **ALWAYS_WRITTEN,
        }

    def test_an_empty_v2_table(self) -> None:
        v1 = written(created(version=1))

        fields = written(created(version=2))

        assert fields == {key: value for key, value in v1.items() if key not in {"schema", "partition-spec"}} | {
            "format-version": 2,
            "last-sequence-number": 0,
        }

    def test_an_empty_v3_table(self) -> None:
        v2 = written(created(version=2))

        assert written(created(version=3)) == v2 | {"format-version": 3, "current-snapshot-id": None, "next-row-id": 0}

    def test_v1_repeats_the_current_schema_and_the_default_spec(self) -> None:
        fields = after(
            table(1),
            {"action": "add-schema", "schema": schema(COLUMNS[0])},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "set-default-spec", "spec-id": 1},
        )

        assert fields["schema"] == fields["schemas"][1]
        assert fields["partition-spec"] == fields["partition-specs"][1]["fields"]

    @pytest.mark.parametrize("version", [1, 2, 3, 4])
    def test_a_decoded_table_is_written_unchanged(self, version: int) -> None:
        assert written(table(version)) == document(version)

    @pytest.mark.parametrize("version", [1, 2, 3, 4])
    def test_reading_and_writing_again_gives_the_same_bytes(self, version: int) -> None:
        once = encode_table_metadata(table(version))

        assert encode_table_metadata(decode_table_metadata(once)) == once

    def test_the_metadata_location_is_not_written(self) -> None:
        assert b"00003-x" not in encode_table_metadata(table())


class TestSurvival:
    def test_unknown_fields_survive_byte_for_byte(self) -> None:
        strange = b'{ "z" : 1.10, "big": 123456789012345678901234567890, "n":null ,"s":"\\u00e9\\/" }'
        known = json.dumps(document()).encode()
        snapshots = json.dumps(document()["snapshots"]).encode()
        marked = b'[ {"snapshot-id":1,"timestamp-ms":1,"manifest-list":"m","x":' + strange + b"}\n]"
        data = known.replace(snapshots, marked)[:-1] + b',"future":' + strange + b"}"
        base = decode_table_metadata(data, metadata_location="m")

        fields = encode_table_metadata(base)

        assert fields.count(strange) == 2
        assert marked in fields

    def test_unknown_fields_survive_a_commit_that_appends_to_the_same_list(self) -> None:
        base = table(
            future={"a": [1, {"b": None}]},
            schemas=[schema({**COLUMNS[0], "hint": "h"}, *COLUMNS[1:], **{"schema-id": 0, "note": 7})],
            refs={
                "main": {"snapshot-id": 2, "type": "branch", "by": "me"},
                "side": {"snapshot-id": 1, "type": "branch", "by": "you"},
            },
        )

        fields = after(
            base,
            {"action": "add-schema", "schema": schema(COLUMNS[0])},
            add_snapshot(3, 3, parent=2),
            set_main(3),
        )

        assert fields["future"] == {"a": [1, {"b": None}]}
        assert fields["schemas"][0] == document()["schemas"][0] | {
            "note": 7,
            "fields": [{**COLUMNS[0], "hint": "h"}, *COLUMNS[1:]],
        }
        assert fields["refs"]["side"]["by"] == "you"

    def test_white_space_does_not_matter(self) -> None:
        data = json.dumps(document(), indent=4).replace(",", " ,").encode()

        base = decode_table_metadata(b"\n " + data + b"\n")

        assert written(base) == document()

    def test_a_commit_can_append_to_a_list_with_white_space(self) -> None:
        data = (
            json.dumps(document(statistics=[]), indent=2).replace('"statistics": []', '"statistics": [ \n ]').encode()
        )
        file = {"snapshot-id": 1, "statistics-path": "x", "file-size-in-bytes": 1}

        grown = committed(
            decode_table_metadata(data), {"action": "set-partition-statistics", "partition-statistics": file}
        )

        assert written(grown)["partition-statistics"] == [file]
        assert written(grown)["statistics"] == []


class TestReadingOtherEngines:
    def test_a_gzip_file_is_read(self) -> None:
        data = json.dumps(document()).encode()
        half = len(data) // 2

        assert written(decode_table_metadata(gzip.compress(data))) == document()
        two_members = gzip.compress(data[:half]) + gzip.compress(data[half:])
        assert written(decode_table_metadata(two_members)) == document()

    @pytest.mark.parametrize("damage", [slice(0, 40), slice(0, -3)])
    def test_damaged_gzip_is_one_clear_error(self, damage: slice) -> None:
        with pytest.raises(BadRequest, match="malformed"):
            decode_table_metadata(gzip.compress(json.dumps(document()).encode())[damage])

    def test_a_v1_file_of_an_old_writer_is_read(self) -> None:
        old = document(1)
        partition = {"source-id": 1, "name": "id_bucket", "transform": "bucket[8]"}
        old["schema"] = schema(*COLUMNS)
        old["partition-spec"] = [partition]
        for name in (
            "schemas", "current-schema-id", "partition-specs", "default-spec-id", "last-partition-id", "sort-orders",
            "default-sort-order-id", "refs", "table-uuid", "properties", "statistics", "partition-statistics",
        ):  # fmt: skip
            del old[name]

        base = read(old)

        assert base.current_schema.schema_id == 0
        assert base.default_spec.fields[0].field_id == 1000
        assert base.last_partition_id == 1000
        assert base.default_sort_order.fields == ()
        assert base.refs["main"].snapshot_id == 2
        assert base.table_uuid is None
        assert written(base)["partition-specs"] == [{"spec-id": 0, "fields": [{**partition, "field-id": 1000}]}]

    @pytest.mark.parametrize("none", [-1, None])
    @pytest.mark.parametrize("version", [1, 2, 3, 4])
    def test_every_notation_of_no_current_snapshot_is_read(self, none: int | None, version: int) -> None:
        base = table(version, refs={}, snapshots=[], **{"current-snapshot-id": none, "snapshot-log": []})

        assert base.current_snapshot_id is None
        assert base.current_snapshot is None
        assert written(base)["current-snapshot-id"] == (None if version >= 3 else -1)

    def test_explicit_nulls_count_as_absent(self) -> None:
        nulls = dict.fromkeys(
            ["snapshots", "statistics", "partition-statistics", "snapshot-log", "metadata-log", "refs"]
        )

        base = table(properties=None, **nulls, **{"current-snapshot-id": None})

        assert written(base) == document() | ALWAYS_WRITTEN | {"properties": {}, "current-snapshot-id": -1}

    def test_missing_refs_imply_the_main_branch(self) -> None:
        assert written(table(refs=None))["refs"] == {"main": {"snapshot-id": 2, "type": "branch"}}

    def test_a_location_loses_its_last_slash(self) -> None:
        assert table(location=LOCATION + "/").location == LOCATION

    @pytest.mark.parametrize("version", [0, 5, 99])
    def test_an_unsupported_version_is_refused(self, version: int) -> None:
        with pytest.raises(Invalid) as refused:
            read(document() | {"format-version": version})

        assert str(refused.value) == f"Cannot read unsupported version {version} (supported: v4)"

    @pytest.mark.parametrize("version", [2, 3, 4])
    @pytest.mark.parametrize(
        "name",
        [
            "table-uuid", "last-sequence-number", "schemas", "current-schema-id", "partition-specs", "default-spec-id",
            "last-partition-id", "sort-orders", "default-sort-order-id",
        ],
    )  # fmt: skip
    def test_a_v2_file_without_a_required_field_is_refused(self, version: int, name: str) -> None:
        with pytest.raises(BadRequest) as refused:
            read({key: value for key, value in document(version).items() if key != name})

        assert str(refused.value) == f"{name} must exist in format v{version}"

    def test_a_v3_file_needs_the_next_row_id(self) -> None:
        with pytest.raises(BadRequest, match="next-row-id must exist in format v3"):
            table(3, **{"next-row-id": None})

    @pytest.mark.parametrize("name", ["format-version", "location", "last-updated-ms", "last-column-id"])
    @pytest.mark.parametrize("version", [1, 2, 3, 4])
    def test_a_file_of_any_version_without_a_required_field_is_refused(self, version: int, name: str) -> None:
        with pytest.raises(BadRequest, match=name):
            read({key: value for key, value in document(version).items() if key != name})

    def test_a_v1_file_needs_a_schema(self) -> None:
        with pytest.raises(BadRequest, match="schema must exist in format v1"):
            read({key: value for key, value in document(1).items() if "schema" not in key})

    @pytest.mark.parametrize("name", sorted(document(3).keys() - {"schema"}))
    @pytest.mark.parametrize("wrong", [True, "x", -1.5, {"a": 1}, 2**70, [1]])
    def test_a_field_of_the_wrong_type_is_one_clear_error_when_it_is_used(self, name: str, wrong: object) -> None:
        if (name in {"table-uuid", "location"} and wrong == "x") or wrong == document(3)[name]:
            return
        with pytest.raises(SandurError):
            decode_foreign_table_metadata(json.dumps(document(3) | {name: wrong}).encode())

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"{",
            b"null",
            b"[]",
            b"\xff\xfe",
            b'{"format-version":2,"location":"\xff"}',
            b'{"format-version":"2"}',
            b'{"format-version":NaN}',
            b'{"format-version":1e99}',
            b'{"format-version":' + b"9" * 5000 + b"}",
            b'{"a":' * 100_000,
            b"\x1f\x8b",
        ],
    )  # fmt: skip
    def test_a_body_that_is_not_metadata_is_one_clear_error(self, data: bytes) -> None:
        with pytest.raises(BadRequest):
            decode_table_metadata(data)


class TestLookingUp:
    def test_a_snapshot_is_found_by_its_id(self) -> None:
        base = table(snapshots=[snapshot(123, 1), snapshot(2, 2, parent=123)], refs={})

        found = base.snapshot(123)

        assert found is not None
        assert found.timestamp_ms == BASE_MS + 123
        assert base.snapshot(12) is None
        assert base.snapshot(23) is None
        assert base.snapshot(99) is None

    def test_repeated_lookups_return_the_same_snapshot(self) -> None:
        base = table()

        assert [base.has_snapshot(at) for at in (1, 99, 98, 97, 96, 95, 2, 94, 1)] == [
            True, False, False, False, False, False, True, False, True
        ]  # fmt: skip

    def test_a_snapshot_added_by_a_commit_is_found(self) -> None:
        grown = committed(table(), add_snapshot(3, 3))

        assert grown.has_snapshot(3)
        assert [grown.snapshot(at).snapshot_id for at in (1, 2, 3)] == [1, 2, 3]  # type: ignore[union-attr] # All exist.

    def test_a_missing_schema_is_one_clear_error(self) -> None:
        with pytest.raises(Invalid, match="Cannot find current schema 7"):
            _ = table(**{"current-schema-id": 7}).current_schema
