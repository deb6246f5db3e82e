"""Entries inserted by a creation: another server lists a table as soon as its creation is answered."""

import pytest
from msgspec.structs import replace

from sandur.catalog.identifiers import Namespace
from sandur.catalog.records import Request
from sandur.errors import NotFound
from sandur.iceberg.requests import decode_create_table
from sandur.operations.containers.catalogs import ensure_default_catalog
from sandur.operations.containers.drop import drop_namespace
from sandur.operations.containers.namespaces import create_namespace
from sandur.operations.index.lists import list_names
from sandur.operations.lake import Lake
from sandur.operations.tables.create import create_table
from sandur.storage.contract import Expected, ObjectStore, Version
from sandur.storage.memory import MemoryStore
from tests.fakes.spy_store import SpyStore
from tests.operations.lakes import make_lake

NAMESPACE = Namespace("main", ("a",))
SCHEMA = '{"type":"struct","fields":[{"id":1,"name":"x","type":"long","required":false}]}'


async def create(lake: Lake, name: str) -> None:
    body = f'{{"name":"{name}","schema":{SCHEMA}}}'.encode()
    await create_table(lake, NAMESPACE, decode_create_table(body), Request(hash=name))


async def listed(lake: Lake) -> list[str]:
    page = await list_names(lake, NAMESPACE, kind="table", page_token=None, page_size=None)
    return [identifier.name for identifier in page.entries]


async def lake_with_namespace(store: ObjectStore) -> Lake:
    lake = make_lake(store)
    await ensure_default_catalog(lake)
    await create_namespace(lake, NAMESPACE, {}, Request(hash="n"))
    await lake.background.drain()
    return lake


@pytest.mark.parametrize("neighbours", [1, 300])
async def test_another_server_lists_a_table_before_the_background_work(neighbours: int) -> None:
    store = MemoryStore()
    lake = await lake_with_namespace(store)
    for number in range(neighbours):
        await create(lake, f"t{number}")
        await lake.background.drain()

    await create(lake, "newest")

    assert "newest" in await listed(make_lake(store)), "nothing behind the answer has run yet"
    await lake.background.drain()
    assert len(await listed(make_lake(store))) == neighbours + 1


async def test_an_insert_costs_no_round() -> None:
    spy = SpyStore(MemoryStore())
    lake = await lake_with_namespace(spy)
    await create(lake, "first")
    await lake.background.drain()
    spy.reset()

    await create(lake, "second")

    assert spy.rounds == 3
    await lake.background.drain()


async def test_the_entry_of_a_failed_creation_is_removed() -> None:
    store = MemoryStore()
    lake = await lake_with_namespace(store)
    await create(lake, "first")
    await lake.background.drain()
    other = make_lake(store)

    class DropsBeforeItIsConfirmed(SpyStore):
        """Drops and recreates the namespace after the name is written, and before the creator confirms it."""

        async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
            version = await super().put(key, data, expected=expected)
            if key.endswith("/doomed.json") and "/names/" in key:
                again = await other.namespace(NAMESPACE).read()
                assert again is not None
                await other.namespace(NAMESPACE).swap(replace(again.value, id="another"), expected=again.version)
            return version

    doomed = make_lake(DropsBeforeItIsConfirmed(store))
    with pytest.raises(NotFound):
        await create(doomed, "doomed")
    await doomed.background.drain()

    assert "doomed" not in await listed(make_lake(store))


async def test_inserts_and_drops_of_a_namespace_leave_no_entry() -> None:
    store = MemoryStore()
    lake = await lake_with_namespace(store)
    await drop_namespace(lake, NAMESPACE, Request(hash="d"))
    with pytest.raises(NotFound):
        await create(lake, "late")
    await lake.background.drain()
    await create_namespace(lake, NAMESPACE, {}, Request(hash="again"))

    assert await listed(make_lake(store)) == []
