"""No two living tables, views, volumes or models overlap: creations and commits refuse it, one after the other."""

import json

import pytest

from sandur.catalog.records import Catalog
from sandur.catalog.security.privileges import Needs, Rule
from sandur.errors import Busy, Forbidden, Invalid, NotFound
from sandur.operations.containers.catalogs import create_catalog
from sandur.operations.containers.drop import drop_catalog
from sandur.operations.containers.namespaces import create_namespace, update_namespace_properties
from sandur.operations.delta.tables import drop_table, stage_table
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.register import register_table
from sandur.operations.tables.rename import rename
from sandur.operations.tables.views import create_view
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.operations.unity.securables import create_model, create_volume, drop_securable
from tests.operations.claimed_places import VOLUME, at, check_places, claimed, external_delta, make_volume
from tests.operations.delta_requests import create_managed
from tests.operations.janitor_runs import LONG_MS, Cluster
from tests.operations.principals import acting, add_principals, grant
from tests.operations.requests import (
    NAMESPACE,
    commit,
    content,
    create,
    create_commit,
    identifier_of,
    keyed_request,
    load,
    request,
    set_location,
    set_property,
    table,
    view,
)
from tests.operations.table_files import create_table_with_files, current_location
from tests.operations.test_purge import DELAY_MS, drop

PLACES = ("lake/place", "lake/place/below", "lake")
T = identifier_of("t")
UUID = "5b6b2b4e-0000-4000-8000-00000000000a"


async def place_namespace(lake: Lake, place: str) -> None:
    updates = {"location": at(lake, place)}
    await update_namespace_properties(lake, NAMESPACE, removals=(), updates=updates, request=request("place"))


@pytest.mark.parametrize("place", PLACES)
async def test_a_volume_is_refused_at_below_and_above_an_iceberg_table(place: str) -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    await create(server, "t", location=at(server, "lake/place"))

    with pytest.raises(Invalid, match=r"overlaps table main\.a\.t at "):
        await make_volume(cluster.server(), place)

    await make_volume(cluster.server(), "lake/place2")
    await check_places(server)


@pytest.mark.parametrize("place", PLACES)
async def test_tables_and_views_are_refused_at_below_and_above_a_volume_a_table_or_a_stage(place: str) -> None:
    for other in ("volume", "delta", "iceberg"):
        cluster = await Cluster.with_catalog()
        server = cluster.server()
        if other == "volume":
            await make_volume(server, "lake/place")
        elif other == "delta":
            await external_delta(server, "lake/place")
        else:
            await create(server, "there", location=at(server, "lake/place"))
        location = at(server, place)
        creation = create_commit(UUID, set_location(location))
        before = await cluster.keys("tables/")

        with pytest.raises(Invalid, match=r"overlaps .* main\.a\."):
            await create_table(server, NAMESPACE, table("t", location=location), request("table"))
        with pytest.raises(Invalid, match=r"overlaps .* main\.a\."):
            await create_table(server, NAMESPACE, table("t", location=location, stage_create=True), request("stage"))
        with pytest.raises(Invalid, match=r"overlaps .* main\.a\."):
            await external_delta(server, place, "e")
        with pytest.raises(Invalid, match=r"overlaps .* main\.a\."):
            await create_view(server, NAMESPACE, view("w", location=location), request("view"))
        for sent in (request("commit"), keyed_request("commit"), keyed_request("commit")):
            with pytest.raises(Invalid, match=r"overlaps .* main\.a\."):
                await commit_table(server, T, creation, sent)
        with pytest.raises(Invalid, match=r"overlaps .* main\.a\."):
            await commit_transaction(server, "main", [(T, creation)], request("transaction"))

        await server.background.drain()
        assert [key for key in await cluster.keys("tables/") if key not in before] == []
        assert await claimed(server) == [at(server, "lake/place")]
        await create(server, "t", location=at(server, "lake/place2"))
        await check_places(server)


async def test_a_commit_cannot_move_a_table_over_another() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    await create(server, "t")
    await make_volume(server, "lake/place")
    below = at(server, "lake/place/t")

    for update in (set_location(below), set_property("write.data.path", below)):
        for sent in (keyed_request(str(update)), keyed_request(str(update)), request(str(update))):
            with pytest.raises(Invalid, match="overlaps volume"):
                await commit_table(server, T, commit(update), sent)
        with pytest.raises(Invalid, match="overlaps volume"):
            await commit_transaction(server, "main", [(T, commit(update))], request(f"all {update}"))
    await server.background.drain()
    assert await claimed(server) == [at(server, "lake/place")]


async def test_the_places_of_a_table_only_grow() -> None:
    """P9: old files stay where they are."""
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    await create(server, "t", location=at(server, "first"))
    await commit_table(server, T, commit(set_location(at(server, "second"))), request("move"))
    paths = [(T, commit(set_property("write.data.path", at(server, "third"))))]
    await commit_transaction(server, "main", paths, request("path"))
    await commit_table(server, T, commit(set_location(at(server, "second/below"))), request("below"))
    await server.background.drain()

    assert await claimed(server) == [at(server, place) for place in ("first", "second", "third")]
    for place in ("first", "second/x", "third"):
        with pytest.raises(Invalid, match=r"overlaps table main\.a\.t"):
            await make_volume(server, place)
    await check_places(server)


async def test_a_dropped_owner_frees_its_places_at_once() -> None:
    """P10."""
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    await make_volume(server, "lake/place")
    await drop_securable(server, VOLUME, "volume", request("drop"))
    await server.background.drain()
    assert await claimed(server) == []
    made = await create_table_with_files(server, location=at(server, "lake/place"))
    await drop(server, made, purge=False)
    assert await claimed(server) == []

    await make_volume(server, "lake/place", request("again"))


@pytest.mark.parametrize("key", [None, "key"], ids=["without a key", "keyed"])
async def test_a_volume_waits_for_the_purge_of_a_dropped_table_at_its_place(key: str | None) -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    made = await create_table_with_files(server, location=at(server, "lake/place"))
    await drop(server, made)

    for place in PLACES:
        with pytest.raises(Busy, match=r"the files of the dropped table a\.t are being purged"):
            await make_volume(server, place, request(f"volume {place}", key=key and f"{key} {place}"))

    cluster.clock.advance(DELAY_MS)
    assert (await cluster.sweep())["purge_removed"] == 1
    await make_volume(server, PLACES[0], request(f"volume {PLACES[0]}", key=key and f"{key} {PLACES[0]}"))


async def test_a_stage_reserves_its_place_until_it_expires() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    location = at(server, "lake/place")
    staged = await create_table(server, NAMESPACE, table("t", location=location, stage_create=True), request("stage"))

    with pytest.raises(Busy, match="a staged table reserves it"):
        await make_volume(server, "lake/place/below")
    # Another attempt to create the same table takes its place over.
    again = await create_table(
        server, NAMESPACE, table("t", location=location, stage_create=True, properties={"a": "b"}), request("stage 2")
    )
    await commit_table(server, T, create_commit(again.table_uuid, set_location(location)), request("commit"))
    await server.background.drain()
    assert staged.table_uuid != again.table_uuid
    with pytest.raises(Invalid, match=r"overlaps table main\.a\.t"):
        await make_volume(server, "lake/place/below")

    await create_table(
        server, NAMESPACE, table("u", location=at(server, "other"), stage_create=True), request("another")
    )
    for _ in range(2):
        cluster.clock.advance(100 * LONG_MS)
        await cluster.sweep()
    assert await claimed(server) == [location]
    await make_volume(server, "other")


async def test_the_roots_of_namespaces_belong_to_their_catalog() -> None:
    """P5, P9: places of the catalog may lie in them, others may not, also after the namespace has another root."""
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    await make_volume(server, "team/files")
    await place_namespace(server, "team")
    made = content(await create(server, "t"))["location"]
    await create(server, "u", location=at(server, "team/u"))
    await place_namespace(server, "elsewhere")
    staged = await stage_table(server, identifier_of("d"))

    assert made.startswith(at(server, "team/__unitystorage/a/t-"))
    assert staged.location.startswith(at(server, "elsewhere/__unitystorage/a/d-"))
    for place in ("team", "elsewhere"):
        with pytest.raises(Invalid, match="overlaps catalog main"):
            await make_volume(server, place, name=identifier_of("w"))
    await check_places(server)
    with pytest.raises(Invalid, match=r"overlaps volume main\.a\.v"):
        await place_namespace(server, "team/files")


@pytest.mark.parametrize("root", ["s3://lake/x", "s3://lake/x/inner", "s3://lake"])
async def test_the_root_of_a_catalog_overlaps_nothing_of_another(root: str) -> None:
    cluster = await Cluster.with_catalog(allowed_locations=["s3://lake"])
    server = cluster.server()

    async def make(name: str, place: str) -> Catalog:
        return await create_catalog(server, name, root=place, properties={}, request=request(f"{name} {place}"))

    await make("one", "s3a://lake/x/")
    with pytest.raises(Invalid, match="overlaps catalog one"):
        await make("two", root)
    with pytest.raises(Invalid, match="overlaps catalog one"):
        await create(server, "t", location="s3://lake/x/t")
    await server.background.drain()
    assert await claimed(server) == ["s3://lake/x"]

    await drop_catalog(server, "one", force=True, request=request("drop"))
    await server.background.drain()
    assert await claimed(server) == []
    await make("two", root)
    inner = await create_namespace(server, NAMESPACE._replace(catalog="two"), {}, request("namespace"))
    assert inner.properties["location"].startswith(root)


async def test_a_table_is_registered_again_at_the_place_that_was_generated_for_it() -> None:
    """P2: it takes a claim, and the dropped table never comes back to the place."""
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    made = await create_table_with_files(server)
    head = await current_location(server, made)

    with pytest.raises(Invalid, match="which exists"):
        await register_table(server, NAMESPACE, "copy", head, request=request("copy"))
    for number in range(3):
        await drop_name(
            server, identifier_of(f"t{number}" if number else "t"), kind="table", request=request(f"d{number}")
        )
        await server.background.drain()
        await register_table(server, NAMESPACE, f"t{number + 1}", head, request=request(f"r{number}"))
        await server.background.drain()
        await check_places(server)
        for _ in range(3):
            cluster.clock.advance(LONG_MS)
            await cluster.sweep()
    with pytest.raises(Invalid, match="overlaps table"):
        await register_table(cluster.server(), NAMESPACE, "late", head, request=request("late"))
    creation = create_commit(made.uuid, set_location(made.location))
    with pytest.raises(Invalid):
        await commit_table(cluster.server(), identifier_of("late"), creation, request("by commit"))
    await check_places(cluster.server())


async def test_a_purged_table_is_not_registered_again_while_its_order_is_open() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    made = await create_table_with_files(server)
    head = await current_location(server, made)
    await drop(server, made)

    with pytest.raises(Busy, match="being purged"):
        await register_table(server, NAMESPACE, "again", head, request=request("register"))


async def test_a_table_that_another_deployment_placed_is_registered_with_a_claim() -> None:
    cluster = await Cluster.with_catalog(allowed_locations=["memory://other"])
    server = cluster.server()
    made = await create_table_with_files(server, snapshots=0)
    place = f"memory://other/root/__unitystorage/a/t-{UUID}"
    body = content(await load(server, T)) | {"table-uuid": UUID, "location": place}
    wrong = body | {"location": f"memory://other/root/__unitystorage/a/t-{made.uuid}"}
    for name, metadata in (("right", body), ("wrong", wrong)):
        await server.locations.create(f"memory://other/files/{name}.metadata.json", json.dumps(metadata).encode())

    with pytest.raises(Invalid, match="reserved for managed tables"):
        await register_table(
            server, NAMESPACE, "w", "memory://other/files/wrong.metadata.json", request=request("wrong")
        )
    await register_table(server, NAMESPACE, "r", "memory://other/files/right.metadata.json", request=request("right"))
    await server.background.drain()

    assert await claimed(server) == [place]
    for root in ("memory://other/root", "memory://other/root/__unitystorage"):
        with pytest.raises(Invalid):
            await create_catalog(server, "over", root=root, properties={}, request=request(root))


async def test_generated_places_need_no_claim() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    await create(server, "t")
    await create_managed(server)
    await create_view(server, NAMESPACE, view("w"), request("view"))
    await create_volume(server, VOLUME, volume_type="MANAGED", location=None, comment=None, request=request("volume"))
    await create_model(server, identifier_of("m"), comment=None, request=request("model"))
    staged = await create_table(server, NAMESPACE, table("s", stage_create=True), request("stage"))
    location = set_location(content(staged)["location"])
    await commit_table(server, identifier_of("s"), create_commit(staged.table_uuid, location), request("commit"))
    await rename(server, T, identifier_of("t2"), kind="table", request=request("rename"))
    await drop_table(server, identifier_of("d"), request=request("drop"))
    await server.background.drain()

    assert await claimed(server) == []
    await check_places(server)


async def test_a_remembered_root_of_a_catalog_that_was_created_again_is_not_used() -> None:
    """P2: the old root may be a stranger's by now."""
    cluster = await Cluster.with_catalog(allowed_locations=["s3://lake"])
    slow, server = cluster.server(), cluster.server()
    namespace = NAMESPACE._replace(catalog="c")

    async def make_tree(lake: Lake, root: str) -> None:
        await create_catalog(lake, "c", root=root, properties={}, request=request(root))
        await create_namespace(lake, namespace, {}, request(f"namespace {root}"))

    await make_tree(server, "s3://lake/old")
    await create_table(slow, namespace, table("warm"), request("warm"))  # This server remembers the root.
    await slow.background.drain()
    await drop_catalog(server, "c", force=True, request=request("drop"))
    await server.background.drain()
    await make_tree(server, "s3://lake/new")
    await create(server, "stranger", location="s3://lake/old")

    made = content(await create_table(slow, namespace, table("t"), request("t")))["location"]

    assert made.startswith("s3://lake/new/")
    await check_places(server)


async def test_no_place_may_be_named_in_the_store_outside_the_folder_of_the_own_catalog() -> None:
    """P1."""
    cluster = await Cluster.with_catalog(allowed_locations=["memory://store", "memory://store/tables"])
    server = cluster.server()

    for location in ("memory://store/x", server.area, f"{server.area}/other/x", f"{server.area}/main"):
        with pytest.raises(Invalid, match="Invalid location"):
            await create(server, "t", location=location)
    await create(server, "t", location=f"{server.area}/main/x")
    assert content(await load(server, T))["location"] == f"{server.area}/main/x"


async def test_a_request_without_the_right_claims_nothing() -> None:
    """The right is checked before anything is written."""
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    await add_principals(server, "bob")
    await create(server, "t", NAMESPACE)
    await grant(server, "bob", "table", "main.a.t", "SELECT")
    await server.background.drain()
    before = await cluster.keys("")
    rule = Rule(all_of=("MODIFY",))
    needs = Needs("table", rule, dict.fromkeys(("location", "relocate", "create"), rule))
    bob = acting(server, "bob", needs)

    for work in (
        create_table(bob, NAMESPACE, table("n", location=at(server, "named")), request("n")),
        create_table(bob, NAMESPACE, table("n", location=at(server, "named"), stage_create=True), request("s")),
        commit_table(bob, T, commit(set_location(at(server, "named"))), request("move")),
        create_view(bob, NAMESPACE, view("w", location=at(server, "named")), request("view")),
    ):
        with pytest.raises((Forbidden, NotFound)):
            await work
    await server.background.drain()

    assert await claimed(server) == []
    assert [key for key in await cluster.keys("") if key not in before] == []
