"""The end of a commit: checks on the whole table, the metadata log, times."""

from dataclasses import replace
from typing import Any

import pytest

from sandur.errors import Invalid
from sandur.iceberg.table_metadata import decode_table_metadata, encode_table_metadata
from tests.unit.iceberg.tables import (
    BASE_FILE,
    BASE_MS,
    COLUMNS,
    NOW_MS,
    Json,
    add_snapshot,
    after,
    committed,
    schema,
    set_main,
    sort_field,
    table,
)

TOUCH: Json = {"action": "set-properties", "updates": {"a": "1"}}


def log_of(length: int) -> list[Json]:
    return [{"timestamp-ms": BASE_MS - length + at, "metadata-file": f"f{at}"} for at in range(length)]


def files(length: int, properties: Json) -> list[str]:
    fields = after(
        table(**{"metadata-log": log_of(length)}), {"action": "set-properties", "updates": {"a": "1", **properties}}
    )
    return [entry["metadata-file"] for entry in fields["metadata-log"]]


def refusal(base: Any, *updates: Json, now_ms: int = NOW_MS) -> str:
    with pytest.raises(Invalid) as refused:
        committed(base, *updates, now_ms=now_ms)
    return str(refused.value)


class TestMetadataLog:
    def test_the_file_of_the_base_becomes_the_newest_entry(self) -> None:
        fields = after(table(), TOUCH)

        assert fields["metadata-log"] == [{"timestamp-ms": BASE_MS, "metadata-file": BASE_FILE}]
        assert fields["last-updated-ms"] == NOW_MS

    def test_a_base_that_was_never_written_is_not_logged(self) -> None:
        assert after(decode_table_metadata(encode_table_metadata(table())), TOUCH)["metadata-log"] == []

    def test_the_new_metadata_has_no_location_yet(self) -> None:
        assert committed(table(), TOUCH).metadata_location is None

    @pytest.mark.parametrize("length", [99, 100, 250])
    def test_the_log_keeps_a_hundred_files(self, length: int) -> None:
        kept = files(length, {})

        assert len(kept) == 100
        assert kept[-1] == BASE_FILE
        assert kept[-2] == f"f{length - 1}"

    @pytest.mark.parametrize("key", ["write.metadata.previous-versions-max", "metadata.previous-versions-max"])
    def test_the_property_applies_to_the_commit_that_sets_it(self, key: str) -> None:
        assert files(10, {key: "3"}) == ["f8", "f9", BASE_FILE]

    def test_the_real_name_of_the_property_wins_over_its_alias(self) -> None:
        both = {"write.metadata.previous-versions-max": "2", "metadata.previous-versions-max": "5"}

        assert len(files(10, both)) == 2

    @pytest.mark.parametrize("value", ["0", "-5", "1"])
    def test_at_least_one_file_is_kept(self, value: str) -> None:
        assert files(10, {"write.metadata.previous-versions-max": value}) == [BASE_FILE]

    @pytest.mark.parametrize("value", ["many", "", "1.5", "9" * 5000, "99999999999", "\uff11"])
    def test_a_value_that_is_not_a_number_is_refused(self, value: str) -> None:
        text = refusal(
            table(), {"action": "set-properties", "updates": {"write.metadata.previous-versions-max": value}}
        )

        assert text.startswith("Table property write.metadata.previous-versions-max must have integer value: ")


class TestTimes:
    def test_a_clock_may_be_a_minute_behind(self) -> None:
        assert committed(table(), TOUCH, now_ms=BASE_MS - 59_000).last_updated_ms == BASE_MS - 59_000

    def test_a_commit_cannot_be_older_than_the_last_snapshot(self) -> None:
        text = refusal(table(), TOUCH, now_ms=BASE_MS - 60_001)

        assert text == f"Invalid update timestamp {BASE_MS - 60_001}: before last snapshot log entry at {BASE_MS + 2}"

    def test_a_commit_cannot_be_older_than_the_last_file(self) -> None:
        base = table(**{"snapshot-log": [], "metadata-log": log_of(2)})

        text = refusal(base, TOUCH, now_ms=BASE_MS - 60_001)

        assert text == (
            f"Invalid update timestamp {BASE_MS - 60_001}: before the latest metadata log entry timestamp {BASE_MS}"
        )

    def test_a_snapshot_cannot_be_much_older_than_the_one_before(self) -> None:
        old = add_snapshot(3, 3, parent=2, **{"timestamp-ms": BASE_MS - 70_000})

        assert refusal(table(), old, set_main(3)) == (
            f"Expected sorted snapshot log entries: {BASE_MS - 70_000} follows {BASE_MS + 2}"
        )

    def test_a_snapshot_from_the_future_is_refused(self) -> None:
        future = add_snapshot(3, 3, parent=2, **{"timestamp-ms": NOW_MS + 60_001})

        assert refusal(table(), future, set_main(3)) == (
            f"Invalid update timestamp {NOW_MS}: before last snapshot log entry at {NOW_MS + 60_001}"
        )


class TestDefaults:
    def test_the_source_of_the_default_spec_cannot_be_dropped(self) -> None:
        text = refusal(
            table(**{"default-spec-id": 1}),
            {"action": "add-schema", "schema": schema(*COLUMNS[1:])},
            {"action": "set-current-schema", "schema-id": -1},
        )

        assert text == "Cannot find source column for partition field: 1000: id_bucket: bucket[8](1)"

    def test_the_source_of_the_default_order_cannot_be_dropped(self) -> None:
        text = refusal(
            table(**{"default-sort-order-id": 1}),
            {"action": "add-schema", "schema": schema(*COLUMNS[1:])},
            {"action": "set-current-schema", "schema-id": -1},
        )

        assert text == "Cannot find source column for sort field: identity(1) ASC NULLS FIRST"

    def test_specs_and_orders_that_are_not_the_default_may_become_invalid(self) -> None:
        fields = after(
            table(),
            {"action": "add-schema", "schema": schema(*COLUMNS[1:])},
            {"action": "set-current-schema", "schema-id": -1},
        )

        assert len(fields["partition-specs"]) == 2
        assert fields["sort-orders"][1]["fields"] == [sort_field(1)]

    def test_a_default_may_be_set_before_it_is_added(self) -> None:
        fields = after(
            table(),
            {"action": "set-default-sort-order", "sort-order-id": 2},
            {"action": "add-sort-order", "sort-order": {"order-id": 1, "fields": [sort_field(2)]}},
        )

        assert fields["default-sort-order-id"] == 2


def test_a_request_without_updates_changes_nothing() -> None:
    base = table()

    assert committed(base) is base


def test_a_replace_keeps_the_history_and_has_no_current_snapshot() -> None:
    fields = after(
        table(),
        {"action": "remove-snapshot-ref", "ref-name": "main"},
        {"action": "add-schema", "schema": schema(COLUMNS[0])},
        {"action": "set-current-schema", "schema-id": -1},
        add_snapshot(3, 3),
        set_main(3),
    )

    assert [entry["snapshot-id"] for entry in fields["snapshot-log"]] == [1, 2, 3]
    assert len(fields["metadata-log"]) == 1


def test_a_table_in_memory_equals_its_decoded_file() -> None:
    """It does not accumulate the pieces that earlier commits appended."""
    kept = read_again = table()

    for number in range(3, 150):
        updates = (add_snapshot(number, number, parent=number - 1), set_main(number))
        kept = replace(committed(kept, *updates, now_ms=NOW_MS + number), metadata_location=f"f{number}")
        read_again = committed(read_again, *updates, now_ms=NOW_MS + number)
        file = encode_table_metadata(read_again)
        read_again = decode_table_metadata(file, metadata_location=f"f{number}")

        assert encode_table_metadata(kept) == file

    assert not kept.snapshots.appended
    assert not kept.snapshot_log.appended
    assert kept.snapshot_ids == read_again.snapshot_ids
    assert kept.has_snapshot(1)
    assert kept.has_snapshot(149)
    assert not kept.has_snapshot(150)
