"""Receipts as rows: what is understood, what is kept aside and why, and the way back to the very bytes."""

import hashlib

import msgspec
import pytest
from msgspec.structs import replace

from sandur.catalog.records import Head, Tried
from sandur.catalog.sources import Source
from sandur.events.receipts import receipt_key, receipt_of
from sandur.pipeline.receipt_rows import receipt_of_row, row_of
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
    return receipt_key(LAYOUT, Tried(head.metadata_location, head.last_updated_ms, head.registration))


def encoded(head: Head) -> bytes:
    return msgspec.json.encode(receipt_of("table", head))


@pytest.mark.parametrize(
    "head",
    [
        HEAD,
        replace(HEAD, previous_metadata_location=None, previous_commit_key=None, snapshot_id=None, operation="create"),
        replace(HEAD, registration="42", operation="register"),
        replace(HEAD, last_updated_ms=1 << 60),
        replace(HEAD, last_updated_ms=-1, source=Source()),
    ],
)
def test_a_receipt_is_a_row_and_the_row_is_the_receipt_again_to_the_last_bit(head: Head) -> None:
    row = row_of(LAYOUT, key_of_head(head), encoded(head))

    assert row.get("problem") is None
    assert msgspec.json.encode(receipt_of_row(row)) == encoded(head)


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
def test_what_is_not_a_receipt_in_its_place_is_said_to_be_so(key: str, data: bytes, problem: str) -> None:
    row = row_of(LAYOUT, key, data)

    assert row["problem"] == problem
    assert row["detail"]
    assert row["key"] == key
