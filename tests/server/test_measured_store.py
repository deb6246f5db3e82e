"""The store that counts: what Prometheus is told of calls, lost swaps and rounds."""

import asyncio

import pytest
from prometheus_client import REGISTRY

from sandur.errors import SwapLost
from sandur.server.measured_store import MeasuredStore, Rounds, area_of, current_rounds
from sandur.server.metrics import BUCKETS_SECONDS, ManyAtOnce, Seconds
from sandur.storage.contract import ABSENT
from sandur.storage.memory import MemoryStore

KEY = "tenant=t/workspace=w/_catalog/names/main/ns/t.json"


def told(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_calls_are_counted_by_operation_area_and_end() -> None:
    store = MeasuredStore(MemoryStore())
    labels = {"operation": "opOne", "area": "names"}
    current_rounds.set(Rounds("opOne"))

    await store.get(KEY)
    await store.put(KEY, b"1", expected=ABSENT)
    with pytest.raises(SwapLost):
        await store.put(KEY, b"2", expected=ABSENT)
    store.show()

    assert told("sandur_storage_calls_total", **labels, call="get", result="absent") == 1
    assert told("sandur_storage_calls_total", **labels, call="put", result="ok") == 1
    assert told("sandur_storage_calls_total", **labels, call="put", result="lost") == 1
    assert told("sandur_swap_conflicts_total", **labels) == 1


async def test_a_call_is_told_of_once_however_often_the_numbers_are_shown() -> None:
    store = MeasuredStore(MemoryStore())
    current_rounds.set(Rounds("opThree"))
    seconds_before = told("sandur_storage_seconds_count", call="head")

    for _ in range(3):
        await store.head(KEY)
        store.show()
        store.show()

    labels = {"operation": "opThree", "area": "names", "call": "head", "result": "absent"}
    assert told("sandur_storage_calls_total", **labels) == 3
    assert told("sandur_storage_seconds_count", call="head") == seconds_before + 3
    assert told("sandur_storage_seconds_bucket", call="head", le="+Inf") == seconds_before + 3


def test_times_fall_into_the_same_buckets_however_they_are_told() -> None:
    times = (0.0, 0.0005, 0.00051, 0.3, 10.0, 11.0)
    one_by_one = ManyAtOnce("test_one_by_one", "One by one.", buckets=BUCKETS_SECONDS)
    at_once = ManyAtOnce("test_at_once", "At once.", buckets=BUCKETS_SECONDS)
    seconds = Seconds()

    for taken in times:
        one_by_one.observe(taken)
        seconds.observe(taken)
    at_once.add(seconds)

    for bound in (*BUCKETS_SECONDS, "+Inf"):
        told_one_by_one = told("test_one_by_one_bucket", le=str(bound))
        assert told("test_at_once_bucket", le=str(bound)) == told_one_by_one, bound
    assert told("test_at_once_sum") == told("test_one_by_one_sum")


async def test_calls_at_the_same_time_are_one_round() -> None:
    store = MeasuredStore(MemoryStore())
    rounds = Rounds("opTwo")
    current_rounds.set(rounds)

    await asyncio.gather(store.get("a"), store.get("b"), store.get("c"))
    await store.get("d")

    assert rounds.count == 2


def test_the_areas_are_bounded_whatever_the_key() -> None:
    assert area_of(KEY) == "names"
    assert area_of("tenant=t/workspace=w/_catalog/index/tables/a.v1.json") == "index"
    assert area_of("tables/default/default/ns/t/metadata/00000.metadata.json") == "files"
    assert area_of("tenant=t/workspace=w/_catalog/anything/else") == "files"
