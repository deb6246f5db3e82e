"""Receipts as rows, their problems, and the exact conversion back."""

import hashlib

import msgspec
import pytest
from msgspec.structs import replace

from sandur.catalog.events import Source
from sandur.catalog.records import AttemptedFile, DeltaCommit, DeltaTable, Head
from sandur.operations import receipts
from sandur.operations.receipts import receipt_key, receipt_of
from sandur.pipeline.sources.receipt_rows import receipt_of_row, row_of
from sandur.storage.layout import Layout

LAYOUT = Layout()
HEAD = Head(
    metadata_location="file:///t/metadata/00001-a.metadata.json",
    last_updated_ms=1_767_225_600_123,
    metadata_version=1,
    previous_metadata_location="file:///t/metadata/00000-a.metadata.json",
    previous_commit_key=hashlib.sha256(b"file:///t/metadata/00000-a.metadata.json").hexdigest(),
    snapshot_id=-7,
    operation="append",
    last_sequence_number=3,
    source=Source(kind="rest", principal="ada", client="tests"),
)


def key_of_head(head: Head) -> str:
    return receipt_key(LAYOUT, AttemptedFile(head.metadata_location, head.last_updated_ms, head.registration))


def encoded(head: Head) -> bytes:
    return msgspec.json.encode(receipt_of("table", head))


@pytest.mark.parametrize(
    "head",
    [
        HEAD,
        replace(HEAD, previous_metadata_location=None, previous_commit_key=None, snapshot_id=None, operation="create"),
        replace(HEAD, registration="42", operation="register"),
        replace(HEAD, refs={"main": -7, "é": 2**62}, spec_id=3),
        replace(HEAD, source=Source(kind="pipeline", principal="nightly", principal_id="id", run_id="r", task_id="t")),
        replace(HEAD, last_updated_ms=1 << 60),
        replace(HEAD, last_updated_ms=-1, source=Source()),
    ],
)
def test_a_receipt_converted_to_a_row_and_back_has_the_same_bytes(head: Head) -> None:
    row = row_of(LAYOUT, key_of_head(head), encoded(head))

    assert row.get("problem") is None
    assert msgspec.json.encode(receipt_of_row(row)) == encoded(head)


def test_a_receipt_of_an_older_release_has_no_refs_and_no_spec() -> None:
    old = msgspec.json.decode(encoded(HEAD))
    del old["refs"]
    row = row_of(LAYOUT, key_of_head(HEAD), msgspec.json.encode(old))

    assert (row.get("problem"), row["refs_json"], row["spec_id"]) == (None, None, None)
    assert msgspec.json.decode(msgspec.json.encode(receipt_of_row(row))) == old


@pytest.mark.parametrize(
    ("key", "data", "problem"),
    [
        (key_of_head(HEAD), b"", "corrupt"),
        (key_of_head(HEAD), b"[]", "corrupt"),
        (key_of_head(HEAD), b"\xff\xfe", "corrupt"),
        (key_of_head(HEAD), b'{"event_type":"iceberg_commit_committed","event_version":1}', "corrupt"),
        (
            key_of_head(HEAD),
            encoded(HEAD).replace(b'"snapshot_id":-7', b'"snapshot_id":99999999999999999999'),
            "corrupt",
        ),
        (LAYOUT.events_folder() + "rubbish", encoded(HEAD), "corrupt"),
        (key_of_head(HEAD), b'{"event_type":"coffee_made","event_version":1}', "unknown"),
        (key_of_head(HEAD), encoded(HEAD).replace(b'"event_version":1', b'"event_version":2'), "unknown"),
        (key_of_head(HEAD).replace("2026-01-01", "2026-01-02"), encoded(HEAD), "misplaced"),
        (key_of_head(HEAD).replace("/iceberg/", "/delta/"), encoded(HEAD), "unknown"),
        (key_of_head(HEAD), encoded(replace(HEAD, metadata_location="file:///other")), "misplaced"),
        (key_of_head(HEAD), encoded(HEAD).replace(b"00001-a", b"00002-a"), "misplaced"),
    ],
)
def test_an_invalid_or_misplaced_receipt_has_a_problem(key: str, data: bytes, problem: str) -> None:
    row = row_of(LAYOUT, key, data)

    assert row["problem"] == problem
    assert row["detail"]
    assert row["key"] == key


DELTA = DeltaTable(uuid="t", table_uuid="t", state="live", location="file:///t", created_ms=1_767_225_600_000)
SECOND = DeltaCommit(
    version=1,
    timestamp_ms=1_767_225_600_001,
    file_name="00000000000000000001.x.json",
    file_size=7,
    file_modified_ms=1,
    previous_commit_key=receipts.delta_receipt_of(DELTA, receipts.first_delta_commit(DELTA)).commit_key,
    source=Source(kind="rest", principal="ada"),
)


def test_a_version_of_a_delta_table_has_a_row_with_its_log_file() -> None:
    first = receipts.delta_receipt_of(DELTA, receipts.first_delta_commit(DELTA))
    second = receipts.delta_receipt_of(DELTA, SECOND)

    rows = [
        row_of(LAYOUT, receipts.delta_receipt_key(LAYOUT, receipt), msgspec.json.encode(receipt))
        for receipt in (first, second)
    ]

    assert [(row.get("problem"), row["format"], row["metadata_version"]) for row in rows] == [
        (None, "delta", 0),
        (None, "delta", 1),
    ]
    assert rows[0]["metadata_location"] == "file:///t/_delta_log/00000000000000000000.json"
    assert rows[1]["metadata_location"] == "file:///t/_delta_log/_staged_commits/00000000000000000001.x.json"
    assert rows[1]["previous_commit_key"] == rows[0]["commit_key"]


def test_a_delta_receipt_under_a_wrong_key_or_for_another_file_is_misplaced() -> None:
    receipt = receipts.delta_receipt_of(DELTA, SECOND)
    key, data = receipts.delta_receipt_key(LAYOUT, receipt), msgspec.json.encode(receipt)

    elsewhere = row_of(LAYOUT, key.replace("2026-01-01", "2026-01-02"), data)
    another = row_of(LAYOUT, key, data.replace(b'"version":1', b'"version":2'))

    assert {elsewhere["problem"], another["problem"]} == {"misplaced"}
