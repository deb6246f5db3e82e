"""Metrics of requests and store calls, kept as plain numbers in each process and summed over all workers.

A Prometheus object costs more per observation than many a store call, so requests only touch dictionaries here.
Workers exchange their numbers through one file each in a shared folder.
"""

import os
import platform
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from itertools import accumulate
from pathlib import Path
from typing import Final, Self, TypeVar

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, PROCESS_COLLECTOR, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from sandur import __version__
from sandur.errors import OutcomeUnknown, SwapLost, Unavailable
from sandur.operations.counters import Count
from sandur.server.metric_families import (
    FAMILIES,
    PROCESS,
    REQUESTS_UNDER_WAY,
    STORAGE_BYTES,
    STORAGE_CALLS,
    STORAGE_SECONDS,
    SWAP_CONFLICTS,
    WORKERS,
    Family,
)
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

_BUILD: Final = frozenset({"sandur_build_info"})
_CPU: Final = ("process_cpu_seconds",)
_LOWEST: Final = frozenset({"process_max_fds", "process_start_time_seconds"})

_Key = tuple[str, ...]
"""The name of a family, followed by the values of its labels."""


class _Histogram(msgspec.Struct):
    counts: list[int]
    sum: float = 0.0


class _Numbers(msgspec.Struct):
    """The numbers of one process. `gauges` are its own; `newest` are of the whole store, as read at `newest_ms`."""

    counters: dict[_Key, int] = {}
    histograms: dict[_Key, _Histogram] = {}
    gauges: dict[_Key, float] = {}
    newest: dict[_Key, float] = {}
    newest_ms: int = -1
    process: dict[str, float] = {}


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
            self._counters[key] = times

    def observe(self, family: Family, value: float, *labels: str) -> None:
        key = (family.name, *labels)
        histogram = self._histograms.get(key)
        if histogram is None:
            histogram = self._histograms[key] = _Histogram([0] * (len(family.buckets) + 1))
        histogram.counts[bisect_left(family.buckets, value)] += 1
        histogram.sum += value

    def follow(self, counts: Iterable[Count]) -> None:
        """Take over counters that are kept elsewhere, by their growth since the last call."""
        for count in counts:
            name = count.name.removesuffix("_total")
            # A lake that leaves the cache takes its counts along; a Prometheus counter must not shrink.
            growth = max(0, count.times - self._seen.get((name, count.value), 0))
            self._seen[name, count.value] = count.times
            self.count(FAMILIES[name], count.value, times=growth)

    def set_gauge(self, family: Family, value: float, *labels: str) -> None:
        """Set a number of this process."""
        self._numbers.gauges[family.name, *labels] = value

    def set_newest(self, values: Mapping[tuple[Family, str], float], *, read_ms: int) -> None:
        """Take over all numbers of the store as they were read at that time; an empty text is no label."""
        self._numbers.newest = {
            tuple(text for text in (family.name, label) if text): value for (family, label), value in values.items()
        }
        self._numbers.newest_ms = read_ms

    def share(self) -> None:
        """Give the numbers of this process to the other workers."""
        if self._folder is not None:
            self._measure_process()
            file = self._folder / f"{os.getpid()}{_SUFFIX}"
            unfinished = file.with_suffix(".unfinished")
            unfinished.write_bytes(msgspec.msgpack.encode(self._numbers))
            unfinished.replace(file)

    def collect(self) -> Iterator[Metric]:
        """The numbers of all workers, for Prometheus. Every family is there, also without a sample."""
        self._measure_process()
        everything = list(self._of_all_workers())
        newest = max(everything, key=lambda one: one.newest_ms).newest
        build: Mapping[_Key, float] = {("sandur_build_info", __version__, platform.python_version()): 1.0}
        for family in FAMILIES.values():
            match family.kind:
                case "histogram":
                    yield _histogram_metric(family, everything)
                case "counter" if family.name in PROCESS:
                    total = sum(one.process.get(family.name, 0.0) for one in everything)
                    yield CounterMetricFamily(family.name, family.help, value=total)
                case "counter":
                    yield _counter_metric(family, everything)
                case "newest":
                    yield _gauge_metric(family, build if family.name in _BUILD else newest)
                case "gauge" if family.name in PROCESS:
                    yield _process_metric(family, everything)
                case "gauge":
                    yield _gauge_metric(family, _added([one.gauges for one in everything]))

    def exposition(self) -> tuple[bytes, str]:
        """All metrics in the text format of Prometheus, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    def _measure_process(self) -> None:
        self.set_gauge(REQUESTS_UNDER_WAY, self.under_way)
        self.set_gauge(WORKERS, 1)
        found = {metric.name: metric.samples[0].value for metric in PROCESS_COLLECTOR.collect()}
        self._numbers.process = {name: value for name, value in found.items() if name in PROCESS}

    def _of_all_workers(self) -> Iterator[_Numbers]:
        own = self._numbers
        # Copies, because Prometheus collects in a thread while requests add keys; copying a dictionary is atomic.
        copies = (own.counters.copy(), own.histograms.copy(), own.gauges.copy(), own.newest)
        yield _Numbers(*copies, own.newest_ms, own.process)
        for file in self._folder.glob(f"*{_SUFFIX}") if self._folder else ():
            pid = int(file.name.removesuffix(_SUFFIX))
            if pid != os.getpid():
                numbers = msgspec.msgpack.decode(file.read_bytes(), type=_Numbers)
                if not _is_alive(pid):  # What a dead worker counted stays counted.
                    numbers.gauges = {}
                    numbers.process = {name: numbers.process.get(name, 0.0) for name in _CPU}
                yield numbers


def _counter_metric(family: Family, everything: Sequence[_Numbers]) -> Metric:
    totals: Counter[_Key] = Counter(dict.fromkeys(((value,) for value in family.values), 0))
    for numbers in everything:
        for key, times in numbers.counters.items():
            if key[0] == family.name:
                totals[key[1:]] += times
    metric = CounterMetricFamily(family.name, family.help, labels=family.labels)
    for labels, total in totals.items():
        metric.add_metric(labels, total)
    return metric


def _histogram_metric(family: Family, everything: Sequence[_Numbers]) -> Metric:
    parts: defaultdict[_Key, list[_Histogram]] = defaultdict(list)
    if not family.labels:
        parts[()] = [_Histogram([0] * (len(family.buckets) + 1))]
    for numbers in everything:
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


def _gauge_metric(family: Family, values: Mapping[_Key, float]) -> Metric:
    metric = GaugeMetricFamily(family.name, family.help, labels=family.labels)
    for key, value in values.items():
        if key[0] == family.name:
            metric.add_metric(key[1:], value)
    return metric


def _process_metric(family: Family, everything: Sequence[_Numbers]) -> Metric:
    values = [one.process[family.name] for one in everything if family.name in one.process]
    merge = min if family.name in _LOWEST else sum
    return GaugeMetricFamily(family.name, family.help, value=merge(values) if values else None)


def _added(parts: Iterable[Mapping[_Key, float]]) -> Mapping[_Key, float]:
    totals: defaultdict[_Key, float] = defaultdict(float)
    for part in parts:
        for key, value in part.items():
            totals[key] += value
    return totals


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


StoreCall = tuple[str, str, str, float]
"""A call, the part of the layout, the result, and the milliseconds."""
CALLS_KEPT_MAX: Final = 50


class Rounds(msgspec.Struct):
    """Counts the storage rounds of one request: calls that overlap share a round, a later call begins the next."""

    operation: str
    count: int = 0
    calls: list[StoreCall] | None = None
    """The first calls, for the log of a slow request; None if they are not kept."""
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
        seconds = time.perf_counter() - self._began
        metrics.observe(STORAGE_SECONDS, seconds, self._call)
        if kind is SwapLost:
            metrics.count(SWAP_CONFLICTS, operation, self._area)
        if rounds:
            rounds.end(self._depth)
            if rounds.calls is not None and len(rounds.calls) < CALLS_KEPT_MAX:
                rounds.calls.append((self._call, self._area, result, round(seconds * 1_000, 3)))


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
            found = call.found(await self._inner.get(key))
            if found is not None:
                self._metrics.count(STORAGE_BYTES, "read", times=len(found.data))
            return found

    async def get_if_changed(self, key: str, *, seen: Version) -> Stored | Unchanged | None:
        with _StoreCall(self._metrics, "get_if_changed", key) as call:
            found = call.found(await self._inner.get_if_changed(key, seen=seen))
            if isinstance(found, Stored):
                self._metrics.count(STORAGE_BYTES, "read", times=len(found.data))
            return found

    async def are_current(self, versions: Sequence[tuple[str, Version]]) -> bool:
        with _StoreCall(self._metrics, "are_current", versions[0][0] if versions else ""):
            return await self._inner.are_current(versions)

    async def head(self, key: str) -> Listed | None:
        with _StoreCall(self._metrics, "head", key) as call:
            return call.found(await self._inner.head(key))

    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
        with _StoreCall(self._metrics, "put", key):
            version = await self._inner.put(key, data, expected=expected)
            self._metrics.count(STORAGE_BYTES, "written", times=len(data))
            return version

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
