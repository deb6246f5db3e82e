"""Measure what batched commits could gain on one hot table, with a prototype beside the real commit.

The store is memory behind the latency of a bucket. Writers of one server change a table that they all share: each sets
a property of its own, appends to a branch of its own, appends to `main` on the snapshot that it saw last, or commits a
version of a Delta table. The prototype drafts every waiting commit on the one before it, writes all files in one round,
and swaps the pointer once: a file for each commit, as rules B1 to B9 of the model ask. It has no keys, no grants, no
evidence of the commits that a swap passes, and no retries, so it is faster than a complete one would be.
"""

import argparse
import asyncio
import itertools
import json
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from bench.measurement import save, show
from bench.store_proxy import Latency
from sandur.errors import Conflict, SandurError
from sandur.iceberg.requests import TableCommit
from sandur.operations.lake import Lake
from sandur.operations.receipts import Receipts
from sandur.operations.tables.changes import TableChange
from sandur.operations.tables.commit import Commit, Draft, commit_table, draft_next
from sandur.operations.tables.documents import TABLES, cache_document, write_document
from sandur.storage.contract import ObjectStore
from sandur.storage.memory import MemoryStore
from sandur.storage.shared_reads import SharingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.operations.delta_requests import add, create_managed
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    append,
    at_snapshot,
    commit,
    create,
    identifier_of,
    load,
    request,
    set_property,
    set_up_catalog,
    snapshot,
)

T = TypeVar("T")

LATENCY: Final = Latency(20, 60)
MEMBERS_MAX: Final = 16
TABLE: Final = identifier_of("t")
WRITERS: Final = (1, 8, 32)
COLUMNS: Final = ("workload", "writers", "now, per second", "batched, per second", "times", "refused now")


class LateStore(WrappingStore):
    """Every call takes the latency of a bucket."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._chance = random.Random(1)

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002 - every call alike
        await asyncio.sleep(LATENCY.draw_seconds(self._chance))
        return await perform()


class Batches:
    """The prototype: commits to one table that wait while a batch is in progress form the next one."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._waiting: list[tuple[TableCommit, asyncio.Future[None]]] = []
        self._lock = asyncio.Lock()

    async def commit(self, wanted: TableCommit) -> None:
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, answered))
        async with self._lock:
            if not answered.done():
                members, self._waiting = self._waiting[:MEMBERS_MAX], self._waiting[MEMBERS_MAX:]
                await self._carry_out(members)
        await answered

    async def _carry_out(self, members: list[tuple[TableCommit, asyncio.Future[None]]]) -> None:
        lake, sent = self._lake, request("batch")
        base = Commit(lake, TABLES, TABLE, TableChange(members[0][0]), sent)._remember()  # noqa: SLF001 - a prototype
        assert base, "the prototype needs a warm server"
        drafts: list[Draft[Any]] = []
        taken: list[asyncio.Future[None]] = []
        for wanted, answered in members:
            change, now_ms = TableChange(wanted), lake.clock.now_ms()
            last = drafts[-1] if drafts else None
            at = base if last is None else type(base)(base.found, base.pointer, last.head, last.document)
            try:
                metadata = change.apply(at.document.metadata, now_ms=now_ms)
            except Conflict as refused:
                answered.set_exception(refused)
                continue
            drafts.append(draft_next(lake, TABLES, at, metadata, change.operation(metadata), sent, now_ms=now_ms))
            taken.append(answered)
        if not drafts:
            return
        receipt = lake.feature(Receipts).ensure(base.pointer.value.table_uuid, base.head)
        name = lake.store.are_current([(lake.name(TABLE).key, base.found.name.version)])
        await asyncio.gather(*(write_document(lake, draft.document) for draft in drafts), receipt, name)
        moved = replace(base.pointer.value, head=drafts[-1].head)
        await lake.pointer(moved.uuid).swap(moved, expected=base.pointer.version)
        cache_document(lake, TABLES, drafts[-1].document)
        for answered in taken:
            answered.set_result(None)
        for draft in drafts:
            await lake.background.run("receipt", lake.feature(Receipts).ensure(moved.table_uuid, draft.head))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench batching", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--json", type=Path, help="the result file; the default is bench/results/batching.json")
    options = parser.parse_args()
    rows = [asyncio.run(_row(workload, writers, options.seconds)) for workload in WORKLOADS for writers in WRITERS]
    show("One hot table on a bucket of 20 ms, one server", COLUMNS, rows)
    result = {
        "settings": f"memory behind a latency of {LATENCY.p50_ms:g} ms (p99 {LATENCY.p99_ms:g} ms), one server",
        "rows": [dict(zip(COLUMNS, row, strict=True)) for row in rows],
    }
    save("batching", result, file=options.json)


async def _row(workload: str, writers: int, seconds: float) -> tuple[object, ...]:
    now, refused, calls = await _rate(workload, writers, seconds, is_batched=False)
    share = f"{refused / max(1, calls):.0%}"
    if workload == "Delta":
        return (workload, writers, now, "", "", share)
    batched, _, _ = await _rate(workload, writers, seconds, is_batched=True)
    return (workload, writers, now, batched, round(batched / now, 2), share)


async def _rate(workload: str, writers: int, seconds: float, *, is_batched: bool) -> tuple[float, int, int]:
    """Commits per second, the refused ones, and all."""
    clock = FixedClock()
    kept = MemoryStore(clock=clock)
    await set_up_catalog(make_lake(kept, clock))
    lake = make_lake(SharingStore(LateStore(kept)), clock, delta_unpublished_max=1_000_000)
    await create(lake, TABLE.name)
    await load(lake, TABLE)
    step = await WORKLOADS[workload](lake, Batches(lake).commit if is_batched else _committing(lake))
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


def _committing(lake: Lake) -> Send:
    numbers = itertools.count()
    return lambda wanted: commit_table(lake, TABLE, wanted, request(f"commit {next(numbers)}"))


async def _properties(_lake: Lake, send: Send) -> Step:
    numbers = itertools.count()
    return lambda writer: send(commit(set_property(f"writer {writer}", str(next(numbers)))))


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
    "branches": _branches,
    "appends to main": _appends,
    "Delta": _delta,
}


if __name__ == "__main__":
    main()
