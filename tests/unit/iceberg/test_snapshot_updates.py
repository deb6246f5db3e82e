"""Updates of snapshots and references: what they change, when they change nothing, what they refuse."""

from typing import Any

import pytest

from sandur.errors import BadRequest, Conflict, Invalid
from tests.unit.iceberg.tables import (
    BASE_MS,
    NOW_MS,
    Json,
    add_snapshot,
    after,
    committed,
    created,
    creation,
    set_main,
    set_ref,
    snapshot,
    table,
    written,
)
from tests.unit.iceberg.test_table_updates import PARTITION_STATISTICS, STATISTICS


def refusal(*updates: Json, version: Any = 2, **more: object) -> str:
    with pytest.raises(Invalid) as refused:
        committed(table(version, **more), *updates)
    return str(refused.value)


def conflict(*updates: Json, version: int = 2, **more: object) -> str:
    with pytest.raises(Conflict) as refused:
        committed(table(version, **more), *updates)
    return str(refused.value)


def unchanged(*updates: Json, version: int = 2) -> bool:
    base = table(version)
    return committed(base, *updates) is base


def log_ids(fields: Json) -> list[int]:
    return [entry["snapshot-id"] for entry in fields["snapshot-log"]]


class TestAddSnapshot:
    def test_an_added_snapshot_moves_no_reference(self) -> None:
        fields = after(table(), add_snapshot(3, 3, parent=2))

        assert [found["snapshot-id"] for found in fields["snapshots"]] == [1, 2, 3]
        assert fields["last-sequence-number"] == 3
        assert fields["current-snapshot-id"] == 2
        assert log_ids(fields) == [1, 2]

    def test_absent_fields_are_not_written(self) -> None:
        sent = add_snapshot(3, 3, parent=2, **{"schema-id": 0, "key-id": None, "first-row-id": None})

        assert after(table(), sent)["snapshots"][-1] == snapshot(3, 3, parent=2, **{"schema-id": 0})

    def test_a_sequence_number_of_0_is_not_written(self) -> None:
        assert "sequence-number" not in after(table(1), add_snapshot(3, 0))["snapshots"][-1]

    def test_a_snapshot_of_v1_may_list_its_manifests(self) -> None:
        sent = snapshot(3, manifests=["a.avro"])
        del sent["manifest-list"]

        fields = after(table(1), {"action": "add-snapshot", "snapshot": sent})

        assert fields["snapshots"][-1]["manifests"] == ["a.avro"]

    def test_a_snapshot_without_manifests_is_refused(self) -> None:
        sent = snapshot(3, 3)
        del sent["manifest-list"]

        with pytest.raises(BadRequest, match="snapshot 3 has neither manifest-list nor manifests"):
            committed(table(), {"action": "add-snapshot", "snapshot": sent})

    @pytest.mark.parametrize("first", [2, 3])
    def test_an_existing_id_is_refused(self, first: int) -> None:
        text = refusal(add_snapshot(first, 3, parent=2), add_snapshot(first, 4, parent=2))

        assert text == f"Snapshot already exists for id: {first}"

    def test_an_id_that_only_looks_like_an_existing_one_is_new(self) -> None:
        base = table(snapshots=[snapshot(12345, 1), snapshot(2, 2)], refs={}, **{"current-snapshot-id": -1})

        assert len(after(base, add_snapshot(234, 3))["snapshots"]) == 3

    def test_a_stale_sequence_number_is_a_conflict(self) -> None:
        text = conflict(add_snapshot(3, 2, parent=2))

        assert text == (
            "Validation failed, please retry: "
            "Cannot add snapshot with sequence number 2 older than last sequence number 2"
        )

    def test_a_snapshot_without_parent_may_repeat_the_last_sequence_number(self) -> None:
        assert after(table(), add_snapshot(3, 2))["last-sequence-number"] == 2

    def test_a_snapshot_without_parent_cannot_go_below_a_used_sequence_number(self) -> None:
        assert conflict(add_snapshot(3, 1)).startswith("Validation failed, please retry: Cannot add snapshot")

    def test_the_last_sequence_number_never_goes_back(self) -> None:
        base = table(**{"last-sequence-number": 9})

        assert after(base, add_snapshot(3, 5))["last-sequence-number"] == 9

    def test_v1_has_no_sequence_numbers(self) -> None:
        assert refusal(add_snapshot(3, 3), version=1) == "Sequence number must be 0 in v1: 3"

    @pytest.mark.parametrize(
        ("missing", "what"), [("schema", "schema"), ("spec", "partition spec"), ("sort-order", "sort order")]
    )
    def test_a_snapshot_needs_schema_spec_and_order(self, missing: str, what: str) -> None:
        updates = [update for update in creation() if missing not in update["action"]]
        if missing == "schema":
            updates = [
                update for update in updates if "spec" not in update["action"] and "sort" not in update["action"]
            ]

        with pytest.raises(Invalid) as refused:
            committed(None, *updates, add_snapshot(1, 1), requirements=[{"type": "assert-create"}])

        assert str(refused.value) == f"Attempting to add a snapshot before a {what} is added"

    def test_64_bit_ids_stay_exact(self) -> None:
        largest = 2**63 - 1

        fields = after(table(), add_snapshot(largest, 3, parent=2, **{"timestamp-ms": NOW_MS}), set_main(largest))

        assert fields["current-snapshot-id"] == largest
        assert fields["snapshots"][-1]["snapshot-id"] == largest


class TestRowLineage:
    def test_rows_are_numbered_on_every_branch(self) -> None:
        lineage = {"first-row-id": 20, "added-rows": 5}

        fields = after(table(3), add_snapshot(3, 3, parent=2, **lineage), set_ref("side", 3))

        assert fields["next-row-id"] == 25

    def test_a_gap_before_the_first_row_is_kept(self) -> None:
        assert after(table(3), add_snapshot(3, 3, **{"first-row-id": 100, "added-rows": 5}))["next-row-id"] == 105

    def test_a_stale_first_row_id_is_a_conflict(self) -> None:
        text = conflict(add_snapshot(3, 3, **{"first-row-id": 19, "added-rows": 5}), version=3)

        assert text == (
            "Validation failed, please retry: Cannot add a snapshot, first-row-id is behind table next-row-id: 19 < 20"
        )

    @pytest.mark.parametrize(
        ("lineage", "text"),
        [
            ({}, "Cannot add a snapshot: first-row-id is null"),
            ({"first-row-id": -1, "added-rows": 1}, "Invalid first-row-id (cannot be negative): -1"),
            ({"first-row-id": 20, "added-rows": -1}, "Invalid added-rows (cannot be negative): -1"),
            ({"first-row-id": 20}, "Invalid added-rows (required when first-row-id is set): null"),
            (
                {"first-row-id": 2**63 - 1, "added-rows": 1},
                f"Cannot add a snapshot: next-row-id would be {2**63}, beyond {2**63 - 1}",
            ),
        ],
    )
    def test_lineage_that_breaks_a_rule_is_refused(self, lineage: Json, text: str) -> None:
        assert refusal(add_snapshot(3, 3, **lineage), version=3) == text

    def test_v2_does_not_count_rows(self) -> None:
        assert "next-row-id" not in after(table(2), add_snapshot(3, 3, **{"first-row-id": 20, "added-rows": 5}))


class TestSetSnapshotRef:
    def test_main_moves_and_the_log_takes_the_time_of_a_new_snapshot(self) -> None:
        fields = after(table(), add_snapshot(3, 3, parent=2), set_main(3))

        assert fields["current-snapshot-id"] == 3
        assert fields["refs"]["main"] == {"snapshot-id": 3, "type": "branch"}
        assert fields["snapshot-log"][-1] == {"timestamp-ms": BASE_MS + 3, "snapshot-id": 3}

    def test_a_rollback_is_logged_with_the_time_of_the_commit(self) -> None:
        fields = after(table(), set_main(1))

        assert fields["snapshot-log"][-1] == {"timestamp-ms": NOW_MS, "snapshot-id": 1}
        assert log_ids(fields) == [1, 2, 1]

    def test_an_identical_reference_changes_nothing(self) -> None:
        assert unchanged(set_main(2))
        assert unchanged(set_ref("first", 1, "TAG", **{"max-ref-age-ms": None}))

    def test_other_references_are_kept_and_not_logged(self) -> None:
        kept = {"max-ref-age-ms": 5, "max-snapshot-age-ms": 6, "min-snapshots-to-keep": 7}

        fields = after(table(), set_ref("side", 1, **kept))

        assert fields["refs"]["side"] == {"snapshot-id": 1, "type": "branch", **kept}
        assert set(fields["refs"]) == {"main", "first", "side"}
        assert log_ids(fields) == [1, 2]

    @pytest.mark.parametrize(
        ("update", "text"),
        [
            (set_ref("side", 99), "Cannot set side to unknown snapshot: 99"),
            (set_ref("main", 1, "tag"), "Cannot set main to a tag, it must be a branch"),
            (set_ref("x", 1, "label"), "Invalid snapshot ref type: label"),
            (
                set_ref("x", 1, "tag", **{"min-snapshots-to-keep": 1}),
                "Tags do not support setting minSnapshotsToKeep",
            ),
            (set_ref("x", 1, "tag", **{"max-snapshot-age-ms": 1}), "Tags do not support setting maxSnapshotAgeMs"),
            (set_ref("x", 1, **{"min-snapshots-to-keep": 0}), "Min snapshots to keep must be greater than 0"),
            (set_ref("x", 1, **{"max-snapshot-age-ms": 0}), "Max snapshot age must be greater than 0 ms"),
            (set_ref("x", 1, **{"max-ref-age-ms": -1}), "Max reference age must be greater than 0"),
        ],
    )
    def test_a_reference_that_breaks_a_rule_is_refused(self, update: Json, text: str) -> None:
        assert refusal(update) == text

    def test_a_snapshot_removed_in_the_same_request_is_unknown(self) -> None:
        text = refusal(
            add_snapshot(3, 3, parent=2), {"action": "remove-snapshots", "snapshot-ids": [3]}, set_ref("side", 3)
        )

        assert text == "Cannot set side to unknown snapshot: 3"

    def test_a_creating_request_may_add_and_name_a_snapshot(self) -> None:
        made = written(created(add_snapshot(1, 1), set_main(1)))

        assert made["current-snapshot-id"] == 1
        assert log_ids(made) == [1]


class TestRemoveSnapshotRef:
    def test_without_main_nothing_is_current_but_history_stays(self) -> None:
        fields = after(table(), {"action": "remove-snapshot-ref", "ref-name": "main"})

        assert fields["current-snapshot-id"] == -1
        assert list(fields["refs"]) == ["first"]
        assert log_ids(fields) == [1, 2]

    def test_an_unknown_reference_changes_nothing(self) -> None:
        assert unchanged({"action": "remove-snapshot-ref", "ref-name": "nobody"})

    def test_a_current_snapshot_without_main_branch_is_unset_too(self) -> None:
        base = table(refs={})

        assert after(base, {"action": "remove-snapshot-ref", "ref-name": "main"})["current-snapshot-id"] == -1


class TestRemoveSnapshots:
    def test_a_snapshot_is_removed_with_its_statistics_and_references(self) -> None:
        base = table(
            statistics=[STATISTICS, {**STATISTICS, "snapshot-id": 2}],
            **{"partition-statistics": [PARTITION_STATISTICS, {**PARTITION_STATISTICS, "snapshot-id": 2}]},
        )

        fields = after(base, {"action": "remove-snapshots", "snapshot-ids": [1, 77]})

        assert [found["snapshot-id"] for found in fields["snapshots"]] == [2]
        assert [found["snapshot-id"] for found in fields["statistics"]] == [2]
        assert [found["snapshot-id"] for found in fields["partition-statistics"]] == [2]
        assert list(fields["refs"]) == ["main"]
        assert log_ids(fields) == [2]
        assert fields["last-sequence-number"] == 2

    def test_the_current_snapshot_may_be_removed(self) -> None:
        fields = after(table(), {"action": "remove-snapshots", "snapshot-ids": [2]})

        assert fields["current-snapshot-id"] == -1
        assert list(fields["refs"]) == ["first"]
        assert log_ids(fields) == []

    def test_the_log_is_cleared_up_to_the_newest_gap(self) -> None:
        base = committed(table(), add_snapshot(3, 3, parent=2), set_main(3))

        assert log_ids(after(base, {"action": "remove-snapshots", "snapshot-ids": [2]})) == [3]
        assert log_ids(after(base, {"action": "remove-snapshots", "snapshot-ids": [1]})) == [2, 3]

    def test_unknown_ids_change_nothing(self) -> None:
        assert unchanged({"action": "remove-snapshots", "snapshot-ids": [77]})
        assert unchanged({"action": "remove-snapshots", "snapshot-ids": []})

    def test_a_log_that_does_not_end_with_the_current_snapshot_is_refused(self) -> None:
        log = [{"timestamp-ms": BASE_MS, "snapshot-id": 2}, {"timestamp-ms": BASE_MS, "snapshot-id": 1}]

        text = refusal({"action": "remove-snapshots", "snapshot-ids": [1]}, **{"snapshot-log": log})

        assert text == "Cannot set invalid snapshot log: latest entry is not the current snapshot"


class TestIntermediateSnapshots:
    def test_a_snapshot_that_was_current_only_within_the_request_is_not_logged(self) -> None:
        fields = after(table(), add_snapshot(3, 3, parent=2), set_main(3), add_snapshot(4, 4, parent=3), set_main(4))

        assert log_ids(fields) == [1, 2, 4]

    def test_an_old_snapshot_set_and_superseded_stays_in_the_log(self) -> None:
        fields = after(table(), set_main(1), add_snapshot(3, 3, parent=1, **{"timestamp-ms": NOW_MS}), set_main(3))

        assert log_ids(fields) == [1, 2, 1, 3]

    def test_a_new_snapshot_set_on_main_and_unset_again_is_not_logged(self) -> None:
        fields = after(
            table(), add_snapshot(3, 3, parent=2), set_main(3), {"action": "remove-snapshot-ref", "ref-name": "main"}
        )

        assert log_ids(fields) == [1, 2]
