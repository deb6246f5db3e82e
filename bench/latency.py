"""Measure what the protocols cost on a bucket when nothing else takes time: virtual time, and the latency of S3.

Two servers of the real operations share one store in memory, each through its own shared reads, retries and pace. Every
storage call takes a time drawn from the seeded distribution of `bench.store_proxy`; work takes none. So the result does
not depend on the machine, and shows rounds, calls, and where requests wait for each other.
"""

import argparse
import asyncio
import functools
import json
import logging
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from bench.measurement import save, show
from bench.provenance import RESULTS
from bench.store_proxy import PROFILES
from sandur.operations.access import with_current_names
from sandur.operations.background import Background
from sandur.operations.index.lists import list_names
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.settings import RetrySettings, Settings
from sandur.storage.layout import Layout
from sandur.storage.locations import Locations
from sandur.storage.pace import PacedStore
from sandur.storage.retry import RetryingStore
from sandur.storage.shared_reads import SharingStore
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.operations.requests import (
    NAMESPACE,
    commit,
    identifier_of,
    load,
    request,
    set_property,
    set_up_catalog,
    table,
)
from tests.simulation.bucket import SimulatedClock, _InstantStore
from tests.simulation.loop import SimulatedLoop

T = TypeVar("T")
Work = Callable[[Lake], Awaitable[object]]

LATENCY: Final = PROFILES["s3"]
SERVERS: Final = 2
TABLES: Final = 60
SEEDS: Final = (1, 2, 3)
COLUMNS: Final = ("operation", "clients", "per second", "p50 ms", "p99 ms", "rounds", "calls")


class Row(msgspec.Struct, frozen=True):
    """One operation by a number of clients that each wait for an answer; medians over the seeds."""

    operation: str
    clients: int
    rate: float
    p50_ms: float
    p99_ms: float
    rounds: float
    calls: float


class DistantStore(WrappingStore):
    """Every call takes the time of a bucket, in the time of the loop."""

    has_instant_reads = False

    def __init__(self, inner: _InstantStore, seed: str) -> None:
        super().__init__(inner)
        self.calls = 0
        self._chance = random.Random(seed)

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        del call
        self.calls += 1
        await asyncio.sleep(LATENCY.draw_seconds(self._chance))
        return await perform()


class Fleet:
    """Servers on one store, with the tables t0 to t59 in one namespace."""

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        self._loop = loop
        memory = _InstantStore(clock=SimulatedClock(loop, "store"))
        self._stores = [DistantStore(memory, f"{seed} {number}") for number in range(SERVERS)]
        self.lakes = [self._server(store, number) for number, store in enumerate(self._stores)]
        self.rows: list[Row] = []

    def _server(self, distant: DistantStore, number: int) -> Lake:
        clock, retry = SimulatedClock(self._loop, f"server {number}"), RetrySettings()
        store = SharingStore(RetryingStore(PacedStore(distant, retry), clock, retry))
        return Lake(
            store=store,
            layout=Layout(),
            clock=clock,
            settings=Settings(store="memory:"),
            locations=Locations("memory://store", store, open_store=lambda _: store),
            background=Background(),
        )

    async def measure_all(self) -> None:
        await set_up_catalog(self.lakes[0])
        for number in range(TABLES):
            await _create(f"t{number}")(self.lakes[number % SERVERS])
        await self._drain()
        for clients, count in ((1, 100), (32, 1_000), (256, 4_000)):
            await self.measure(
                "load", clients, count, lambda _: lambda lake: load(lake, identifier_of("t0")), reads=True
            )
        for clients, count in ((1, 100), (32, 1_000)):
            await self.measure("list 60 tables", clients, count, lambda _: _list, reads=True)
        for clients, count in ((1, 60), (32, 600)):
            await self.measure("commit of properties", clients, count, lambda call: _commit(call % 20, call))
        await self.measure("transaction over two tables", 1, 100, lambda call: _transact(30 + 2 * (call % 4), call))
        for clients, count in ((1, 60), (32, 1_000)):
            await self.measure("create", clients, count, functools.partial(_create_one, clients))

    async def measure(
        self, operation: str, clients: int, count: int, work: Callable[[int], Work], *, reads: bool = False
    ) -> None:
        """Every client sends its next request when it has the answer; the servers take turns."""
        seconds: list[float] = []
        remaining, calls, began = iter(range(count)), self._calls(), self._loop.time()

        async def client(number: int) -> None:
            lake = self.lakes[number % SERVERS]
            for call in remaining:
                sent = self._loop.time()
                await with_current_names(lake, None, work(call), is_read=reads)
                seconds.append(self._loop.time() - sent)

        await asyncio.gather(*(client(number) for number in range(clients)))
        rate = count / (self._loop.time() - began)
        await self._drain()
        ordered = [1_000 * one for one in sorted(seconds)]
        p50, p99 = ordered[len(ordered) // 2], ordered[math.ceil(len(ordered) * 0.99) - 1]
        rounds, each = p50 / LATENCY.p50_ms, (self._calls() - calls) / count
        self.rows.append(Row(operation, clients, rate, p50, p99, rounds, each))

    def _calls(self) -> int:
        return sum(store.calls for store in self._stores)

    async def _drain(self) -> None:
        for lake in self.lakes:
            await lake.background.drain()


def _create_one(clients: int, call: int) -> Work:
    return _create(f"c{clients}-{call}")


def _create(name: str) -> Work:
    return lambda lake: create_table(lake, NAMESPACE, table(name), request(f"create {name}"))


def _list(lake: Lake) -> Awaitable[object]:
    return list_names(lake, NAMESPACE, kind="table", page_token="", page_size=None)


def _commit(number: int, call: int) -> Work:
    change = commit(set_property("call", str(call)))
    return lambda lake: commit_table(lake, identifier_of(f"t{number}"), change, request(f"commit {call}"))


def _transact(first: int, call: int) -> Work:
    changes = [(identifier_of(f"t{first + one}"), commit(set_property("call", str(call)))) for one in (0, 1)]
    return lambda lake: commit_transaction(lake, "main", changes, request(f"transaction {call}"))


def measured(seed: int) -> Sequence[Row]:
    loop = SimulatedLoop(seed)
    fleet = Fleet(loop, seed)
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(fleet.measure_all())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    return fleet.rows


def _median(rows: Sequence[Row]) -> Row:
    middle = len(rows) // 2
    numbers = [
        round(sorted(values)[middle], 2)
        for values in zip(*((row.rate, row.p50_ms, row.p99_ms, row.rounds, row.calls) for row in rows), strict=True)
    ]
    return Row(rows[0].operation, rows[0].clients, *numbers)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench latency", description=__doc__)
    parser.add_argument("--json", type=Path, help="the result file; the default is bench/results/latency.json")
    parser.add_argument("--before", type=Path, help="the result file of another checkout, to keep beside this one")
    options = parser.parse_args()
    file = options.json or RESULTS / "latency.json"
    others = options.before or file
    before = json.loads(others.read_text(encoding="utf-8")) if others.exists() else {}
    logging.disable(logging.CRITICAL)
    rows = [_median(same) for same in zip(*map(measured, SEEDS), strict=True)]
    show("Latency by storage calls alone", COLUMNS, [msgspec.structs.astuple(row) for row in rows])
    settings = (
        f"virtual time, {SERVERS} servers, S3 (p50 20 ms, p99 60 ms), no authentication; medians of {len(SEEDS)} seeds"
    )
    kept = before.get("rows" if options.before else "before", [])
    save("latency", {"settings": settings, "rows": rows, "before": kept}, file=options.json)


if __name__ == "__main__":
    main()
