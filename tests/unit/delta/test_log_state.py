"""Which files a Delta log needs, decided from its actions."""

import json

import pytest

from sandur.delta.log_state import (
    EMPTY,
    LogState,
    added_files,
    folded,
    foreign_files,
    needed_files,
    read_actions,
    retention_ms,
)
from sandur.errors import Invalid

TABLE = "s3://bucket/d"
DAY_MS = 86_400_000
INLINE = {"storageType": "i", "pathOrInlineDv": "abc", "sizeInBytes": 1, "cardinality": 1}
IN_A_FILE = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 1}
AT_A_PATH = {"storageType": "p", "pathOrInlineDv": "s3://bucket/other/dv.bin", "sizeInBytes": 1}
VECTOR_FILE = f"{TABLE}/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
"""The example of the Delta protocol."""


def state(*lines: object) -> LogState:
    data = "\n".join(json.dumps(line) for line in lines).encode()
    return folded(EMPTY, read_actions(data, location="commit"))


def needed(*lines: object, removed_after_ms: int = 0) -> set[str]:
    return set(needed_files(state(*lines), TABLE, removed_after_ms=removed_after_ms))


def add(path: str, **fields: object) -> dict[str, object]:
    return {"add": {"path": path, "partitionValues": {}, "size": 1, **fields}}


def remove(path: str, **fields: object) -> dict[str, object]:
    return {"remove": {"path": path, **fields}}


def test_live_files_are_needed_and_others_are_not() -> None:
    found = needed(add("a"), add("b"), remove("a", deletionTimestamp=5), add("c"), removed_after_ms=5)

    assert found == {f"{TABLE}/b", f"{TABLE}/c"}


def test_a_file_that_was_removed_a_short_while_ago_is_needed() -> None:
    assert needed(add("a"), remove("a", deletionTimestamp=6), removed_after_ms=5) == {f"{TABLE}/a"}


def test_a_file_that_was_removed_at_an_unknown_time_is_needed() -> None:
    assert needed(add("a"), remove("a"), removed_after_ms=5) == {f"{TABLE}/a"}


def test_a_file_that_was_added_again_is_needed() -> None:
    assert needed(add("a"), remove("a", deletionTimestamp=1), add("a"), removed_after_ms=5) == {f"{TABLE}/a"}


def test_the_same_file_with_another_deletion_vector_is_another_entry() -> None:
    found = state(
        add("a"), remove("a", deletionTimestamp=1), add("a", deletionVector=IN_A_FILE), add("b", deletionVector=INLINE)
    )

    assert set(needed_files(found, TABLE, removed_after_ms=5)) == {f"{TABLE}/a", VECTOR_FILE, f"{TABLE}/b"}


def test_a_removed_file_keeps_its_deletion_vector() -> None:
    found = needed(remove("a", deletionTimestamp=9, deletionVector=IN_A_FILE), removed_after_ms=5)

    assert found == {f"{TABLE}/a", VECTOR_FILE}


def test_changes_and_absolute_paths_are_needed_where_they_are() -> None:
    found = state(
        {"cdc": {"path": "_change_data/c", "size": 1}},
        add("s3://bucket/source/a"),
        add("b", deletionVector=AT_A_PATH),
    )

    assert set(needed_files(found, TABLE, removed_after_ms=0)) == {
        f"{TABLE}/_change_data/c",
        "s3://bucket/source/a",
        f"{TABLE}/b",
        "s3://bucket/other/dv.bin",
    }
    assert set(foreign_files(found)) == {"s3://bucket/source/a", "s3://bucket/other/dv.bin"}


def test_the_files_that_a_commit_adds_have_their_deletion_vectors() -> None:
    data = json.dumps(add("a", deletionVector=IN_A_FILE)).encode() + b"\n\n" + json.dumps(remove("b")).encode()

    assert added_files(read_actions(data, location="commit"), TABLE) == [f"{TABLE}/a", VECTOR_FILE]


@pytest.mark.parametrize(
    "line",
    [
        {"protocol": {"minReaderVersion": 4}},
        {"protocol": {"minReaderVersion": 3, "readerFeatures": ["deletionVectors", "somethingNew"]}},
        add("a", deletionVector={"storageType": "x", "pathOrInlineDv": "y"}),
        add("a", deletionVector={"storageType": "u", "pathOrInlineDv": "short"}),
        {"add": {"size": 1}},
    ],
)
def test_a_log_that_is_not_understood_is_refused(line: object) -> None:
    with pytest.raises(Invalid):
        list(needed_files(state(line), TABLE, removed_after_ms=0))


@pytest.mark.parametrize("line", [b"{", b'{"add":{"path":"\xff"}}', b'{"txn":' + b"[" * 5_000 + b"]" * 5_000 + b"}"])
def test_a_line_that_is_no_json_is_refused(line: bytes) -> None:
    with pytest.raises(Invalid, match="cannot be read as a Delta commit"):
        list(read_actions(line, location="commit"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("interval 7 days", 7 * DAY_MS), ("interval 1 week 12 hours", 7 * DAY_MS + DAY_MS // 2), ("2 days", 2 * DAY_MS)],
)
def test_the_retention_of_a_table_is_an_interval(text: str, expected: int) -> None:
    assert retention_ms({"delta.deletedFileRetentionDuration": text}) == expected
    assert retention_ms({}) is None


@pytest.mark.parametrize(
    "text", ["", "interval", "interval many days", "interval 1 month", "interval 7", f"interval {'9' * 5_000} days"]
)
def test_a_retention_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="it is not an interval"):
        retention_ms({"delta.deletedFileRetentionDuration": text})
