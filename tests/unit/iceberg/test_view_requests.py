"""Request bodies about views: valid ones are parsed, all others get one clear error."""

import json

import pytest

from sandur.errors import BadRequest
from sandur.iceberg.requests import AssertViewUuid, TableIdentifier
from sandur.iceberg.updates import AddViewVersion, SetProperties
from sandur.iceberg.view_commit import decode_create_view, decode_register_view, decode_view_commit
from tests.unit.iceberg.views import COLUMNS, VIEW_UUID, Json, add_version, schema, set_current, version

TABLE_UPDATES: tuple[Json, ...] = (
    {"action": "set-current-schema", "schema-id": 0},
    {"action": "add-spec", "spec": {"fields": []}},
    {"action": "set-default-spec", "spec-id": 0},
    {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
    {"action": "set-default-sort-order", "sort-order-id": 0},
    {
        "action": "add-snapshot",
        "snapshot": {"snapshot-id": 1, "timestamp-ms": 1, "manifest-list": "x", "summary": {"operation": "append"}},
    },
    {"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": 1, "type": "branch"},
    {"action": "remove-snapshot-ref", "ref-name": "main"},
    {"action": "remove-snapshots", "snapshot-ids": [1]},
    {
        "action": "set-statistics",
        "statistics": {
            "snapshot-id": 1,
            "statistics-path": "x",
            "file-size-in-bytes": 1,
            "file-footer-size-in-bytes": 1,
            "blob-metadata": [],
        },
    },
    {"action": "remove-statistics", "snapshot-id": 1},
    {
        "action": "set-partition-statistics",
        "partition-statistics": {"snapshot-id": 1, "statistics-path": "x", "file-size-in-bytes": 1},
    },
    {"action": "remove-partition-statistics", "snapshot-id": 1},
    {"action": "remove-partition-specs", "spec-ids": [1]},
    {"action": "remove-schemas", "schema-ids": [1]},
    {"action": "add-encryption-key", "encryption-key": {"key-id": "k", "encrypted-key-metadata": "eA=="}},
    {"action": "remove-encryption-key", "key-id": "k"},
)
TABLE_REQUIREMENTS: tuple[Json, ...] = (
    {"type": "assert-create"},
    {"type": "assert-table-uuid", "uuid": VIEW_UUID},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1},
    {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 1},
    {"type": "assert-current-schema-id", "current-schema-id": 0},
    {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 999},
    {"type": "assert-default-spec-id", "default-spec-id": 0},
    {"type": "assert-default-sort-order-id", "default-sort-order-id": 0},
)
CREATION: Json = {"name": "v", "schema": schema(*COLUMNS), "view-version": version(1), "properties": {}}


def body(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def refusal(data: bytes) -> str:
    with pytest.raises(BadRequest) as refused:
        decode_view_commit(data)
    return str(refused.value)


class TestCommit:
    def test_updates_requirements_and_identifier_are_parsed(self) -> None:
        commit = decode_view_commit(
            body(
                identifier={"namespace": ["db"], "name": "v"},
                requirements=[{"type": "assert-view-uuid", "uuid": VIEW_UUID}],
                updates=[{"action": "set-properties", "updates": {"a": "b"}}, add_version(3)],
            )
        )

        assert commit.identifier == TableIdentifier(namespace=("db",), name="v")
        assert commit.requirements == (AssertViewUuid(uuid=VIEW_UUID),)
        assert commit.updates[0] == SetProperties(updates={"a": "b"})
        assert isinstance(commit.updates[1], AddViewVersion)

    def test_requirements_and_identifier_may_be_absent_or_null(self) -> None:
        for more in ({}, {"requirements": None, "identifier": None}):
            commit = decode_view_commit(body(updates=[], **more))

            assert (commit.requirements, commit.updates, commit.identifier) == ((), (), None)

    @pytest.mark.parametrize("update", TABLE_UPDATES, ids=lambda update: update["action"])
    def test_an_update_for_tables_is_refused_by_name(self, update: Json) -> None:
        assert refusal(body(updates=[update])) == f"Cannot apply update {update['action']} to a view"

    @pytest.mark.parametrize("requirement", TABLE_REQUIREMENTS, ids=lambda requirement: requirement["type"])
    def test_a_requirement_for_tables_is_refused_by_name(self, requirement: Json) -> None:
        text = refusal(body(requirements=[requirement], updates=[]))

        assert text == f"Cannot validate {requirement['type']} against a view"

    def test_all_updates_for_tables_are_named_once(self) -> None:
        text = refusal(body(updates=[TABLE_UPDATES[0], set_current(1), TABLE_UPDATES[2], TABLE_UPDATES[0]]))

        assert text == "Cannot apply update set-current-schema, set-default-spec to a view"

    def test_unknown_actions_and_types_are_all_listed(self) -> None:
        text = refusal(body(requirements=[{"type": "assert-weather"}], updates=[{"action": "shake"}, {"action": "x"}]))

        assert text == (
            "commit is malformed: unknown update actions: shake, x; unknown requirement types: assert-weather"
        )

    @pytest.mark.parametrize(
        "wrong",
        [
            {},
            {"updates": None},
            {"updates": {}},
            {"updates": [1]},
            {"updates": [{}]},
            {"updates": [{"action": 7}]},
            {"updates": [{"action": "add-view-version"}]},
            {"updates": [{"action": "add-view-version", "view-version": []}]},
            {"updates": [{"action": "set-current-view-version", "view-version-id": "1"}]},
            {"updates": [{"action": "set-current-view-version", "view-version-id": 2**31}]},
            {"updates": [{"action": "set-current-view-version", "view-version-id": 1.5}]},
            {"updates": [{"action": "set-properties", "updates": {"a": None}}]},
            {"updates": [], "requirements": [{"type": "assert-view-uuid"}]},
            {"updates": [], "requirements": [{"type": "assert-view-uuid", "uuid": 1}]},
            {"updates": [], "identifier": {"name": "v"}},
        ],
    )
    def test_malformed_bodies_are_refused(self, wrong: Json) -> None:
        assert "malformed" in refusal(body(**wrong))

    @pytest.mark.parametrize(
        "missing", ["version-id", "timestamp-ms", "schema-id", "summary", "representations", "default-namespace"]
    )
    def test_a_version_without_a_required_field_is_refused_by_the_name_of_the_field(self, missing: str) -> None:
        incomplete = {key: value for key, value in version(1).items() if key != missing}

        text = refusal(body(updates=[{"action": "add-view-version", "view-version": incomplete}]))

        assert text.startswith("update add-view-version is malformed: ")
        assert f"`{missing}`" in text

    @pytest.mark.parametrize(
        "wrong",
        [
            {"version-id": "1"},
            {"timestamp-ms": 2**63},
            {"schema-id": None},
            {"summary": {"a": 1}},
            {"representations": {}},
            {"representations": ["SELECT 1"]},
            {"representations": [{"sql": "SELECT 1", "dialect": "spark"}]},
            {"representations": [{"type": "sql", "sql": 1, "dialect": "spark"}]},
            {"default-namespace": "db"},
            {"default-namespace": [1]},
            {"default-catalog": 1},
        ],
    )
    def test_a_version_with_a_part_of_the_wrong_kind_is_refused(self, wrong: Json) -> None:
        text = refusal(body(updates=[{"action": "add-view-version", "view-version": version(1) | wrong}]))

        assert text.startswith("update add-view-version is malformed: ")

    @pytest.mark.parametrize("data", [b"", b"{", b"null", b"\xff", b"[" * 100_000, b'{"updates":' + b"[" * 100_000])
    def test_a_body_that_is_not_a_json_object_is_refused(self, data: bytes) -> None:
        assert "malformed" in refusal(data)


class TestCreate:
    def test_a_request_is_parsed(self) -> None:
        request = decode_create_view(body(**CREATION, location="s3://x"))

        assert (request.name, request.location, request.properties) == ("v", "s3://x", {})
        assert request.view_version.default_namespace == ("db",)

    def test_nulls_count_as_absent(self) -> None:
        request = decode_create_view(body(**CREATION | {"location": None, "properties": None}))

        assert (request.location, request.properties) == (None, None)

    @pytest.mark.parametrize("missing", ["name", "schema", "view-version"])
    def test_the_error_names_the_missing_field(self, missing: str) -> None:
        with pytest.raises(BadRequest, match=f"create view request is malformed: .*`{missing}`"):
            decode_create_view(body(**{key: value for key, value in CREATION.items() if key != missing}))

    @pytest.mark.parametrize("data", [b"", b"[]", b'{"name": "\xff"}', b"{" * 100_000])
    def test_an_invalid_request_is_refused(self, data: bytes) -> None:
        with pytest.raises(BadRequest, match="create view request is malformed"):
            decode_create_view(data)


class TestRegister:
    def test_a_request_is_parsed(self) -> None:
        request = decode_register_view(body(**{"name": "v", "metadata-location": "s3://x/1.metadata.json"}))

        assert (request.name, request.metadata_location) == ("v", "s3://x/1.metadata.json")

    @pytest.mark.parametrize("fields", [{}, {"name": "v"}, {"name": 1, "metadata-location": "x"}])
    def test_an_invalid_request_is_refused(self, fields: Json) -> None:
        with pytest.raises(BadRequest, match="register view request is malformed"):
            decode_register_view(body(**fields))
