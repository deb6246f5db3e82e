"""What people browse over HTTP: only what they may see, page by page, and clear refusals."""

import httpx
import pytest

from tests.server.conftest import Catalogs
from tests.server.logins import SECURED, bearer, make_principal
from tests.server.requests import create_table, create_view

OWN = "/api/sandur/v1"
OBJECT = f"{OWN}/objects/main/sales/t1"


@pytest.fixture
async def client(catalogs: Catalogs) -> httpx.AsyncClient:
    """A server with authentication, three tables, a view and a nested namespace."""
    client = await catalogs.open_with(SECURED)
    client.headers.update(await bearer(client))
    for levels in (["sales"], ["sales", "eu"], ["dotted.level"]):
        (await client.post("/v1/namespaces", json={"namespace": levels})).raise_for_status()
    for name in ("t1", "t2", "t3"):
        (await client.post("/v1/namespaces/sales/tables", json=create_table(name))).raise_for_status()
    (await client.post("/v1/namespaces/sales/views", json=create_view("v"))).raise_for_status()
    return client


async def names(client: httpx.AsyncClient, path: str, **query: str | int) -> list[str]:
    answer = await client.get(f"{OWN}/contents{path}", params=query)
    return [entry["name"] for entry in answer.raise_for_status().json()["entries"]]


async def test_contents_are_listed_by_container_page_by_page(client: httpx.AsyncClient) -> None:
    first = (await client.get(f"{OWN}/contents/main/sales", params={"page_size": 3, "columns": "true"})).json()
    second = await names(client, "/main/sales", page_size=3, page_token=first["next_page_token"])

    assert await names(client, "") == ["main"]
    assert await names(client, "/main") == ["dotted.level", "sales"]
    assert await names(client, "/main/sales", collection="namespaces") == ["eu"]
    assert await names(client, "/main/dotted.level") == []
    assert [entry["name"] for entry in first["entries"]] == ["t1", "t2", "t3"]
    assert first["entries"][0]["columns"][0] == "id"
    assert second == ["v"]


async def test_a_caller_sees_and_reads_what_it_may(client: httpx.AsyncClient) -> None:
    guest = await make_principal(client, await bearer(client), "guest")
    hidden = [await client.get(path, headers=guest) for path in (OBJECT, f"{OWN}/contents/main/sales")]
    for on, privileges in (
        ("catalog/main", ["USE CATALOG"]),
        ("schema/main.sales", ["USE SCHEMA"]),
        ("table/main.sales.t1", ["BROWSE"]),
    ):
        change = {"changes": [{"principal": "guest", "add": privileges}]}
        (await client.patch(f"{OWN}/grants/{on}", json=change)).raise_for_status()

    listed = await client.get(f"{OWN}/contents/main/sales", headers=guest)
    refused = [await client.get(f"{OBJECT}{path}", headers=guest) for path in ("", "/history", "/changes")]
    missing = await client.get(f"{OWN}/objects/main/sales/t2", headers=guest)
    nothing = await client.get(f"{OWN}/objects/main/sales/zz", headers=guest)
    jobs = await client.get(f"{OWN}/jobs", headers=guest)

    assert [answer.status_code for answer in hidden] == [404, 404]
    assert [entry["name"] for entry in listed.json()["entries"]] == ["t1"]
    assert [answer.status_code for answer in refused] == [403, 403, 403]
    assert (missing.status_code, nothing.status_code) == (404, 404)
    assert missing.text.replace("t2", "zz") == nothing.text
    assert jobs.status_code == 403


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/contents/nothing", None, 404),
        ("GET", "/contents/main/nothing", None, 404),
        ("GET", "/contents/main/sales?collection=all", None, 400),
        ("GET", "/contents/main/sales?page_size=0", None, 400),
        ("GET", "/contents/main/sales?page_token=x", None, 400),
        ("GET", "/contents/main/sales?columns=perhaps", None, 400),
        ("GET", "/objects/nothing", None, 404),
        ("GET", "/objects/main/nothing", None, 404),
        ("GET", "/objects/main/sales/nothing/history", None, 404),
        ("GET", "/objects/main/sales/t1/history?limit=0", None, 400),
        ("GET", "/objects/main/sales/t1/changes?from=one", None, 400),
        ("GET", "/objects/main/sales/t1/changes?from=0&to=7", None, 404),
        ("GET", "/objects/main/sales/v/changes", None, 400),
        ("POST", "/tables/main/sales", {"name": "t"}, 400),
        ("POST", "/tables/main/sales", {"name": "a.b", "columns": "id INT"}, 400),
        ("POST", "/tables/main/sales", {"name": "t1", "columns": "id INT"}, 409),
        ("POST", "/tables/main/sales", {"name": "t9", "columns": "id INT", "format": "hudi"}, 400),
        ("POST", "/tables/main/sales", {"name": "t9", "columns": "id INT", "cluster-by": ["id"]}, 400),
        ("POST", "/tables/main/sales", {"name": "t9", "columns": "m MAP<STRING", "format": "delta"}, 400),
        ("POST", "/tables/main/none", {"name": "t9", "columns": "id INT"}, 404),
        ("POST", "/preview", {"tables": [["main", "sales", "nothing"]]}, 404),
        ("POST", "/preview", {"tables": [["main", "sales", "v"]]}, 404),
        ("POST", "/preview", {"tables": [["main", "sales", "t1"]], "sql": "select 1"}, 501),
    ],
)
async def test_a_bad_request_is_refused_and_changes_nothing(
    client: httpx.AsyncClient, method: str, path: str, body: object, status: int
) -> None:
    answer = await client.request(method, OWN + path, json=body)

    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["message"]
    assert await names(client, "/main/sales") == ["t1", "t2", "t3", "v"]
