"""Whole lists are remembered per view: no caller gets the list of another, and a change of grants counts at once."""

import httpx
import pytest

from tests.server.conftest import Catalogs
from tests.server.logins import SECURED, bearer, make_principal
from tests.server.requests import create_table

TABLES = "/v1/namespaces/sales/tables"
GRANTS = "/api/sandur/v1/grants"
NAMES = [f"t{number:03d}" for number in range(120)]  # Bodies of long lists are remembered, too.


@pytest.fixture
async def client(catalogs: Catalogs) -> httpx.AsyncClient:
    """A server with authentication, and a namespace with many tables."""
    client = await catalogs.open_with(SECURED)
    client.headers.update(await bearer(client))
    await client.post("/v1/namespaces", json={"namespace": ["sales"]})
    for name in NAMES:
        (await client.post(TABLES, json=create_table(name))).raise_for_status()
    return client


async def grant(client: httpx.AsyncClient, on: str, principal: str, *add: str, remove: tuple[str, ...] = ()) -> None:
    change = {"principal": principal, "add": add, "remove": remove}
    (await client.patch(f"{GRANTS}/{on}", json={"changes": [change]})).raise_for_status()


async def listed(client: httpx.AsyncClient, caller: dict[str, str]) -> list[str]:
    answer = await client.get(TABLES, headers=caller)
    return [found["name"] for found in answer.raise_for_status().json()["identifiers"]]


async def test_callers_with_different_grants_get_different_lists_again_and_again(client: httpx.AsyncClient) -> None:
    admin = await bearer(client)
    few, most = [await make_principal(client, admin, name) for name in ("few", "most")]
    for name in ("few", "most"):
        await grant(client, "schema/main.sales", name, "USE SCHEMA")
        await grant(client, "catalog/main", name, "USE CATALOG")
    await grant(client, "table/main.sales.t007", "few", "SELECT")
    await grant(client, "schema/main.sales", "most", "SELECT")

    lists = [(await listed(client, few), await listed(client, most), await listed(client, admin)) for _ in range(3)]

    assert lists == [(["t007"], NAMES, NAMES)] * 3


async def test_a_list_that_was_sent_before_follows_the_next_change_of_grants(client: httpx.AsyncClient) -> None:
    admin = await bearer(client)
    ann = await make_principal(client, admin, "ann")
    await grant(client, "catalog/main", "ann", "USE CATALOG", "USE SCHEMA")
    await grant(client, "table/main.sales.t001", "ann", "SELECT")
    found = [await listed(client, ann)]

    await grant(client, "catalog/main", "ann", "SELECT")
    found.append(await listed(client, ann))
    await grant(client, "catalog/main", "ann", remove=("SELECT",))
    found.append(await listed(client, ann))
    dropped = await client.delete(f"{TABLES}/t001", headers=admin)
    found.append(await listed(client, ann))

    assert dropped.status_code == 204
    assert found == [["t001"], NAMES, ["t001"], []]
