"""Undrop over HTTP: lists of what was dropped, privileges, idempotency keys and bad input."""

from typing import Any

import httpx
import pytest

from tests.server.conftest import Catalogs
from tests.server.requests import create_table

UNDROP = "/api/sandur/v1/undrop"
DROPPED = "/api/sandur/v1/dropped"
KEY = "0197f22e-79b0-7cc3-98c4-dc0c0c07398f"


@pytest.fixture
async def client(catalogs: Catalogs) -> httpx.AsyncClient:
    client = await catalogs.open()
    await client.post("/v1/main/namespaces", json={"namespace": ["ns"]})
    await client.post("/v1/main/namespaces/ns/tables", json=create_table("t"))
    return client


async def dropped(client: httpx.AsyncClient, query: str = "catalog=main&namespace=ns") -> list[dict[str, Any]]:
    answer = await client.get(f"{DROPPED}?{query}")
    assert answer.status_code == 200, answer.text
    entries: list[dict[str, Any]] = answer.json()["dropped"]
    return entries


async def test_a_dropped_table_is_listed_and_comes_back(client: httpx.AsyncClient) -> None:
    assert await dropped(client) == []
    await client.delete("/v1/main/namespaces/ns/tables/t")
    (entry,) = await dropped(client)
    assert (entry["kind"], entry["full_name"], entry["format"]) == ("table", "main.ns.t", "iceberg")

    answer = await client.post(f"{UNDROP}/table/main.ns.t")

    assert answer.status_code == 200, answer.text
    assert answer.json() == {"kind": "table", "full_name": "main.ns.t", "uuid": entry["uuid"]}
    assert (await client.get("/v1/main/namespaces/ns/tables/t")).status_code == 200
    assert await dropped(client) == []


async def test_a_retry_with_the_same_key_gets_the_same_answer(client: httpx.AsyncClient) -> None:
    await client.delete("/v1/main/namespaces/ns/tables/t")
    body, headers = {"new_name": "main.ns.u"}, {"Idempotency-Key": KEY}
    first = await client.post(f"{UNDROP}/table/main.ns.t", json=body, headers=headers)

    again = await client.post(f"{UNDROP}/table/main.ns.t", json=body, headers=headers)
    other = await client.post(f"{UNDROP}/table/main.ns.t", json={}, headers=headers)

    assert first.status_code == again.status_code == 200
    assert first.json() == again.json()
    assert other.status_code == 409


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("table/main.ns.missing", {}, 404),
        ("table/main.ns.t", {}, 404),  # It exists.
        ("view/main.ns.t", {}, 404),
        ("namespace/main.ns", {}, 400),
        ("table/main", {}, 400),
        ("table/main.ns.t", {"uuid": "../x"}, 400),
        ("table/main.ns.t", {"uuid": 1}, 400),
        ("table/main.ns.t", {"new_name": "x"}, 400),
        ("table/main.ns.t", {"new_name": "other.ns.t"}, 400),
        ("table/main.ns.t", [], 400),
    ],
)
async def test_bad_requests_are_refused(client: httpx.AsyncClient, path: str, body: object, status: int) -> None:
    answer = await client.post(f"{UNDROP}/{path}", json=body)

    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["code"] == status


@pytest.mark.parametrize("query", ["", "catalog=", "catalog=main&page_size=0", "catalog=main&page_token=x"])
async def test_bad_lists_are_refused(client: httpx.AsyncClient, query: str) -> None:
    assert (await client.get(f"{DROPPED}?{query}")).status_code == 400


async def test_a_taken_name_is_a_conflict(client: httpx.AsyncClient) -> None:
    await client.delete("/v1/main/namespaces/ns/tables/t")
    (entry,) = await dropped(client)
    await client.post("/v1/main/namespaces/ns/tables", json=create_table("t"))

    answer = await client.post(f"{UNDROP}/table/main.ns.t", json={"uuid": entry["uuid"]})

    assert answer.status_code == 409
    assert await dropped(client) == [entry]
