"""View metadata files: what is read, what is refused, what is written and what survives."""

import gzip
import json

import pytest

from sandur.errors import BadRequest, Invalid
from sandur.iceberg.view_metadata import decode_view_metadata, encode_view_metadata
from tests.unit.iceberg.views import (
    BASE_FILE,
    BASE_MS,
    COLUMNS,
    LOCATION,
    VIEW_UUID,
    Json,
    add_version,
    after,
    committed,
    document,
    log_entry,
    query,
    read,
    schema,
    set_current,
    version,
    view,
    written,
)


def refusal(data: bytes) -> str:
    with pytest.raises(BadRequest) as refused:
        decode_view_metadata(data)
    return str(refused.value)


def refused_document(**fields: object) -> str:
    """Why a document with these fields is refused; None means an absent field."""
    kept = {name: value for name, value in (document() | fields).items() if value is not None}
    return refusal(json.dumps(kept).encode())


class TestReading:
    def test_every_field_is_read(self) -> None:
        metadata = view()

        assert metadata.view_uuid == VIEW_UUID
        assert metadata.format_version == 1
        assert metadata.location == LOCATION
        assert metadata.properties == {"comment": "a view"}
        assert metadata.current_version_id == 2
        assert metadata.current_version.representations[0].sql == "SELECT 2"
        assert metadata.current_schema.ids_by_path == {"id": 3, "data": 7}
        assert [entry.timestamp_ms for entry in metadata.version_log] == [BASE_MS + 1, BASE_MS + 2]
        assert metadata.metadata_location == BASE_FILE

    def test_a_compressed_file_is_read_like_a_plain_one(self) -> None:
        plain = json.dumps(document()).encode()

        packed = gzip.compress(plain[:100]) + gzip.compress(plain[100:])

        assert encode_view_metadata(decode_view_metadata(packed)) == encode_view_metadata(decode_view_metadata(plain))

    def test_properties_may_be_absent(self) -> None:
        fields = document()
        del fields["properties"]

        assert read(fields).properties == {}

    def test_nulls_count_as_absent(self) -> None:
        metadata = view(version(1) | {"default-catalog": None}, properties=None, later=None)

        assert metadata.properties == {}
        assert metadata.current_version.default_catalog is None
        assert metadata.unknown == {}

    def test_a_schema_without_id_has_id_0(self) -> None:
        assert view(schemas=[schema(*COLUMNS)]).current_schema.schema_id is None

    def test_numbers_of_64_bits_stay_exact(self) -> None:
        largest = 2**63 - 1
        entries = [log_entry(1, largest)]

        fields = written(view(version(1, **{"timestamp-ms": largest}), **{"version-log": entries}))

        assert fields["version-log"] == entries
        assert fields["versions"][0]["timestamp-ms"] == largest


class TestRefusing:
    @pytest.mark.parametrize("version_number", [0, 2, -1, 2**70])
    def test_other_format_versions_are_refused(self, version_number: int) -> None:
        with pytest.raises(Invalid) as refused:
            read(document(**{"format-version": version_number}))

        assert str(refused.value) == f"Unsupported format version: {version_number}"

    @pytest.mark.parametrize(
        "name", ["view-uuid", "format-version", "location", "current-version-id", "schemas", "versions", "version-log"]
    )
    def test_a_missing_field_is_refused(self, name: str) -> None:
        text = refused_document(**{name: None})

        assert text.startswith("view metadata is malformed: ")
        assert name in text

    @pytest.mark.parametrize(
        ("name", "wrong"),
        [
            ("view-uuid", 7),
            ("format-version", "1"),
            ("format-version", 1.5),
            ("location", ["s3://x"]),
            ("current-version-id", "1"),
            ("current-version-id", 2**31),
            ("properties", []),
            ("properties", {"a": 1}),
            ("properties", {"a": None}),
            ("schemas", {}),
            ("versions", "none"),
            ("version-log", 1),
        ],
    )
    def test_a_field_of_the_wrong_kind_is_refused(self, name: str, wrong: object) -> None:
        text = refused_document(**{name: wrong})

        assert name in text or "view metadata is malformed" in text

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"[]",
            b"null",
            b"view",
            b'{"view-uuid"',
            b"\xff\xfe",
            b'{"view-uuid": "\xff"}',
            b"[" * 100_000,
            gzip.compress(b"{}", mtime=0)[:-5],
            b"\x1f\x8bnothing",
        ],
    )
    def test_a_body_that_is_not_a_document_is_refused(self, data: bytes) -> None:
        assert refusal(data).startswith("view metadata is malformed: ")

    def test_broken_text_in_an_unused_field_is_refused(self) -> None:
        text = refusal(json.dumps(document(later="text")).encode().replace(b'"text"', b'"\xff"'))

        assert text == "view metadata is malformed: not valid UTF-8"

    def test_an_unknown_current_version_is_refused_when_it_is_needed(self) -> None:
        metadata = view(**{"current-version-id": 9})

        with pytest.raises(Invalid) as refused:
            metadata.current_version  # noqa: B018 # It is the access that raises.

        assert str(refused.value) == "Cannot find current version 9 in view versions: [1, 2]"

    def test_an_unknown_current_schema_is_refused_when_it_is_needed(self) -> None:
        metadata = view(version(1, schema_id=4))

        with pytest.raises(Invalid) as refused:
            metadata.current_schema  # noqa: B018 # It is the access that raises.

        assert str(refused.value) == "Cannot find current schema with id 4 in schemas: [0]"


class TestWriting:
    def test_a_file_is_written_as_it_was_read(self) -> None:
        assert written(view()) == document()

    def test_the_fields_are_in_the_order_of_the_format(self) -> None:
        assert list(written(view(later=1))) == [
            "view-uuid",
            "format-version",
            "location",
            "properties",
            "schemas",
            "current-version-id",
            "versions",
            "version-log",
            "later",
        ]

    def test_empty_properties_are_omitted(self) -> None:
        assert "properties" not in written(view(properties={}))

    def test_unknown_fields_survive_a_commit_at_every_level(self) -> None:
        fields = document(
            version(1, query(hint="x"), later={"b": 1.50}),
            version(2, {"type": "dataframe", "plan": [1]}),
            later=[1, {"a": None}],
            schemas=[schema(*COLUMNS, **{"schema-id": 0, "later": True})],
        )
        fields["version-log"][0]["by"] = "ada"

        changed = after(read(fields), add_version(3), set_current(-1))

        assert changed["later"] == [1, {"a": None}]
        assert changed["versions"][:2] == fields["versions"]
        assert changed["schemas"] == fields["schemas"]
        assert changed["version-log"][:2] == fields["version-log"]

    def test_untouched_bytes_are_kept_unchanged(self) -> None:
        odd = (
            b'{ "version-id":1 , "timestamp-ms": 1000,"schema-id":0,"summary":{},"default-namespace":[],'
            b'"representations":[{"type":"sql","sql":"SELECT \\u0041","dialect":"spark"}] }'
        )
        fields = json.dumps(document(version(1))).encode()
        stored = json.dumps(version(1)).encode()
        metadata = decode_view_metadata(fields.replace(stored, odd))

        changed = encode_view_metadata(committed(metadata, add_version(2)))

        assert odd in changed

    def test_text_beyond_ascii_survives(self) -> None:
        comment = "Ein Gletscher \U0001f9ca \u2014 \u202e"
        fields: Json = document(version(1, query(sql=f"SELECT '{comment}'")), properties={"comment": comment})

        assert written(read(fields)) == fields
