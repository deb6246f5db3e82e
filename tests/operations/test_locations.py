"""Locations of tables and views: within the storage of their catalog, never in the catalog's own folder."""

import contextlib
import json

import pytest

from sandur.catalog.records import Catalog
from sandur.errors import Invalid
from sandur.iceberg.view_commit import ViewCommit, checked_view_updates
from sandur.operations.containers.namespaces import update_namespace_properties
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import table_exists
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.register import register_table
from sandur.operations.tables.views import commit_view, create_view
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.operations.unity.securables import create_volume
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.lakes import make_lake
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
    set_up_catalog,
    table,
    view,
)

T = identifier_of("t")
UUID = "5b6b2b4e-0000-4000-8000-00000000000a"
OTHER_UUID = "5b6b2b4e-0000-4000-8000-00000000000b"
ROOT = "memory://store/tables/default/default/main"
OWN_FOLDER = "memory://store/tenant=default/workspace=default/_catalog"

FORBIDDEN = [
    pytest.param("memory://elsewhere/t", id="another store"),
    pytest.param("s3://bucket/t", id="another kind of store"),
    pytest.param("file:///etc", id="a folder of the machine"),
    pytest.param("/etc", id="a path"),
    pytest.param("memory://store/tables/other/default/main/t", id="another tenant"),
    pytest.param("memory://store/tables/default/other/main/t", id="another workspace"),
    pytest.param("memory://store/tables/default/default/second/t", id="another catalog"),
    pytest.param("memory://store/tables/default/default/main2/t", id="a name that only begins alike"),
    pytest.param(ROOT, id="the root itself"),
    pytest.param("memory://store", id="the whole store"),
    pytest.param(f"{OWN_FOLDER}/names", id="the catalog's own folder"),
    pytest.param(f"{ROOT}/../../../../tenant=default/workspace=default/_catalog/names", id="out by dots"),
    pytest.param(f"{ROOT}/a/../b", id="dots within"),
    pytest.param(f"{ROOT}/./b", id="a dot"),
    pytest.param(f"{ROOT}//b", id="an empty folder"),
    pytest.param(f"{ROOT}/*", id="a star"),
    pytest.param(f"{ROOT}/a?", id="a question mark"),
    pytest.param(f"{ROOT}/[ab]", id="brackets"),
    pytest.param(f"{ROOT}/{{a,b}}", id="braces"),
    pytest.param(f"{ROOT}/a\\b", id="a backslash"),
    pytest.param(f"{ROOT}/a\nb", id="a line break"),
]


@pytest.fixture
async def lake() -> Lake:
    lake = make_lake()
    await set_up_catalog(lake)
    return lake


@pytest.mark.parametrize("location", FORBIDDEN)
async def test_a_table_or_view_outside_the_catalog_root_is_refused(lake: Lake, location: str) -> None:
    with pytest.raises(Invalid):
        await create_table(lake, NAMESPACE, table("t", location=location), request("create"))
    with pytest.raises(Invalid):
        await create_table(lake, NAMESPACE, table("t", location=location, stage_create=True), request("stage"))
    with pytest.raises(Invalid):
        await commit_table(lake, T, create_commit(UUID, set_location(location)), request("by commit"))
    with pytest.raises(Invalid):
        await create_view(lake, NAMESPACE, view("t", location=location), request("view"))
    changes = [(T, create_commit(UUID, set_location(location)))]
    with pytest.raises(Invalid):
        await commit_transaction(lake, "main", changes, request("transaction"))

    assert not await table_exists(lake, T)


@pytest.mark.parametrize("location", FORBIDDEN)
async def test_a_table_or_view_cannot_move_outside_the_catalog_root(lake: Lake, location: str) -> None:
    made = await create(lake, "t")
    await create_view(lake, NAMESPACE, view("v"), request("view"))
    paths = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
    for update in (set_location(location), *(set_property(path, location) for path in paths)):
        with pytest.raises(Invalid):
            await commit_table(lake, T, commit(update), request(f"commit {update}"))
        with pytest.raises(Invalid):
            await commit_transaction(lake, "main", [(T, commit(update))], request(f"transaction {update}"))
    moved = ViewCommit(requirements=(), updates=checked_view_updates(commit(set_location(location)).updates))
    with pytest.raises(Invalid):
        await commit_view(lake, identifier_of("v"), moved, request("move v"))

    assert await load(lake, T) == made


async def test_a_location_within_the_catalog_root_is_kept_unchanged(lake: Lake) -> None:
    made = await create(lake, "t", location=f"{ROOT}/here/")
    after = await commit_table(lake, T, commit(set_location(f"{ROOT}/there")), request("move"))
    written = await commit_table(
        lake, T, commit(set_property("write.metadata.path", f"{ROOT}/aside")), request("aside")
    )

    assert content(made)["location"] == f"{ROOT}/here"
    assert (made.metadata_location or "").startswith(f"{ROOT}/here/metadata/")
    assert (after.metadata_location or "").startswith(f"{ROOT}/there/metadata/")
    assert (written.metadata_location or "").startswith(f"{ROOT}/aside/")


async def test_setting_the_current_location_again_is_always_allowed() -> None:
    """Clients send the location with every replacement, also for a table from a time when the policy allowed more."""
    generous = make_lake(allowed_locations=["memory://elsewhere"])
    await set_up_catalog(generous)
    made = await create(generous, "t", location="memory://elsewhere/t")
    strict = make_lake(generous.store, generous.clock, allowed_locations=["memory://elsewhere"])

    same = await commit_table(strict, T, commit(set_location(content(made)["location"])), request("same"))

    assert content(same)["location"] == "memory://elsewhere/t"


async def test_every_table_has_its_own_location_by_default(lake: Lake) -> None:
    """Also if the name is reused, or contains characters that are unsafe in paths."""
    one = content(await create(lake, "t"))["location"]
    await drop_name(lake, T, kind="table", request=request("drop"))
    two = content(await create(lake, "t", properties={"second": "1"}))["location"]
    odd = content(await create(lake, "../*weird? näme"))["location"]

    assert one != two
    assert all(location.startswith(f"{ROOT}/__unitystorage/a/") for location in (one, two, odd))
    assert ".." not in odd


@pytest.mark.parametrize("root", ["memory://store", "memory://store/tenant=default"])
async def test_the_catalogs_own_folder_is_refused_even_if_the_root_contains_it(root: str) -> None:
    lake = make_lake()
    await set_up_catalog(lake)
    held = await lake.catalog("main").read()
    assert held
    await lake.catalog("main").swap(Catalog(name="main", id="wide", root=root), expected=held.version)
    names = f"{OWN_FOLDER}/names/main/a"

    for location in (names, OWN_FOLDER, f"{OWN_FOLDER}/iceberg_pointers"):
        with pytest.raises(Invalid, match="own folder"):
            await create_table(lake, NAMESPACE, table("t", location=location), request("create"))
        properties = {"write.metadata.path": location}
        with pytest.raises(Invalid, match="own folder"):
            await create_table(lake, NAMESPACE, table("t", properties=properties), request("path"))
    with pytest.raises(Invalid, match="own folder"):
        await register_table(lake, NAMESPACE, "t", f"{OWN_FOLDER}/catalogs/main.json", request=request("register"))


async def place_namespace(lake: Lake, location: str) -> None:
    asked = request(f"place {location}")
    await update_namespace_properties(lake, NAMESPACE, removals=(), updates={"location": location}, request=asked)


@pytest.mark.parametrize("form", ["{root}/sales", "{root}/sales/"])
async def test_whatever_is_created_in_a_namespace_lies_below_its_location(lake: Lake, form: str) -> None:
    await place_namespace(lake, form.format(root=ROOT))
    server = make_lake(lake.store, lake.clock)

    made = content(await create_table(server, NAMESPACE, table("t"), request("create")))["location"]
    staged = content(await create_table(server, NAMESPACE, table("s", stage_create=True), request("stage")))["location"]
    by_commit = await commit_table(lake, identifier_of("c"), create_commit(UUID), request("by commit"))
    seen = json.loads((await create_view(server, NAMESPACE, view("v"), request("view"))).metadata)["location"]
    volume = await create_volume(
        server, identifier_of("w"), volume_type="MANAGED", location=None, comment=None, request=request("volume")
    )
    await commit_transaction(
        make_lake(lake.store, lake.clock), "main", [(identifier_of("x"), create_commit(OTHER_UUID))], request("x")
    )
    in_transaction = content(await load(lake, identifier_of("x")))["location"]

    for name, location in (
        ("t", made),
        ("s", staged),
        ("c", content(by_commit)["location"]),
        ("v", seen),
        ("w", volume.location),
        ("x", in_transaction),
    ):
        assert location.startswith(f"{ROOT}/sales/__unitystorage/a/{name}-"), location
        assert location.count("/") == f"{ROOT}/sales/".count("/") + 2


async def test_a_retry_on_another_server_honours_the_location_of_the_namespace(lake: Lake) -> None:
    await place_namespace(lake, f"{ROOT}/sales")
    for dies_at in range(1, 10):
        with contextlib.suppress(Died):
            dying = make_lake(DyingStore(lake.store, dies_at=dies_at, after=True), lake.clock)
            await create_table(dying, NAMESPACE, table(f"t{dies_at}"), keyed_request(f"create {dies_at}"))
        retrying = make_lake(lake.store, FixedClock(lake.clock.now_ms() + 3_600_000, seed=100 + dies_at))

        made = await create_table(retrying, NAMESPACE, table(f"t{dies_at}"), keyed_request(f"create {dies_at}"))

        assert content(made)["location"].startswith(f"{ROOT}/sales/__unitystorage/a/t{dies_at}-")


async def test_a_location_in_the_request_counts_more_than_that_of_the_namespace(lake: Lake) -> None:
    await place_namespace(lake, f"{ROOT}/sales")

    made = await create(lake, "t", location=f"{ROOT}/here")

    assert content(made)["location"] == f"{ROOT}/here"


async def test_a_namespace_whose_location_is_no_longer_allowed_refuses_new_tables() -> None:
    generous = make_lake(allowed_locations=["memory://elsewhere"])
    await set_up_catalog(generous)
    await place_namespace(generous, "memory://elsewhere/sales")
    strict = make_lake(generous.store, generous.clock)

    with pytest.raises(Invalid, match=r"^Invalid location memory://elsewhere/sales/__unitystorage/a/t-"):
        await create(strict, "t")

    assert not await table_exists(generous, T)
