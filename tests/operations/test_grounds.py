"""A server on a folder answers from memory only what the folder still says: another one may have changed anything."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from sandur.catalog.index import Entry
from sandur.errors import NotFound
from sandur.operations.grounds import standing_location
from sandur.operations.index.lists import list_names
from sandur.operations.lake import Lake
from sandur.operations.tables.commit_table import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.storage.local import LocalStore
from tests.operations.asking import NAMESPACE, append, called, content, create, furnish, load, request, table
from tests.operations.making import make_lake

T, U = called("t"), called("u")


@pytest.fixture
async def two(tmp_path: Path) -> tuple[Lake, Lake]:
    """Two servers on one folder, with two tables in it."""
    one, other = (make_lake(LocalStore(tmp_path, fsync="never")) for _ in range(2))
    await furnish(one)
    for name in ("t", "u"):
        await create(one, name)
    await one.background.drain()
    return one, other


async def commit_by(other: Lake) -> None:
    await commit_table(other, T, append(1), request("commit"))


async def transaction_by(other: Lake) -> None:
    await commit_transaction(other, "main", [(T, append(1)), (U, append(1))], request("both"))


@pytest.mark.parametrize("change", [commit_by, transaction_by])
async def test_what_another_server_committed_is_loaded(
    two: tuple[Lake, Lake], change: Callable[[Lake], Awaitable[None]]
) -> None:
    one, other = two
    await load(one, T)
    before = await load(one, T)

    await change(other)

    assert content(before).get("current-snapshot-id") in {None, -1}
    assert content(await load(one, T))["current-snapshot-id"] == 1
    await other.background.drain()
    assert content(await load(one, T))["current-snapshot-id"] == 1


async def dropped_by(other: Lake) -> None:
    await drop_name(other, T, kind="table", purge=False, request=request("drop"))


async def renamed_by(other: Lake) -> None:
    await rename(other, T, called("away"), kind="table", request=request("rename"))


async def file_removed_by(other: Lake) -> None:
    location = (await load(other, T)).metadata_location
    assert location
    await other.locations.remove(location)


@pytest.mark.parametrize("change", [dropped_by, renamed_by, file_removed_by])
async def test_what_another_server_took_away_is_not_loaded(
    two: tuple[Lake, Lake], change: Callable[[Lake], Awaitable[None]]
) -> None:
    one, other = two
    await load(one, T)

    await change(other)

    with pytest.raises(NotFound):
        await load(one, T)


async def test_a_table_that_replaced_another_is_loaded(two: tuple[Lake, Lake]) -> None:
    one, other = two
    before = await load(one, T)

    await dropped_by(other)
    made = await create_table(other, NAMESPACE, table("t"), request("anew"))

    after = await load(one, T)
    assert after.table_uuid == made.table_uuid != before.table_uuid


async def test_what_is_standing_is_known_by_looks_alone(two: tuple[Lake, Lake]) -> None:
    one, _ = two
    loaded = await load(one, T)

    assert standing_location(one, T) == loaded.metadata_location
    assert standing_location(one, called("never loaded")) is None


async def test_a_new_name_rests_on_its_namespace(two: tuple[Lake, Lake]) -> None:
    one, other = two
    name, home = await other.name(T).read(), await other.namespace(NAMESPACE).read()
    assert name
    assert home
    new = replace(name.value, state="new", namespace_id=home.value.id)
    await other.name(T).swap(new, expected=name.version)

    await load(one, T)
    assert standing_location(one, T)

    await other.namespace(NAMESPACE).swap(home.value, expected=home.version)
    assert standing_location(one, T) is None


async def test_a_list_is_the_very_same_object_until_another_server_changes_it(two: tuple[Lake, Lake]) -> None:
    one, other = two

    before = await names_in(one)
    assert await names_in(one) is before

    await create(other, "v")
    await other.background.drain()

    assert [entry.name for entry in await names_in(one)] == ["t", "u", "v"]


async def names_in(lake: Lake) -> Sequence[Entry]:
    page = await list_names(lake, NAMESPACE, kind="table", page_token=None, page_size=None)
    return page.entries
