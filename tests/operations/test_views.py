"""Views: create, replace, drop and rename, by the rules of views."""

import json

import pytest

from sandur.errors import AlreadyExists, Conflict, Invalid, KeyReused, NotFound
from sandur.operations.idempotency import key_hash_of
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.documents import table_exists
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.operations.tables.views import commit_view, create_view, load_view, view_exists
from tests.operations.invariants import judge, times_applied
from tests.operations.lakes import make_lake
from tests.operations.requests import (
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

V, W = called("v"), called("w")


@pytest.fixture
async def lake() -> Lake:
    lake = make_lake()
    await furnish(lake)
    return lake


def again(lake: Lake) -> Lake:
    return make_lake(lake.store, lake.clock)


async def test_a_created_view_can_be_loaded_and_is_not_a_table(lake: Lake) -> None:
    made = await create_view(lake, NAMESPACE, view("v"), request("create"))
    await lake.background.drain()

    assert await load_view(again(lake), V) == made
    assert json.loads(made.metadata)["view-uuid"] == made.view_uuid
    assert await view_exists(again(lake), V)
    assert not await table_exists(again(lake), V)
    with pytest.raises(NotFound, match=r"^Table does not exist: a\.v$"):
        await commit_table(lake, V, append(1), request("commit"))


async def test_a_table_cannot_be_loaded_as_a_view(lake: Lake) -> None:
    await create(lake, "v")

    assert not await view_exists(lake, V)
    with pytest.raises(NotFound, match=r"^View does not exist: a\.v$") as refused:
        await load_view(lake, V)
    assert refused.value.subject == "view"
    with pytest.raises(NotFound, match=r"^View does not exist: a\.v$"):
        await commit_view(lake, V, view_replaced("select 2"), request("commit"))


async def test_every_server_loads_the_replaced_view(lake: Lake) -> None:
    made = await create_view(lake, NAMESPACE, view("v"), request("create"))

    after = await commit_view(lake, V, view_replaced("select 2", uuid=made.view_uuid), request("replace"))

    assert json.loads(after.metadata)["current-version-id"] == 2
    assert await load_view(again(lake), V) == after
    with pytest.raises(Conflict, match="UUID"):
        await commit_view(lake, V, view_replaced("select 3", uuid="another"), request("wrong"))
    await lake.background.drain()
    await judge(again(lake))


async def test_a_repeated_keyed_change_of_a_view_gets_the_same_answer(lake: Lake) -> None:
    made = await create_view(lake, NAMESPACE, view("v"), keyed("create"))
    await lake.background.drain()
    replaced = await commit_view(lake, V, view_replaced("select 2"), keyed("replace"))
    await lake.background.drain()
    for number in range(3):
        await commit_view(lake, V, view_replaced(f"select {number + 3}"), request(f"foreign {number}"))
        await lake.background.drain()

    assert await create_view(again(lake), NAMESPACE, view("v"), keyed("create")) == made
    assert await commit_view(again(lake), V, view_replaced("select 2"), keyed("replace")) == replaced
    assert times_applied(await judge(again(lake)), key_hash_of(keyed("replace")) or "") == 1
    with pytest.raises(KeyReused):
        await commit_view(lake, V, view_replaced("x"), request("other", key=keyed("replace").key))


async def test_views_are_renamed_and_dropped_like_tables(lake: Lake) -> None:
    made = await create_view(lake, NAMESPACE, view("v"), request("create"))
    await create_view(lake, NAMESPACE, view("taken"), request("taken"))
    with pytest.raises(AlreadyExists, match=r"^Cannot rename a\.v to a\.taken\. View already exists$"):
        await rename(lake, V, called("taken"), kind="view", request=request("1"))

    await rename(lake, V, W, kind="view", request=keyed("rename"))
    await lake.background.drain()

    assert await load_view(again(lake), W) == made
    await drop_name(lake, W, kind="view", request=keyed("drop"))
    await drop_name(again(lake), W, kind="view", request=keyed("drop"))
    with pytest.raises(NotFound, match=r"^View does not exist: a\.w$"):
        await load_view(again(lake), W)
    await rename(again(lake), V, W, kind="view", request=keyed("rename"))


async def test_properties_of_the_catalog_are_refused_on_views(lake: Lake) -> None:
    with pytest.raises(Invalid, match=r"sandur\.x"):
        await create_view(lake, NAMESPACE, view("v", properties={"sandur.x": "1"}), request("1"))

    assert not await view_exists(lake, V)
