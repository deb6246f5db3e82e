"""Two servers on one folder: each answers from its cache only what the folder confirms."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from sandur.catalog.index import Entry
from sandur.errors import NotFound
from sandur.operations.index.lists import list_names
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.storage.contract import Listed, Stored, Unchanged, Version
from sandur.storage.local import LocalStore
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    NAMESPACE,
    append,
    content,
    create,
    identifier_of,
    load,
    request,
    set_up_catalog,
    table,
)

T, U = identifier_of("t"), identifier_of("u")


@pytest.fixture
async def servers(tmp_path: Path) -> tuple[Lake, Lake]:
    """Two servers on one folder, with two tables in it."""
    one, other = (make_lake(LocalStore(tmp_path, fsync="never")) for _ in range(2))
    await set_up_catalog(one)
    for name in ("t", "u"):
        await create(one, name)
    await one.background.drain()
    return one, other


async def commit_by(other: Lake) -> None:
    await commit_table(other, T, append(1), request("commit"))


async def transaction_by(other: Lake) -> None:
    await commit_transaction(other, "main", [(T, append(1)), (U, append(1))], request("both"))


@pytest.mark.parametrize("change", [commit_by, transaction_by])
async def test_a_commit_of_another_server_is_loaded(
    servers: tuple[Lake, Lake], change: Callable[[Lake], Awaitable[None]]
) -> None:
    one, other = servers
    await load(one, T)
    before = await load(one, T)

    await change(other)

    assert content(before).get("current-snapshot-id") in {None, -1}
    assert content(await load(one, T))["current-snapshot-id"] == 1
    await other.background.drain()
    assert content(await load(one, T))["current-snapshot-id"] == 1


async def drop_by(other: Lake) -> None:
    await drop_name(other, T, kind="table", purge=False, request=request("drop"))


async def rename_by(other: Lake) -> None:
    await rename(other, T, identifier_of("away"), kind="table", request=request("rename"))


async def remove_file_by(other: Lake) -> None:
    location = (await load(other, T)).metadata_location
    assert location
    await other.locations.remove(location)


@pytest.mark.parametrize("change", [drop_by, rename_by, remove_file_by])
async def test_a_table_that_another_server_removed_is_not_found(
    servers: tuple[Lake, Lake], change: Callable[[Lake], Awaitable[None]]
) -> None:
    one, other = servers
    await load(one, T)

    await change(other)

    with pytest.raises(NotFound):
        await load(one, T)


async def test_a_table_that_replaced_another_is_loaded(servers: tuple[Lake, Lake]) -> None:
    one, other = servers
    before = await load(one, T)

    await drop_by(other)
    made = await create_table(other, NAMESPACE, table("t"), request("again"))

    after = await load(one, T)
    assert after.table_uuid == made.table_uuid != before.table_uuid


class ReadCounter(LocalStore):
    """A folder that records which objects are read, or examined by a blocking call."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, fsync="never")
        self.reads: list[str] = []

    async def get(self, key: str) -> Stored | None:
        self.reads.append(key)
        return await super().get(key)

    async def get_if_changed(self, key: str, *, seen: Version) -> Stored | Unchanged | None:
        self.reads.append(key)
        return await super().get_if_changed(key, seen=seen)

    async def head(self, key: str) -> Listed | None:
        self.reads.append(key)
        return await super().head(key)


async def test_an_unchanged_table_is_loaded_without_reading_objects(tmp_path: Path) -> None:
    store = ReadCounter(tmp_path)
    server = make_lake(store)
    await set_up_catalog(server)
    await create(server, "t")
    await server.background.drain()
    before = await load(server, T)
    store.reads.clear()

    assert await load(server, T) == before
    assert store.reads == []


async def test_a_new_name_is_not_found_after_its_namespace_was_recreated(
    servers: tuple[Lake, Lake],
) -> None:
    one, other = servers
    name, home = await other.name(T).read(), await other.namespace(NAMESPACE).read()
    assert name
    assert home
    new = replace(name.value, state="new", namespace_id=home.value.id)
    await other.name(T).swap(new, expected=name.version)
    await load(one, T)
    await load(one, T)

    await other.namespace(NAMESPACE).swap(replace(home.value, id="another"), expected=home.version)

    with pytest.raises(NotFound):
        await load(one, T)


async def test_a_list_is_served_from_the_cache_until_another_server_changes_it(servers: tuple[Lake, Lake]) -> None:
    one, other = servers

    before = await names_in(one)
    assert await names_in(one) is before

    await create(other, "v")
    await other.background.drain()

    assert [entry.name for entry in await names_in(one)] == ["t", "u", "v"]


async def names_in(lake: Lake) -> Sequence[Entry]:
    page = await list_names(lake, NAMESPACE, kind="table", page_token=None, page_size=None)
    return page.entries
