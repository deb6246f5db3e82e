"""The budget of storage rounds: how many sequential calls each answer costs, as equalities."""

import pytest

from sandur.catalog.index import CATALOGS, names_scope, namespaces_scope
from sandur.catalog.records import Request
from sandur.errors import NotFound
from sandur.operations.index.hints import read_ahead
from sandur.operations.index.rebuild import rebuild
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import NotModified, load_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.operations.tables.undrop import undrop
from sandur.operations.tables.views import commit_view, create_view, load_view
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.storage.layout import LOCATION_CLAIMS
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    NAMESPACE,
    append,
    commit,
    create,
    identifier_of,
    keyed_request,
    load,
    replace_view,
    request,
    set_property,
    set_up_catalog,
    table,
    view,
)

T, U = identifier_of("t"), identifier_of("u")
MANY = 300
"""More tables than an index without segments lists."""
DATA = "memory://store/tables/default/default/main/data/{}"


class SpiedServer:
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

    async def joining(self) -> Lake:
        """A server that has just started beside the warm one, and has read the lists."""
        for scope in (CATALOGS, namespaces_scope("main", None)):  # The tests write catalogs without their lists.
            await rebuild(self.warm, scope)
        server = self.server()
        await read_ahead(server)
        return server


@pytest.fixture
async def spied() -> SpiedServer:
    spied = SpiedServer()
    await set_up_catalog(spied.warm)
    for name in ("t", "u"):
        await create(spied.warm, name)
        await load(spied.warm, identifier_of(name))
    await spied.warm.background.drain()
    spied.spy.reset()
    return spied


def lists(spy: SpyStore) -> list[str]:
    return spy.keys("list")


def claims(spy: SpyStore) -> list[str]:
    """The location claims that were written."""
    return [key for key in spy.keys("put") if key.startswith(LOCATION_CLAIMS)]


async def test_a_warm_load_is_one_round(spied: SpiedServer) -> None:
    loaded = await load(spied.warm, T)
    assert spied.spy.rounds == 1

    spied.spy.reset()
    assert isinstance(await load_table(spied.warm, T, if_none_match=loaded.etag), NotModified)

    assert spied.spy.rounds == 1
    assert not lists(spied.spy)


async def test_a_cold_load_is_two_rounds_with_a_correct_hint_and_three_otherwise(spied: SpiedServer) -> None:
    await load(spied.cold(), T)
    assert spied.spy.rounds == 2

    await commit_table(spied.warm, T, append(1), request("commit"))
    await spied.warm.background.drain()
    spied.spy.reset()
    await load(spied.cold(), T)

    assert spied.spy.rounds == 3


@pytest.mark.parametrize("count", [MANY, pytest.param(1_000, marks=pytest.mark.slow)])
async def test_a_load_on_a_server_that_joins_is_two_rounds_whatever_was_committed_before(
    spied: SpiedServer, count: int
) -> None:
    names = [f"many-{number:04}" for number in range(count)]
    for name in names:
        await create(spied.warm, name)
    for name in names[::7]:
        await commit_table(spied.warm, identifier_of(name), append(1), request(name))
    await spied.warm.background.drain()
    joining = await spied.joining()
    index = joining.index(names_scope(NAMESPACE)).last_seen
    assert index
    assert len(index.value.segments) > 1

    for name in names:
        spied.spy.reset()
        loaded = await load(joining, identifier_of(name))
        assert (spied.spy.rounds, loaded) == (2, await load(spied.warm, identifier_of(name)))


async def test_a_stale_index_costs_a_joining_server_a_round_and_nothing_else(spied: SpiedServer) -> None:
    joining = await spied.joining()
    await drop_name(spied.warm, T, kind="table", request=request("drop"))
    await create(spied.warm, "t")
    await drop_name(spied.warm, U, kind="table", request=request("drop u"))
    await spied.warm.background.drain()
    spied.spy.reset()

    loaded = await load(joining, T)

    assert spied.spy.rounds == 3
    assert loaded == await load(spied.warm, T)
    with pytest.raises(NotFound):
        await load(joining, U)


@pytest.mark.parametrize("sent", [request("commit"), keyed_request("commit")], ids=["without a key", "keyed"])
async def test_a_warm_commit_is_two_rounds(spied: SpiedServer, sent: Request) -> None:
    await commit_table(spied.warm, T, append(1), sent)

    assert spied.spy.rounds == 2
    await spied.warm.background.drain()
    assert not lists(spied.spy)


@pytest.mark.parametrize("key", [None, "key"], ids=["without a key", "keyed"])
async def test_a_cold_commit_is_four_rounds_with_a_correct_hint_and_five_otherwise(
    spied: SpiedServer, key: str | None
) -> None:
    await commit_table(spied.cold(), T, append(1), request("first", key=key))
    assert spied.spy.rounds == 4

    await spied.warm.background.drain()
    spied.spy.reset()
    await commit_table(spied.cold(), T, append(2, 1), request("second", key=key and f"{key} 2"))

    assert spied.spy.rounds == 5


async def test_a_keyed_retry_of_a_finished_commit_is_three_rounds_and_does_not_write_the_pointer(
    spied: SpiedServer,
) -> None:
    await commit_table(spied.warm, T, append(1), keyed_request("commit"))
    await spied.warm.background.drain()
    spied.spy.reset()

    await commit_table(spied.warm, T, append(1), keyed_request("commit"))

    assert spied.spy.rounds <= 3
    assert not [key for key in spied.spy.keys("put") if "iceberg_pointers" in key]


@pytest.mark.parametrize("key", [None, "key"], ids=["without a key", "keyed"])
async def test_a_create_is_four_rounds_and_three_warm_and_without_a_key(spied: SpiedServer, key: str | None) -> None:
    """N2 ahead: a server that knows that the name is free writes beside its reads."""
    await create_table(spied.warm, NAMESPACE, table("new"), request("create", key=key))
    assert spied.spy.rounds == (4 if key else 3)
    await spied.warm.background.drain()

    spied.spy.reset()
    await create_table(spied.cold(), NAMESPACE, table("newer"), request("another", key=key and f"{key} 2"))

    assert spied.spy.rounds == 4


@pytest.mark.parametrize("key", [None, "key"], ids=["without a key", "keyed"])
async def test_a_create_at_a_named_place_costs_one_round_and_one_object_more(
    spied: SpiedServer, key: str | None
) -> None:
    """P3 in the round of N1, then P4. A create at its default place costs nothing more."""
    await create_table(spied.warm, NAMESPACE, table("new"), request("create", key=key))
    assert (spied.spy.rounds, claims(spied.spy)) == (4 if key else 3, [])
    assert not [call.key for call in spied.spy.calls if call.key.startswith("_shared/")]
    await spied.warm.background.drain()

    for server, name in ((spied.warm, "named"), (spied.cold(), "colder")):
        spied.spy.reset()
        wanted = table(
            name, location=f"{spied.warm.area}/main/{name}", properties={"write.data.path": DATA.format(name)}
        )
        await create_table(server, NAMESPACE, wanted, request(name, key=key and f"{key} {name}"))

        assert (spied.spy.rounds, len(claims(spied.spy))) == (5, 2)
        await server.background.drain()


async def test_a_stage_at_a_named_place_costs_one_round_more(spied: SpiedServer) -> None:
    await create_table(spied.warm, NAMESPACE, table("s", stage_create=True), request("stage"))
    default = spied.spy.rounds
    spied.spy.reset()

    wanted = table("n", stage_create=True, location=f"{spied.warm.area}/main/n")
    await create_table(spied.warm, NAMESPACE, wanted, request("named"))

    assert (spied.spy.rounds, len(claims(spied.spy))) == (default + 1, 1)


@pytest.mark.parametrize("sent", [request("commit"), keyed_request("commit")], ids=["without a key", "keyed"])
async def test_a_commit_that_adds_a_place_is_two_rounds_more(spied: SpiedServer, sent: Request) -> None:
    path = commit(set_property("write.data.path", DATA.format("t")))
    await load(spied.warm, T)
    spied.spy.reset()

    await commit_table(spied.warm, T, path, sent)

    assert (spied.spy.rounds, len(claims(spied.spy))) == (4, 1)
    await spied.warm.background.drain()
    spied.spy.reset()
    # The same place again adds none.
    await commit_table(spied.warm, T, commit(set_property("write.data.path", DATA.format("t/x"))), request("again"))
    assert (spied.spy.rounds, claims(spied.spy)) == (2, [])


async def test_a_transaction_that_adds_places_is_two_rounds_more_for_any_number_of_tables(spied: SpiedServer) -> None:
    changes = [(one, commit(set_property("write.data.path", DATA.format(one.name)))) for one in (T, U)]

    await commit_transaction(spied.warm, "main", changes, request("transaction"))

    assert (spied.spy.rounds, len(claims(spied.spy))) == (5, 2)


@pytest.mark.parametrize(("key", "rounds"), [(None, 3), ("key", 4)], ids=["without a key", "keyed"])
async def test_a_drop_is_three_rounds_and_one_more_with_a_key(spied: SpiedServer, key: str | None, rounds: int) -> None:
    await drop_name(spied.warm, T, kind="table", request=request("drop t", key=key))
    assert spied.spy.rounds == rounds
    await spied.warm.background.drain()
    assert not lists(spied.spy)

    spied.spy.reset()
    await drop_name(spied.cold(), U, kind="table", request=request("drop u", key=key and f"{key} 2"))

    assert spied.spy.rounds == rounds + 1


@pytest.mark.parametrize(("key", "rounds"), [(None, 4), ("key", 5)], ids=["without a key", "keyed"])
async def test_a_rename_is_four_rounds_and_one_more_with_a_key(
    spied: SpiedServer, key: str | None, rounds: int
) -> None:
    await rename(spied.warm, T, identifier_of("t2"), kind="table", request=request("rename t", key=key))
    assert spied.spy.rounds == rounds
    await spied.warm.background.drain()
    assert not lists(spied.spy)

    spied.spy.reset()
    target = identifier_of("u2")
    await rename(spied.cold(), U, target, kind="table", request=request("rename u", key=key and f"{key} 2"))

    assert spied.spy.rounds == rounds + 1


@pytest.mark.parametrize("key", [None, "key"], ids=["without a key", "keyed"])
async def test_a_transaction_is_three_rounds_for_any_number_of_tables(spied: SpiedServer, key: str | None) -> None:
    await commit_transaction(spied.warm, "main", [(T, append(1)), (U, append(1))], request("transaction", key=key))

    assert spied.spy.rounds == 3
    await spied.warm.background.drain()
    assert not lists(spied.spy)


async def test_a_cold_transaction_is_five_rounds(spied: SpiedServer) -> None:
    await commit_transaction(spied.cold(), "main", [(T, append(1)), (U, append(1))], request("transaction"))

    assert spied.spy.rounds == 5


async def test_a_commit_costs_no_more_calls_on_a_table_with_many_neighbours(spied: SpiedServer) -> None:
    await commit_table(spied.warm, T, append(1), request("one"))
    await spied.warm.background.drain()
    few = len(spied.spy.calls)
    for number in range(20):
        await create(spied.warm, f"neighbour{number}")
    spied.spy.reset()

    await commit_table(spied.warm, T, append(2, 1), request("two"))
    await spied.warm.background.drain()

    assert len(spied.spy.calls) <= few


async def test_a_view_commit_is_two_rounds_and_a_view_load_is_one(spied: SpiedServer) -> None:
    await create_view(spied.warm, NAMESPACE, view("v"), request("create v"))
    await spied.warm.background.drain()
    await load_view(spied.warm, identifier_of("v"))
    spied.spy.reset()

    await commit_view(spied.warm, identifier_of("v"), replace_view("select 2"), request("commit v"))
    assert spied.spy.rounds == 2
    await spied.warm.background.drain()
    spied.spy.reset()
    await load_view(spied.warm, identifier_of("v"))

    assert spied.spy.rounds == 1


@pytest.mark.parametrize("key", [None, "key"], ids=["without a key", "keyed"])
async def test_an_undrop_is_six_rounds(spied: SpiedServer, key: str | None) -> None:
    await drop_name(spied.warm, T, kind="table", request=request("drop t"))
    await spied.warm.background.drain()
    spied.spy.reset()

    await undrop(spied.warm, T, kind="table", request=request("undrop t", key=key))

    assert spied.spy.rounds == 6


async def test_the_receipt_of_an_event_that_another_server_made_adds_no_round(spied: SpiedServer) -> None:
    """E2: it is written beside the read of the name, or of the pointer on a server that did not see the name before."""
    other = spied.server()
    await load(other, T)
    spied.spy.reset()
    await drop_name(other, T, kind="table", request=request("drop t"))
    assert spied.spy.rounds == 3
    assert _events(spied.spy)

    spied.spy.reset()
    await rename(spied.cold(), U, identifier_of("u2"), kind="table", request=request("rename u"))

    assert spied.spy.rounds == 5
    assert _events(spied.spy)


async def test_the_own_receipt_of_an_event_follows_after_the_answer(spied: SpiedServer) -> None:
    await create_table(spied.warm, NAMESPACE, table("new"), request("create"))
    assert _events(spied.spy) == []

    await spied.warm.background.drain()

    assert len(_events(spied.spy)) == 1


def _events(spy: SpyStore) -> list[str]:
    return [key for key in spy.keys("put") if "/catalog/committed/" in key]
