"""What Prometheus is told; the numbers of several workers add up when they share a folder."""

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)

SHARED_FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ROUNDS: Final = (0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20)

REQUEST_SECONDS: Final = Histogram(
    "sandur_request_seconds",
    "How long requests took, from the head of the request to the end of the answer.",
    ("dialect", "operation", "method", "route", "status"),
    buckets=_SECONDS,
)
REQUESTS_UNDER_WAY: Final = Gauge(
    "sandur_requests_under_way", "Requests that are being worked on.", multiprocess_mode="livesum"
)
REQUESTS_REFUSED: Final = Counter(
    "sandur_requests_refused", "Requests turned away before any effect, by reason.", ("reason",)
)
STORAGE_CALLS: Final = Counter(
    "sandur_storage_calls",
    "Calls to the store, by the operation that made them, what they touched, and how they ended.",
    ("operation", "area", "call", "result"),
)
STORAGE_SECONDS: Final = Histogram(
    "sandur_storage_seconds", "How long calls to the store took.", ("call",), buckets=_SECONDS
)
STORAGE_ROUNDS: Final = Histogram(
    "sandur_storage_rounds", "Storage rounds one behind the other before an answer.", ("operation",), buckets=_ROUNDS
)
SWAP_CONFLICTS: Final = Counter("sandur_swap_conflicts", "Writes that lost a compare-and-swap.", ("operation", "area"))
CACHE_READS: Final = Gauge(
    "sandur_cache_reads", "Look-ups in the cache of documents since the start.", ("result",), multiprocess_mode="sum"
)


class CacheCounts(NamedTuple):
    """How often the cache of documents had what was asked for, since the start of the process."""

    hits: int
    misses: int


class RequestMeasures:
    """Histograms of requests, each looked up once."""

    def __init__(self) -> None:
        self._children: dict[tuple[str, str, str, str, int], Histogram] = {}

    def observe(self, labels: tuple[str, str, str, str, int], seconds: float) -> None:
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = REQUEST_SECONDS.labels(*labels)
        child.observe(seconds)


def show_cache(counts: CacheCounts) -> None:
    for result, value in counts._asdict().items():
        CACHE_READS.labels(result).set(value)


def exposition(environment: Mapping[str, str] = os.environ) -> tuple[bytes, str]:
    """Every number in Prometheus's text form, of all workers where there are several, and its content type."""
    if SHARED_FOLDER_VARIABLE not in environment:
        return generate_latest(REGISTRY), CONTENT_TYPE_LATEST
    together = CollectorRegistry()
    multiprocess.MultiProcessCollector(together)  # type: ignore[no-untyped-call] # The library has no types here.
    return generate_latest(together), CONTENT_TYPE_LATEST
