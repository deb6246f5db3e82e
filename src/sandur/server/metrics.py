"""Prometheus metrics; the values of several workers add up when they share a folder."""

import bisect
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

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

from sandur.operations.counters import Count

SHARED_FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"

BUCKETS_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ROUNDS: Final = (0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20)


class ManyAtOnce(Histogram):
    """A histogram that is told of many observations in one go."""

    def add(self, tally: "Tally") -> None:
        self._sum.inc(tally.total)
        for bucket, times in zip(self._buckets, tally.counts, strict=True):
            bucket.inc(times)


class Tally:
    """Observations kept in plain numbers until Prometheus is told, for telling it costs more than many a call."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect.bisect_left(self._bounds, value)] += 1
        self.total += value


class Seconds(Tally):
    """How long calls took."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(BUCKETS_SECONDS)


REQUEST_SECONDS: Final = ManyAtOnce(
    "sandur_request_seconds",
    "How long requests took, from the head of the request to the end of the answer.",
    ("dialect", "operation", "method", "route", "status"),
    buckets=BUCKETS_SECONDS,
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
STORAGE_SECONDS: Final = ManyAtOnce(
    "sandur_storage_seconds", "How long calls to the store took.", ("call",), buckets=BUCKETS_SECONDS
)
STORAGE_ROUNDS: Final = ManyAtOnce(
    "sandur_storage_rounds", "Storage rounds one behind the other before an answer.", ("operation",), buckets=_ROUNDS
)
SWAP_CONFLICTS: Final = Counter("sandur_swap_conflicts", "Writes that lost a compare-and-swap.", ("operation", "area"))
_counters: Final[dict[str, Counter]] = {}


class Grown:
    """Passes counts that somebody else keeps on to Prometheus, by what they have grown since the last time."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], int] = {}

    def show(self, counts: Iterable[Count]) -> None:
        for count in counts:
            known = (count.name, count.value)
            # A workspace that is forgotten takes its counts along; Prometheus's must not shrink.
            _counter(count).labels(count.value).inc(max(0, count.times - self._seen.get(known, 0)))
            self._seen[known] = count.times


def _counter(count: Count) -> Counter:
    found = _counters.get(count.name)
    if found is None:
        name = count.name.removesuffix("_total")
        found = _counters[count.name] = Counter(name, name.replace("_", " ").capitalize() + ".", (count.label,))
    return found


class RequestMeasures:
    """What the requests of one process took; Prometheus is told by `show`."""

    def __init__(self) -> None:
        self.under_way = 0
        self._seconds: defaultdict[tuple[str, ...], Seconds] = defaultdict(Seconds)
        self._rounds: defaultdict[str, Tally] = defaultdict(lambda: Tally(_ROUNDS))

    def observe(self, labels: tuple[str, ...], seconds: float) -> None:
        self._seconds[labels].observe(seconds)

    def observe_rounds(self, operation: str, rounds: int) -> None:
        self._rounds[operation].observe(rounds)

    def show(self) -> None:
        """Tell Prometheus what was observed since the last time."""
        REQUESTS_UNDER_WAY.set(self.under_way)
        for labels, seconds in self._seconds.items():
            REQUEST_SECONDS.labels(*labels).add(seconds)
        for operation, rounds in self._rounds.items():
            STORAGE_ROUNDS.labels(operation).add(rounds)
        self._seconds.clear()
        self._rounds.clear()


def exposition(environment: Mapping[str, str] = os.environ) -> tuple[bytes, str]:
    """Every number in Prometheus's text form, of all workers where there are several, and its content type."""
    if SHARED_FOLDER_VARIABLE not in environment:
        return generate_latest(REGISTRY), CONTENT_TYPE_LATEST
    together = CollectorRegistry()
    multiprocess.MultiProcessCollector(together)  # type: ignore[no-untyped-call] # The library has no types here.
    return generate_latest(together), CONTENT_TYPE_LATEST
