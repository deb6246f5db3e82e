"""Authorization and the budget of rounds: the grants are read beside what the operation reads anyway."""

from collections.abc import Mapping
from typing import Final

import pytest

from sandur.catalog.index import CATALOGS, namespaces_scope
from sandur.catalog.security.privileges import Needs
from sandur.operations.index.hints import read_ahead
from sandur.operations.index.lists import list_names
from sandur.operations.index.rebuild import rebuild
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import NotModified, load_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.server.iceberg_rest.routes import ROUTES
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.operations.lakes import make_lake
from tests.operations.principals import acting, add_principals, grant, request_of
from tests.operations.requests import NAMESPACE, append, create, identifier_of, load, set_up_catalog, table

T, U = identifier_of("t"), identifier_of("u")
NEEDS: Final[Mapping[str, Needs]] = {route.operation: route.needs for route in ROUTES}


class SpiedServer:
    """A server with two cached tables, a principal `writer` with rights on them, and a spy in front of the store."""

    def __init__(self) -> None:
        self.clock = FixedClock()
        self.spy = SpyStore(MemoryStore(clock=self.clock))
        self.warm = make_lake(self.spy, self.clock)

    def by_writer(self, operation: str, lake: Lake | None = None) -> Lake:
        return acting(lake or self.warm, "writer", NEEDS[operation])

    def cold(self) -> Lake:
        """A server that has just started and has read the catalog and the grants."""
        server = make_lake(self.spy, self.clock)
        for cell, seen in (
            (server.catalog("main"), self.warm.catalog("main").last_seen),
            (server.security(), self.warm.security().last_seen),
        ):
            assert seen
            cell._remember(seen)  # type: ignore[arg-type]  # Each cell gets what its own kind read.
        return server


@pytest.fixture
async def spied() -> SpiedServer:
    spied = SpiedServer()
    await set_up_catalog(spied.warm)
    await add_principals(spied.warm, "writer")
    await grant(spied.warm, "writer", "catalog", "main", "USE CATALOG", "USE SCHEMA", "CREATE TABLE")
    await grant(spied.warm, "writer", "schema", "main.a", "SELECT", "MODIFY", "MANAGE")
    for name in ("t", "u"):
        await create(spied.warm, name)
        await load(spied.by_writer("loadTable"), identifier_of(name))
    await spied.warm.background.drain()
    spied.spy.reset()
    return spied


async def test_a_warm_load_stays_one_round(spied: SpiedServer) -> None:
    loaded = await load(spied.by_writer("loadTable"), T)
    assert spied.spy.rounds == 1

    spied.spy.reset()
    again = await load_table(spied.by_writer("loadTable"), T, if_none_match=loaded.etag)

    assert isinstance(again, NotModified)
    assert spied.spy.rounds == 1


async def test_a_load_on_a_server_that_joins_is_two_rounds(spied: SpiedServer) -> None:
    for name in ("t", "u"):
        await commit_table(spied.by_writer("updateTable"), identifier_of(name), append(1), request_of("writer", name))
    await spied.warm.background.drain()
    for scope in (CATALOGS, namespaces_scope("main", None)):  # The tests write catalogs without their lists.
        await rebuild(spied.warm, scope)
    joining = make_lake(spied.spy, spied.clock, authentication="on")
    await read_ahead(joining)

    for name in ("t", "u"):
        spied.spy.reset()
        await load(spied.by_writer("loadTable", joining), identifier_of(name))
        assert spied.spy.rounds == 2


async def test_a_load_after_a_change_of_the_grants_reads_them_again(spied: SpiedServer) -> None:
    other = make_lake(spied.spy, spied.clock)
    await grant(other, "writer", "table", "main.a.u", "SELECT")
    spied.spy.reset()

    await load(spied.by_writer("loadTable"), T)

    # The grants, their new segment and the namespaces, then the check that all of it still holds (A2).
    assert spied.spy.rounds == 4
    spied.spy.reset()
    await load(spied.by_writer("loadTable"), T)
    assert spied.spy.rounds == 1


async def test_a_warm_commit_stays_two_rounds(spied: SpiedServer) -> None:
    await commit_table(spied.by_writer("updateTable"), T, append(1), request_of("writer", "commit"))
    assert spied.spy.rounds == 2

    await spied.warm.background.drain()
    spied.spy.reset()
    keyed = request_of("writer", "another", key="key")
    await commit_table(spied.by_writer("updateTable"), T, append(2, 1), keyed)

    assert spied.spy.rounds == 2


async def test_a_warm_transaction_stays_three_rounds(spied: SpiedServer) -> None:
    commits = [(T, append(1)), (U, append(1))]

    await commit_transaction(spied.by_writer("commitTransaction"), "main", commits, request_of("writer", "both"))

    assert spied.spy.rounds == 3


async def test_a_create_and_a_drop_cost_one_round_more(spied: SpiedServer) -> None:
    await create_table(spied.by_writer("createTable"), NAMESPACE, table("new"), request_of("writer", "create"))
    assert spied.spy.rounds == 5

    await spied.warm.background.drain()
    spied.spy.reset()
    await drop_name(spied.by_writer("dropTable"), T, kind="table", request=request_of("writer", "drop"))

    assert spied.spy.rounds == 4


async def test_a_warm_list_stays_one_round(spied: SpiedServer) -> None:
    lake = spied.by_writer("listTables")
    await list_names(lake, NAMESPACE, kind="table", page_token="", page_size=10)
    spied.spy.reset()

    page = await list_names(lake, NAMESPACE, kind="table", page_token="", page_size=10)

    assert [entry.name for entry in page.entries] == ["t", "u"]
    assert spied.spy.rounds == 1


async def test_a_cold_load_costs_one_round_more(spied: SpiedServer) -> None:
    cold = spied.cold()
    await load(acting(cold, "writer", NEEDS["loadTable"]), T)
    spied.spy.reset()

    await load(acting(cold, "writer", NEEDS["loadTable"]), U)

    # The name and the grants; then the pointer and the file of the hint; then the check that all of it still holds.
    assert spied.spy.rounds == 3
