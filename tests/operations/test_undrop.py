"""Undrop: what comes back, what refuses it, and its races with purges, creations, drops and other undrops."""

import pytest

from sandur.catalog.identifiers import Identifier, Kind
from sandur.catalog.security.privileges import CREATE_TABLE, MANAGED, VISIBLE, Needs
from sandur.errors import AlreadyExists, Forbidden, Invalid, NotFound, Unsupported
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.names import resolve_name
from sandur.operations.tables.rename import rename
from sandur.operations.tables.undrop import list_dropped, undrop
from sandur.operations.tables.views import create_view, load_view
from sandur.operations.unity import model_versions, securables
from sandur.operations.unity.lists import ListRequest
from sandur.storage.record_form import RecordForm
from tests.crash.unity_mutations import FUNCTION
from tests.operations.delta_requests import D, add, create_managed
from tests.operations.event_chains import check_events
from tests.operations.invariants import check_invariants
from tests.operations.janitor_runs import Cluster
from tests.operations.principals import acting, add_principals, grant, request_of
from tests.operations.requests import (
    ELSEWHERE,
    NAMESPACE,
    append,
    content,
    create,
    identifier_of,
    load,
    request,
    table,
    view,
)
from tests.operations.table_files import create_table_with_files
from tests.operations.undrops import back, drop, kinds, purge, uuid_of

T, U = identifier_of("t"), identifier_of("u")

UNDROP = Needs("table", MANAGED, {"table": CREATE_TABLE})


@pytest.fixture
async def cluster() -> Cluster:
    return await Cluster.with_catalog()


async def test_a_dropped_table_comes_back_with_its_content_and_takes_commits(cluster: Cluster) -> None:
    server = cluster.server()
    made = await create(server, "t")
    await commit_table(server, T, append(1), request("one"))
    before = content(await load(server, T))
    await drop(server)

    uuid = await back(cluster.server())

    assert uuid == made.table_uuid
    assert content(await load(cluster.server(), T)) == before
    await commit_table(cluster.server(), T, append(2, 1), request("two"))
    assert await kinds(cluster.server(), uuid) == ["created", "dropped", "undropped"]
    await check_invariants(cluster.server())


async def test_it_lives_and_dies_any_number_of_times(cluster: Cluster) -> None:
    server = cluster.server()
    made = await create(server, "t")
    for _ in range(3):
        await drop(server)
        await back(server)
        await server.background.drain()
    await rename(server, T, U, kind="table", request=request("rename"))
    await drop(server, U)

    with pytest.raises(NotFound, match="Nothing to bring back"):
        await back(server, made.table_uuid)
    await undrop(server, U, kind="table", request=request("last"))

    assert await kinds(server, made.table_uuid) == [
        "created",
        *["dropped", "undropped"] * 3,
        "renamed",
        "dropped",
        "undropped",
    ]
    await check_invariants(cluster.server())


async def test_another_name_and_namespace(cluster: Cluster) -> None:
    server = cluster.server()
    made = await create(server, "t")
    await drop(server)
    other = await create(server, "t", properties={"another": "one"})
    target = U._replace(levels=ELSEWHERE.levels)

    with pytest.raises(AlreadyExists):
        await back(server, made.table_uuid)
    with pytest.raises(NotFound):
        await back(server)  # The name leads to another table, and the request does not say which one.
    await back(server, made.table_uuid, target=target)

    assert (await load(server, T)).table_uuid == other.table_uuid
    assert (await load(server, target)).table_uuid == made.table_uuid
    await check_invariants(cluster.server())


async def test_what_refuses_it(cluster: Cluster) -> None:
    server = cluster.server()
    await create(server, "t")
    with pytest.raises(NotFound):
        await back(server)
    await drop(server)
    with pytest.raises(NotFound, match="Namespace does not exist"):
        await back(server, target=T._replace(levels=("missing",)))
    with pytest.raises(Invalid, match="catalog other"):
        await back(server, target=T._replace(catalog="other"))
    with pytest.raises(NotFound):
        await undrop(server, T, kind="view", request=request("view"))
    old = cluster.server()
    old.form = RecordForm(major=1)
    with pytest.raises(Unsupported, match="sandur upgrade"):
        await back(old)
    await check_events(cluster.server())


async def test_views_delta_tables_volumes_functions_and_models_come_back(cluster: Cluster) -> None:
    server = cluster.server()
    await create_view(server, NAMESPACE, view("v"), request("v"))
    table = await create_managed(server)
    await add(server, table, 1)
    volume, function, model = (identifier_of(name) for name in ("vol", "f", "m"))
    await securables.create_volume(
        server, volume, volume_type="MANAGED", location=None, comment=None, request=request("vol")
    )
    await securables.create_function(server, function, FUNCTION, comment=None, request=request("f"))
    await securables.create_model(server, model, comment="kept", request=request("m"))
    all_of_them: tuple[tuple[Identifier, Kind], ...] = (
        (identifier_of("v"), "view"),
        (D, "table"),
        (volume, "volume"),
        (function, "function"),
        (model, "model"),
    )
    for identifier, kind in all_of_them:
        await drop_name(
            server, identifier, kind=kind, request=request(f"drop {identifier}"), formats=("iceberg", "delta", "unity")
        )

    for identifier, kind in all_of_them:
        await undrop(server, identifier, kind=kind, request=request(f"undrop {identifier}"))

    await load_view(server, identifier_of("v"))
    await add(server, table, 2)
    assert (await securables.load_securable(server, model, "model")).comment == "kept"
    for identifier in (volume, function):
        assert await resolve_name(cluster.server(), identifier)
    await check_events(cluster.server())


async def test_a_purge_that_was_ordered_is_not_done_to_a_table_that_came_back(cluster: Cluster) -> None:
    """U6, U7: the order counts only for its drop, and goes once the table lives."""
    server = cluster.server()
    await create_table_with_files(server, "t")
    await drop(server, purge=True)
    await back(server)
    await server.background.drain()

    for _ in range(5):
        cluster.clock.advance(DAY_MS)
        await cluster.sweep()

    await load(cluster.server(), T)
    assert await cluster.keys(server.layout.purge_orders_folder()) == []
    await check_invariants(cluster.server())


async def test_nothing_comes_back_once_its_purge_has_begun(cluster: Cluster) -> None:
    """U3, also if the purge died after its first file."""
    server = cluster.server()
    await create_table_with_files(server, "t")
    uuid = await uuid_of(server)
    await drop(server, purge=True)
    await server.background.drain()
    cluster.clock.advance(2 * DAY_MS)

    async def is_purging(lake: Lake) -> bool:
        found = await lake.pointer(uuid).read()
        return found is not None and found.value.state == "purging"

    await cluster.kill_when(purge, is_purging)

    with pytest.raises(NotFound):
        await back(cluster.server())
    cluster.clock.advance(DAY_MS)
    await cluster.sweep()
    with pytest.raises(NotFound):
        await back(cluster.server())
    assert not [key for key in await cluster.keys("") if f"-{uuid}/" in key]


async def test_nothing_comes_back_after_its_retention(cluster: Cluster) -> None:
    server = cluster.server()
    made = await create(server, "t")
    await drop(server)
    await server.background.drain()
    for _ in range(20):
        cluster.clock.advance(DAY_MS)
        await cluster.sweep()

    with pytest.raises(NotFound):
        await back(cluster.server(), made.table_uuid)


async def test_a_place_that_another_table_has_now_refuses_it(cluster: Cluster) -> None:
    """P10: the drop has freed the place."""
    server = cluster.server()
    place = f"{server.area}/main/named"
    first = await create(server, "t", location=place)
    await drop(server)
    await server.background.drain()
    await create(server, "u", location=place)

    with pytest.raises(Invalid):
        await back(server, first.table_uuid)

    await server.background.drain()
    await check_invariants(cluster.server())


async def test_it_claims_its_place_again(cluster: Cluster) -> None:
    server = cluster.server()
    place = f"{server.area}/main/named"
    await create(server, "t", location=place)
    await drop(server)
    await server.background.drain()
    await back(server)
    await server.background.drain()

    with pytest.raises(Invalid):
        await create(server, "u", location=place)


async def test_lists_show_what_can_be_brought_back_page_by_page(cluster: Cluster) -> None:
    server = cluster.server()
    made = {}
    for name in ("t", "u", "w"):
        made[name] = (await create(server, name, properties={"name": name})).table_uuid
    await create(server, "x", ELSEWHERE)
    for identifier in (T, U, identifier_of("x")._replace(levels=ELSEWHERE.levels)):
        await drop(server, identifier)

    shown: list[tuple[str, str]] = []
    token: str | None = None
    while True:
        page = await list_dropped(server, "main", NAMESPACE, page_size=1, page_token=token)
        shown += [(one.full_name, one.uuid) for one in page.entries]
        token = page.next_token
        if token is None:
            break
    everything = (await list_dropped(server, "main", None)).entries

    assert sorted(shown) == [("main.a.t", made["t"]), ("main.a.u", made["u"])]
    assert len(everything) == 3
    with pytest.raises(NotFound):
        await list_dropped(server, "other", None)


async def test_a_model_comes_back_with_its_versions_until_its_retention_ends(cluster: Cluster) -> None:
    server = cluster.server()
    model = identifier_of("m")
    await securables.create_model(server, model, comment=None, request=request("m"))
    for number in range(2):
        await model_versions.create_version(
            server, model, model_versions.NewVersion("source", None, None), request(f"version {number}")
        )
    await model_versions.drop_model(server, model, force=True, request=request("drop"))
    await undrop(server, model, kind="model", request=request("undrop"))

    page = await model_versions.list_versions(server, model, ListRequest(None, None))
    await model_versions.drop_model(server, model, force=True, request=request("drop again"))
    await server.background.drain()
    for _ in range(20):
        cluster.clock.advance(DAY_MS)
        await cluster.sweep()

    assert [version.version for version in page.versions] == [1, 2]
    assert await cluster.keys(server.layout.all_model_versions_folder()) == []
    assert await cluster.keys(server.layout.securables_folder()) == []


async def test_it_needs_the_right_to_manage_what_was_dropped_and_to_create_it_there(cluster: Cluster) -> None:
    server = cluster.server()
    await add_principals(server, "ann", "bob", "eve")
    ann, bob, eve = (acting(server, name, UNDROP) for name in ("ann", "bob", "eve"))
    for name in ("ann", "bob"):
        await grant(server, name, "catalog", "main", "USE CATALOG", "USE SCHEMA")
    await grant(server, "ann", "schema", "main.a", "CREATE TABLE")
    creating = acting(server, "ann", CREATE_TABLE, "schema")
    uuid = (await create_table(creating, NAMESPACE, table("t"), request_of("ann", "create"))).table_uuid
    await drop_name(ann, T, kind="table", request=request_of("ann", "drop"))
    await server.background.drain()

    seen_by_bob = await list_dropped(acting(server, "bob", VISIBLE, "catalog"), "main", None)
    assert seen_by_bob.entries == []
    for stranger in (bob, eve):
        with pytest.raises((Forbidden, NotFound)):
            await back(stranger)
    with pytest.raises(Forbidden):
        await back(ann, uuid, T._replace(levels=ELSEWHERE.levels))
    (entry,) = (await list_dropped(acting(server, "ann", VISIBLE, "catalog"), "main", None)).entries
    assert (entry.uuid, entry.dropped_by, entry.owner) == (uuid, "ann", "ann")
    await back(ann)

    assert await uuid_of(cluster.server()) == uuid
