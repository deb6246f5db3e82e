"""All metrics of a server: names, help texts and labels. docs/metrics.md is generated from them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from sandur.operations.counters import COUNTERS, DURATIONS

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ROUNDS: Final = (0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20)


class Family(NamedTuple):
    """A metric. The labels of every family take values of a bounded set; names of tables are never among them.

    `values` are the label values that a counter has from the start. A `gauge` is added up over the workers. A `newest`
    is about the whole store: every worker reads all of it, so the newest reading counts.
    """

    name: str
    help: str
    labels: Sequence[str] = ()
    buckets: Sequence[float] = ()
    kind: Literal["counter", "histogram", "gauge", "newest"] = "counter"
    values: Sequence[str] = ()


def _histogram(name: str, text: str, labels: Sequence[str], buckets: Sequence[float] = _SECONDS) -> Family:
    return Family(name, text, labels, buckets, "histogram")


def _gauge(name: str, text: str, *labels: str) -> Family:
    return Family(name, text, labels, kind="gauge")


def _newest(name: str, text: str, *labels: str) -> Family:
    return Family(name, text, labels, kind="newest")


REQUEST_SECONDS: Final = _histogram(
    "sandur_request_seconds",
    "Duration of requests, from the head of the request to the end of the answer.",
    ("dialect", "operation", "method", "route", "status"),
)
REQUEST_BYTES: Final = Family("sandur_request_bytes", "Bytes of request bodies, by API.", ("dialect",))
RESPONSE_BYTES: Final = Family("sandur_response_bytes", "Bytes of the bodies of answers, by API.", ("dialect",))
REQUESTS_REFUSED: Final = Family(
    "sandur_requests_refused",
    "Requests refused before they had any effect, by reason.",
    ("reason",),
    values=("busy", "bodies"),
)
REQUESTS_UNDER_WAY: Final = _gauge("sandur_requests_under_way", "Requests in progress.")
SIGN_INS: Final = Family(
    "sandur_sign_ins",
    "Checks of tokens and API keys: ok, refused (401, 403), or not possible, such as when a provider is down.",
    ("result",),
    values=("ok", "refused", "unavailable"),
)
GRANT_DECISIONS: Final = Family(
    "sandur_grant_decisions",
    "Decisions of grants about requests, and vetoes by Open Policy Agent.",
    ("decision",),
    values=("allowed", "denied"),
)
STORAGE_CALLS: Final = Family(
    "sandur_storage_calls",
    "Store calls, by the operation that made them, the part of the layout, and the result.",
    ("operation", "area", "call", "result"),
)
STORAGE_SECONDS: Final = _histogram("sandur_storage_seconds", "Duration of store calls.", ("call",))
STORAGE_BYTES: Final = Family(
    "sandur_storage_bytes", "Bytes that store calls read and wrote.", ("direction",), values=("read", "written")
)
STORAGE_ROUNDS: Final = _histogram(
    "sandur_storage_rounds", "Sequential rounds of store calls per request.", ("operation",), _ROUNDS
)
SWAP_CONFLICTS: Final = Family("sandur_swap_conflicts", "Writes that lost a compare-and-swap.", ("operation", "area"))
STORE_CHECKS: Final = Family(
    "sandur_store_checks", "Checks of the store for /readyz, by result.", ("result",), values=("ok", "failed")
)
WORK_FAILURES: Final = Family(
    "sandur_work_failures",
    "Work behind answers that failed, by the work and the kind of error; `unexpected` is a mistake in the program.",
    ("work", "reason"),
)
DAMAGED_OBJECTS: Final = Family(
    "sandur_damaged_objects", "Objects that could not be decoded when read, by the part of the layout.", ("area",)
)
DELIVERY_SECONDS: Final = _histogram(
    "sandur_delivery_seconds", "Time from a change to its delivery to a subscription.", (), (*_SECONDS, 60.0, 3_600.0)
)
LOOP_LAG: Final = _histogram(
    "sandur_loop_lag_seconds", "How late the event loop ran a timer: time in which a worker answered nothing.", ()
)
CACHE_BYTES: Final = _gauge("sandur_cache_bytes", "Bytes of cached values in memory, by cache.", "cache")
WORKERS: Final = _gauge("sandur_workers", "Server processes that are alive.")
BUILD_INFO: Final = _newest("sandur_build_info", "Always 1; the labels say which version runs.", "version", "python")

RECEIPTS_OVERDUE: Final = _newest(
    "sandur_receipts_overdue", "Commits whose receipt was missing after a minute, found by the last janitor run."
)
MARKS_OVERDUE: Final = _newest(
    "sandur_index_marks_overdue", "Changes that may be missing from a list index, because their server died."
)
PURGES_WAITING: Final = _newest(
    "sandur_purges_waiting", "Dropped tables whose files wait for their purge; at most 1,000 for each workspace."
)
PURGE_OLDEST: Final = _newest(
    "sandur_purge_oldest_timestamp_seconds", "When the oldest waiting purge was ordered, in seconds since 1970."
)
DELTA_UNPUBLISHED: Final = _newest(
    "sandur_delta_unpublished",
    "Commits that wait to be published to a _delta_log, of Delta tables that changed in the last two days, found by "
    "the last janitor run.",
)
LAST_SUCCESS: Final = _newest(
    "sandur_last_success_timestamp_seconds",
    "When the janitors or a job of the pipeline last succeeded, in seconds since 1970.",
    "work",
)
PUBLISHED: Final = _newest(
    "sandur_published_timestamp_seconds", "When the pipeline last published system tables, in seconds since 1970."
)
MAINTENANCE_BACKLOG: Final = _newest(
    "sandur_maintenance_backlog", "Operations that are due and were not done by the last maintenance run."
)
MAINTENANCE_FAILING: Final = _newest(
    "sandur_maintenance_failing", "Operations whose last try failed or had a conflict."
)
MAINTENANCE_SAVED: Final = _newest("sandur_maintenance_saved_bytes", "Bytes that maintenance has saved so far.")
MAINTENANCE_LAST_RUN: Final = _newest(
    "sandur_maintenance_last_run_seconds", "When the last maintenance run ended, in seconds since 1970."
)

PROCESS: Final[Mapping[str, str]] = {
    "process_cpu_seconds": "CPU time of all workers, also of those that have ended, in seconds.",
    "process_resident_memory_bytes": "Resident memory of all workers.",
    "process_virtual_memory_bytes": "Virtual memory of all workers.",
    "process_open_fds": "Open files of all workers.",
    "process_max_fds": "The lowest limit of open files of any worker.",
    "process_start_time_seconds": "When the oldest worker started, in seconds since 1970.",
}
"""What Prometheus usually knows about one process, over all workers."""


def _all() -> Iterator[Family]:
    yield from (value for value in globals().values() if isinstance(value, Family))
    for name, counted in COUNTERS.items():
        yield Family(name.removesuffix("_total"), counted.help, (counted.label,), values=counted.values)
    for name, text in DURATIONS.items():
        yield _histogram(name, text, ())
    for name, text in PROCESS.items():
        yield Family(name, text) if name == "process_cpu_seconds" else _gauge(name, text)


FAMILIES: Final[Mapping[str, Family]] = {family.name: family for family in sorted(_all())}
"""Every family by its name; a counter's samples end in `_total`."""
