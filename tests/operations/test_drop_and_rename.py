"""Dropping, letting go and renaming: what is gone, what is moved, and what a second sending gets."""

import pytest

from sandur.catalog.identifiers import Namespace
from sandur.errors import AlreadyExists, KeyReused, NotFound
from sandur.operations.commit_table import commit_table
from sandur.operations.drop_table import drop_name, unregister_table
from sandur.operations.load_table import table_exists
from sandur.operations.register import register_table
from sandur.operations.rename import rename
from sandur.operations.views import create_view, load_view, view_exists
from sandur.operations.workspace import Workspace
from tests.operations.asking import (
    ELSEWHERE,
    NAMESPACE,
    append,
    called,
    create,
    furnish,
    keyed,
    load,
    request,
    view,
)
from tests.operations.judging import judge
from tests.operations.making import make_workspace

T, U = called("t"), called("u")


@pytest.fixture
async def workspace() -> Workspace:
    workspace = make_workspace()
    await furnish(workspace)
    return workspace


def again(workspace: Workspace) -> Workspace:
    return make_workspace(workspace.store, workspace.clock)


async def test_a_dropped_table_is_gone_and_its_files_stay(workspace: Workspace) -> None:
    made = await create(workspace, "t")

    await drop_name(workspace, T, kind="table", request=request("drop"))
    await workspace.background.drain()

    assert not await table_exists(again(workspace), T)
    assert await workspace.locations.exists(made.metadata_location or "")
    with pytest.raises(NotFound, match=r"^Table does not exist: a\.t$") as refused:
        await drop_name(workspace, T, kind="table", request=request("drop again"))
    assert refused.value.subject == "table"


async def test_a_view_is_not_dropped_as_a_table(workspace: Workspace) -> None:
    await create_view(workspace, NAMESPACE, view("v"), request("create"))

    with pytest.raises(NotFound, match=r"^Table does not exist: a\.v$"):
        await drop_name(workspace, called("v"), kind="table", request=request("drop"))
    assert await view_exists(workspace, called("v"))
    await drop_name(workspace, called("v"), kind="view", request=request("drop view"))

    with pytest.raises(NotFound, match=r"^View does not exist: a\.v$"):
        await load_view(again(workspace), called("v"))


async def test_a_keyed_drop_drops_once_and_never_the_table_that_came_after(workspace: Workspace) -> None:
    await create(workspace, "t")
    await drop_name(workspace, T, kind="table", request=keyed("drop"))
    await workspace.background.drain()
    newer = await create(workspace, "t", properties={"newer": "1"})

    await drop_name(again(workspace), T, kind="table", request=keyed("drop"))

    assert (await load(workspace, T)).table_uuid == newer.table_uuid
    with pytest.raises(KeyReused):
        await drop_name(workspace, U, kind="table", request=request("another", key=keyed("drop").key))


async def test_a_keyed_drop_of_nothing_stays_missing(workspace: Workspace) -> None:
    with pytest.raises(NotFound):
        await drop_name(workspace, T, kind="table", request=keyed("drop"))
    await create(workspace, "t")

    with pytest.raises(NotFound, match=r"^Table does not exist: a\.t$"):
        await drop_name(again(workspace), T, kind="table", request=keyed("drop"))

    assert await table_exists(workspace, T)


async def test_a_table_that_was_let_go_is_answered_with_its_last_state_and_can_be_registered(
    workspace: Workspace,
) -> None:
    await create(workspace, "t")
    last = await commit_table(workspace, T, append(1), request("commit"))
    await workspace.background.drain()

    let_go = await unregister_table(workspace, T, keyed("unregister"))
    await workspace.background.drain()

    assert let_go == last
    assert await unregister_table(again(workspace), T, keyed("unregister")) == last
    assert not await table_exists(again(workspace), T)
    location = let_go.metadata_location or ""
    assert await register_table(workspace, NAMESPACE, "u", location, request=request("register")) == last
    with pytest.raises(NotFound):
        await unregister_table(workspace, T, request("again"))


async def test_a_renamed_table_keeps_everything_but_its_name(workspace: Workspace) -> None:
    made = await create(workspace, "t")
    target = called("other", ELSEWHERE)

    await rename(workspace, T, target, kind="table", request=request("rename"))

    for server in (workspace, again(workspace)):
        assert not await table_exists(server, T)
        assert await load(server, target) == made
    await create(workspace, "t")
    assert await load(again(workspace), target) == made
    await judge(again(workspace))


async def test_a_rename_is_refused_for_what_is_missing_and_what_is_taken_in_this_order(workspace: Workspace) -> None:
    nowhere = called("x", Namespace("main", ("non_existing",)))
    with pytest.raises(NotFound, match=r"^Table does not exist: a\.t$") as refused:
        await rename(workspace, T, nowhere, kind="table", request=request("1"))
    assert refused.value.subject == "table"
    await create(workspace, "t")
    with pytest.raises(NotFound, match=r"^Namespace does not exist: non_existing$") as refused:
        await rename(workspace, T, nowhere, kind="table", request=request("2"))
    assert refused.value.subject == "namespace"
    await create(workspace, "u")
    with pytest.raises(AlreadyExists, match=r"^Cannot rename a\.t to a\.u\. Table already exists$"):
        await rename(workspace, T, U, kind="table", request=request("3"))
    await create_view(workspace, NAMESPACE, view("v"), request("view"))
    with pytest.raises(AlreadyExists, match=r"^Cannot rename a\.t to a\.v\. View already exists$"):
        await rename(workspace, T, called("v"), kind="table", request=request("4"))
    with pytest.raises(NotFound, match=r"^View does not exist: a\.t$"):
        await rename(workspace, T, called("w"), kind="view", request=request("5"))


async def test_a_rename_to_the_same_name_changes_nothing(workspace: Workspace) -> None:
    made = await create(workspace, "t")

    await rename(workspace, T, T, kind="table", request=keyed("rename"))

    assert await load(again(workspace), T) == made
    with pytest.raises(NotFound):
        await rename(workspace, U, U, kind="table", request=request("missing"))


async def test_a_keyed_rename_is_answered_alike_wherever_the_table_went_since(workspace: Workspace) -> None:
    await create(workspace, "t")
    await rename(workspace, T, U, kind="table", request=keyed("rename"))
    await workspace.background.drain()
    await rename(again(workspace), T, U, kind="table", request=keyed("rename"))
    newer = await create(workspace, "t")
    await drop_name(workspace, U, kind="table", request=request("drop"))

    await rename(again(workspace), T, U, kind="table", request=keyed("rename"))

    assert (await load(workspace, T)).table_uuid == newer.table_uuid
    assert not await table_exists(workspace, U)


async def test_a_keyed_rename_that_was_refused_stays_refused(workspace: Workspace) -> None:
    await create(workspace, "t")
    await create(workspace, "u")
    with pytest.raises(AlreadyExists):
        await rename(workspace, T, U, kind="table", request=keyed("rename"))
    await drop_name(workspace, U, kind="table", request=request("drop"))

    with pytest.raises(AlreadyExists, match=r"^Cannot rename a\.t to a\.u\. Table already exists$"):
        await rename(again(workspace), T, U, kind="table", request=keyed("rename"))


async def test_a_table_can_be_renamed_away_and_back(workspace: Workspace) -> None:
    made = await create(workspace, "t")

    await rename(workspace, T, U, kind="table", request=request("away"))
    await rename(again(workspace), U, T, kind="table", request=request("back"))

    assert await load(again(workspace), T) == made
    assert not await table_exists(again(workspace), U)
