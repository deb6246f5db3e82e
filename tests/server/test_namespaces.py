"""Namespaces over HTTP."""

import httpx
import pytest

from tests.server.requests import create_table


@pytest.fixture
async def client(client: httpx.AsyncClient) -> httpx.AsyncClient:
    for levels in (["a"], ["a", "b"], ["a", "b", "c"], ["z"]):
        made = await client.post("/v1/namespaces", json={"namespace": levels, "properties": {"owner": "me"}})
        assert made.status_code == 200, made.text
    return client


async def test_a_created_namespace_is_returned_and_loaded(client: httpx.AsyncClient) -> None:
    made = await client.post("/v1/namespaces", json={"namespace": ["new"], "properties": {"k": "v"}})
    loaded = await client.get("/v1/namespaces/new")

    assert made.status_code == 200
    assert made.json()["namespace"] == ["new"]
    assert loaded.json()["properties"]["k"] == "v"
    assert "location" in loaded.json()["properties"]


async def test_existing_namespaces_conflict(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/namespaces", json={"namespace": ["a"]})

    assert answer.status_code == 409
    assert answer.json()["error"]["type"] == "AlreadyExistsException"
    assert "Namespace already exists" in answer.json()["error"]["message"]


async def test_lists_show_direct_children_only(client: httpx.AsyncClient) -> None:
    top = (await client.get("/v1/namespaces")).json()
    below = (await client.get("/v1/namespaces", params={"parent": "a"})).json()
    deeper = (await client.get("/v1/namespaces", params={"parent": "a\x1fb"})).json()
    empty = (await client.get("/v1/namespaces", params={"parent": ""})).json()

    assert top == {"namespaces": [["a"], ["z"]], "next-page-token": None}
    assert below["namespaces"] == [["a", "b"]]
    assert deeper["namespaces"] == [["a", "b", "c"]]
    assert empty == top


async def test_missing_parents_are_created_with_the_namespace(client: httpx.AsyncClient) -> None:
    """The specification has no 404 for createNamespace."""
    answer = await client.post("/v1/namespaces", json={"namespace": ["n", "o", "p"], "properties": {"owner": "me"}})

    below = (await client.get("/v1/namespaces", params={"parent": "n\x1fo"})).json()
    parent = (await client.get("/v1/namespaces/n%1Fo")).json()
    assert answer.status_code == 200
    assert below["namespaces"] == [["n", "o", "p"]]
    assert "owner" not in parent["properties"]


async def test_paging_returns_every_namespace(client: httpx.AsyncClient) -> None:
    seen, token = [], ""
    for _ in range(10):
        page = (await client.get("/v1/namespaces", params={"pageToken": token, "pageSize": 1})).json()
        seen += page["namespaces"]
        token = page["next-page-token"]
        if token is None:
            break

    assert seen == [["a"], ["z"]]


async def test_a_page_size_without_a_token_returns_everything(client: httpx.AsyncClient) -> None:
    page = (await client.get("/v1/namespaces", params={"pageSize": 1})).json()

    assert page == {"namespaces": [["a"], ["z"]], "next-page-token": None}


@pytest.mark.parametrize("query", ["pageSize=0", "pageSize=x", "pageSize=-1", "pageToken=nonsense", "parent=%FF"])
async def test_a_bad_page_is_a_bad_request(client: httpx.AsyncClient, query: str) -> None:
    answer = await client.get(f"/v1/namespaces?{query}")

    assert answer.status_code == 400, answer.text


async def test_children_of_a_missing_namespace_are_404(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/namespaces", params={"parent": "non-existing"})

    assert answer.status_code == 404
    assert answer.json()["error"] == {
        "message": "Namespace does not exist: non-existing",
        "type": "NoSuchNamespaceException",
        "code": 404,
    }


async def test_head_returns_only_the_status(client: httpx.AsyncClient) -> None:
    there = await client.head("/v1/namespaces/a%1Fb")
    missing = await client.head("/v1/namespaces/a%1Fnope")

    assert (there.status_code, there.content) == (204, b"")
    assert (missing.status_code, missing.content) == (404, b"")


async def test_an_update_returns_updated_removed_and_missing_properties(client: httpx.AsyncClient) -> None:
    body = {"removals": ["owner", "never"], "updates": {"team": "x"}}

    answer = await client.post("/v1/namespaces/z/properties", json=body)

    assert answer.json() == {"updated": ["team"], "removed": ["owner"], "missing": ["never"]}
    properties = (await client.get("/v1/namespaces/z")).json()["properties"]
    assert properties["team"] == "x"
    assert "owner" not in properties


async def test_a_key_both_removed_and_updated_is_422(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/namespaces/z/properties", json={"removals": ["k"], "updates": {"k": "v"}})

    assert answer.status_code == 422
    assert answer.json()["error"]["type"] == "UnprocessableEntityException"


async def test_properties_of_a_missing_namespace_are_404(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/namespaces/nope/properties", json={"updates": {"k": "v"}})

    assert answer.status_code == 404
    assert answer.json()["error"]["message"].startswith("Namespace does not exist: nope")


async def test_an_empty_namespace_is_dropped(client: httpx.AsyncClient) -> None:
    dropped = await client.delete("/v1/namespaces/z")

    assert (dropped.status_code, dropped.content) == (204, b"")
    assert (await client.delete("/v1/namespaces/z")).status_code == 404


async def test_a_namespace_with_a_child_or_a_table_is_not_dropped(client: httpx.AsyncClient) -> None:
    await client.post("/v1/namespaces/z/tables", json=create_table("t"))

    for namespace in ("a", "z"):
        answer = await client.delete(f"/v1/namespaces/{namespace}")
        assert answer.status_code == 409
        assert answer.json()["error"]["type"] == "NamespaceNotEmptyException"
        assert "is not empty" in answer.json()["error"]["message"]


@pytest.mark.parametrize("level", ["a b", "a/b", "a.b", "a+b", "a%b", "é🧊", "a?b", "a#b", "..", "%1F", "a&b=c"])
async def test_names_with_special_characters_work_in_paths(client: httpx.AsyncClient, level: str) -> None:
    from urllib.parse import quote, quote_plus  # noqa: PLC0415 - two ways of encoding, beside their use

    await client.post("/v1/namespaces", json={"namespace": ["odd"]})
    made = await client.post("/v1/namespaces", json={"namespace": ["odd", level]})
    assert made.status_code == 200, made.text

    for encoded in (quote(level, safe=""), quote_plus(level)):
        loaded = await client.get(f"/v1/namespaces/odd%1F{encoded}")
        assert loaded.json()["namespace"] == ["odd", level]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"namespace": "a"}',
        '{"namespace": []}',
        '{"namespace": [""]}',
        '{"namespace": ["a\\u001fb"]}',
        '{"namespace": ["a\\u0000"]}',
        '{"namespace": [1]}',
        '{"namespace": ["a"], "properties": {"k": 1}}',
        '{"namespace": ["a"], "properties": []}',
    ],
)
async def test_a_malformed_create_is_a_bad_request(client: httpx.AsyncClient, body: str) -> None:
    answer = await client.post("/v1/namespaces", content=body)

    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] == 400
