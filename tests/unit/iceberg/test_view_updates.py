"""Every update and requirement of a view: what it changes, when it changes nothing, what it refuses."""

import pytest

from sandur.errors import Conflict, Invalid
from sandur.iceberg.requests import decode_table_commit
from sandur.iceberg.view_commit import next_view_metadata
from tests.unit.iceberg.views import (
    COLUMNS,
    LOCATION,
    NOW_MS,
    OTHER_UUID,
    VIEW_UUID,
    Json,
    add_schema,
    add_version,
    after,
    column,
    committed,
    creation,
    ids,
    log_entry,
    logged,
    query,
    schema,
    set_current,
    version,
    view,
    written,
)

TIMESTAMP_MS = 1_700_000_050_000


def refusal(*updates: Json, **more: object) -> str:
    with pytest.raises(Invalid) as refused:
        committed(view(**more), *updates)
    return str(refused.value)


def unchanged(*updates: Json, **more: object) -> bool:
    base = view(**more)
    return committed(base, *updates) is base


class TestAssignUuid:
    def test_the_same_uuid_changes_nothing_in_any_case(self) -> None:
        assert unchanged({"action": "assign-uuid", "uuid": VIEW_UUID})
        assert unchanged({"action": "assign-uuid", "uuid": VIEW_UUID.upper()})

    def test_another_uuid_is_refused(self) -> None:
        assert refusal({"action": "assign-uuid", "uuid": OTHER_UUID}) == "Cannot reassign uuid"

    def test_a_new_view_gets_one_uuid_only(self) -> None:
        with pytest.raises(Invalid, match=r"^Cannot reassign uuid$"):
            committed(None, *creation(), {"action": "assign-uuid", "uuid": OTHER_UUID})

    def test_an_invalid_uuid_is_refused(self) -> None:
        assert refusal({"action": "assign-uuid", "uuid": "../x"}) == "Cannot assign uuid, not a UUID: ../x"


class TestUpgradeFormatVersion:
    def test_the_only_version_changes_nothing(self) -> None:
        assert unchanged({"action": "upgrade-format-version", "format-version": 1})

    @pytest.mark.parametrize("wanted", [2, 3, 2**31 - 1])
    def test_later_versions_are_refused(self, wanted: int) -> None:
        text = refusal({"action": "upgrade-format-version", "format-version": wanted})

        assert text == f"Unsupported format version: {wanted}"

    @pytest.mark.parametrize("wanted", [0, -1])
    def test_earlier_versions_are_refused(self, wanted: int) -> None:
        text = refusal({"action": "upgrade-format-version", "format-version": wanted})

        assert text == f"Cannot downgrade v1 view to v{wanted}"


class TestSetLocation:
    def test_the_location_changes_and_nothing_else(self) -> None:
        base = view()

        fields = after(base, {"action": "set-location", "location": "s3://bucket/moved"})

        assert fields == written(base) | {"location": "s3://bucket/moved"}

    def test_a_slash_at_the_end_is_not_stored(self) -> None:
        assert after(view(), {"action": "set-location", "location": "s3://b/v//"})["location"] == "s3://b/v"
        assert unchanged({"action": "set-location", "location": LOCATION + "/"})

    def test_the_same_location_changes_nothing(self) -> None:
        assert unchanged({"action": "set-location", "location": LOCATION})

    def test_an_empty_location_is_refused(self) -> None:
        text = refusal({"action": "set-location", "location": ""})

        assert text == "Cannot set location: path must not be null or empty"


class TestProperties:
    def test_set_properties_keeps_the_keys_it_does_not_name(self) -> None:
        fields = after(view(), {"action": "set-properties", "updates": {"owner": "ada"}})

        assert fields["properties"] == {"comment": "a view", "owner": "ada"}

    def test_setting_equal_values_counts_as_a_change(self) -> None:
        assert not unchanged({"action": "set-properties", "updates": {"comment": "a view"}})

    def test_setting_nothing_changes_nothing(self) -> None:
        assert unchanged({"action": "set-properties", "updates": {}})

    def test_keys_are_removed_and_unknown_ones_ignored(self) -> None:
        fields = after(view(), {"action": "remove-properties", "removals": ["comment", "never there"]})

        assert "properties" not in fields

    def test_removing_nothing_changes_nothing(self) -> None:
        assert unchanged({"action": "remove-properties", "removals": []})

    def test_the_old_names_of_the_fields_are_accepted(self) -> None:
        fields = after(
            view(),
            {"action": "set-properties", "updated": {"owner": "ada"}},
            {"action": "remove-properties", "removed": ["comment"]},
        )

        assert fields["properties"] == {"owner": "ada"}

    def test_versions_and_log_are_unchanged(self) -> None:
        many = [version(number) for number in range(1, 15)]

        fields = after(view(*many), {"action": "set-properties", "updates": {"version.history.num-entries": "2"}})

        assert ids(fields) == logged(fields) == list(range(1, 15))

    def test_keys_that_are_reserved_for_tables_are_stored(self) -> None:
        fields = after(view(), {"action": "set-properties", "updates": {"current-schema": "x"}})

        assert fields["properties"]["current-schema"] == "x"


class TestAddSchema:
    def test_a_new_schema_gets_the_next_id_instead_of_its_own(self) -> None:
        fields = after(view(), add_schema(column(9, "other"), **{"schema-id": 77}))

        assert fields["schemas"][1] == schema(column(9, "other"), **{"schema-id": 1})

    def test_columns_keep_their_ids(self) -> None:
        fields = after(view(), add_schema(column(90, "a"), column(12, "b", schema(column(5, "c")))))

        assert [field["id"] for field in fields["schemas"][1]["fields"]] == [90, 12]
        assert fields["schemas"][1]["fields"][1]["type"]["fields"][0]["id"] == 5

    def test_an_equal_schema_is_reused(self) -> None:
        assert unchanged(add_schema(*COLUMNS, **{"schema-id": 5}))

    @pytest.mark.parametrize(
        "other",
        [
            (column(3, "id", doc="a column"), COLUMNS[1]),
            (column(4, "id"), COLUMNS[1]),
            (column(3, "ID"), COLUMNS[1]),
            (COLUMNS[1], COLUMNS[0]),
        ],
    )
    def test_a_schema_that_differs_anywhere_is_added(self, other: tuple[Json, ...]) -> None:
        assert len(after(view(), add_schema(*other))["schemas"]) == 2

    def test_ids_of_schemas_never_repeat(self) -> None:
        stored = [schema(*COLUMNS, **{"schema-id": 0}), schema(COLUMNS[0], **{"schema-id": 6})]

        assert after(view(schemas=stored), add_schema(COLUMNS[1]))["schemas"][-1]["schema-id"] == 7

    def test_types_of_later_table_formats_are_accepted(self) -> None:
        fields = after(view(), add_schema(column(1, "v", "variant"), column(2, "t", "timestamp_ns")))

        assert [field["type"] for field in fields["schemas"][1]["fields"]] == ["variant", "timestamp_ns"]

    def test_a_broken_schema_is_refused(self) -> None:
        text = refusal(add_schema(column(1, "a"), column(1, "b")))

        assert text == "Invalid schema: multiple fields for id 1: a and b"


class TestAddViewVersion:
    def test_a_new_version_is_added_but_not_current(self) -> None:
        fields = after(view(), add_version(9))

        assert ids(fields) == [1, 2, 9]
        assert fields["current-version-id"] == 2
        assert logged(fields) == [1, 2]

    def test_an_id_above_all_others_is_kept(self) -> None:
        assert ids(after(view(), add_version(40)))[-1] == 40

    @pytest.mark.parametrize("wanted", [2, 1, 0, -1, -(2**31)])
    def test_another_id_becomes_the_next_one(self, wanted: int) -> None:
        changes = add_version(wanted, query(sql="SELECT 'new'"))

        assert ids(after(view(), changes)) == [1, 2, 3]

    @pytest.mark.parametrize("wanted", [0, -7])
    def test_the_first_version_has_at_least_id_1(self, wanted: int) -> None:
        fields = after(None, *creation()[:4], add_version(wanted, schema_id=-1), set_current(-1))

        assert ids(fields) == logged(fields) == [1]

    def test_a_version_is_refused_after_the_highest_id(self) -> None:
        base = view(version(2**31 - 1))

        with pytest.raises(Invalid, match="Cannot assign an id: 2147483647 is the last one and is in use"):
            committed(base, add_version(1))

    def test_an_equal_version_is_reused_with_any_id_and_time(self) -> None:
        assert unchanged(add_version(1, query(sql="SELECT 2"), **{"timestamp-ms": 5}))

    def test_the_case_of_a_type_does_not_make_another_definition(self) -> None:
        assert unchanged(add_version(1, query(sql="SELECT 2", type="SQL")))

    @pytest.mark.parametrize(
        "other",
        [
            {"summary": {"engine-name": "Trino"}},
            {"default-namespace": ["db", "a"]},
            {"default-catalog": "prod"},
            {"representations": [query(sql="select 2")]},
            {"representations": [query("Spark", "SELECT 2")]},
            {"representations": [query(sql="SELECT 2"), query("trino", "SELECT 2")]},
            {"schema-id": -1},
        ],
    )
    def test_a_version_that_differs_anywhere_is_added(self, other: Json) -> None:
        changes = {"action": "add-view-version", "view-version": version(2) | other}

        assert ids(after(view(), add_schema(column(9, "other")), changes)) == [1, 2, 3]

    def test_minus_1_is_the_last_added_schema(self) -> None:
        fields = after(view(), add_schema(column(8, "x")), add_schema(column(9, "y")), add_version(3, schema_id=-1))

        assert fields["versions"][-1]["schema-id"] == 2

    def test_minus_1_is_also_a_reused_schema(self) -> None:
        fields = after(view(), add_schema(*COLUMNS), add_version(3, schema_id=-1))

        assert fields["versions"][-1]["schema-id"] == 0

    def test_minus_1_without_a_schema_is_refused(self) -> None:
        text = refusal(add_version(3, schema_id=-1))

        assert text == "Cannot set last added schema: no schema has been added"

    @pytest.mark.parametrize("unknown", [1, -2, 404])
    def test_an_unknown_schema_is_refused(self, unknown: int) -> None:
        assert refusal(add_version(3, schema_id=unknown)) == f"Cannot add version with unknown schema: {unknown}"

    @pytest.mark.parametrize("dialects", [("trino", "trino"), ("Trino", "spark", "tRINO")])
    def test_two_queries_for_one_dialect_are_refused(self, dialects: tuple[str, ...]) -> None:
        text = refusal(add_version(3, *(query(dialect, f"SELECT {at}") for at, dialect in enumerate(dialects))))

        assert text == "Invalid view version: Cannot add multiple queries for dialect trino"

    def test_the_case_of_a_dialect_is_kept(self) -> None:
        fields = after(view(), add_version(3, query("Spark"), query("Trino")))

        assert fields["versions"][-1]["representations"] == [query("Spark"), query("Trino")]

    @pytest.mark.parametrize("missing", ["sql", "dialect"])
    def test_a_query_without_text_or_dialect_is_refused(self, missing: str) -> None:
        representation = {key: value for key, value in query().items() if key != missing}

        text = refusal(add_version(3, representation))

        assert text == f"Invalid view version: Cannot parse missing string: {missing}"

    def test_a_representation_of_an_unknown_kind_is_refused(self) -> None:
        text = refusal(add_version(3, query(), {"type": "dataframe", "plan": [1, 2]}))

        assert text == "Invalid view version: Cannot serialize unsupported view representation: dataframe"

    def test_an_absent_catalog_is_not_written_as_null(self) -> None:
        fields = after(view(), add_version(3, **{"default-catalog": None}))

        assert "default-catalog" not in fields["versions"][-1]


class TestSetCurrentViewVersion:
    def test_a_version_added_now_is_logged_with_its_own_time(self) -> None:
        fields = after(view(), add_version(3, **{"timestamp-ms": TIMESTAMP_MS}), set_current(3))

        assert fields["current-version-id"] == 3
        assert fields["version-log"][2:] == [log_entry(3, TIMESTAMP_MS)]

    def test_an_older_version_is_logged_with_the_present_time(self) -> None:
        fields = after(view(), set_current(1))

        assert fields["current-version-id"] == 1
        assert fields["version-log"] == [log_entry(1), log_entry(2), log_entry(1, NOW_MS)]

    def test_a_reused_version_is_logged_with_the_present_time(self) -> None:
        fields = after(view(), add_version(9, query(sql="SELECT 1"), **{"timestamp-ms": 5}), set_current(-1))

        assert fields["version-log"][-1] == log_entry(1, NOW_MS)
        assert ids(fields) == [1, 2]

    def test_minus_1_is_the_last_added_version(self) -> None:
        fields = after(view(), add_version(3), add_version(4), set_current(-1))

        assert fields["current-version-id"] == 4

    def test_minus_1_without_a_version_is_refused(self) -> None:
        text = refusal(set_current(-1))

        assert text == "Cannot set last version id: no current version id has been set"

    def test_the_current_version_changes_nothing(self) -> None:
        assert unchanged(set_current(2))

    @pytest.mark.parametrize("unknown", [3, 0, -2])
    def test_an_unknown_version_is_refused(self, unknown: int) -> None:
        assert refusal(set_current(unknown)) == f"Cannot set current version to unknown version: {unknown}"

    def test_one_commit_makes_one_log_entry(self) -> None:
        fields = after(view(), add_version(3), set_current(3), set_current(1), add_version(4), set_current(4))

        assert logged(fields) == [1, 2, 4]


class TestRequirements:
    def test_the_uuid_of_the_view_passes_in_any_case(self) -> None:
        base = view()
        for uuid in (VIEW_UUID, VIEW_UUID.upper()):
            required = [{"type": "assert-view-uuid", "uuid": uuid}]

            assert committed(base, requirements=required) is base

    def test_another_uuid_is_a_conflict(self) -> None:
        with pytest.raises(Conflict) as conflict:
            committed(view(), requirements=[{"type": "assert-view-uuid", "uuid": OTHER_UUID}])

        assert str(conflict.value) == (
            f"Requirement failed: view UUID does not match: expected {VIEW_UUID} != {OTHER_UUID}"
        )

    def test_any_uuid_of_a_view_that_does_not_exist_is_a_conflict(self) -> None:
        with pytest.raises(Conflict) as conflict:
            committed(None, *creation(), requirements=[{"type": "assert-view-uuid", "uuid": VIEW_UUID}])

        assert str(conflict.value) == f"Requirement failed: view does not exist, expected UUID {VIEW_UUID}"

    def test_requirements_are_checked_before_the_updates(self) -> None:
        with pytest.raises(Conflict):
            committed(view(), set_current(404), requirements=[{"type": "assert-view-uuid", "uuid": OTHER_UUID}])

    def test_updates_and_requirements_of_tables_are_refused_by_name(self) -> None:
        body = b"""{"requirements": [{"type": "assert-create"}], "updates": [{"action": "remove-schemas",
            "schema-ids": [1]}, {"action": "set-location", "location": "x"}, {"action": "set-current-schema",
            "schema-id": 0}]}"""
        parsed = decode_table_commit(body)

        with pytest.raises(Invalid) as updates:
            next_view_metadata(view(), [], parsed.updates, now_ms=NOW_MS)
        with pytest.raises(Invalid) as requirements:
            next_view_metadata(view(), parsed.requirements, [], now_ms=NOW_MS)

        assert str(updates.value) == "Cannot apply update remove-schemas, set-current-schema to a view"
        assert str(requirements.value) == "Cannot validate assert-create against a view"


class TestNothingChanged:
    def test_a_commit_without_updates_returns_the_base(self) -> None:
        assert unchanged()

    def test_a_replacement_sent_twice_changes_nothing_the_second_time(self) -> None:
        changes = [add_schema(column(9, "x")), add_version(3, schema_id=-1), set_current(-1)]

        first = committed(view(), *changes)

        assert committed(first, *changes) is first

    def test_a_changed_view_has_no_file_yet(self) -> None:
        assert committed(view(), set_current(1)).metadata_location is None
