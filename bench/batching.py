"""Measure what batched commits gain on one hot table, on a bucket and in a folder.

Writers of one server change a table that they all share: each sets a property of its own, with or without an
idempotency key, sets statistics, appends to a branch of its own, appends to `main` on the snapshot that it saw last, or
commits a version of a Delta table. The bucket is memory behind the latency of one. "alone" is the same server on a
store whose version of records does not allow batches (V3), so that every commit has its own swap; both take turns in
one run.
"""

import argparse
import asyncio
import itertools
import json
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from bench.measurement import save, show
from bench.store_proxy import Latency
from sandur.catalog.record_versions import WITH_BATCHES, WITH_RENAMES
from sandur.errors import Conflict, SandurError
from sandur.iceberg.requests import TableCommit
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.storage.contract import ObjectStore
from sandur.storage.local import LocalStore
from sandur.storage.memory import MemoryStore
from sandur.storage.shared_reads import SharingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.operations.delta_requests import add, create_managed
from tests.operations.lakes import OWN_ADDRESS, make_lake
from tests.operations.requests import (
    append,
    at_snapshot,
    commit,
    create,
    identifier_of,
    keyed_request,
    load,
    request,
    set_property,
    set_up_catalog,
    snapshot,
)

T = TypeVar("T")

LATENCY: Final = Latency(20, 60)
TURNS: Final = 3
TABLE: Final = identifier_of("t")
WRITERS: Final = (1, 8, 32)
COLUMNS: Final = ("store", "workload", "writers", "alone, per second", "batched, per second", "times", "refused")


class LateStore(WrappingStore):
    """Every call takes the latency of a bucket."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._chance = random.Random(1)

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002 - every call alike
        await asyncio.sleep(LATENCY.draw_seconds(self._chance))
        return await perform()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench batching", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--json", type=Path, help="the result file; the default is bench/results/batching.json")
    options = parser.parse_args()
    rows = [
        asyncio.run(_row(place, workload, writers, options.seconds))
        for place, workloads in (("bucket", tuple(WORKLOADS)), ("folder", ("properties", "branches")))
        for workload in workloads
        for writers in WRITERS
    ]
    show("One hot table, one server", COLUMNS, rows)
    result = {
        "settings": f"bucket: memory behind a latency of {LATENCY.p50_ms:g} ms (p99 {LATENCY.p99_ms:g} ms); one server",
        "rows": [dict(zip(COLUMNS, row, strict=True)) for row in rows],
    }
    save("batching", result, file=options.json)


async def _row(place: str, workload: str, writers: int, seconds: float) -> tuple[object, ...]:
    rates: dict[bool, list[float]] = {False: [], True: []}
    refused, calls = 0, 0
    for is_batched in (False, True) * TURNS:
        rate, refused, calls = await _rate(place, workload, writers, seconds / TURNS, is_batched=is_batched)
        rates[is_batched].append(rate)
    alone, batched = (round(statistics.median(rates[one]), 1) for one in (False, True))
    share = f"{refused / max(1, calls):.0%}"
    return (place, workload, writers, alone, batched, round(batched / alone, 2), share)


async def _rate(place: str, workload: str, writers: int, seconds: float, *, is_batched: bool) -> tuple[float, int, int]:
    """Commits per second, the refused ones, and all."""
    clock = FixedClock()
    with tempfile.TemporaryDirectory() as folder:
        kept = MemoryStore(clock=clock) if place == "bucket" else LocalStore(Path(folder))
        store = SharingStore(LateStore(kept)) if place == "bucket" else kept
        lake = make_lake(store, clock, delta_unpublished_max=1_000_000)
        quick = make_lake(kept, clock)
        for one in (quick, lake):
            one.form.major = WITH_BATCHES.major if is_batched else WITH_RENAMES.major
        await set_up_catalog(quick)
        await create(lake, TABLE.name)
        await load(lake, TABLE)
        step = await WORKLOADS[workload](lake, _committing(lake, is_keyed="key" in workload))
        counts, until = [0, 0], time.perf_counter() + seconds

        async def write(writer: int) -> None:
            while time.perf_counter() < until:
                try:
                    await step(writer)
                    counts[0] += 1
                except SandurError:
                    counts[1] += 1

        began = time.perf_counter()
        await asyncio.gather(*(write(number) for number in range(writers)))
        spent = time.perf_counter() - began
        await lake.background.drain()
    return round(counts[0] / spent, 1), counts[1], sum(counts)


Step = Callable[[int], Awaitable[object]]
Send = Callable[[TableCommit], Awaitable[object]]


def _committing(lake: Lake, *, is_keyed: bool) -> Send:
    numbers, named = itertools.count(), keyed_request if is_keyed else request
    return lambda wanted: commit_table(lake, TABLE, wanted, named(f"commit {next(numbers)}"))


async def _properties(_lake: Lake, send: Send) -> Step:
    numbers = itertools.count()
    return lambda writer: send(commit(set_property(f"writer {writer}", str(next(numbers)))))


async def _statistics(_lake: Lake, send: Send) -> Step:
    """Each writer replaces the statistics of one snapshot, as jobs that compute them do."""
    numbers = itertools.count()
    await send(append(1))

    async def step(_writer: int) -> None:
        file = {
            "snapshot-id": 1,
            "statistics-path": f"{OWN_ADDRESS}/statistics/{next(numbers)}.puffin",
            "file-size-in-bytes": 1,
            "file-footer-size-in-bytes": 1,
            "blob-metadata": [],
        }
        await send(commit({"action": "set-statistics", "statistics": file}))

    return step


async def _branches(_lake: Lake, send: Send) -> Step:
    """Each writer appends to a branch of its own, on the snapshot that it appended last."""
    ids, last = itertools.count(1), dict[int, int]()

    async def step(writer: int) -> None:
        name, new, parent = f"branch{writer}", next(ids), last.get(writer)
        await send(
            commit(
                {"action": "add-snapshot", "snapshot": snapshot(new, parent, number=1_000_000 + new)},
                {"action": "set-snapshot-ref", "ref-name": name, "type": "branch", "snapshot-id": new},
                require=(at_snapshot(parent, name),),
            )
        )
        last[writer] = new

    return step


async def _appends(lake: Lake, send: Send) -> Step:
    """As engines: each writer asserts the head of `main` that it saw, and loads the table after a refusal."""
    ids = itertools.count(1)
    seen: dict[int, int | None] = {}

    async def step(writer: int) -> None:
        new, parent = next(ids), seen.get(writer)
        try:
            await send(append(new, parent, number=1_000_000 + new))
            seen[writer] = new
        except Conflict:
            loaded = await load(lake, TABLE)
            current = _current_snapshot(loaded.metadata)
            seen[writer] = current
            raise

    return step


def _current_snapshot(metadata: bytes) -> int | None:
    found: int | None = json.loads(metadata).get("current-snapshot-id")
    return None if found == -1 else found


async def _delta(lake: Lake, _send: Send) -> Step:
    """Each writer tries the version after the one that it saw."""
    table = await create_managed(lake)
    seen = [0]

    async def step(writer: int) -> None:
        version = seen[0] + 1
        await add(lake, table, version, f"{version:020d}.{writer}.json")
        seen[0] = max(seen[0], version)

    return step


WORKLOADS: Final[dict[str, Callable[[Lake, Send], Awaitable[Step]]]] = {
    "properties": _properties,
    "properties, with keys": _properties,
    "statistics": _statistics,
    "branches": _branches,
    "appends to main": _appends,
    "Delta": _delta,
}


if __name__ == "__main__":
    main()
