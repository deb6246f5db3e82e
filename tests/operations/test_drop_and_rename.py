"""Drop, unregister and rename: what disappears, what moves, and retries."""

import pytest

from sandur.catalog.identifiers import Namespace
from sandur.errors import AlreadyExists, KeyReused, NotFound
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.documents import table_exists
from sandur.operations.tables.drop import drop_name, unregister_table
from sandur.operations.tables.register import register_table
from sandur.operations.tables.rename import rename
from sandur.operations.tables.views import create_view, load_view, view_exists
from tests.operations.invariants import check_invariants
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    ELSEWHERE,
    NAMESPACE,
    append,
    create,
    identifier_of,
    keyed_request,
    load,
    request,
    set_up_catalog,
    view,
)

T, U = identifier_of("t"), identifier_of("u")


@pytest.fixture
async def lake() -> Lake:
    lake = make_lake()
    await set_up_catalog(lake)
    return lake


def restarted(lake: Lake) -> Lake:
    return make_lake(lake.store, lake.clock)


async def test_a_dropped_table_is_gone_and_its_files_stay(lake: Lake) -> None:
    made = await create(lake, "t")

    await drop_name(lake, T, kind="table", request=request("drop"))
    await lake.background.drain()

    assert not await table_exists(restarted(lake), T)
    assert await lake.locations.exists(made.metadata_location or "")
    with pytest.raises(NotFound, match=r"^Table does not exist: a\.t$") as refused:
        await drop_name(lake, T, kind="table", request=request("drop again"))
    assert refused.value.subject == "table"


async def test_a_table_drop_does_not_drop_a_view(lake: Lake) -> None:
    await create_view(lake, NAMESPACE, view("v"), request("create"))

    with pytest.raises(NotFound, match=r"^Table does not exist: a\.v$"):
        await drop_name(lake, identifier_of("v"), kind="table", request=request("drop"))
    assert await view_exists(lake, identifier_of("v"))
    await drop_name(lake, identifier_of("v"), kind="view", request=request("drop view"))

    with pytest.raises(NotFound, match=r"^View does not exist: a\.v$"):
        await load_view(restarted(lake), identifier_of("v"))


async def test_a_repeated_keyed_drop_does_not_drop_a_later_table(lake: Lake) -> None:
    await create(lake, "t")
    await drop_name(lake, T, kind="table", request=keyed_request("drop"))
    await lake.background.drain()
    newer = await create(lake, "t", properties={"newer": "1"})

    await drop_name(restarted(lake), T, kind="table", request=keyed_request("drop"))

    assert (await load(lake, T)).table_uuid == newer.table_uuid
    with pytest.raises(KeyReused):
        await drop_name(lake, U, kind="table", request=request("another", key=keyed_request("drop").key))


async def test_a_keyed_drop_of_a_missing_table_is_not_found_on_every_retry(lake: Lake) -> None:
    with pytest.raises(NotFound):
        await drop_name(lake, T, kind="table", request=keyed_request("drop"))
    await create(lake, "t")

    with pytest.raises(NotFound, match=r"^Table does not exist: a\.t$"):
        await drop_name(restarted(lake), T, kind="table", request=keyed_request("drop"))

    assert await table_exists(lake, T)


async def test_an_unregistered_table_is_returned_with_its_last_state_and_can_be_registered(
    lake: Lake,
) -> None:
    await create(lake, "t")
    last = await commit_table(lake, T, append(1), request("commit"))
    await lake.background.drain()

    let_go = await unregister_table(lake, T, keyed_request("unregister"))
    await lake.background.drain()

    assert let_go == last
    assert await unregister_table(restarted(lake), T, keyed_request("unregister")) == last
    assert not await table_exists(restarted(lake), T)
    location = let_go.metadata_location or ""
    assert await register_table(lake, NAMESPACE, "u", location, request=request("register")) == last
    with pytest.raises(NotFound):
        await unregister_table(lake, T, request("again"))


async def test_a_rename_changes_only_the_name(lake: Lake) -> None:
    made = await create(lake, "t")
    target = identifier_of("other", ELSEWHERE)

    await rename(lake, T, target, kind="table", request=request("rename"))

    for server in (lake, restarted(lake)):
        assert not await table_exists(server, T)
        assert await load(server, target) == made
    await create(lake, "t")
    assert await load(restarted(lake), target) == made
    await check_invariants(restarted(lake))


async def test_a_rename_checks_the_source_then_the_namespace_then_the_new_name(lake: Lake) -> None:
    nowhere = identifier_of("x", Namespace("main", ("non_existing",)))
    with pytest.raises(NotFound, match=r"^Table does not exist: a\.t$") as refused:
        await rename(lake, T, nowhere, kind="table", request=request("1"))
    assert refused.value.subject == "table"
    await create(lake, "t")
    with pytest.raises(NotFound, match=r"^Namespace does not exist: non_existing$") as refused:
        await rename(lake, T, nowhere, kind="table", request=request("2"))
    assert refused.value.subject == "namespace"
    await create(lake, "u")
    with pytest.raises(AlreadyExists, match=r"^Cannot rename a\.t to a\.u\. Table already exists$"):
        await rename(lake, T, U, kind="table", request=request("3"))
    await create_view(lake, NAMESPACE, view("v"), request("view"))
    with pytest.raises(AlreadyExists, match=r"^Cannot rename a\.t to a\.v\. View already exists$"):
        await rename(lake, T, identifier_of("v"), kind="table", request=request("4"))
    with pytest.raises(NotFound, match=r"^View does not exist: a\.t$"):
        await rename(lake, T, identifier_of("w"), kind="view", request=request("5"))


async def test_a_rename_to_the_same_name_changes_nothing(lake: Lake) -> None:
    made = await create(lake, "t")

    await rename(lake, T, T, kind="table", request=keyed_request("rename"))

    assert await load(restarted(lake), T) == made
    with pytest.raises(NotFound):
        await rename(lake, U, U, kind="table", request=request("missing"))


async def test_a_keyed_rename_gets_the_same_answer_after_later_renames(lake: Lake) -> None:
    await create(lake, "t")
    await rename(lake, T, U, kind="table", request=keyed_request("rename"))
    await lake.background.drain()
    await rename(restarted(lake), T, U, kind="table", request=keyed_request("rename"))
    newer = await create(lake, "t")
    await drop_name(lake, U, kind="table", request=request("drop"))

    await rename(restarted(lake), T, U, kind="table", request=keyed_request("rename"))

    assert (await load(lake, T)).table_uuid == newer.table_uuid
    assert not await table_exists(lake, U)


async def test_a_refused_keyed_rename_is_refused_again(lake: Lake) -> None:
    await create(lake, "t")
    await create(lake, "u")
    with pytest.raises(AlreadyExists):
        await rename(lake, T, U, kind="table", request=keyed_request("rename"))
    await drop_name(lake, U, kind="table", request=request("drop"))

    with pytest.raises(AlreadyExists, match=r"^Cannot rename a\.t to a\.u\. Table already exists$"):
        await rename(restarted(lake), T, U, kind="table", request=keyed_request("rename"))


async def test_a_table_can_be_renamed_back(lake: Lake) -> None:
    made = await create(lake, "t")

    await rename(lake, T, U, kind="table", request=request("away"))
    await rename(restarted(lake), U, T, kind="table", request=request("back"))

    assert await load(restarted(lake), T) == made
    assert not await table_exists(restarted(lake), U)
