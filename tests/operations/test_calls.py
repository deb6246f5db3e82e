"""The budget of storage calls and bytes of each operation: a bucket charges for every call."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import pytest

from sandur.errors import Conflict, VersionTaken
from sandur.operations.tables.commit import commit_table
from sandur.storage.contract import ObjectStore
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.operations.call_counts import count_operations
from tests.operations.delta_requests import add, create_managed
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    append,
    commit,
    content,
    create,
    identifier_of,
    keyed_request,
    load,
    request,
    set_property,
    set_up_catalog,
)

T = identifier_of("t")
X = TypeVar("X")


class Budget(NamedTuple):
    """Exact rounds before the answer and calls, and the most bytes that are read and written."""

    rounds: int
    reads: int
    writes: int
    deletes: int
    bytes_max: int


BUDGETS: Final = {
    "load": Budget(1, 4, 0, 0, 0),
    "commit, append": Budget(2, 2, 3, 0, 4_500),
    "commit, append, with a key": Budget(2, 2, 4, 0, 5_500),
    "commit, property": Budget(2, 5, 5, 1, 9_000),
    "transaction, two tables": Budget(3, 3, 10, 1, 15_000),
    "transaction, two tables, with a key": Budget(3, 3, 10, 0, 16_000),
    "create": Budget(3, 6, 9, 1, 10_000),
    "create, with a key": Budget(4, 6, 11, 1, 12_000),
    "rename": Budget(4, 11, 7, 2, 9_000),
    "drop": Budget(3, 6, 5, 1, 7_000),
    "list, one page": Budget(1, 3, 0, 0, 0),
    "Delta commit": Budget(2, 2, 2, 0, 3_000),
    "Delta commit, by the uuid of the table": Budget(1, 0, 2, 0, 3_500),
    "plan": Budget(2, 4, 1, 0, 600),
}
"""As a server carries them out: one of the reads is that of the names of containers (X1)."""


async def test_each_operation_keeps_its_budget_of_rounds_calls_and_bytes(tmp_path: Path) -> None:
    counted = await count_operations(tmp_path)

    calls = {name: (one.rounds, one.reads, one.writes, one.deletes) for name, one in counted.items()}
    assert calls == {name: budget[:4] for name, budget in BUDGETS.items()}
    assert not any(one.lists for one in counted.values())
    for name, one in counted.items():
        assert one.bytes_read + one.bytes_written <= BUDGETS[name].bytes_max, name


async def test_a_commit_reads_the_pointer_before_its_swap_only_beside_another_server() -> None:
    """C2: the swap confirms the pointer; a server that lost one looks first for a while."""
    clock = FixedClock()
    store = MemoryStore(clock=clock)
    spy = SpyStore(store)
    server, other = make_lake(spy, clock), make_lake(store, clock)
    await set_up_catalog(server)
    uuid = (await create(server, "t")).table_uuid
    pointer = server.layout.pointer(uuid)
    await load(server, T)
    spy.reset()
    await commit_table(server, T, append(1), request("1"))
    assert pointer not in spy.keys("get_if_changed")

    await commit_table(other, T, append(2, 1), request("2"))
    spy.reset()
    await commit_table(server, T, commit(set_property("a", "1")), request("3"))
    assert spy.keys("put").count(pointer) == 2  # The first swap is lost, and decided again.

    await commit_table(other, T, append(3, 2), request("4"))
    spy.reset()
    await commit_table(server, T, commit(set_property("b", "1")), request("5"))

    assert spy.keys("put").count(pointer) == 1
    assert {"a": "1", "b": "1"}.items() <= content(await load(other, T))["properties"].items()


class GatedStore(WrappingStore):
    """Reads of one key wait until the gate is opened."""

    def __init__(self, inner: ObjectStore, key: str) -> None:
        super().__init__(inner)
        self.gate, self.has_arrived, self._key = asyncio.Event(), asyncio.Event(), key

    async def _around(self, call: Call, perform: Callable[[], Awaitable[X]]) -> X:
        if call.key == self._key and not call.is_write:
            self.has_arrived.set()
            await self.gate.wait()
        return await perform()


async def test_a_refusal_that_is_confirmed_does_not_hold_up_the_commits_behind_it() -> None:
    clock = FixedClock()
    store = MemoryStore(clock=clock)
    await set_up_catalog(make_lake(store, clock))
    uuid = (await create(make_lake(store, clock), "t")).table_uuid
    gated = GatedStore(store, make_lake(store, clock).layout.pointer(uuid))
    server = make_lake(gated, clock)
    gated.gate.set()
    await load(server, T)
    await commit_table(server, T, append(1), request("first"))
    await server.background.drain()
    gated.gate.clear()
    gated.has_arrived.clear()

    refused = asyncio.create_task(commit_table(server, T, append(2), request("stale")))
    async with asyncio.timeout(60):
        await gated.has_arrived.wait()
        await commit_table(server, T, append(3, 1), request("second"))

    gated.gate.set()
    with pytest.raises(Conflict):
        await refused


async def test_a_refused_version_of_a_delta_table_does_not_hold_up_the_next_one() -> None:
    clock = FixedClock()
    store = MemoryStore(clock=clock)
    await set_up_catalog(make_lake(store, clock))
    table = await create_managed(make_lake(store, clock))
    gated = GatedStore(store, make_lake(store, clock).layout.delta_table(table.uuid))
    server = make_lake(gated, clock)
    gated.gate.set()
    await add(server, table, 1)
    await server.background.drain()
    gated.gate.clear()
    gated.has_arrived.clear()

    refused = asyncio.create_task(add(server, table, 1, f"{1:020d}.other.json"))
    async with asyncio.timeout(60):
        await gated.has_arrived.wait()
        await add(server, table, 2)

    gated.gate.set()
    with pytest.raises(VersionTaken):
        await refused


async def test_a_retry_on_another_server_finds_the_proof_of_a_commit_whose_claim_is_open() -> None:
    """C8: the answer is the same at once, in the log and by the receipt; nothing is taken over, nothing applied."""
    clock = FixedClock()
    store = MemoryStore(clock=clock)
    server = make_lake(store, clock)
    await set_up_catalog(server)
    await create(server, "t", properties={"write.metadata.previous-versions-max": "1"})
    sent = keyed_request("keyed")
    first = await commit_table(server, T, commit(set_property("a", "1")), sent)

    for number in range(4):
        spy = SpyStore(store)
        again = await commit_table(make_lake(spy, clock), T, commit(set_property("a", "1")), sent)
        assert again.metadata_location == first.metadata_location
        assert not [key for key in spy.keys("put") if key.startswith(server.layout.pointers_folder())]
        await commit_table(server, T, commit(set_property("b", str(number))), request(f"foreign {number}"))
        await server.background.drain()

    assert content(await load(server, T))["properties"]["b"] == "3"
