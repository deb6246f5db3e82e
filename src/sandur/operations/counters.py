"""Counters and durations of the operations, which the server publishes as metrics."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from sandur.catalog.identifiers import Identifier, full_name_of
from sandur.errors import Busy, Conflict, Exhausted, OutcomeUnknown, SandurError, Unavailable, VersionTaken
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
COMMIT_ATTEMPTS: Final = "sandur_commit_attempts_total"
COMMIT_OUTCOMES: Final = "sandur_commit_outcomes_total"
TRANSACTIONS: Final = "sandur_transactions_total"
DELTA_COMMITS: Final = "sandur_delta_commits_total"
TABLE_COMMITS: Final = "sandur_table_commits_total"
PREVIEWS: Final = "sandur_previews_total"
EVENT_STREAMS: Final = "sandur_event_streams_total"
DELIVERIES: Final = "sandur_deliveries_total"
LINEAGE_EVENTS: Final = "sandur_lineage_events_total"
CACHE_READS: Final = "sandur_cache_reads_total"
STORE_PACE: Final = "sandur_storage_pace_total"

PLANNING_SECONDS: Final = "sandur_planning_seconds"

_OUTCOMES: Final = ("ok", "replayed", "conflict", "unknown", "unavailable", "refused")


class Counted(NamedTuple):
    """A counter: its help text, its one label, and the values that it has from the start, so that rates see them."""

    help: str
    label: str = "result"
    values: Sequence[str] = ()


COUNTERS: Final[Mapping[str, Counted]] = {
    INDEX_READS: Counted("Lists answered by the list index (hit), or not (miss, error).", values=("hit", "error")),
    INDEX_UPDATES: Counted("Updates of a list index; a conflict is tried again.", values=("ok", "conflict", "error")),
    INDEX_REBUILDS: Counted("Rebuilds of a list index that was missing or damaged.", values=("ok", "error")),
    LIST_FALLBACKS: Counted("Lists that read every object, because the index could not be used.", "collection"),
    JANITOR_OBJECTS: Counted("Objects that the janitors visited, by janitor and outcome.", "outcome"),
    JANITOR_RUNS: Counted(
        "Janitor runs over a workspace; not_due: another server ran, or the interval is not over.",
        values=("done", "failed", "not_due"),
    ),
    AUDIT_WRITTEN: Counted("Audit records that were written, by kind.", "kind"),
    AUDIT_LOST: Counted("Audit records that were lost, because the store failed and memory was full.", "kind"),
    AUDIT_WRITES: Counted("Batches of audit records.", values=("done", "failed")),
    CREDENTIALS: Counted("Storage credentials for clients, by cloud and result."),
    STAGE_OUTCOMES: Counted(
        "Staged tables: staged, finalized by a commit, failed, or cleaned up.",
        "outcome",
        ("staged", "finalized", "failed", "cleaned"),
    ),
    COMMITS: Counted("Commits by the operation of their snapshot; metadata: without a snapshot.", "operation"),
    COMMIT_ATTEMPTS: Counted(
        "Attempts of commits to one table or view: the swap won, lost, or got no answer (unknown); stale: the cached "
        "state was not current.",
        values=("won", "lost", "unknown", "stale"),
    ),
    COMMIT_OUTCOMES: Counted(
        "Commits to one table or view, by how they ended; replayed: an earlier attempt had done it.",
        "outcome",
        _OUTCOMES,
    ),
    TRANSACTIONS: Counted("Commits to several tables at once, by how they ended.", "outcome", _OUTCOMES),
    DELTA_COMMITS: Counted(
        "Commits and changes of Delta tables, by how they ended; full: too many commits wait to be published.",
        "outcome",
        (*_OUTCOMES, "full"),
    ),
    TABLE_COMMITS: Counted("Commits to the tables that the setting metrics_tables lists.", "table"),
    PREVIEWS: Counted(
        "Previews and queries; failed: DuckDB had an error; killed: their process took too long, or too much memory.",
        values=("ok", "refused", "failed", "killed"),
    ),
    EVENT_STREAMS: Counted("Streams of events that clients opened.", values=("opened", "refused")),
    DELIVERIES: Counted("Deliveries of events to subscriptions."),
    LINEAGE_EVENTS: Counted("Lineage events that clients sent."),
    CACHE_READS: Counted("Reads of the cache of table and view metadata.", values=("hit", "miss")),
    STORE_PACE: Counted("How calls to a bucket were slowed down, retried or doubled.", "event"),
}

DURATIONS: Final[Mapping[str, str]] = {
    PLANNING_SECONDS: "Time that a scan plan took, also if its client no longer waited.",
}
"""The help text of each duration."""

_DURATIONS_MAX: Final = 10_000
"""Durations that are kept until the server takes them over, every few seconds."""


class Count(NamedTuple):
    """The value of one counter since the start of the process."""

    name: str
    label: str
    value: str
    times: int


class Counters:
    """Counters, which only grow, and durations, which are kept until they are taken."""

    def __init__(self, _lake: object = None) -> None:
        self._times: Counter[tuple[str, str]] = Counter()
        self._durations: deque[tuple[str, float]] = deque(maxlen=_DURATIONS_MAX)

    def add(self, name: str, value: str, *, times: int = 1) -> None:
        self._times[name, value] += times

    def observe(self, name: str, seconds: float) -> None:
        self._durations.append((name, seconds))

    def times(self, name: str, value: str) -> int:
        return self._times[name, value]

    def take_durations(self) -> Sequence[tuple[str, float]]:
        """The durations since the last call, with their names."""
        taken = list(self._durations)
        self._durations.clear()
        return taken

    def __iter__(self) -> Iterator[Count]:
        for (name, value), times in sorted(self._times.items()):
            yield Count(name, COUNTERS[name].label, value, times)


_OPERATIONS: Final = ("append", "overwrite", "replace", "delete", "transaction")


def count_commit(lake: Lake, operation: str, *identifiers: Identifier) -> None:
    """Count a commit by the operation of its snapshot, or as `transaction`; without a snapshot it is `metadata`."""
    known = operation if operation in _OPERATIONS else "other"  # A client may send any text.
    counters = lake.feature(Counters)
    counters.add(COMMITS, known if operation else "metadata")
    listed = lake.settings.metrics_tables
    for name in (full_name_of(identifier) for identifier in identifiers if listed):
        if name in listed:
            counters.add(TABLE_COMMITS, name)


def outcome_of(error: SandurError) -> str:
    """How a commit ended that raised: an outcome of COMMIT_OUTCOMES."""
    match error:
        case Exhausted():
            return "full"
        case Conflict() | VersionTaken():
            return "conflict"
        case OutcomeUnknown():
            return "unknown"
        case Busy() | Unavailable():
            return "unavailable"
        case _:
            return "refused"
