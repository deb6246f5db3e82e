"""Tenants and workspaces of the Unity Catalog API: none can read or change another."""

import httpx
import pytest

from tests.server.conftest import Catalogs
from tests.server.unity.client import CONTROL, UNITY, Unity
from tests.server.unity.test_permissions import everything, grant

PLACES = [{"X-Sandur-Tenant": "other"}, {"X-Sandur-Workspace": "other"}]
NAMED = {
    "schema": "/schemas/main.s",
    "table": "/tables/main.s.t",
    "volume": "/volumes/main.s.v",
    "registered_model": "/models/main.s.m",
    "credential": "/credentials/k",
    "external_location": "/external-locations/l",
}


@pytest.mark.parametrize("place", PLACES, ids=["tenant", "workspace"])
async def test_workspaces_cannot_read_or_change_each_other(
    unity: Unity, client: httpx.AsyncClient, place: dict[str, str]
) -> None:
    names = await everything(unity)
    user = (await client.post(f"{CONTROL}/scim2/Users", json={"emails": [{"value": "me@x.org"}]})).json()
    await unity.patch("/permissions/catalog/main", grant("anonymous", ["SELECT"]))

    for kind, path in NAMED.items():
        assert (await client.get(UNITY + path, headers=place)).status_code == 404, path
        assert (await client.delete(UNITY + path, headers=place)).status_code == 404, path
        grants = f"{UNITY}/permissions/{kind}/{names[kind]}"
        assert (await client.get(grants, headers=place)).status_code == 404, kind
    for path, key in (("/credentials", "credentials"), ("/external-locations", "external_locations")):
        assert (await client.get(UNITY + path, headers=place)).json() == {key: []}
    table_id = (await unity.get("/tables/main.s.t")).json()["table_id"]
    body = {"table_id": table_id, "operation": "READ"}
    credentials = await client.post(f"{UNITY}/temporary-table-credentials", json=body, headers=place)
    grants_there = await client.get(f"{UNITY}/permissions/catalog/main", headers=place)
    metastore = await client.get(f"{UNITY}/metastore_summary", headers=place)

    assert credentials.status_code == 404
    assert grants_there.json() == {"privilege_assignments": []}
    assert metastore.json()["metastore_id"] != names["metastore"]
    assert (await client.get(f"{CONTROL}/scim2/Users/{user['id']}", headers=place)).status_code == 404
    assert (await client.get(f"{CONTROL}/scim2/Users", headers=place)).json()["totalResults"] == 0
    for path in NAMED.values():
        assert (await unity.get(path)).status_code == 200, path


async def test_a_page_token_is_valid_in_its_own_workspace_only(unity: Unity, client: httpx.AsyncClient) -> None:
    for name in ("a", "b"):
        await unity.made("/catalogs", {"name": name})
    token = (await unity.get("/catalogs", max_results=1)).json()["next_page_token"]

    answer = await client.get(f"{UNITY}/catalogs", params={"page_token": token}, headers=PLACES[0])

    assert answer.status_code == 400


async def test_a_server_bound_to_one_workspace_ignores_the_headers(catalogs: Catalogs) -> None:
    unity = Unity(await catalogs.open(tenant="mine", workspace="w"))
    await unity.made("/catalogs", {"name": "c"})

    answer = await unity.http.get(f"{UNITY}/catalogs/c", headers=PLACES[0])

    assert answer.status_code == 200
