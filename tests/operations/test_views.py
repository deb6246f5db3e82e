"""Views: created, replaced, dropped and renamed as tables are, by the rules of views."""

import json

import pytest

from sandur.errors import AlreadyExists, Conflict, Invalid, KeyReused, NotFound
from sandur.operations.commit_table import commit_table
from sandur.operations.drop_table import drop_name
from sandur.operations.load_table import table_exists
from sandur.operations.rename import rename
from sandur.operations.views import commit_view, create_view, load_view, view_exists
from sandur.operations.workspace import Workspace
from tests.operations.asking import (
    NAMESPACE,
    append,
    called,
    create,
    furnish,
    keyed,
    request,
    view,
    view_replaced,
)
from tests.operations.judging import judge, times_applied
from tests.operations.making import make_workspace

V, W = called("v"), called("w")


@pytest.fixture
async def workspace() -> Workspace:
    workspace = make_workspace()
    await furnish(workspace)
    return workspace


def again(workspace: Workspace) -> Workspace:
    return make_workspace(workspace.store, workspace.clock)


async def test_a_created_view_is_answered_as_it_is_loaded_and_is_no_table(workspace: Workspace) -> None:
    made = await create_view(workspace, NAMESPACE, view("v"), request("create"))
    await workspace.background.drain()

    assert await load_view(again(workspace), V) == made
    assert json.loads(made.metadata)["view-uuid"] == made.view_uuid
    assert await view_exists(again(workspace), V)
    assert not await table_exists(again(workspace), V)
    with pytest.raises(NotFound, match=r"^Table does not exist: a\.v$"):
        await commit_table(workspace, V, append(1), request("commit"))


async def test_a_table_is_no_view(workspace: Workspace) -> None:
    await create(workspace, "v")

    assert not await view_exists(workspace, V)
    with pytest.raises(NotFound, match=r"^View does not exist: a\.v$") as refused:
        await load_view(workspace, V)
    assert refused.value.subject == "view"
    with pytest.raises(NotFound, match=r"^View does not exist: a\.v$"):
        await commit_view(workspace, V, view_replaced("select 2"), request("commit"))


async def test_a_replaced_view_is_the_next_state_for_every_server(workspace: Workspace) -> None:
    made = await create_view(workspace, NAMESPACE, view("v"), request("create"))

    after = await commit_view(workspace, V, view_replaced("select 2", uuid=made.view_uuid), request("replace"))

    assert json.loads(after.metadata)["current-version-id"] == 2
    assert await load_view(again(workspace), V) == after
    with pytest.raises(Conflict, match="UUID"):
        await commit_view(workspace, V, view_replaced("select 3", uuid="another"), request("wrong"))
    await workspace.background.drain()
    await judge(again(workspace))


async def test_keyed_changes_of_views_are_answered_alike(workspace: Workspace) -> None:
    made = await create_view(workspace, NAMESPACE, view("v"), keyed("create"))
    await workspace.background.drain()
    replaced = await commit_view(workspace, V, view_replaced("select 2"), keyed("replace"))
    await workspace.background.drain()
    for number in range(3):
        await commit_view(workspace, V, view_replaced(f"select {number + 3}"), request(f"foreign {number}"))
        await workspace.background.drain()

    assert await create_view(again(workspace), NAMESPACE, view("v"), keyed("create")) == made
    assert await commit_view(again(workspace), V, view_replaced("select 2"), keyed("replace")) == replaced
    assert times_applied(await judge(again(workspace)), keyed("replace").key_hash or "") == 1
    with pytest.raises(KeyReused):
        await commit_view(workspace, V, view_replaced("x"), request("other", key=keyed("replace").key))


async def test_views_are_renamed_and_dropped_like_tables(workspace: Workspace) -> None:
    made = await create_view(workspace, NAMESPACE, view("v"), request("create"))
    await create_view(workspace, NAMESPACE, view("taken"), request("taken"))
    with pytest.raises(AlreadyExists, match=r"^Cannot rename a\.v to a\.taken\. View already exists$"):
        await rename(workspace, V, called("taken"), kind="view", request=request("1"))

    await rename(workspace, V, W, kind="view", request=keyed("rename"))
    await workspace.background.drain()

    assert await load_view(again(workspace), W) == made
    await drop_name(workspace, W, kind="view", request=keyed("drop"))
    await drop_name(again(workspace), W, kind="view", request=keyed("drop"))
    with pytest.raises(NotFound, match=r"^View does not exist: a\.w$"):
        await load_view(again(workspace), W)
    await rename(again(workspace), V, W, kind="view", request=keyed("rename"))


async def test_properties_of_the_catalog_are_refused_on_views(workspace: Workspace) -> None:
    with pytest.raises(Invalid, match=r"sandur\.x"):
        await create_view(workspace, NAMESPACE, view("v", properties={"sandur.x": "1"}), request("1"))

    assert not await view_exists(workspace, V)
