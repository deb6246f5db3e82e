"""Counters of the operations, which the server publishes as metrics."""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from sandur.operations.lake import Lake

INDEX_READS: Final = "uc_preview_index_read_total"
INDEX_UPDATES: Final = "uc_preview_index_update_total"
INDEX_REBUILDS: Final = "uc_preview_index_rebuild_total"
LIST_FALLBACKS: Final = "uc_preview_list_fallback_total"
JANITOR_OBJECTS: Final = "sandur_janitor_objects_total"
JANITOR_RUNS: Final = "sandur_janitor_runs_total"
AUDIT_WRITTEN: Final = "sandur_audit_records_total"
AUDIT_LOST: Final = "sandur_audit_lost_total"
AUDIT_WRITES: Final = "sandur_audit_writes_total"
CREDENTIALS: Final = "sandur_storage_credentials_total"
STAGE_OUTCOMES: Final = "sandur_stages_total"
COMMITS: Final = "sandur_commits_total"
EVENT_STREAMS: Final = "sandur_event_streams_total"
DELIVERIES: Final = "sandur_deliveries_total"
LINEAGE_EVENTS: Final = "sandur_lineage_events_total"

LABELS: Final = {
    INDEX_READS: "result",
    INDEX_UPDATES: "result",
    INDEX_REBUILDS: "result",
    LIST_FALLBACKS: "collection",
    JANITOR_OBJECTS: "outcome",
    JANITOR_RUNS: "result",
    AUDIT_WRITTEN: "kind",
    AUDIT_LOST: "kind",
    AUDIT_WRITES: "result",
    CREDENTIALS: "result",
    STAGE_OUTCOMES: "outcome",
    COMMITS: "operation",
    EVENT_STREAMS: "result",
    DELIVERIES: "result",
    LINEAGE_EVENTS: "result",
}
"""The label name of each counter."""


class Count(NamedTuple):
    """The value of one counter since the start of the process."""

    name: str
    label: str
    value: str
    times: int


class Counters:
    """Counters, which only grow."""

    def __init__(self, _lake: object = None) -> None:
        self._times: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, value: str, *, times: int = 1) -> None:
        self._times[name, value] += times

    def times(self, name: str, value: str) -> int:
        return self._times[name, value]

    def __iter__(self) -> Iterator[Count]:
        for (name, value), times in sorted(self._times.items()):
            yield Count(name, LABELS[name], value, times)


_OPERATIONS: Final = ("append", "overwrite", "replace", "delete", "transaction")


def count_commit(lake: Lake, operation: str) -> None:
    """Count a commit by the operation of its snapshot, or as `transaction`; without a snapshot it is `metadata`."""
    known = operation if operation in _OPERATIONS else "other"  # A client may send any text.
    lake.feature(Counters).add(COMMITS, known if operation else "metadata")
