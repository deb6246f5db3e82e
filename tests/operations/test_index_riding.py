"""Entries that ride along with a creation: another server lists a table as soon as its creation was answered."""

import pytest
from msgspec.structs import replace

from sandur.catalog.identifiers import Namespace
from sandur.catalog.sources import Request
from sandur.errors import NotFound
from sandur.iceberg.requests import decode_create_table
from sandur.operations.catalogs import ensure_default_catalog
from sandur.operations.create_table import create_table
from sandur.operations.listing import list_names
from sandur.operations.namespaces import create_namespace, drop_namespace
from sandur.operations.workspace import Workspace
from sandur.storage.memory import MemoryStore
from sandur.storage.object_store import Expected, ObjectStore, Version
from tests.fakes.spy_store import SpyStore
from tests.operations.making import make_workspace

NAMESPACE = Namespace("main", ("a",))
SCHEMA = '{"type":"struct","fields":[{"id":1,"name":"x","type":"long","required":false}]}'


async def create(workspace: Workspace, name: str) -> None:
    body = f'{{"name":"{name}","schema":{SCHEMA}}}'.encode()
    await create_table(workspace, NAMESPACE, decode_create_table(body), Request(hash=name))


async def listed(workspace: Workspace) -> list[str]:
    page = await list_names(workspace, NAMESPACE, kind="table", page_token=None, page_size=None)
    return [identifier.name for identifier in page.entries]


async def ready(store: ObjectStore) -> Workspace:
    workspace = make_workspace(store)
    await ensure_default_catalog(workspace)
    await create_namespace(workspace, NAMESPACE, {}, Request(hash="n"))
    await workspace.background.drain()
    return workspace


@pytest.mark.parametrize("neighbours", [1, 300])
async def test_another_server_lists_a_table_before_anything_is_done_behind_the_answer(neighbours: int) -> None:
    store = MemoryStore()
    workspace = await ready(store)
    for number in range(neighbours):
        await create(workspace, f"t{number}")
        await workspace.background.drain()

    await create(workspace, "newest")

    assert "newest" in await listed(make_workspace(store)), "nothing behind the answer has run yet"
    await workspace.background.drain()
    assert len(await listed(make_workspace(store))) == neighbours + 1


async def test_a_ride_costs_no_round() -> None:
    spy = SpyStore(MemoryStore())
    workspace = await ready(spy)
    await create(workspace, "first")
    await workspace.background.drain()
    spy.reset()

    await create(workspace, "second")

    assert spy.rounds == 4
    await workspace.background.drain()


async def test_an_entry_that_rode_is_taken_back_when_the_creation_failed() -> None:
    store = MemoryStore()
    workspace = await ready(store)
    await create(workspace, "first")
    await workspace.background.drain()
    other = make_workspace(store)

    class DropsBeforeItIsConfirmed(SpyStore):
        """Makes the namespace another one after the name was written, and before the creator looks again."""

        async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
            version = await super().put(key, data, expected=expected)
            if key.endswith("/doomed.json") and "/names/" in key:
                again = await other.namespace(NAMESPACE).read()
                assert again is not None
                await other.namespace(NAMESPACE).swap(replace(again.value, id="another"), expected=again.version)
            return version

    doomed = make_workspace(DropsBeforeItIsConfirmed(store))
    with pytest.raises(NotFound):
        await create(doomed, "doomed")
    await doomed.background.drain()

    assert "doomed" not in await listed(make_workspace(store))


async def test_rides_and_drops_of_a_namespace_leave_no_entry_behind() -> None:
    store = MemoryStore()
    workspace = await ready(store)
    await drop_namespace(workspace, NAMESPACE, Request(hash="d"))
    with pytest.raises(NotFound):
        await create(workspace, "late")
    await workspace.background.drain()
    await create_namespace(workspace, NAMESPACE, {}, Request(hash="again"))

    assert await listed(make_workspace(store)) == []
