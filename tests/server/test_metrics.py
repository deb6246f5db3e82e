"""Metrics: store calls, lost swaps, rounds, and the sum over workers."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry, Histogram

from sandur.errors import SwapLost
from sandur.server.metric_families import (
    FAMILIES,
    MAINTENANCE_BACKLOG,
    MAINTENANCE_SAVED,
    STORAGE_SECONDS,
    SWAP_CONFLICTS,
)
from sandur.server.metrics import MeasuredStore, Metrics, Rounds, area_of, current_rounds
from sandur.storage.contract import ABSENT
from sandur.storage.memory import MemoryStore

PID_MAX = 4_194_304
"""One more than Linux gives to any process."""
KEY = "tenant=t/workspace=w/_catalog/names/main/ns/t.json"


def sample(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(name, labels) or 0.0


async def test_calls_are_counted_by_operation_area_and_outcome() -> None:
    metrics = Metrics()
    store = MeasuredStore(MemoryStore(), metrics)
    labels = {"operation": "opOne", "area": "names"}
    current_rounds.set(Rounds("opOne"))

    await store.get(KEY)
    await store.put(KEY, b"1", expected=ABSENT)
    with pytest.raises(SwapLost):
        await store.put(KEY, b"2", expected=ABSENT)

    assert sample(metrics, "sandur_storage_calls_total", **labels, call="get", result="absent") == 1
    assert sample(metrics, "sandur_storage_calls_total", **labels, call="put", result="ok") == 1
    assert sample(metrics, "sandur_storage_calls_total", **labels, call="put", result="lost") == 1
    assert sample(metrics, "sandur_swap_conflicts_total", **labels) == 1


async def test_a_call_is_counted_once_if_the_metrics_are_collected_often() -> None:
    metrics = Metrics()
    store = MeasuredStore(MemoryStore(), metrics)
    current_rounds.set(Rounds("opThree"))

    for _ in range(3):
        await store.head(KEY)
        metrics.exposition()
        metrics.exposition()

    labels = {"operation": "opThree", "area": "names", "call": "head", "result": "absent"}
    assert sample(metrics, "sandur_storage_calls_total", **labels) == 3
    assert sample(metrics, "sandur_storage_seconds_count", call="head") == 3
    assert sample(metrics, "sandur_storage_seconds_bucket", call="head", le="+Inf") == 3


def test_times_fall_into_the_buckets_of_a_prometheus_histogram() -> None:
    times = (0.0, 0.0005, 0.00051, 0.3, 10.0, 11.0)
    registry = CollectorRegistry()
    theirs = Histogram("theirs", "Theirs.", buckets=STORAGE_SECONDS.buckets, registry=registry)
    ours = Metrics()

    for seconds in times:
        theirs.observe(seconds)
        ours.observe(STORAGE_SECONDS, seconds, "get")

    for bound in (*STORAGE_SECONDS.buckets, "+Inf"):
        expected = registry.get_sample_value("theirs_bucket", {"le": str(bound)})
        assert sample(ours, "sandur_storage_seconds_bucket", call="get", le=str(bound)) == expected, bound
    assert sample(ours, "sandur_storage_seconds_sum", call="get") == registry.get_sample_value("theirs_sum")


def test_the_metrics_of_all_workers_are_added_also_of_dead_ones(tmp_path: Path) -> None:
    alive, dead = Metrics(tmp_path), Metrics(tmp_path)
    for metrics in (alive, dead):
        metrics.under_way = 1
        metrics.count(SWAP_CONFLICTS, "op", "names", times=2)
        metrics.observe(STORAGE_SECONDS, 0.3, "get")
    dead.share()
    (file,) = tmp_path.iterdir()
    file.rename(file.with_name(f"{PID_MAX}{file.suffix}"))
    alive.share()

    assert sample(alive, "sandur_swap_conflicts_total", operation="op", area="names") == 4
    assert sample(alive, "sandur_storage_seconds_count", call="get") == 2
    assert sample(alive, "sandur_storage_seconds_sum", call="get") == 0.6
    assert sample(alive, "sandur_requests_under_way") == 1


def test_requests_do_not_change_metrics_during_their_collection() -> None:
    metrics = Metrics()
    metrics.count(SWAP_CONFLICTS, "op", "names")

    collected = next(metrics._of_all_workers())
    metrics.count(SWAP_CONFLICTS, "another", "names")

    assert collected.counters == {("sandur_swap_conflicts", "op", "names"): 1}


async def test_concurrent_calls_are_one_round() -> None:
    metrics = Metrics()
    store = MeasuredStore(MemoryStore(), metrics)
    rounds = Rounds("opTwo")
    current_rounds.set(rounds)

    await asyncio.gather(store.get("a"), store.get("b"), store.get("c"))
    await store.get("d")

    assert rounds.count == 2


def test_the_number_of_areas_is_bounded_for_any_key() -> None:
    assert area_of(KEY) == "names"
    assert area_of("tenant=t/workspace=w/_catalog/index/tables/a.v1.json") == "index"
    assert area_of("tables/default/default/ns/t/metadata/00000.metadata.json") == "files"
    assert area_of("tenant=t/workspace=w/_catalog/anything/else") == "files"


def test_numbers_of_the_store_are_shown_once_and_the_newest_count(tmp_path: Path) -> None:
    old, new = Metrics(tmp_path), Metrics()
    old.set_newest({(MAINTENANCE_BACKLOG, ""): 9.0, (MAINTENANCE_SAVED, ""): 1.0}, read_ms=100)
    old.share()
    (shared,) = tmp_path.glob("*.numbers")
    shared.rename(tmp_path / f"{PID_MAX}.numbers")

    both = Metrics(tmp_path)
    for metrics in (new, both):
        metrics.set_newest({(MAINTENANCE_BACKLOG, ""): 2.0, (MAINTENANCE_SAVED, ""): 30.0}, read_ms=200)

    assert sample(Metrics(), "sandur_maintenance_backlog") == 0.0
    for metrics in (new, both):
        assert sample(metrics, "sandur_maintenance_backlog") == 2.0
        assert sample(metrics, "sandur_maintenance_saved_bytes") == 30.0


def test_the_processes_of_all_workers_are_added_and_of_dead_ones_only_their_cpu_time(tmp_path: Path) -> None:
    alone, dead = Metrics(), Metrics(tmp_path)
    dead.share()
    (shared,) = tmp_path.glob("*.numbers")
    ended = shared.rename(tmp_path / f"{PID_MAX}.numbers")
    of_dead = msgspec.msgpack.decode(ended.read_bytes())
    of_dead["process"]["process_cpu_seconds"] = 1_000.0
    ended.write_bytes(msgspec.msgpack.encode(of_dead))
    alive = Metrics(tmp_path)
    of_dead["process"]["process_start_time_seconds"] = 1_000.0
    (tmp_path / f"{os.getppid()}.numbers").write_bytes(msgspec.msgpack.encode(of_dead))

    assert sample(alone, "sandur_workers") == 1
    assert sample(alone, "process_cpu_seconds_total") < 1_000
    assert sample(alive, "sandur_workers") == 2
    assert sample(alive, "process_cpu_seconds_total") > 2_000
    for name in ("process_resident_memory_bytes", "process_virtual_memory_bytes", "process_open_fds"):
        assert sample(alive, name) > of_dead["process"][name] > 0, name
    assert sample(alive, "process_start_time_seconds") == 1_000
    assert sample(alive, "process_max_fds") == of_dead["process"]["process_max_fds"]


def test_every_family_is_collected_with_a_real_help_text_before_anything_happens() -> None:
    collected = {metric.name: metric for metric in Metrics().collect()}

    assert {*collected} == {*FAMILIES}
    for name, metric in collected.items():
        words = name.removeprefix("sandur_").replace("_", " ")
        assert len(metric.documentation.split()) >= 3, name
        assert words.lower() != metric.documentation.lower().rstrip("."), name
    assert sample(Metrics(), "sandur_commit_outcomes_total", outcome="unknown") == 0.0
    assert {one.labels["outcome"] for one in collected["sandur_commit_outcomes"].samples} >= {"ok", "replayed"}
