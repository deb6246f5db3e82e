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
from tests.operations.invariants import check_invariants, times_applied
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    NAMESPACE,
    append,
    create,
    identifier_of,
    keyed_request,
    replace_view,
    request,
    set_up_catalog,
    view,
)

V, W = identifier_of("v"), identifier_of("w")


@pytest.fixture
async def lake() -> Lake:
    lake = make_lake()
    await set_up_catalog(lake)
    return lake


def restarted(lake: Lake) -> Lake:
    return make_lake(lake.store, lake.clock)


async def test_a_created_view_can_be_loaded_and_is_not_a_table(lake: Lake) -> None:
    made = await create_view(lake, NAMESPACE, view("v"), request("create"))
    await lake.background.drain()

    assert await load_view(restarted(lake), V) == made
    assert json.loads(made.metadata)["view-uuid"] == made.view_uuid
    assert await view_exists(restarted(lake), V)
    assert not await table_exists(restarted(lake), V)
    with pytest.raises(NotFound, match=r"^Table does not exist: a\.v$"):
        await commit_table(lake, V, append(1), request("commit"))


async def test_a_table_cannot_be_loaded_as_a_view(lake: Lake) -> None:
    await create(lake, "v")

    assert not await view_exists(lake, V)
    with pytest.raises(NotFound, match=r"^View does not exist: a\.v$") as refused:
        await load_view(lake, V)
    assert refused.value.subject == "view"
    with pytest.raises(NotFound, match=r"^View does not exist: a\.v$"):
        await commit_view(lake, V, replace_view("select 2"), request("commit"))


async def test_every_server_loads_the_replaced_view(lake: Lake) -> None:
    made = await create_view(lake, NAMESPACE, view("v"), request("create"))

    after = await commit_view(lake, V, replace_view("select 2", uuid=made.view_uuid), request("replace"))

    assert json.loads(after.metadata)["current-version-id"] == 2
    assert await load_view(restarted(lake), V) == after
    with pytest.raises(Conflict, match="UUID"):
        await commit_view(lake, V, replace_view("select 3", uuid="another"), request("wrong"))
    await lake.background.drain()
    await check_invariants(restarted(lake))


async def test_a_repeated_keyed_change_of_a_view_gets_the_same_answer(lake: Lake) -> None:
    made = await create_view(lake, NAMESPACE, view("v"), keyed_request("create"))
    await lake.background.drain()
    replaced = await commit_view(lake, V, replace_view("select 2"), keyed_request("replace"))
    await lake.background.drain()
    for number in range(3):
        await commit_view(lake, V, replace_view(f"select {number + 3}"), request(f"foreign {number}"))
        await lake.background.drain()

    assert await create_view(restarted(lake), NAMESPACE, view("v"), keyed_request("create")) == made
    assert await commit_view(restarted(lake), V, replace_view("select 2"), keyed_request("replace")) == replaced
    assert times_applied(await check_invariants(restarted(lake)), key_hash_of(keyed_request("replace")) or "") == 1
    with pytest.raises(KeyReused):
        await commit_view(lake, V, replace_view("x"), request("other", key=keyed_request("replace").key))


async def test_views_are_renamed_and_dropped_like_tables(lake: Lake) -> None:
    made = await create_view(lake, NAMESPACE, view("v"), request("create"))
    await create_view(lake, NAMESPACE, view("taken"), request("taken"))
    with pytest.raises(AlreadyExists, match=r"^Cannot rename a\.v to a\.taken\. View already exists$"):
        await rename(lake, V, identifier_of("taken"), kind="view", request=request("1"))

    await rename(lake, V, W, kind="view", request=keyed_request("rename"))
    await lake.background.drain()

    assert await load_view(restarted(lake), W) == made
    await drop_name(lake, W, kind="view", request=keyed_request("drop"))
    await drop_name(restarted(lake), W, kind="view", request=keyed_request("drop"))
    with pytest.raises(NotFound, match=r"^View does not exist: a\.w$"):
        await load_view(restarted(lake), W)
    await rename(restarted(lake), V, W, kind="view", request=keyed_request("rename"))


async def test_properties_of_the_catalog_are_refused_on_views(lake: Lake) -> None:
    with pytest.raises(Invalid, match=r"sandur\.x"):
        await create_view(lake, NAMESPACE, view("v", properties={"sandur.x": "1"}), request("1"))

    assert not await view_exists(lake, V)
