"""Every update that is not about snapshots: what it changes, when it changes nothing, what it refuses."""

from typing import ClassVar

import pytest

from sandur.errors import Invalid
from tests.unit.iceberg.tables import (
    COLUMNS,
    LOCATION,
    OTHER_UUID,
    UUID,
    Json,
    add_order,
    add_schema,
    add_spec,
    after,
    column,
    committed,
    created,
    creation,
    refusal,
    schema,
    sort_field,
    spec_field,
    table,
    unchanged,
)


class TestAssignUuid:
    def test_the_same_uuid_changes_nothing_in_any_case(self) -> None:
        assert unchanged({"action": "assign-uuid", "uuid": UUID})
        assert unchanged({"action": "assign-uuid", "uuid": UUID.upper()})

    def test_another_uuid_on_an_existing_table_is_refused(self) -> None:
        text = refusal({"action": "assign-uuid", "uuid": OTHER_UUID})

        assert text == f"Cannot reassign uuid: expected {UUID}, found {OTHER_UUID}"

    def test_an_invalid_uuid_is_refused(self) -> None:
        assert refusal({"action": "assign-uuid", "uuid": "../x"}) == "Cannot assign uuid, not a UUID: ../x"

    def test_a_v1_table_without_uuid_gets_one(self) -> None:
        assert after(table(1, **{"table-uuid": None}), {"action": "assign-uuid", "uuid": UUID})["table-uuid"] == UUID


class TestUpgradeFormatVersion:
    @pytest.mark.parametrize("version", [1, 2, 3, 4])
    def test_the_same_version_changes_nothing(self, version: int) -> None:
        assert unchanged({"action": "upgrade-format-version", "format-version": version}, version=version)

    def test_a_v1_table_becomes_v2(self) -> None:
        fields = after(table(1), {"action": "upgrade-format-version", "format-version": 2})

        assert fields["format-version"] == 2
        assert fields["last-sequence-number"] == 0
        assert "schema" not in fields
        assert "partition-spec" not in fields

    def test_a_v2_table_becomes_v3_and_its_snapshots_stay(self) -> None:
        fields = after(table(2), {"action": "upgrade-format-version", "format-version": 3})

        assert fields["next-row-id"] == 0
        assert all("first-row-id" not in snapshot for snapshot in fields["snapshots"])

    def test_a_v3_table_becomes_v4_and_keeps_its_row_ids(self) -> None:
        fields = after(table(3), {"action": "upgrade-format-version", "format-version": 4})

        assert fields["format-version"] == 4
        assert fields["next-row-id"] == table(3).next_row_id
        assert [snapshot["first-row-id"] for snapshot in fields["snapshots"]] == [0, 10]

    def test_version_5_is_refused(self) -> None:
        text = refusal({"action": "upgrade-format-version", "format-version": 5})

        assert text == "Cannot upgrade table to unsupported format version: v5 (supported: v4)"

    def test_a_downgrade_is_refused(self) -> None:
        assert refusal({"action": "upgrade-format-version", "format-version": 1}) == "Cannot downgrade v2 table to v1"

    def test_a_v1_table_without_uuid_cannot_become_v2(self) -> None:
        text = refusal({"action": "upgrade-format-version", "format-version": 2}, version=1, **{"table-uuid": None})

        assert text == "UUID is required in format v2"


class TestSchemas:
    def test_a_new_schema_gets_the_next_id_instead_of_the_requested_one(self) -> None:
        fields = after(table(), add_schema(*COLUMNS, column(7, "more"), **{"schema-id": 17}))

        assert [found["schema-id"] for found in fields["schemas"]] == [0, 1]
        assert fields["current-schema-id"] == 0
        assert fields["last-column-id"] == 7

    def test_the_last_column_id_never_goes_back(self) -> None:
        assert after(table(), add_schema(column(1, "id")))["last-column-id"] == 6

    def test_an_equal_schema_is_reused(self) -> None:
        assert unchanged(add_schema(*COLUMNS, **{"schema-id": 5}))

    def test_an_equal_schema_in_another_notation_is_reused(self) -> None:
        compact = column(1, "d", "decimal(9,2)")
        base = table(schemas=[schema(compact, **{"schema-id": 0})])

        assert committed(base, add_schema(column(1, "d", "DECIMAL( 9, 2 )"))) is base

    @pytest.mark.parametrize(
        "other",
        [
            {"doc": "said"},
            {"required": False},
            {"name": "other"},
            {"type": "int"},
            {"id": 9},
            {"write-default": 3},
        ],
    )
    def test_a_schema_with_any_difference_is_added(self, other: Json) -> None:
        fields = after(table(), add_schema({**COLUMNS[0], **other}, *COLUMNS[1:]))

        assert len(fields["schemas"]) == 2

    def test_other_identifier_fields_make_another_schema(self) -> None:
        fields = after(table(), add_schema(*COLUMNS, **{"identifier-field-ids": [1]}))

        assert fields["schemas"][1]["identifier-field-ids"] == [1]

    def test_explicit_nulls_are_accepted_and_not_written(self) -> None:
        sent = column(7, "x", doc=None, **{"initial-default": None, "write-default": None})

        fields = after(table(), add_schema(*COLUMNS, sent, **{"identifier-field-ids": None}))

        assert fields["schemas"][1]["fields"][-1] == column(7, "x")
        assert "identifier-field-ids" not in fields["schemas"][1]

    def test_minus_one_is_the_schema_added_last(self) -> None:
        fields = after(
            table(),
            add_schema(*COLUMNS, column(7, "a")),
            add_schema(*COLUMNS, column(7, "a"), column(8, "b")),
            {"action": "set-current-schema", "schema-id": -1},
        )

        assert fields["current-schema-id"] == 2

    def test_minus_one_is_also_a_schema_that_was_reused(self) -> None:
        assert unchanged(add_schema(*COLUMNS), {"action": "set-current-schema", "schema-id": -1})

    def test_minus_one_without_an_added_schema_is_refused(self) -> None:
        text = refusal({"action": "set-current-schema", "schema-id": -1})

        assert text == "Cannot set last added schema: no schema has been added"

    def test_an_unknown_schema_cannot_be_current(self) -> None:
        text = refusal({"action": "set-current-schema", "schema-id": 9})

        assert text == "Cannot set current schema to unknown schema: 9"

    def test_the_current_schema_set_again_changes_nothing(self) -> None:
        assert unchanged({"action": "set-current-schema", "schema-id": 0})

    def test_schemas_are_removed_and_unknown_ones_ignored(self) -> None:
        base = committed(table(), add_schema(column(1, "id")))

        fields = after(base, {"action": "remove-schemas", "schema-ids": [1, 77]})

        assert [found["schema-id"] for found in fields["schemas"]] == [0]

    def test_removing_unknown_schemas_changes_nothing(self) -> None:
        assert unchanged({"action": "remove-schemas", "schema-ids": [77]})

    def test_the_current_schema_cannot_be_removed(self) -> None:
        assert refusal({"action": "remove-schemas", "schema-ids": [0]}) == "Cannot remove the current schema"

    def test_no_id_is_left_after_the_highest(self) -> None:
        base = table(schemas=[schema(*COLUMNS, **{"schema-id": 2**31 - 1})], **{"current-schema-id": 2**31 - 1})

        with pytest.raises(Invalid, match="Cannot assign an id"):
            committed(base, add_schema(column(1, "id")))


class TestLocationAndProperties:
    def test_a_location_is_stored_without_slashes_at_its_end(self) -> None:
        fields = after(table(), {"action": "set-location", "location": "s3://other/place//"})

        assert fields["location"] == "s3://other/place"

    def test_the_slashes_of_a_scheme_stay(self) -> None:
        assert after(table(), {"action": "set-location", "location": "file:///"})["location"] == "file://"

    @pytest.mark.parametrize("location", [LOCATION, LOCATION + "/"])
    def test_the_same_location_changes_nothing(self, location: str) -> None:
        assert unchanged({"action": "set-location", "location": location})

    def test_an_empty_location_is_refused(self) -> None:
        text = refusal({"action": "set-location", "location": ""})

        assert text == "Cannot set location: path must not be null or empty"

    def test_set_properties_keeps_the_keys_it_does_not_name(self) -> None:
        fields = after(table(), {"action": "set-properties", "updates": {"a": "1"}})

        assert fields["properties"] == {"owner": "ada", "a": "1"}

    def test_setting_the_same_value_counts_as_a_change(self) -> None:
        assert not unchanged({"action": "set-properties", "updates": {"owner": "ada"}})

    def test_no_properties_change_nothing(self) -> None:
        assert unchanged({"action": "set-properties", "updates": {}})
        assert unchanged({"action": "remove-properties", "removals": []})

    def test_reserved_keys_are_never_stored(self) -> None:
        fields = after(table(), {"action": "set-properties", "updates": {"uuid": "x", "format-version": "3", "b": "2"}})

        assert fields["properties"] == {"owner": "ada", "b": "2"}
        assert fields["format-version"] == 2
        assert unchanged({"action": "set-properties", "updates": {"snapshot-count": "7"}})

    def test_a_name_mapping_is_left_as_it_is(self) -> None:
        mapping = '[ {"field-id":1,"names":["id", "old"]} ]'

        fields = after(table(), {"action": "set-properties", "updates": {"schema.name-mapping.default": mapping}})

        assert fields["properties"]["schema.name-mapping.default"] == mapping

    def test_properties_are_removed_and_unknown_keys_ignored(self) -> None:
        assert after(table(), {"action": "remove-properties", "removals": ["owner", "zzz"]})["properties"] == {}

    def test_the_old_names_of_the_fields_are_accepted(self) -> None:
        assert after(table(), {"action": "set-properties", "updated": {"a": "1"}})["properties"]["a"] == "1"
        assert after(table(), {"action": "remove-properties", "removed": ["owner"]})["properties"] == {}

    def test_the_new_name_of_a_field_wins_over_the_old_one(self) -> None:
        both = {"action": "set-properties", "updates": {"a": "new"}, "updated": {"a": "old"}}

        assert after(table(), both)["properties"]["a"] == "new"


STATISTICS = {
    "snapshot-id": 1,
    "statistics-path": "s3://bucket/a.puffin",
    "file-size-in-bytes": 10,
    "file-footer-size-in-bytes": 5,
    "blob-metadata": [{"type": "ndv", "snapshot-id": 1, "sequence-number": 1, "fields": [1], "properties": {"n": "1"}}],
}
PARTITION_STATISTICS = {"snapshot-id": 1, "statistics-path": "s3://bucket/p.parquet", "file-size-in-bytes": 10}


class TestStatistics:
    @pytest.mark.parametrize(
        ("kind", "file"), [("statistics", STATISTICS), ("partition-statistics", PARTITION_STATISTICS)]
    )
    def test_a_snapshot_has_one_statistics_file(self, kind: str, file: Json) -> None:
        other, newer = {**file, "snapshot-id": 2}, {**file, "statistics-path": "s3://bucket/newer"}

        fields = after(table(), *({"action": f"set-{kind}", kind: sent} for sent in (file, other, newer)))

        assert fields[kind] == [other, newer]

    @pytest.mark.parametrize(
        ("kind", "file"), [("statistics", STATISTICS), ("partition-statistics", PARTITION_STATISTICS)]
    )
    def test_a_stored_file_is_replaced_and_removed(self, kind: str, file: Json) -> None:
        base = table(**{kind: [file]})
        newer = {**file, "statistics-path": "s3://bucket/newer"}

        assert after(base, {"action": f"set-{kind}", kind: newer})[kind] == [newer]
        assert after(base, {"action": f"remove-{kind}", "snapshot-id": 1})[kind] == []

    @pytest.mark.parametrize("kind", ["statistics", "partition-statistics"])
    def test_removing_a_missing_file_changes_nothing(self, kind: str) -> None:
        assert unchanged({"action": f"remove-{kind}", "snapshot-id": 1})

    def test_the_snapshot_need_not_exist_and_the_deprecated_id_is_ignored(self) -> None:
        fields = after(
            table(), {"action": "set-statistics", "snapshot-id": 3, "statistics": {**STATISTICS, "snapshot-id": 99}}
        )

        assert fields["statistics"][0]["snapshot-id"] == 99


class TestEncryptionKeys:
    KEY: ClassVar[Json] = {
        "key-id": "k1",
        "encrypted-key-metadata": "c2VjcmV0",
        "encrypted-by-id": "kek",
        "properties": {"a": "b"},
    }  # Read only.

    def test_a_key_is_added_once_and_not_replaced(self) -> None:
        other = {**self.KEY, "encrypted-key-metadata": "b3RoZXI="}

        fields = after(
            table(3),
            {"action": "add-encryption-key", "encryption-key": self.KEY},
            {"action": "add-encryption-key", "encryption-key": other},
        )

        assert fields["encryption-keys"] == [self.KEY]

    def test_an_existing_key_changes_nothing(self) -> None:
        base = table(3, **{"encryption-keys": [self.KEY]})

        assert committed(base, {"action": "add-encryption-key", "encryption-key": self.KEY}) is base

    def test_a_key_is_removed_and_the_empty_list_is_not_written(self) -> None:
        base = table(3, **{"encryption-keys": [self.KEY]})

        assert "encryption-keys" not in after(base, {"action": "remove-encryption-key", "key-id": "k1"})

    def test_removing_an_unknown_key_changes_nothing(self) -> None:
        assert unchanged({"action": "remove-encryption-key", "key-id": "k1"}, version=3)


class TestViewUpdates:
    def test_updates_of_views_are_refused_on_tables(self) -> None:
        text = refusal({"action": "set-current-view-version", "view-version-id": 1})

        assert text == "Cannot apply update set-current-view-version to a table"


class TestCreation:
    @pytest.mark.parametrize("version", [1, 2, 3, 4])
    def test_a_new_table_is_built_from_its_updates_alone(self, version: int) -> None:
        table_made = created(version=version)

        assert table_made.format_version == version
        assert table_made.table_uuid == UUID
        assert (table_made.current_schema_id, table_made.default_spec_id, table_made.default_sort_order_id) == (0, 0, 0)
        assert table_made.last_partition_id == 999
        assert table_made.metadata_log.items == ()

    def test_the_creating_request_can_evolve_the_schema(self) -> None:
        made = created(
            add_schema(*COLUMNS, column(7, "more")),
            {"action": "set-current-schema", "schema-id": -1},
            add_spec(spec_field(7, "more_b", "bucket[4]", **{"field-id": 1000})),
            {"action": "set-default-spec", "spec-id": -1},
            add_order(sort_field(7)),
            {"action": "set-default-sort-order", "sort-order-id": -1},
        )

        assert (made.current_schema_id, made.default_spec_id, made.default_sort_order_id) == (1, 1, 1)

    @pytest.mark.parametrize(
        ("left_out", "text"),
        [
            ("assign-uuid", "UUID is required in format v2"),
            ("set-location", "Table location is required in format v2"),
            ("add-schema", "Cannot set last added schema: no schema has been added"),
            ("add-spec", "Cannot set last added spec: no spec has been added"),
            ("add-sort-order", "Cannot set last added sort order: no sort order has been added"),
        ],
    )
    def test_a_table_without_a_required_part_is_refused(self, left_out: str, text: str) -> None:
        updates = [update for update in creation() if update["action"] != left_out]

        with pytest.raises(Invalid) as refused:
            committed(None, *updates, requirements=[{"type": "assert-create"}])
        assert str(refused.value) == text

    def test_lists_that_stay_empty_are_refused(self) -> None:
        def without(*parts: str) -> str:
            updates = [update for update in creation() if not any(part in update["action"] for part in parts)]
            with pytest.raises(Invalid) as refused:
                committed(None, *updates, requirements=[{"type": "assert-create"}])
            return str(refused.value)

        assert without("schema", "spec", "sort") == "Schemas cannot be null or empty"
        assert without("spec") == "Partition specs cannot be null or empty"
        assert without("sort") == "Sort orders cannot be null or empty"
        assert without("schema") == "Attempting to add a partition spec before a schema is added"

    def test_a_format_version_that_does_not_exist_is_refused(self) -> None:
        for version in (0, 5):
            with pytest.raises(Invalid) as refused:
                created(version=version)
            assert str(refused.value) == f"Unsupported format version: v{version} (supported: v4)"
