"""Reads in a workspace that does not exist: they write nothing, and find an empty default catalog."""

import httpx
import pytest

from sandur.storage.contract import list_all
from sandur.storage.memory import MemoryStore
from tests.server.conftest import Catalogs
from tests.server.requests import create_table

UNITY = "/api/2.1/unity-catalog"
NEW = {"X-Sandur-Tenant": "new", "X-Sandur-Workspace": "empty"}
READS = [
    *("/v1/config", "/v1/config?warehouse=main", "/v1/config?warehouse=x", "/v1/namespaces", "/v1/main/namespaces"),
    *("/v1/namespaces?parent=a", "/v1/x/namespaces", "/v1/namespaces/a", "/v1/namespaces/a/tables"),
    *("/v1/namespaces/a/tables/t", "/v1/namespaces/a/views", "/v1/namespaces/a/views/v", "/v1/namespaces/a/functions"),
    *(f"{UNITY}/catalogs", f"{UNITY}/catalogs/main", f"{UNITY}/schemas?catalog_name=main", f"{UNITY}/schemas/main.a"),
    *(f"{UNITY}/tables?catalog_name=main&schema_name=a", f"{UNITY}/tables/main.a.t", f"{UNITY}/volumes/main.a.v"),
    *(f"{UNITY}/volumes?catalog_name=main&schema_name=a", f"{UNITY}/functions?catalog_name=main&schema_name=a"),
    *(f"{UNITY}/models", f"{UNITY}/models?catalog_name=main&schema_name=a", f"{UNITY}/credentials"),
    *(f"{UNITY}/external-locations", f"{UNITY}/permissions/catalog/main", f"{UNITY}/metastore_summary"),
    *("/api/1.0/unity-control/scim2/Users", "/api/1.0/unity-control/scim2/Me"),
    f"{UNITY}/delta/v1/config?catalog=main&protocol-versions=1.0",
]


async def keys_outside_the_own_workspace(store: MemoryStore) -> list[str]:
    """The start of the server goes on writing to its own workspace in the background."""
    own = "tenant=default/workspace=default/"
    return [listed.key for listed in await list_all(store, "") if not listed.key.startswith(own)]


@pytest.mark.parametrize("path", READS)
async def test_a_read_in_a_new_workspace_writes_nothing(catalogs: Catalogs, path: str) -> None:
    store = MemoryStore()
    client = await catalogs.open(store, janitors=False)
    before = await keys_outside_the_own_workspace(store)

    for method in ("GET", "HEAD"):
        answer = await client.request(method, path, headers=NEW)
        assert answer.status_code < 500, answer.text

    assert await keys_outside_the_own_workspace(store) == before


async def test_a_new_workspace_reads_as_an_empty_catalog_until_its_first_change(catalogs: Catalogs) -> None:
    store = MemoryStore()
    client = await catalogs.open(store, janitors=False)

    config = await client.get("/v1/config?warehouse=main", headers=NEW)
    empty = await client.get("/v1/namespaces", headers=NEW)
    schemas = await client.get(f"{UNITY}/schemas?catalog_name=main", headers=NEW)
    missing = await client.get("/v1/namespaces/ns", headers=NEW)
    made = await client.post("/v1/namespaces", json={"namespace": ["ns"]}, headers=NEW)
    table = await client.post("/v1/namespaces/ns/tables", json=create_table("t"), headers=NEW)
    listed = await client.get("/v1/namespaces", headers=NEW)

    assert config.json()["overrides"]["prefix"] == "main"
    assert empty.json()["namespaces"] == []
    assert schemas.json()["schemas"] == []
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "NoSuchNamespaceException")
    assert (made.status_code, table.status_code) == (200, 200)
    assert listed.json()["namespaces"] == [["ns"]]
    assert "/new/empty/" in table.json()["metadata"]["location"]


async def test_a_schema_of_unity_catalog_creates_the_default_catalog_too(catalogs: Catalogs) -> None:
    client = await catalogs.open(MemoryStore(), janitors=False)

    made = await client.post(f"{UNITY}/schemas", json={"catalog_name": "main", "name": "s"}, headers=NEW)
    found = await client.get(f"{UNITY}/catalogs", headers=NEW)

    assert made.status_code == 200, made.text
    assert [catalog["name"] for catalog in found.json()["catalogs"]] == ["main"]


async def test_the_default_catalog_of_the_server_exists_from_the_start(client: httpx.AsyncClient) -> None:
    found = await client.get(f"{UNITY}/catalogs")

    assert [catalog["name"] for catalog in found.json()["catalogs"]] == ["main"]
