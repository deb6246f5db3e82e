"""The work of clients on names: shared ones in any state, and their own in a known state."""

import itertools

from tests.chaos.clients import Client
from tests.chaos.table_work import commit_last
from tests.chaos.world import SHARED, creation, identifier_of, path_of

_numbers = itertools.count()


async def create_shared(client: Client) -> None:
    await _create(client, client.chance.choice(SHARED), is_keyed=client.chance.random() < 0.7)


async def drop_shared(client: Client) -> None:
    await _drop(client, client.chance.choice(SHARED), is_keyed=client.chance.random() < 0.7)


async def rename_shared(client: Client) -> None:
    source, target = client.chance.sample(SHARED, 2)
    await _rename(client, source, target, is_keyed=client.chance.random() < 0.7)


async def load_shared(client: Client) -> None:
    await client.load(client.chance.choice(SHARED))


async def list_tables(client: Client) -> None:
    namespace = client.chance.choice(("here", "there"))
    sent, _ = await client.send("GET", f"/v1/namespaces/{namespace}/tables", kind="list", is_exact=True)
    _expect(client, "a list", sent.status, 200)


async def table_lifecycle(client: Client) -> None:
    """A table from creation to drop under its own names; every answer is known in advance."""
    number = next(_numbers)
    here, there = f"here/own{number}", f"there/own{number}"
    _expect(client, f"{here}: create", await _create(client, here), 200)
    _expect(client, f"{here}: create again", await _create(client, here), 409)
    uuid = await _uuid(client, here)
    _expect(client, f"{here}: commit", (await commit_last(client, here)).status, 200)
    _expect(client, f"{here}: rename", await _rename(client, here, there), 204)
    _expect(client, f"{here}: what it is after its rename", await _uuid(client, here), None)
    _expect(client, f"{there}: what it is after the rename", await _uuid(client, there), uuid)
    _expect(client, f"{there}: drop", await _drop(client, there), 204)
    _expect(client, f"{there}: what it is after the drop", await _uuid(client, there), None)
    _expect(client, f"{there}: drop again", await _drop(client, there), 404)
    _expect(client, f"{here}: create again", await _create(client, here), 200)
    _expect(client, f"{here}: whether it is the first one", await _uuid(client, here) == uuid, wanted=False)


async def namespace_lifecycle(client: Client) -> None:
    """A namespace from creation to drop; it cannot be dropped while it has a child."""
    name = f"house{next(_numbers)}"
    _expect(client, f"{name}: create", await _create_namespace(client, name), 200)
    _expect(client, f"{name}: create in it", await _create(client, f"{name}/table"), 200)
    _expect(client, f"{name}: drop, full", await _drop_namespace(client, name), 409)
    _expect(client, f"{name}: drop what is in it", await _drop(client, f"{name}/table"), 204)
    _expect(client, f"{name}: drop, empty", await _drop_namespace(client, name), 204)
    _expect(client, f"{name}: create, gone", await _create(client, f"{name}/table"), 404)


async def _create_namespace(client: Client, name: str) -> int | None:
    sent, _ = await client.send("POST", "/v1/namespaces", {"namespace": [name]}, kind="namespace", is_keyed=True)
    return sent.status


async def _drop_namespace(client: Client, name: str) -> int | None:
    sent, _ = await client.send("DELETE", f"/v1/namespaces/{name}", kind="namespace", is_keyed=True)
    return sent.status


async def _create(client: Client, table: str, *, is_keyed: bool = True) -> int | None:
    marker = client.clock.new_id()
    path = path_of(table).rpartition("/")[0]
    sent, _ = await client.send("POST", path, creation(table, marker), kind="create", marker=marker, is_keyed=is_keyed)
    return sent.status


async def _drop(client: Client, table: str, *, is_keyed: bool = True) -> int | None:
    sent, _ = await client.send("DELETE", path_of(table), kind="drop", is_keyed=is_keyed)
    return sent.status


async def _rename(client: Client, source: str, target: str, *, is_keyed: bool = True) -> int | None:
    body = {"source": identifier_of(source), "destination": identifier_of(target)}
    sent, _ = await client.send("POST", "/v1/tables/rename", body, kind="rename", is_keyed=is_keyed)
    return sent.status


async def _uuid(client: Client, table: str) -> str | None:
    loaded = await client.load(table)
    return loaded[0].uuid if loaded else None


def _expect(client: Client, what: str, found: object, wanted: object) -> None:
    if found != wanted:
        client.diary.wrong.append(f"{what}: {found} instead of {wanted}")
