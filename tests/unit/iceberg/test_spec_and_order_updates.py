"""Updates of partition specs and sort orders: what they change, when they change nothing, what they refuse."""

import pytest

from tests.unit.iceberg.tables import (
    Json,
    add_order,
    add_spec,
    after,
    refusal,
    sort_field,
    spec_field,
    table,
    unchanged,
)


class TestSpecs:
    def test_a_new_spec_gets_the_next_id(self) -> None:
        fields = after(table(), add_spec(spec_field(2, "day", "day", **{"field-id": 1001}), spec_id=55))

        assert fields["partition-specs"][2] == {
            "spec-id": 2,
            "fields": [{"source-id": 2, "field-id": 1001, "name": "day", "transform": "day"}],
        }
        assert fields["last-partition-id"] == 1001
        assert fields["default-spec-id"] == 0

    def test_an_equal_spec_is_reused_with_any_field_ids(self) -> None:
        assert unchanged(add_spec(spec_field(1, "id_bucket", "bucket[8]", **{"field-id": 1777})))
        assert unchanged(add_spec(spec_field(1, "id_bucket", "BUCKET[8]")))

    def test_fields_without_ids_get_ids_that_were_never_used(self) -> None:
        fields = after(table(), add_spec(spec_field(2, "day", "day"), spec_field(1, "bucket", "bucket[8]")))

        assert [field["field-id"] for field in fields["partition-specs"][2]["fields"]] == [1001, 1000]

    def test_some_fields_without_ids_are_refused(self) -> None:
        text = refusal(add_spec(spec_field(2, "day", "day"), spec_field(1, "x", "void", **{"field-id": 1001})))

        assert text == "Cannot parse spec with missing field IDs: 1 missing of 2 fields."

    def test_a_field_id_used_twice_is_refused(self) -> None:
        twice = {"field-id": 1001}

        text = refusal(add_spec(spec_field(2, "day", "day", **twice), spec_field(1, "id", **twice)))

        assert text == "Cannot use partition field id more than once: 1001"

    def test_v1_field_ids_count_up_from_1000(self) -> None:
        text = refusal(add_spec(spec_field(2, "day", "day", **{"field-id": 1001})), version=1)

        assert text == "Spec does not use sequential IDs that are required in v1: [1001: day: day(2)]"

    @pytest.mark.parametrize(
        ("field", "text"),
        [
            (spec_field(99, "x"), "Cannot find source column for partition field: 1000: x: identity(99)"),
            (spec_field(3, "x"), "Cannot partition by non-primitive source field: struct<city>"),
            (spec_field(6, "x"), "Invalid partition field parent: list"),
            (spec_field(1, "x", "day"), "Invalid source type long for transform: day"),
            (spec_field(4, "x", "hour"), "Invalid source type string for transform: hour"),
            (spec_field(2, "x", "truncate[3]"), "Invalid source type timestamptz for transform: truncate[3]"),
            (spec_field(1, ""), "Invalid column name: (empty)"),
            (spec_field(1, "ts"), "Cannot create identity partition sourced from different field in schema: ts"),
            (
                spec_field(1, "x", "bucket[0]"),
                "Invalid number of buckets: 0 (must be > 0)",
            ),
            ({"name": "x", "transform": "identity"}, "Cannot parse partition field x: missing source-id"),
            (
                {"name": "x", "transform": "zorder", "source-ids": [1, 2]},
                "Invalid partition field x: source-ids is not supported until v3",
            ),
        ],
    )
    def test_a_field_that_does_not_fit_is_refused(self, field: Json, text: str) -> None:
        assert refusal(add_spec(field)) == text

    def test_a_name_used_twice_is_refused(self) -> None:
        text = refusal(add_spec(spec_field(1, "x", "bucket[2]"), spec_field(2, "x", "day")))

        assert text == "Cannot use partition name more than once: x"

    def test_void_needs_no_source(self) -> None:
        fields = after(table(), add_spec(spec_field(99, "gone", "void")))

        assert fields["partition-specs"][2]["fields"][0]["transform"] == "void"

    def test_a_nested_column_and_an_unknown_transform_are_accepted_as_given(self) -> None:
        fields = after(table(), add_spec(spec_field(4, "place.city"), spec_field(1, "z", "Zorder[3]")))

        assert [field["transform"] for field in fields["partition-specs"][2]["fields"]] == ["identity", "Zorder[3]"]

    def test_v3_transforms_several_columns(self) -> None:
        several = {"name": "x", "transform": "zorder", "source-ids": [1, 2]}

        fields = after(table(3), add_spec(several, {"name": "y", "transform": "day", "source-ids": [2]}))

        assert fields["partition-specs"][2]["fields"] == [
            {**several, "field-id": 1001},
            {"source-id": 2, "field-id": 1002, "name": "y", "transform": "day"},
        ]

    def test_minus_one_is_the_spec_added_last(self) -> None:
        last = {"action": "set-default-spec", "spec-id": -1}

        assert after(table(), add_spec(spec_field(2, "day", "day")), last)["default-spec-id"] == 2
        assert after(table(), add_spec(spec_field(1, "id_bucket", "bucket[8]")), last)["default-spec-id"] == 1

    def test_minus_one_without_an_added_spec_is_refused(self) -> None:
        text = refusal({"action": "set-default-spec", "spec-id": -1})

        assert text == "Cannot set last added spec: no spec has been added"

    def test_an_unknown_spec_cannot_be_the_default(self) -> None:
        text = refusal({"action": "set-default-spec", "spec-id": 9})

        assert text == "Invalid table metadata: Cannot find default partition spec 9"

    def test_the_default_spec_set_again_changes_nothing(self) -> None:
        assert unchanged({"action": "set-default-spec", "spec-id": 0})

    def test_specs_are_removed_and_unknown_ones_ignored(self) -> None:
        fields = after(table(), {"action": "remove-partition-specs", "spec-ids": [1, 77]})

        assert [spec["spec-id"] for spec in fields["partition-specs"]] == [0]
        assert fields["last-partition-id"] == 1000

    def test_removing_unknown_specs_changes_nothing(self) -> None:
        assert unchanged({"action": "remove-partition-specs", "spec-ids": [77]})

    def test_the_default_spec_cannot_be_removed(self) -> None:
        text = refusal({"action": "remove-partition-specs", "spec-ids": [0]})

        assert text == "Cannot remove the default partition spec"


class TestSortOrders:
    def test_a_new_order_gets_the_next_id(self) -> None:
        fields = after(table(), add_order(sort_field(2, "day"), order_id=77))

        assert fields["sort-orders"][2] == {"order-id": 2, "fields": [sort_field(2, "day")]}

    def test_an_equal_order_is_reused(self) -> None:
        assert unchanged(add_order({**sort_field(1), "direction": "ASC", "null-order": "NULLS-FIRST"}))

    def test_unsorted_always_has_id_0(self) -> None:
        base = table(**{"sort-orders": [{"order-id": 1, "fields": [sort_field(1)]}], "default-sort-order-id": 1})

        assert after(base, add_order(order_id=0))["sort-orders"][1] == {"order-id": 0, "fields": []}

    @pytest.mark.parametrize(
        ("update", "text"),
        [
            (add_order(order_id=3), "Unsorted order ID must be 0"),
            (add_order(sort_field(1), order_id=0), "Sort order ID 0 is reserved for unsorted order"),
            (
                add_order(sort_field(99)),
                "Cannot find source column for sort field: identity(99) ASC NULLS FIRST",
            ),
            (add_order(sort_field(3)), "Cannot sort by non-primitive source field: struct<city>"),
            (add_order(sort_field(1, "year")), "Invalid source type long for transform: year"),
            (add_order({**sort_field(1), "direction": "up"}), "Invalid sort direction: up"),
            (add_order({**sort_field(1), "null-order": "none"}), "Unexpected null order: none"),
        ],
    )
    def test_an_order_that_breaks_a_rule_is_refused(self, update: Json, text: str) -> None:
        assert refusal(update) == text

    def test_minus_one_is_the_order_added_last(self) -> None:
        last = {"action": "set-default-sort-order", "sort-order-id": -1}

        assert after(table(), add_order(sort_field(2)), last)["default-sort-order-id"] == 2
        assert after(table(), add_order(sort_field(1)), last)["default-sort-order-id"] == 1

    def test_minus_one_without_an_added_order_is_refused(self) -> None:
        text = refusal({"action": "set-default-sort-order", "sort-order-id": -1})

        assert text == "Cannot set last added sort order: no sort order has been added"

    def test_an_unknown_order_cannot_be_the_default(self) -> None:
        text = refusal({"action": "set-default-sort-order", "sort-order-id": 9})

        assert text == "Invalid table metadata: Cannot find default sort order 9"

    def test_the_default_order_set_again_changes_nothing(self) -> None:
        assert unchanged({"action": "set-default-sort-order", "sort-order-id": 0})
