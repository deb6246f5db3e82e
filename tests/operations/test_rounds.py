"""The budget of storage rounds: how many sequential calls each answer costs, as equalities."""

import pytest

from sandur.catalog.records import Request
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import NotModified, load_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.operations.tables.views import commit_view, create_view, load_view
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    NAMESPACE,
    append,
    called,
    create,
    furnish,
    keyed,
    load,
    request,
    table,
    view,
    view_replaced,
)

T, U = called("t"), called("u")


class Served:
    """A server with two cached tables, and a spy between it and the store."""

    def __init__(self) -> None:
        self.clock = FixedClock()
        self.spy = SpyStore(MemoryStore(clock=self.clock))
        self.warm = self.server()

    def server(self) -> Lake:
        return make_lake(self.spy, self.clock)

    def cold(self) -> Lake:
        """A server that has just started and has read the catalog."""
        server = self.server()
        seen = self.warm.catalog("main").last_seen
        assert seen
        server.catalog("main")._remember(seen)
        return server


@pytest.fixture
async def served() -> Served:
    served = Served()
    await furnish(served.warm)
    for name in ("t", "u"):
        await create(served.warm, name)
        await load(served.warm, called(name))
    await served.warm.background.drain()
    served.spy.reset()
    return served


def lists(spy: SpyStore) -> list[str]:
    return spy.keys("list")


async def test_a_warm_load_is_one_round(served: Served) -> None:
    loaded = await load(served.warm, T)
    assert served.spy.rounds == 1

    served.spy.reset()
    assert isinstance(await load_table(served.warm, T, if_none_match=loaded.etag), NotModified)

    assert served.spy.rounds == 1
    assert not lists(served.spy)


async def test_a_cold_load_is_two_rounds_with_a_correct_hint_and_three_otherwise(served: Served) -> None:
    await load(served.cold(), T)
    assert served.spy.rounds == 2

    await commit_table(served.warm, T, append(1), request("commit"))
    await served.warm.background.drain()
    served.spy.reset()
    await load(served.cold(), T)

    assert served.spy.rounds == 3


@pytest.mark.parametrize("sent", [request("commit"), keyed("commit")], ids=["without a key", "keyed"])
async def test_a_warm_commit_is_two_rounds(served: Served, sent: Request) -> None:
    await commit_table(served.warm, T, append(1), sent)

    assert served.spy.rounds == 2
    await served.warm.background.drain()
    assert not lists(served.spy)


@pytest.mark.parametrize("key", [None, "key"], ids=["without a key", "keyed"])
async def test_a_cold_commit_is_four_rounds_with_a_correct_hint_and_five_otherwise(
    served: Served, key: str | None
) -> None:
    await commit_table(served.cold(), T, append(1), request("first", key=key))
    assert served.spy.rounds == 4

    await served.warm.background.drain()
    served.spy.reset()
    await commit_table(served.cold(), T, append(2, 1), request("second", key=key and f"{key} 2"))

    assert served.spy.rounds == 5


async def test_a_keyed_retry_of_a_finished_commit_is_three_rounds_and_does_not_write_the_pointer(
    served: Served,
) -> None:
    await commit_table(served.warm, T, append(1), keyed("commit"))
    await served.warm.background.drain()
    served.spy.reset()

    await commit_table(served.warm, T, append(1), keyed("commit"))

    assert served.spy.rounds <= 3
    assert not [key for key in served.spy.keys("put") if "iceberg_pointers" in key]


@pytest.mark.parametrize("key", [None, "key"], ids=["without a key", "keyed"])
async def test_a_create_is_four_rounds_warm_and_cold(served: Served, key: str | None) -> None:
    await create_table(served.warm, NAMESPACE, table("new"), request("create", key=key))
    assert served.spy.rounds == 4
    await served.warm.background.drain()

    served.spy.reset()
    await create_table(served.cold(), NAMESPACE, table("newer"), request("another", key=key and f"{key} 2"))

    assert served.spy.rounds == 4


@pytest.mark.parametrize(("key", "rounds"), [(None, 3), ("key", 4)], ids=["without a key", "keyed"])
async def test_a_drop_is_three_rounds_and_one_more_with_a_key(served: Served, key: str | None, rounds: int) -> None:
    await drop_name(served.warm, T, kind="table", request=request("drop t", key=key))
    assert served.spy.rounds == rounds
    await served.warm.background.drain()
    assert not lists(served.spy)

    served.spy.reset()
    await drop_name(served.cold(), U, kind="table", request=request("drop u", key=key and f"{key} 2"))

    assert served.spy.rounds == rounds + 1


@pytest.mark.parametrize(("key", "rounds"), [(None, 4), ("key", 5)], ids=["without a key", "keyed"])
async def test_a_rename_is_four_rounds_and_one_more_with_a_key(served: Served, key: str | None, rounds: int) -> None:
    await rename(served.warm, T, called("t2"), kind="table", request=request("rename t", key=key))
    assert served.spy.rounds == rounds
    await served.warm.background.drain()
    assert not lists(served.spy)

    served.spy.reset()
    target = called("u2")
    await rename(served.cold(), U, target, kind="table", request=request("rename u", key=key and f"{key} 2"))

    assert served.spy.rounds == rounds + 1


@pytest.mark.parametrize("key", [None, "key"], ids=["without a key", "keyed"])
async def test_a_transaction_is_three_rounds_for_any_number_of_tables(served: Served, key: str | None) -> None:
    await commit_transaction(served.warm, "main", [(T, append(1)), (U, append(1))], request("transaction", key=key))

    assert served.spy.rounds == 3
    await served.warm.background.drain()
    assert not lists(served.spy)


async def test_a_cold_transaction_is_five_rounds(served: Served) -> None:
    await commit_transaction(served.cold(), "main", [(T, append(1)), (U, append(1))], request("transaction"))

    assert served.spy.rounds == 5


async def test_a_commit_costs_no_more_calls_on_a_table_with_many_neighbours(served: Served) -> None:
    await commit_table(served.warm, T, append(1), request("one"))
    await served.warm.background.drain()
    few = len(served.spy.calls)
    for number in range(20):
        await create(served.warm, f"neighbour{number}")
    served.spy.reset()

    await commit_table(served.warm, T, append(2, 1), request("two"))
    await served.warm.background.drain()

    assert len(served.spy.calls) <= few


async def test_a_view_commit_is_two_rounds_and_a_view_load_is_one(served: Served) -> None:
    await create_view(served.warm, NAMESPACE, view("v"), request("create v"))
    await served.warm.background.drain()
    await load_view(served.warm, called("v"))
    served.spy.reset()

    await commit_view(served.warm, called("v"), view_replaced("select 2"), request("commit v"))
    assert served.spy.rounds == 2
    await served.warm.background.drain()
    served.spy.reset()
    await load_view(served.warm, called("v"))

    assert served.spy.rounds == 1
