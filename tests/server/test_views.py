"""Views and functions over HTTP."""

from typing import Any

import httpx
import pytest

from tests.server.requests import create_table, create_view, rename

VIEW = "/v1/namespaces/ns/views/v"


@pytest.fixture
async def client(client: httpx.AsyncClient) -> httpx.AsyncClient:
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})
    await client.post("/v1/namespaces/ns/tables", json=create_table("t"))
    made = await client.post("/v1/namespaces/ns/views", json=create_view("v"))
    assert made.status_code == 200, made.text
    return client


async def loaded(client: httpx.AsyncClient) -> dict[str, Any]:
    body: dict[str, Any] = (await client.get(VIEW)).json()
    return body


async def test_a_view_is_loaded_listed_and_found(client: httpx.AsyncClient) -> None:
    view = await loaded(client)

    assert view["metadata"]["versions"][0]["representations"][0]["sql"] == "select 1"
    assert view["metadata-location"]
    assert (await client.head(VIEW)).status_code == 204
    assert (await client.get("/v1/namespaces/ns/views")).json()["identifiers"] == [{"namespace": ["ns"], "name": "v"}]
    assert (await client.get("/v1/namespaces/ns/tables")).json()["identifiers"] == [{"namespace": ["ns"], "name": "t"}]


async def test_a_view_is_replaced(client: httpx.AsyncClient) -> None:
    view = await loaded(client)
    version = {**create_view("v", "select 2")["view-version"], "version-id": 2, "schema-id": 0}
    body = {
        "requirements": [{"type": "assert-view-uuid", "uuid": view["metadata"]["view-uuid"]}],
        "updates": [
            {"action": "add-view-version", "view-version": version},
            {"action": "set-current-view-version", "view-version-id": -1},
        ],
    }

    answer = await client.post(VIEW, json=body)

    assert answer.status_code == 200, answer.text
    assert answer.json()["metadata"]["current-version-id"] == 2
    assert (await loaded(client))["metadata-location"] == answer.json()["metadata-location"]


async def test_a_missing_view_is_no_such_view(client: httpx.AsyncClient) -> None:
    for path in ("/v1/namespaces/ns/views/nope", "/v1/namespaces/nope/views/v", "/v1/namespaces/ns/views/t"):
        for method in ("GET", "DELETE"):
            answer = await client.request(method, path)
            assert answer.status_code == 404
            assert answer.json()["error"]["type"] == "NoSuchViewException"
        assert (await client.head(path)).status_code == 404


async def test_tables_and_views_share_their_names(client: httpx.AsyncClient) -> None:
    view = await client.post("/v1/namespaces/ns/views", json=create_view("t"))
    table = await client.post("/v1/namespaces/ns/tables", json=create_table("v"))
    again = await client.post("/v1/namespaces/ns/views", json=create_view("v"))

    assert (view.status_code, table.status_code, again.status_code) == (409, 409, 409)
    assert view.json()["error"]["message"].startswith("Table with same name already exists: ns.t")
    assert table.json()["error"]["message"].startswith("View with same name already exists: ns.v")
    assert again.json()["error"]["message"].startswith("View already exists: ns.v")


async def test_a_view_is_renamed_and_dropped(client: httpx.AsyncClient) -> None:
    renamed = await client.post("/v1/views/rename", json=rename("v", "w"))
    onto_table = await client.post("/v1/views/rename", json=rename("w", "t"))
    dropped = await client.delete("/v1/namespaces/ns/views/w")

    assert (renamed.status_code, renamed.content) == (204, b"")
    assert onto_table.status_code == 409
    assert "Table already exists" in onto_table.json()["error"]["message"]
    assert (dropped.status_code, dropped.content) == (204, b"")
    assert (await client.head("/v1/namespaces/ns/views/w")).status_code == 404


async def test_a_dropped_view_can_be_registered_again(client: httpx.AsyncClient) -> None:
    location = (await loaded(client))["metadata-location"]
    body = {"name": "again", "metadata-location": location}
    twice = await client.post("/v1/namespaces/ns/register-view", json=body)
    await client.delete("/v1/namespaces/ns/views/v")

    registered = await client.post("/v1/namespaces/ns/register-view", json=body)
    taken = await client.post("/v1/namespaces/ns/register-view", json={**body, "name": "t"})

    assert twice.status_code == 400, twice.text
    assert registered.status_code == 200, registered.text
    assert taken.status_code == 409
    assert (await client.head("/v1/namespaces/ns/views/again")).status_code == 204


async def test_functions_are_an_empty_list_and_each_is_not_found(client: httpx.AsyncClient) -> None:
    listed = await client.get("/v1/namespaces/ns/functions")
    missing = await client.get("/v1/namespaces/ns/functions/f")
    nowhere = await client.get("/v1/namespaces/nope/functions/f")

    assert listed.json() == {"identifiers": [], "next-page-token": None}
    assert missing.json()["error"]["type"] == "NoSuchFunctionException"
    assert nowhere.json()["error"]["type"] == "NoSuchNamespaceException"
