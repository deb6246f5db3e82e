"""Metrics of requests and store calls, kept as plain numbers in each process and summed over all workers.

A Prometheus object costs more per observation than many a store call, so requests only touch dictionaries here.
Workers exchange their numbers through one file each in a shared folder.
"""

import os
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple, Self, TypeVar

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from sandur.errors import OutcomeUnknown, SwapLost, Unavailable
from sandur.operations.counters import Count
from sandur.storage.contract import (
    LIST_LIMIT_MAX,
    Expected,
    Listed,
    ObjectStore,
    Stored,
    Unchanged,
    Version,
    folders_of,
)
from sandur.storage.pace import pace_of

T = TypeVar("T")

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ROUNDS: Final = (0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20)


class Family(NamedTuple):
    """A metric: a histogram if it has buckets, otherwise a counter."""

    name: str
    help: str
    labels: Sequence[str]
    buckets: Sequence[float] = ()


REQUEST_SECONDS: Final = Family(
    "sandur_request_seconds",
    "Duration of requests, from the head of the request to the end of the answer.",
    ("dialect", "operation", "method", "route", "status"),
    _SECONDS,
)
REQUESTS_REFUSED: Final = Family(
    "sandur_requests_refused", "Requests refused before they had any effect, by reason.", ("reason",)
)
STORAGE_CALLS: Final = Family(
    "sandur_storage_calls",
    "Store calls, by the operation that made them, the part of the layout, and the result.",
    ("operation", "area", "call", "result"),
)
STORAGE_SECONDS: Final = Family("sandur_storage_seconds", "Duration of store calls.", ("call",), _SECONDS)
STORAGE_ROUNDS: Final = Family(
    "sandur_storage_rounds", "Sequential rounds of store calls per request.", ("operation",), _ROUNDS
)
SWAP_CONFLICTS: Final = Family("sandur_swap_conflicts", "Writes that lost a compare-and-swap.", ("operation", "area"))
WORK_FAILURES: Final = Family(
    "sandur_work_failures",
    "Work behind answers that failed, by the work and the kind of error; `unexpected` is a mistake in the program.",
    ("work", "reason"),
)
DAMAGED_OBJECTS: Final = Family(
    "sandur_damaged_objects", "Objects that could not be decoded when read, by the part of the layout.", ("area",)
)
DELIVERY_SECONDS: Final = Family(
    "sandur_delivery_seconds", "Time from a change to its delivery to a subscription.", (), (*_SECONDS, 60.0, 3_600.0)
)
STORE_CHECKS: Final = Family("sandur_store_checks", "Checks of the store for /readyz, by result.", ("result",))
_MAINTENANCE: Final = {
    "sandur_maintenance_backlog": "Operations that are due and were not done by the last maintenance run.",
    "sandur_maintenance_failing": "Operations whose last try failed or met a conflict.",
    "sandur_maintenance_saved_bytes": "Bytes that maintenance has saved so far.",
    "sandur_maintenance_last_run_seconds": "When the last maintenance run ended, in seconds since 1970.",
}
"""Gauges of the whole store: every worker knows all of it, so the newest value counts, not the sum."""
_LAST_RUN: Final = "sandur_maintenance_last_run_seconds"
_UNDER_WAY: Final = ("sandur_requests_under_way", "Requests in progress.")

_SUFFIX: Final = ".numbers"
NO_REQUEST: Final = "background"
_RESULTS: Final[Mapping[type[BaseException], str]] = {
    SwapLost: "lost",
    Unavailable: "unavailable",
    OutcomeUnknown: "unknown",
}
_AREAS: Final = frozenset(
    {
        "catalogs",
        "namespaces",
        "names",
        "iceberg_pointers",
        "delta_tables",
        "iceberg_idempotency",
        "idempotency",
        "iceberg_transactions",
        "iceberg_staged",
        "delta_staged",
        "securables",
        "model_versions",
        "grants",
        "unity",
        "events",
        "audit",
        "security",
        "index",
        "core",
        "operational",
        "subscriptions",
        "deliveries",
    }
)

_Key = tuple[str, ...]
"""The name of a family, followed by the values of its labels."""


class _Histogram(msgspec.Struct):
    counts: list[int]
    sum: float = 0.0


class _Numbers(msgspec.Struct):
    """The numbers of one process."""

    families: dict[str, Family] = {}
    counters: dict[_Key, int] = {}
    histograms: dict[_Key, _Histogram] = {}
    under_way: int = 0
    gauges: dict[str, int] = {}


class Metrics(Collector):
    """The metrics of one process, and the sum over all workers that share `folder`."""

    def __init__(self, folder: Path | None = None) -> None:
        self.under_way = 0
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self._numbers = _Numbers()
        self._counters = self._numbers.counters
        self._histograms = self._numbers.histograms
        self._folder = folder
        self._seen: dict[_Key, int] = {}

    def count(self, family: Family, *labels: str, times: int = 1) -> None:
        key = (family.name, *labels)
        try:
            self._counters[key] += times
        except KeyError:
            self._numbers.families[family.name] = family
            self._counters[key] = times

    def observe(self, family: Family, value: float, *labels: str) -> None:
        key = (family.name, *labels)
        histogram = self._histograms.get(key)
        if histogram is None:
            self._numbers.families[family.name] = family
            histogram = self._histograms[key] = _Histogram([0] * (len(family.buckets) + 1))
        histogram.counts[bisect_left(family.buckets, value)] += 1
        histogram.sum += value

    def follow(self, counts: Iterable[Count]) -> None:
        """Take over counters that are kept elsewhere, by their growth since the last call."""
        for count in counts:
            name = count.name.removesuffix("_total")
            family = Family(name, name.replace("_", " ").capitalize() + ".", (count.label,))
            # A lake that leaves the cache takes its counts along; a Prometheus counter must not shrink.
            growth = max(0, count.times - self._seen.get((name, count.value), 0))
            self._seen[name, count.value] = count.times
            self.count(family, count.value, times=growth)

    def set_maintenance(self, *, backlog: int, failing: int, saved_bytes: int, last_run_seconds: int) -> None:
        """Take over the numbers of the last maintenance run."""
        values = (backlog, failing, saved_bytes, last_run_seconds)
        self._numbers.gauges = dict(zip(_MAINTENANCE, values, strict=True))

    def share(self) -> None:
        """Give the numbers of this process to the other workers."""
        if self._folder is not None:
            self._numbers.under_way = self.under_way
            file = self._folder / f"{os.getpid()}{_SUFFIX}"
            unfinished = file.with_suffix(".unfinished")
            unfinished.write_bytes(msgspec.msgpack.encode(self._numbers))
            unfinished.replace(file)

    def collect(self) -> Iterator[Metric]:
        """The numbers of all workers, for Prometheus."""
        all_numbers = list(self._of_all_workers())
        families = {name: family for numbers in all_numbers for name, family in numbers.families.items()}
        for family in families.values():
            if family.buckets:
                yield _histogram_metric(family, all_numbers)
            else:
                yield _counter_metric(family, all_numbers)
        newest = max((one.gauges for one in all_numbers), key=lambda found: found.get(_LAST_RUN, -1), default={})
        for name, value in newest.items():
            yield GaugeMetricFamily(name, _MAINTENANCE[name], value=value)
        yield GaugeMetricFamily(*_UNDER_WAY, value=sum(numbers.under_way for numbers in all_numbers))

    def exposition(self) -> tuple[bytes, str]:
        """All metrics in the text format of Prometheus, and its content type."""
        # A process alone also reports itself; of several, one would be reported at random.
        own = generate_latest(REGISTRY) if self._folder is None else b""
        return own + generate_latest(self.registry), CONTENT_TYPE_LATEST

    def _of_all_workers(self) -> Iterator[_Numbers]:
        own = self._numbers
        # Copies, because Prometheus collects in a thread while requests add keys; copying a dictionary is atomic.
        yield _Numbers(own.families.copy(), own.counters.copy(), own.histograms.copy(), self.under_way, own.gauges)
        for file in self._folder.glob(f"*{_SUFFIX}") if self._folder else ():
            pid = int(file.name.removesuffix(_SUFFIX))
            if pid != os.getpid():
                numbers = msgspec.msgpack.decode(file.read_bytes(), type=_Numbers)
                if not _is_alive(pid):
                    numbers.under_way = 0  # What a dead worker counted stays counted.
                yield numbers


def _counter_metric(family: Family, all_numbers: Sequence[_Numbers]) -> Metric:
    totals: Counter[_Key] = Counter()
    for numbers in all_numbers:
        for key, times in numbers.counters.items():
            if key[0] == family.name:
                totals[key[1:]] += times
    metric = CounterMetricFamily(family.name, family.help, labels=family.labels)
    for labels, total in totals.items():
        metric.add_metric(labels, total)
    return metric


def _histogram_metric(family: Family, all_numbers: Sequence[_Numbers]) -> Metric:
    parts: defaultdict[_Key, list[_Histogram]] = defaultdict(list)
    for numbers in all_numbers:
        for key, histogram in numbers.histograms.items():
            if key[0] == family.name:
                parts[key[1:]].append(histogram)
    bounds = (*(str(float(bound)) for bound in family.buckets), "+Inf")
    metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    for labels, histograms in parts.items():
        counts = accumulate(map(sum, zip(*(histogram.counts for histogram in histograms), strict=True)))
        total = sum(histogram.sum for histogram in histograms)
        metric.add_metric(labels, list(zip(bounds, counts, strict=True)), total)
    return metric


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Rounds(msgspec.Struct):
    """Counts the storage rounds of one request: calls that overlap share a round, a later call begins the next."""

    operation: str
    count: int = 0
    _ended: int = 0

    def begin(self) -> int:
        depth = self._ended + 1
        self.count = max(self.count, depth)
        return depth

    def end(self, depth: int) -> None:
        self._ended = max(self._ended, depth)


current_rounds: Final[ContextVar[Rounds | None]] = ContextVar("current_rounds", default=None)
"""The request that the current task belongs to, also after its answer; None during startup and for janitors."""


class _StoreCall:
    """One store call: counted and timed from `with` to its end, whatever the end is."""

    __slots__ = ("_area", "_began", "_call", "_depth", "_metrics", "_result", "_rounds")

    def __init__(self, metrics: Metrics, call: str, key: str) -> None:
        self._metrics = metrics
        self._call = call
        self._area = area_of(key)
        self._result = "ok"
        self._rounds = current_rounds.get()

    def __enter__(self) -> Self:
        self._depth = self._rounds.begin() if self._rounds else 0
        self._began = time.perf_counter()
        return self

    def found(self, value: T) -> T:
        """The value that was read; None is counted as absent."""
        if value is None:
            self._result = "absent"
        return value

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        metrics, rounds = self._metrics, self._rounds
        operation = rounds.operation if rounds else NO_REQUEST
        result = self._result if kind is None else _RESULTS.get(kind, "failed")
        metrics.count(STORAGE_CALLS, operation, self._area, self._call, result)
        metrics.observe(STORAGE_SECONDS, time.perf_counter() - self._began, self._call)
        if kind is SwapLost:
            metrics.count(SWAP_CONFLICTS, operation, self._area)
        if rounds:
            rounds.end(self._depth)


class MeasuredStore:
    """Passes every call on, and counts and times it."""

    def __init__(self, inner: ObjectStore, metrics: Metrics) -> None:
        self._inner = inner
        self._metrics = metrics
        self.folders = folders_of(inner)
        self.pace = pace_of(inner)
        self.has_instant_reads = inner.has_instant_reads

    def version_now(self, key: str) -> Version | None:
        """Counted, but not timed: timing costs more than the call."""
        found = self._inner.version_now(key)
        rounds = current_rounds.get()
        if rounds:
            rounds.count = max(rounds.count, 1)
        operation = rounds.operation if rounds else NO_REQUEST
        self._metrics.count(STORAGE_CALLS, operation, area_of(key), "version_now", "ok" if found else "absent")
        return found

    async def get(self, key: str) -> Stored | None:
        with _StoreCall(self._metrics, "get", key) as call:
            return call.found(await self._inner.get(key))

    async def get_if_changed(self, key: str, *, seen: Version) -> Stored | Unchanged | None:
        with _StoreCall(self._metrics, "get_if_changed", key) as call:
            return call.found(await self._inner.get_if_changed(key, seen=seen))

    async def are_current(self, versions: Sequence[tuple[str, Version]]) -> bool:
        with _StoreCall(self._metrics, "are_current", versions[0][0] if versions else ""):
            return await self._inner.are_current(versions)

    async def head(self, key: str) -> Listed | None:
        with _StoreCall(self._metrics, "head", key) as call:
            return call.found(await self._inner.head(key))

    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
        with _StoreCall(self._metrics, "put", key):
            return await self._inner.put(key, data, expected=expected)

    async def delete(self, key: str, *, expected: Version) -> None:
        with _StoreCall(self._metrics, "delete", key):
            await self._inner.delete(key, expected=expected)

    async def list(self, prefix: str, *, after: str | None = None, limit: int = LIST_LIMIT_MAX) -> Sequence[Listed]:
        with _StoreCall(self._metrics, "list", prefix):
            return await self._inner.list(prefix, after=after, limit=limit)

    async def close(self) -> None:
        await self._inner.close()


def area_of(key: str) -> str:
    """The part of the layout that a key belongs to: one of a bounded set, so that it can be a label."""
    area = key.partition("/_catalog/")[2].partition("/")[0]
    return area if area in _AREAS else "files"
