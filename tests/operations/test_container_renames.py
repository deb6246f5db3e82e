"""Renames of catalogs and namespaces: races, crashes, and what they cost other requests."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import pytest

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.index import names_scope
from sandur.catalog.maintenance.policies import PolicyEdit
from sandur.catalog.records import Request
from sandur.catalog.security.grants import GrantChange
from sandur.catalog.security.privileges import Needs
from sandur.errors import NotFound, SandurError
from sandur.operations.access import Security, with_current_names
from sandur.operations.containers.catalogs import create_catalog
from sandur.operations.containers.drop import drop_namespace
from sandur.operations.containers.namespaces import create_namespace, namespace_exists
from sandur.operations.containers.rename import rename_catalog, rename_namespace
from sandur.operations.index.lists import list_names
from sandur.operations.lake import Lake
from sandur.operations.policies import change_policy, load_policy
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import LoadedTable, load_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.undrop import undrop
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.operations.unity.governance import change_tags, load_governance
from sandur.operations.unity.grants import load_grants, update_grants
from sandur.operations.unity.owners import change_owner
from sandur.server import needs
from sandur.storage.contract import ObjectStore
from sandur.storage.memory import MemoryStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.fakes.yielding_store import YieldingStore
from tests.operations.event_chains import all_events, reconciled
from tests.operations.hooked_store import HookedStore
from tests.operations.lakes import make_lake
from tests.operations.principals import acting, add_principals, grant
from tests.operations.requests import append, commit, copy_store, keyed_request, request, set_property, table

T = TypeVar("T")
N, M, O = (Namespace("main", (name,)) for name in ("n", "m", "o"))  # noqa: E741 - three names
NT, MT, OT = (Identifier(*namespace, "t") for namespace in (N, M, O))
SEEDS: Final = range(40)


async def asked(server: Lake, work: Callable[[Lake], Awaitable[T]], *, is_read: bool = True) -> T:
    """What a server answers to a request."""
    return await with_current_names(server, None, work, is_read=is_read)


def loading(identifier: Identifier) -> Callable[[Lake], Awaitable[object]]:
    return lambda lake: load_table(lake, identifier)


async def exists(server: Lake, namespace: Namespace) -> bool:
    return await asked(server, lambda lake: namespace_exists(lake, namespace))


async def loads(server: Lake, identifier: Identifier) -> bool:
    try:
        await asked(server, loading(identifier))
    except NotFound:
        return False
    return True


def renaming(namespace: Namespace, new_name: str, sent: Request) -> Callable[[Lake], Awaitable[object]]:
    return lambda lake: rename_namespace(lake, namespace, new_name, sent)


async def outcome(work: Awaitable[object]) -> str:
    try:
        await work
    except SandurError as error:
        return type(error).__name__
    return "ok"


class Cluster:
    """Servers on one store that interleaves them; `main.n.t` exists."""

    def __init__(self, seed: int) -> None:
        self.clock = FixedClock(seed=seed)
        self.inner = MemoryStore(clock=self.clock)
        self._store = YieldingStore(self.inner, seed=seed)
        self._servers: list[Lake] = []

    def quiet(self) -> Lake:
        return make_lake(self.inner, self.clock)

    async def server(self, *known: Identifier) -> Lake:
        """A server that has loaded these tables."""
        server = make_lake(self._store, self.clock)
        self._servers.append(server)
        for identifier in known:
            assert await loads(server, identifier)
        return server

    async def set_up(self) -> None:
        lake = self.quiet()
        await create_namespace(lake, N, {}, request("create n"))
        await create_table(lake, N, table("t"), request("create n.t"))
        await lake.background.drain()

    async def race(self, *work: Awaitable[object]) -> list[str]:
        ended = await asyncio.gather(*map(outcome, work))
        for server in self._servers:
            await server.background.drain()
        return ended

    def change(self, server: Lake, work: Callable[[Lake], Awaitable[object]]) -> Awaitable[object]:
        return asked(server, work, is_read=False)


@pytest.fixture(params=SEEDS)
async def cluster(request: pytest.FixtureRequest) -> Cluster:
    made = Cluster(request.param)
    await made.set_up()
    return made


async def test_a_reader_that_saw_the_new_name_never_sees_the_old_one_again(cluster: Cluster) -> None:
    writer, warm, cold = await cluster.server(), await cluster.server(NT), await cluster.server()
    seen: list[tuple[bool, bool]] = []

    async def look(reader: Lake) -> None:
        for _ in range(6):
            first, second = await loads(reader, MT), await loads(reader, NT)
            seen.append((first, second))

    ended = await cluster.race(cluster.change(writer, renaming(N, "m", request("rename"))), look(warm), look(cold))

    assert ended == ["ok"] * 3
    assert (True, True) not in seen
    assert (await loads(warm, NT), await loads(warm, MT), await loads(cold, MT)) == (False, True, True)


async def test_of_a_rename_and_a_creation_of_its_new_name_one_wins(cluster: Cluster) -> None:
    first, second = await cluster.server(NT), await cluster.server()

    ended = await cluster.race(
        cluster.change(first, renaming(N, "m", request("rename"))),
        cluster.change(second, lambda lake: create_namespace(lake, M, {}, request("create m"))),
    )

    assert sorted(ended) == ["AlreadyExists", "ok"]
    is_renamed = ended[0] == "ok"
    assert (await loads(cluster.quiet(), MT), await loads(cluster.quiet(), NT)) == (is_renamed, not is_renamed)
    assert await exists(cluster.quiet(), M)


async def test_of_two_renames_of_one_namespace_one_wins(cluster: Cluster) -> None:
    first, second = await cluster.server(NT), await cluster.server(NT)

    ended = await cluster.race(
        cluster.change(first, renaming(N, "m", request("to m"))),
        cluster.change(second, renaming(N, "o", request("to o"))),
    )

    assert sorted(ended) == ["NotFound", "ok"]
    assert [await loads(cluster.quiet(), one) for one in (NT, MT, OT)] == [False, ended[0] == "ok", ended[1] == "ok"]


async def test_of_two_renames_to_one_name_one_wins(cluster: Cluster) -> None:
    await create_namespace(cluster.quiet(), O, {}, request("create o"))
    first, second = await cluster.server(), await cluster.server()

    ended = await cluster.race(
        cluster.change(first, renaming(N, "m", request("n to m"))),
        cluster.change(second, renaming(O, "m", request("o to m"))),
    )

    assert sorted(ended) == ["AlreadyExists", "ok"]
    names = [await exists(cluster.quiet(), one) for one in (N, M, O)]
    assert names == [ended[0] != "ok", True, ended[1] != "ok"]


async def test_a_table_created_beside_a_rename_is_in_that_namespace(cluster: Cluster) -> None:
    first, second = await cluster.server(NT), await cluster.server(NT)

    ended = await cluster.race(
        cluster.change(first, renaming(N, "m", request("rename"))),
        cluster.change(second, lambda lake: create_table(lake, N, table("s"), request("create s"))),
    )

    assert ended[0] == "ok"
    assert ended[1] in {"ok", "NotFound"}
    assert await loads(cluster.quiet(), Identifier(*M, "s")) == (ended[1] == "ok")
    page = await asked(cluster.quiet(), lambda lake: list_names(lake, M, kind="table", page_token=None, page_size=None))
    assert [entry.name for entry in page.entries] == (["s", "t"] if ended[1] == "ok" else ["t"])


async def test_commits_and_transactions_beside_a_rename_are_kept(cluster: Cluster) -> None:
    first, second, third = await cluster.server(), await cluster.server(NT), await cluster.server()
    wanted = [(NT, commit(set_property("by", "transaction")))]

    ended = await cluster.race(
        cluster.change(first, renaming(N, "m", request("rename"))),
        cluster.change(second, lambda lake: commit_table(lake, NT, append(1), request("append"))),
        cluster.change(third, lambda lake: commit_transaction(lake, "main", wanted, request("transaction"))),
    )

    assert ended[0] == "ok"
    assert set(ended[1:]) <= {"ok", "NotFound", "Conflict"}
    found = await asked(cluster.quiet(), lambda lake: load_table(lake, MT))
    assert isinstance(found, LoadedTable)
    assert (b'"by":"transaction"' in found.metadata) == (ended[2] == "ok")


async def test_a_rename_beside_a_drop_of_its_namespace(cluster: Cluster) -> None:
    await drop_name(cluster.quiet(), NT, kind="table", request=request("drop t"))
    first, second = await cluster.server(), await cluster.server()

    ended = await cluster.race(
        cluster.change(first, renaming(N, "m", request("rename"))),
        cluster.change(second, lambda lake: drop_namespace(lake, N, request("drop n"))),
    )

    left = [await exists(cluster.quiet(), one) for one in (N, M)]
    assert "ok" in ended
    assert left == [False, ended[1] != "ok"]


# Chosen moments.


async def _hooked() -> tuple[HookedStore, Lake, Lake]:
    """A store, a server whose calls can be stopped, and another server."""
    inner, clock = await _world()
    store = HookedStore(inner)
    server, other = make_lake(store, clock), make_lake(inner, clock)
    await server.feature(Security).read()
    return store, server, other


async def _let_others_end() -> None:
    """The reads that began beside this one end first."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_a_creation_at_a_fenced_key_makes_the_rename_lose() -> None:
    store, server, other = await _hooked()
    made: list[str] = []

    async def create_it() -> None:
        made.append(
            await outcome(asked(other, lambda lake: create_namespace(lake, M, {}, request("m")), is_read=False))
        )

    store.before("put", server.layout.security_manifest(), create_it)

    ended = await outcome(asked(server, renaming(N, "m", request("rename")), is_read=False))

    assert (made, ended) == (["ok"], "AlreadyExists")
    assert (await loads(other, NT), await loads(other, MT)) == (True, False)


async def test_a_slow_creation_does_not_use_a_key_that_another_name_has_now() -> None:
    store, server, other = await _hooked()

    async def recycle() -> None:
        await asked(other, renaming(N, "m", request("rename")), is_read=False)
        await asked(other, lambda lake: create_namespace(lake, N, {}, request("n again")), is_read=False)
        await asked(other, lambda lake: drop_namespace(lake, N, request("drop n")), is_read=False)

    store.before("get", server.layout.namespace(M), recycle)

    ended = await outcome(asked(server, lambda lake: create_namespace(lake, M, {}, request("m")), is_read=False))

    assert ended == "AlreadyExists"
    assert not await exists(other, N)


async def test_a_cold_load_never_shows_a_table_that_was_not_under_its_name() -> None:
    store, server, other = await _hooked()

    async def replace_it() -> None:
        await _let_others_end()
        await asked(other, renaming(N, "m", request("rename")), is_read=False)
        await asked(other, lambda lake: drop_name(lake, MT, kind="table", request=request("drop")), is_read=False)
        await asked(other, lambda lake: create_table(lake, M, table("t"), request("another t")), is_read=False)

    store.before("get", server.layout.name(NT), replace_it)

    assert not await loads(server, NT)


async def test_a_cold_list_never_shows_tables_that_were_not_under_its_name() -> None:
    store, server, other = await _hooked()

    async def grow() -> None:
        await _let_others_end()
        await asked(other, renaming(N, "m", request("rename")), is_read=False)
        await asked(other, lambda lake: create_table(lake, M, table("s"), request("create s")), is_read=False)
        await other.background.drain()

    store.before("get", server.layout.list_index(names_scope(N)), grow)

    listing = asked(server, lambda lake: list_names(lake, N, kind="table", page_token=None, page_size=None))
    assert await outcome(listing) == "NotFound"


# Crashes.


async def _world() -> tuple[MemoryStore, FixedClock]:
    clock = FixedClock()
    store = MemoryStore(clock=clock)
    lake = make_lake(store, clock)
    await create_namespace(lake, N, {}, request("create n"))
    await create_table(lake, N, table("t"), request("create n.t"))
    await lake.background.drain()
    return store, clock


async def _rename(store: ObjectStore, clock: FixedClock, sent: Request) -> None:
    server = make_lake(store, clock)
    try:
        await asked(server, renaming(N, "m", sent), is_read=False)
    finally:
        await server.background.drain()


@pytest.mark.parametrize("after", [False, True])
async def test_a_killed_rename_is_all_or_nothing_and_a_retry_reports_which(*, after: bool) -> None:
    origin, origin_clock = await _world()
    counted, counted_clock = copy_store(origin, origin_clock)
    spy = SpyStore(counted)
    await _rename(spy, counted_clock, keyed_request("rename"))
    assert 5 < len(spy.calls) < 60

    for dies_at in range(1, len(spy.calls) + 1):
        store, clock = copy_store(origin, origin_clock)
        with contextlib.suppress(Died):
            await _rename(DyingStore(store, dies_at=dies_at, after=after), clock, keyed_request("rename"))
        before = [await loads(make_lake(store, clock), one) for one in (NT, MT)]
        clock.advance(1_000_000)
        await _rename(store, clock, keyed_request("rename"))
        await _rename(store, clock, keyed_request("rename"))

        assert sorted(before) == [False, True], dies_at
        assert [await loads(make_lake(store, clock), one) for one in (NT, MT)] == [False, True], dies_at
        made = make_lake(store, clock)
        await create_namespace_again(made)
        events = [event for event in await all_events(await reconciled(made, store, clock)) if event.kind == "renamed"]
        assert [(str(event.identifier), str(event.renamed_from)) for event in events] == [("m.", "n.")], dies_at


@pytest.mark.parametrize("after", [False, True])
async def test_a_killed_rename_of_a_catalog_is_all_or_nothing(*, after: bool) -> None:
    old, new = (Identifier(catalog, ("n",), "t") for catalog in ("a", "b"))
    origin, origin_clock = await _world_in_a_catalog(old)
    counted, counted_clock = copy_store(origin, origin_clock)
    spy = SpyStore(counted)
    await _rename_catalog(spy, counted_clock)
    assert 5 < len(spy.calls) < 60

    for dies_at in range(1, len(spy.calls) + 1):
        store, clock = copy_store(origin, origin_clock)
        with contextlib.suppress(Died):
            await _rename_catalog(DyingStore(store, dies_at=dies_at, after=after), clock)
        before = [await loads(make_lake(store, clock), one) for one in (old, new)]
        clock.advance(1_000_000)
        await _rename_catalog(store, clock)

        assert sorted(before) == [False, True], dies_at
        assert [await loads(make_lake(store, clock), one) for one in (old, new)] == [False, True], dies_at


async def _world_in_a_catalog(identifier: Identifier) -> tuple[MemoryStore, FixedClock]:
    store, clock = await _world()
    lake, namespace = make_lake(store, clock), Namespace(identifier.catalog, identifier.levels)
    await create_catalog(lake, identifier.catalog, root=None, properties={}, request=request("create the catalog"))
    await create_namespace(lake, namespace, {}, request("create the namespace"))
    await create_table(lake, namespace, table(identifier.name), request("create the table"))
    await lake.background.drain()
    return store, clock


async def _rename_catalog(store: ObjectStore, clock: FixedClock) -> None:
    server = make_lake(store, clock)
    try:
        await asked(server, lambda lake: rename_catalog(lake, "a", "b", keyed_request("rename")), is_read=False)
    finally:
        await server.background.drain()


async def test_of_a_rename_of_a_catalog_and_a_creation_of_its_new_name_one_wins(cluster: Cluster) -> None:
    quiet = cluster.quiet()
    await create_catalog(quiet, "a", root=None, properties={}, request=request("create a"))
    await quiet.background.drain()
    one, two = await cluster.server(NT), await cluster.server(NT)

    ended = await cluster.race(
        cluster.change(one, lambda lake: rename_catalog(lake, "a", "b", request("rename"))),
        cluster.change(
            two, lambda lake: create_catalog(lake, "b", root=None, properties={}, request=request("create b"))
        ),
    )

    assert sorted(ended) == ["AlreadyExists", "ok"]


async def create_namespace_again(lake: Lake) -> None:
    await asked(lake, lambda one: create_namespace(one, N, {}, request("create n again")), is_read=False)
    await lake.background.drain()


# What it costs, and what follows.


async def _governed(lake: Lake) -> object:
    shown = await load_governance(lake, "table", "main.n.t")
    grants = await load_grants(lake, "table", "main.n.t")
    return shown.tags, shown.owner, grants, (await load_policy(lake, "table", "main.n.t")).values


@pytest.mark.parametrize(
    "change",
    [
        lambda lake: change_tags(lake, "table", "main.n.t", request("x"), set_={"k": "v"}),
        lambda lake: change_owner(lake, "table", "main.n.t", "ann", request("x")),
        lambda lake: update_grants(lake, "table", "main.n.t", [GrantChange("everyone", add=("SELECT",))], request("x")),
        lambda lake: change_policy(lake, "table", "main.n.t", PolicyEdit(set={"mode": "run"}), request("x")),
    ],
    ids=["tags", "owner", "grants", "policy"],
)
async def test_a_server_that_does_not_know_a_rename_changes_what_has_the_name_now(
    change: Callable[[Lake], Awaitable[object]],
) -> None:
    """X1, without a caller too: another namespace has the name by now, with another table."""
    cluster = Cluster(1)
    await cluster.set_up()
    stale, other = cluster.quiet(), cluster.quiet()
    assert await loads(stale, NT)
    untouched = await asked(other, _governed)
    await asked(other, renaming(N, "m", request("rename")), is_read=False)
    await asked(other, create_namespace_again, is_read=False)
    await asked(other, lambda lake: create_table(lake, N, table("t"), request("again")), is_read=False)

    await asked(stale, change, is_read=False)
    await stale.background.drain()

    after = cluster.quiet()
    assert await asked(after, _governed) != untouched
    await asked(after, lambda lake: drop_name(lake, NT, kind="table", request=request("drop t")), is_read=False)
    await asked(after, lambda lake: drop_namespace(lake, N, request("drop n")), is_read=False)
    await asked(after, lambda lake: rename_namespace(lake, M, "n", request("back")), is_read=False)
    assert await asked(after, _governed) == untouched


async def test_a_warm_load_of_a_renamed_table_costs_one_round_and_one_read_more() -> None:
    store, clock = await _world()
    spy = SpyStore(store)
    server = make_lake(spy, clock)
    await asked(server, renaming(N, "m", request("rename")), is_read=False)
    await server.background.drain()
    await asked(server, loading(MT))
    spy.reset()

    await asked(server, loading(MT))

    assert spy.rounds == 1
    assert len([call for call in spy.calls if "manifest.json" in call.key]) == 1


async def test_a_commit_costs_two_rounds_and_an_unchanged_list_one() -> None:
    store, clock = await _world()
    spy = SpyStore(store)
    server = make_lake(spy, clock)
    await asked(server, renaming(N, "m", request("rename")), is_read=False)
    await asked(server, lambda lake: commit_table(lake, MT, append(1), request("first")), is_read=False)
    await asked(server, lambda lake: list_names(lake, M, kind="table", page_token=None, page_size=None))
    await server.background.drain()
    spy.reset()

    await asked(server, lambda lake: list_names(lake, M, kind="table", page_token=None, page_size=None))
    listing = spy.rounds
    spy.reset()
    await asked(
        server, lambda lake: commit_table(lake, MT, commit(set_property("a", "b")), request("2")), is_read=False
    )

    assert (listing, spy.rounds) == (1, 2)


async def test_a_table_that_was_dropped_before_a_rename_comes_back_under_the_new_name() -> None:
    store, clock = await _world()
    lake = make_lake(store, clock)
    await drop_name(lake, NT, kind="table", request=request("drop"))
    await asked(lake, renaming(N, "m", request("rename")), is_read=False)
    await lake.background.drain()

    await asked(lake, lambda one: undrop(one, MT, kind="table", request=request("undrop")), is_read=False)

    assert await loads(make_lake(store, clock), MT)


async def test_a_catalog_created_under_an_old_name_has_a_root_of_its_own() -> None:
    lake = make_lake()
    first = await create_catalog(lake, "a", root=None, properties={}, request=request("create a"))
    await asked(lake, lambda one: rename_catalog(one, "a", "b", request("rename")), is_read=False)

    second = await asked(
        lake,
        lambda one: create_catalog(one, "a", root=None, properties={}, request=request("again")),
        is_read=False,
    )

    assert (second.name, first.id == second.id, first.root == second.root) == ("a", False, False)


# Rights.

_SCHEMA: Final = needs.CHANGE_SCHEMA
_LOAD: Final = needs.READ_TABLE


async def _lake_of_principals() -> Lake:
    store, clock = await _world()
    lake = make_lake(store, clock)
    await add_principals(lake, "ann", "bob")
    await grant(lake, "bob", "catalog", "main", "USE CATALOG", "USE SCHEMA", "SELECT")
    return lake


async def _as(
    lake: Lake, name: str, wanted: Needs, work: Callable[[Lake], Awaitable[T]], *, is_read: bool = False
) -> T:
    access = acting(lake, name, wanted).access
    return await with_current_names(lake, access, work, is_read=is_read)


async def test_a_rename_needs_the_namespace_and_the_right_to_create_one_beside_it() -> None:
    lake = await _lake_of_principals()
    renamed = renaming(N, "m", request("rename"))

    hidden = await outcome(_as(lake, "ann", _SCHEMA, renamed))
    await grant(lake, "ann", "schema", "main.n", "MANAGE")
    await grant(lake, "ann", "catalog", "main", "USE CATALOG")
    forbidden = await outcome(_as(lake, "ann", _SCHEMA, renamed))
    await grant(lake, "ann", "catalog", "main", "CREATE SCHEMA")
    allowed = await outcome(_as(lake, "ann", _SCHEMA, renamed))

    assert (hidden, forbidden, allowed) == ("Hidden", "Forbidden", "ok")
    assert await loads(lake, MT)


async def test_grants_stay_with_a_renamed_namespace() -> None:
    lake = await _lake_of_principals()
    await grant(lake, "ann", "schema", "main.n", "USE SCHEMA", "SELECT")
    await grant(lake, "ann", "catalog", "main", "USE CATALOG")
    before = await outcome(_as(lake, "ann", _LOAD, loading(NT), is_read=True))
    await asked(lake, renaming(N, "m", request("rename")), is_read=False)
    await asked(lake, lambda one: create_namespace(one, N, {}, request("n again")), is_read=False)
    await asked(lake, lambda one: create_table(one, N, table("t"), request("another t")), is_read=False)

    after = [await outcome(_as(lake, "ann", _LOAD, loading(one), is_read=True)) for one in (MT, NT)]

    assert (before, after) == ("ok", ["ok", "Hidden"])
