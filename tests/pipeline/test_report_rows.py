"""Reports of engines as rows, for all that engines send."""

import json
from typing import Any

import pytest

from sandur.pipeline.jobs.metrics import report_row
from sandur.storage.layout import Layout

LAYOUT = Layout()
KEY = LAYOUT.operational("metrics", "r")


def encode_report(report: dict[str, Any], **fields: object) -> bytes:
    body = {
        "id": "r",
        "table_uuid": "u",
        "identifier": ["main", ["sales"], "t"],
        "report_type": report.get("report-type", ""),
        "received_ms": 1_767_225_600_000,
        "source": {"kind": "rest"},
        "report": report,
        **fields,
    }
    return json.dumps(body).encode()


def timer(duration: int, unit: str = "nanoseconds") -> dict[str, Any]:
    return {"count": 1, "time-unit": unit, "total-duration": duration}


def counter(value: int) -> dict[str, Any]:
    return {"unit": "count", "value": value}


def test_a_scan_is_read() -> None:
    metrics = {
        "total-planning-duration": timer(2_644_235_116),
        "result-data-files": counter(3),
        "skipped-data-files": counter(2),
        "total-file-size-in-bytes": counter(1_000),
        "scanned-data-manifests": counter(1),
        "unheard-of": {"anything": "else"},
    }

    row = report_row(LAYOUT, KEY, encode_report({"report-type": "scan-report", "metrics": metrics}))

    assert row["kind"] == "scan"
    assert (row["catalog"], row["namespace"], row["name"]) == ("main", "sales", "t")
    assert (row["planning_ms"], row["scanned_files"], row["skipped_files"]) == (2_644, 3, 2)
    assert (row["scanned_bytes"], row["scanned_manifests"], row["skipped_manifests"]) == (1_000, 1, None)


def test_a_commit_is_read() -> None:
    metrics = {"total-duration": timer(5, "seconds"), "attempts": counter(2), "added-records": counter(7)}

    row = report_row(LAYOUT, KEY, encode_report({"report-type": "commit-report", "metrics": metrics}))

    assert row["kind"] == "commit"
    assert (row["commit_ms"], row["commit_attempts"], row["added_records"], row["removed_files"]) == (5_000, 2, 7, None)


def test_a_report_of_another_kind_is_counted_and_not_read() -> None:
    row = report_row(LAYOUT, KEY, encode_report({"report-type": "weather", "metrics": {"total-duration": timer(1)}}))

    assert row["kind"] == "other"
    assert "commit_ms" not in row


@pytest.mark.parametrize(
    "measure",
    [timer(-1), timer(1, "fortnights"), counter(1), timer(1 << 90), {}],
    ids=["negative", "unit", "counter", "huge", "empty"],
)
def test_an_invalid_duration_is_omitted(measure: dict[str, Any]) -> None:
    row = report_row(
        LAYOUT, KEY, encode_report({"report-type": "commit-report", "metrics": {"total-duration": measure}})
    )

    assert row.get("commit_ms") is None
    assert row["kind"] in {"commit", "unread"}


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\xff", b"[]", encode_report({"report-type": "scan-report", "metrics": 5})]
)
def test_an_invalid_report_has_a_problem_with_its_key(data: bytes) -> None:
    row = report_row(LAYOUT, KEY, data)

    assert row["kind"] == "unread"
    assert str(row["problem"]).startswith(f"{KEY}: ")


def test_a_copy_of_a_report_is_not_counted() -> None:
    copy = LAYOUT.operational("metrics", "copy")

    row = report_row(LAYOUT, copy, encode_report({"report-type": "scan-report", "metrics": {}}))

    assert row == {"kind": "misplaced", "problem": f"{copy}: a copy of {KEY}"}
