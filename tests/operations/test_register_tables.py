"""Registering metadata files that are there already, under a free name or over what a name stands for."""

import gzip

import pytest

from sandur.errors import AlreadyExists, BadRequest, Invalid, NotFound, SandurError
from sandur.operations.commit_table import commit_table
from sandur.operations.drop_table import drop_name
from sandur.operations.load_table import table_exists
from sandur.operations.register import register_table, register_view
from sandur.operations.results import LoadedTable
from sandur.operations.views import create_view, load_view
from sandur.operations.workspace import Workspace
from tests.operations.asking import (
    NAMESPACE,
    append,
    called,
    commit,
    content,
    create,
    furnish,
    keyed,
    load,
    request,
    set_property,
    view,
)
from tests.operations.judging import all_receipts, judge
from tests.operations.making import make_workspace

T = called("t")


@pytest.fixture
async def workspace() -> Workspace:
    workspace = make_workspace()
    await furnish(workspace)
    return workspace


def again(workspace: Workspace) -> Workspace:
    return make_workspace(workspace.store, workspace.clock)


async def dropped_table(workspace: Workspace, name: str = "t") -> LoadedTable:
    """A table with a snapshot that was dropped; its files are still there."""
    await create(workspace, name)
    last = await commit_table(workspace, called(name), append(1), request(f"commit {name}"))
    await workspace.background.drain()
    await drop_name(workspace, called(name), kind="table", request=request(f"drop {name}"))
    await workspace.background.drain()
    return last


async def test_a_dropped_table_is_registered_again_as_it_was_and_goes_on(workspace: Workspace) -> None:
    last = await dropped_table(workspace)
    location = last.metadata_location or ""

    for number in range(2):  # Twice: its uuid is in use by then, and it stays its own.
        registered = await register_table(workspace, NAMESPACE, "t", location, request=request(f"register {number}"))
        assert registered == last
        after = await commit_table(workspace, T, append(2, 1, uuid=last.table_uuid), request(f"again {number}"))
        assert "/metadata/00002-" in (after.metadata_location or "")
        await workspace.background.drain()
        await drop_name(workspace, T, kind="table", request=request(f"drop again {number}"))

    await workspace.background.drain()
    await judge(again(workspace))


async def test_each_registration_has_a_receipt_of_its_own(workspace: Workspace) -> None:
    last = await dropped_table(workspace)
    before = await all_receipts(workspace)

    await register_table(workspace, NAMESPACE, "t", last.metadata_location or "", request=request("register"))
    await workspace.background.drain()

    added = [receipt for key, receipt in (await all_receipts(workspace)).items() if key not in before]
    assert [(receipt.operation, receipt.metadata_location) for receipt in added] == [
        ("register", last.metadata_location)
    ]


async def test_a_name_that_is_taken_refuses_a_register(workspace: Workspace) -> None:
    last = await dropped_table(workspace, "r")
    location = last.metadata_location or ""
    await create(workspace, "t")
    await create_view(workspace, NAMESPACE, view("v"), request("view"))

    with pytest.raises(AlreadyExists, match=r"^Table already exists: a\.t$"):
        await register_table(workspace, NAMESPACE, "t", location, request=request("1"))
    for overwrite in (False, True):
        with pytest.raises(AlreadyExists, match=r"^View with same name already exists: a\.v$"):
            await register_table(workspace, NAMESPACE, "v", location, overwrite=overwrite, request=request("2"))


async def test_a_file_that_is_missing_or_no_metadata_is_refused(workspace: Workspace) -> None:
    root = f"{workspace.area}/main"
    with pytest.raises(NotFound, match=r"^Failed to open input stream for file: .*/none\.json$") as refused:
        await register_table(workspace, NAMESPACE, "t", f"{root}/none.json", request=request("1"))
    assert refused.value.subject == "file"
    for number, data in enumerate((b"", b"{}", b"not json", b"\x1f\x8bnot gzip", gzip.compress(b"[]"))):
        location = f"{root}/bad{number}.metadata.json"
        await workspace.locations.create(location, data)
        with pytest.raises(BadRequest):
            await register_table(workspace, NAMESPACE, "t", location, request=request(f"bad {number}"))

    assert not await table_exists(workspace, T)


async def test_a_compressed_file_is_registered_and_answered_plain(workspace: Workspace) -> None:
    last = await dropped_table(workspace)
    location = f"{content(last)['location']}/metadata/00009-packed.gz.metadata.json"
    await workspace.locations.create(location, gzip.compress(last.metadata))

    registered = await register_table(workspace, NAMESPACE, "t", location, request=request("register"))
    after = await commit_table(again(workspace), T, commit(set_property("p", "1")), request("commit"))

    assert content(registered) == content(last)
    assert registered.metadata_location == location
    assert "/metadata/00010-" in (after.metadata_location or "")


async def test_register_over_a_table_replaces_its_state_and_keeps_the_chain(workspace: Workspace) -> None:
    other = await dropped_table(workspace, "r")
    made = await create(workspace, "t")

    registered = await register_table(
        workspace, NAMESPACE, "t", other.metadata_location or "", overwrite=True, request=request("over")
    )
    await workspace.background.drain()

    assert registered == other
    assert await load(again(workspace), T) == other
    await commit_table(workspace, T, append(2, 1), request("commit"))
    back = await register_table(
        workspace, NAMESPACE, "t", made.metadata_location or "", overwrite=True, request=request("back")
    )
    await workspace.background.drain()
    assert back == made
    whole = await judge(again(workspace))
    (chain,) = [chain for chain in whole.values() if chain.pointer.state == "live"]
    assert len(chain.locations) == 4
    assert chain.locations[0] == chain.locations[-1] == made.metadata_location


async def test_register_over_nothing_creates(workspace: Workspace) -> None:
    last = await dropped_table(workspace)
    location = last.metadata_location or ""

    for server in (workspace, again(workspace)):
        assert await register_table(server, NAMESPACE, "t", location, overwrite=True, request=keyed("over")) == last
        await server.background.drain()


async def test_a_keyed_register_over_is_done_once_whatever_came_on_top(workspace: Workspace) -> None:
    other = await dropped_table(workspace, "r")
    location = other.metadata_location or ""
    await create(workspace, "t")
    await register_table(workspace, NAMESPACE, "t", location, overwrite=True, request=keyed("over"))
    await workspace.background.drain()
    await commit_table(workspace, T, commit(set_property("foreign", "1")), request("foreign"))
    await workspace.background.drain()

    replayed = await register_table(again(workspace), NAMESPACE, "t", location, overwrite=True, request=keyed("over"))

    assert replayed == other
    assert content(await load(workspace, T))["properties"]["foreign"] == "1"


async def test_a_view_is_registered_again_as_it_was(workspace: Workspace) -> None:
    made = await create_view(workspace, NAMESPACE, view("v"), request("create"))
    await workspace.background.drain()
    with pytest.raises(AlreadyExists, match=r"^View already exists: a\.v$"):
        await register_view(workspace, NAMESPACE, "v", made.metadata_location, request=request("1"))
    await create(workspace, "t")
    with pytest.raises(AlreadyExists, match=r"^Table with same name already exists: a\.t$"):
        await register_view(workspace, NAMESPACE, "t", made.metadata_location, request=request("2"))
    await drop_name(workspace, called("v"), kind="view", request=request("drop"))

    assert await register_view(workspace, NAMESPACE, "v", made.metadata_location, request=keyed("3")) == made
    assert await register_view(again(workspace), NAMESPACE, "v", made.metadata_location, request=keyed("3")) == made
    assert await load_view(again(workspace), called("v")) == made


@pytest.mark.parametrize(
    "location",
    [
        "memory://store/tenant=default/workspace=default/_catalog/catalogs/main.json",
        "memory://store/tables/default/default/main/../../../../tenant=default/x.json",
        "memory://store/tables/default/default/main/*/x.metadata.json",
        "memory://store/tables/other/default/main/x.metadata.json",
        "memory://store/tables/default/default/mainly/x.metadata.json",
        "memory://elsewhere/x.metadata.json",
        "file:///etc/passwd",
        "/etc/passwd",
        "",
    ],
)
async def test_no_file_outside_of_the_catalogs_storage_is_registered(workspace: Workspace, location: str) -> None:
    with pytest.raises(Invalid):
        await register_table(workspace, NAMESPACE, "t", location, request=request("register"))


async def test_a_file_that_points_outside_of_the_catalogs_storage_is_not_registered(workspace: Workspace) -> None:
    last = await dropped_table(workspace)
    data = last.metadata.replace(content(last)["location"].encode(), b"memory://elsewhere/t")
    location = f"{workspace.area}/main/stray.metadata.json"
    await workspace.locations.create(location, data)

    with pytest.raises(SandurError, match="elsewhere"):
        await register_table(workspace, NAMESPACE, "t", location, request=request("register"))
