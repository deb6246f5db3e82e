"""Metrics reports of engines as rows: one row per scan or commit."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from sandur.operations.lake import Lake
from sandur.operations.tables.metrics import Report
from sandur.pipeline.sources.range_reader import KeyRange, RangeReader, Row, ranges_between
from sandur.pipeline.tables import shape
from sandur.storage.contract import LIST_LIMIT_MAX, Listed, get_many
from sandur.storage.layout import Layout

REPORTS: Final = shape(
    "reports",
    """
    table_uuid string
    catalog string
    namespace string
    name string
    received_at timestamptz
    kind string!
    planning_ms long
    scanned_files long
    skipped_files long
    scanned_bytes long
    scanned_manifests long
    skipped_manifests long
    commit_ms long
    commit_attempts long
    added_files long
    added_records long
    removed_files long
    removed_records long
    problem string
    """,
    key="table_uuid",
)
REPORTS_PER_TASK_PAGES: Final = 5
_KIND: Final = "metrics"

_SCAN: Final = {
    "planning_ms": "total-planning-duration",
    "scanned_files": "result-data-files",
    "skipped_files": "skipped-data-files",
    "scanned_bytes": "total-file-size-in-bytes",
    "scanned_manifests": "scanned-data-manifests",
    "skipped_manifests": "skipped-data-manifests",
}
_COMMIT: Final = {
    "commit_ms": "total-duration",
    "commit_attempts": "attempts",
    "added_files": "added-data-files",
    "added_records": "added-records",
    "removed_files": "removed-data-files",
    "removed_records": "removed-records",
}
_PER_MS: Final = {"nanoseconds": 1_000_000, "microseconds": 1_000, "milliseconds": 1}
_MS: Final = {"seconds": 1_000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}
_LONG_MAX: Final = (1 << 63) - 1


class _Measure(msgspec.Struct, frozen=True, rename="kebab"):
    """A counter or a timer."""

    value: int | None = None
    total_duration: int | None = None
    time_unit: str = "nanoseconds"


class _Body(msgspec.Struct, frozen=True, rename="kebab"):
    metrics: dict[str, _Measure] = {}


class ReportsReader(RangeReader):
    """Every stored report; one that cannot be decoded is a row with a `problem`."""

    shape = REPORTS

    async def ranges(self, lake: Lake) -> Sequence[KeyRange]:
        """The folder in ranges of a few pages each; reports are stored in the order of their arrival."""
        folder = lake.layout.operational_folder(_KIND)
        bounds: list[str] = []
        after: str | None = None
        while True:
            page = await lake.store.list(folder, after=after, limit=REPORTS_PER_TASK_PAGES * LIST_LIMIT_MAX)
            if len(page) < REPORTS_PER_TASK_PAGES * LIST_LIMIT_MAX:
                break
            after = page[-1].key
            bounds.append(after)
        return ranges_between(folder, bounds)

    async def rows(self, lake: Lake, listed: Sequence[Listed]) -> Sequence[Row]:
        keys = [one.key for one in listed]
        found = await get_many(lake.store, keys)
        return [report_row(lake.layout, key, stored.data) for key, stored in zip(keys, found, strict=True) if stored]


def report_row(layout: Layout, key: str, data: bytes) -> Row:
    """The row of a report; only a `problem` if it cannot be decoded or is not stored under its own id.

    So a copy of a report is never counted.
    """
    try:
        report = msgspec.json.decode(data, type=Report)
        body = msgspec.json.decode(report.report, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return {"kind": "unread", "problem": f"{key}: {error}"}
    if key != layout.operational(_KIND, report.id):
        return {"kind": "misplaced", "problem": f"{key}: a copy of {layout.operational(_KIND, report.id)}"}
    wanted: Mapping[str, str] = {"scan-report": _SCAN, "commit-report": _COMMIT}.get(report.report_type, {})
    kinds = {"scan-report": "scan", "commit-report": "commit"}
    return {
        "table_uuid": report.table_uuid,
        "catalog": report.identifier.catalog,
        "namespace": str(report.identifier.namespace),
        "name": report.identifier.name,
        "received_at": report.received_ms,
        "kind": kinds.get(report.report_type, "other"),
        **{column: _number(body.metrics.get(name), column) for column, name in wanted.items()},
    }


def _number(measure: _Measure | None, column: str) -> int | None:
    """A count, or a duration in milliseconds; None if it is missing or not a count."""
    if measure is None:
        return None
    number = _milliseconds(measure) if column.endswith("_ms") else measure.value
    return number if number is not None and 0 <= number <= _LONG_MAX else None


def _milliseconds(measure: _Measure) -> int | None:
    duration, unit = measure.total_duration, measure.time_unit.lower()
    if duration is None:
        return None
    return duration // _PER_MS[unit] if unit in _PER_MS else duration * _MS[unit] if unit in _MS else None
