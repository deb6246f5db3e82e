"""Grants, owners and effective privileges over HTTP, with real tokens."""

from typing import NamedTuple

import httpx
import pytest

from tests.server.conftest import Catalogs
from tests.server.logins import SECURED, bearer, make_principal
from tests.server.requests import create_table

UNITY = "/api/2.1/unity-catalog"
OWN = "/api/sandur/v1"
TABLE = "/v1/main/namespaces/sales/tables/orders"


class Server(NamedTuple):
    """A server with the table main.sales.orders of the administrator, and two principals without rights."""

    client: httpx.AsyncClient
    admin: dict[str, str]
    ann: dict[str, str]
    ben: dict[str, str]

    async def grant(self, type_: str, name: str, principal: str, *privileges: str) -> httpx.Response:
        body = {"changes": [{"principal": principal, "add": privileges}]}
        return await self.client.patch(f"{UNITY}/permissions/{type_}/{name}", json=body, headers=self.admin)


@pytest.fixture
async def server(catalogs: Catalogs) -> Server:
    client = await catalogs.open_with(SECURED)
    admin = await bearer(client)
    ann = await make_principal(client, admin, "ann", "analysts")
    ben = await make_principal(client, admin, "ben")
    await client.post("/v1/main/namespaces", json={"namespace": ["sales"]}, headers=admin)
    made = await client.post("/v1/main/namespaces/sales/tables", json=create_table("orders"), headers=admin)
    assert made.status_code == 200, made.text
    return Server(client, admin, ann, ben)


async def test_a_grant_to_a_group_lets_its_members_in_and_others_see_nothing(server: Server) -> None:
    client = server.client
    assert (await client.get(TABLE, headers=server.ann)).status_code == 404

    await server.grant("catalog", "main", "analysts", "USE CATALOG", "USE SCHEMA")
    granted = await server.grant("table", "main.sales.orders", "analysts", "SELECT")

    assert granted.json() == {"privilege_assignments": [{"principal": "analysts", "privileges": ["SELECT"]}]}
    assert (await client.get(TABLE, headers=server.ann)).status_code == 200
    assert (await client.get(f"{UNITY}/tables/main.sales.orders", headers=server.ann)).status_code == 200
    assert (await client.get(TABLE, headers=server.ben)).status_code == 404
    hidden = await client.get(f"{UNITY}/tables/main.sales.orders", headers=server.ben)
    missing = await client.get(f"{UNITY}/tables/none.sales.orders", headers=server.ben)
    assert (hidden.status_code, hidden.json()["message"]) == (404, missing.json()["message"].replace("none", "main"))


async def test_a_refusal_names_the_privilege(server: Server) -> None:
    await server.grant("catalog", "main", "ann", "USE CATALOG", "USE SCHEMA", "SELECT")

    refused = await server.client.delete(f"{UNITY}/tables/main.sales.orders", headers=server.ann)

    assert refused.status_code == 403
    assert "ann may not do this: it needs MANAGE or ownership on table sales.orders" in refused.json()["message"]


async def test_only_who_manages_a_securable_changes_its_grants(server: Server) -> None:
    path = f"{OWN}/grants/table/main.sales.orders"
    body = {"changes": [{"principal": "ben", "add": ["BROWSE", "SELECT"]}]}
    await server.grant("catalog", "main", "ann", "USE CATALOG", "USE SCHEMA", "SELECT")

    refused = await server.client.patch(path, json=body, headers=server.ann)
    changed = await server.client.patch(path, json=body, headers=server.admin)
    shown = await server.client.get(f"{UNITY}/permissions/table/main.sales.orders", headers=server.admin)

    assert refused.status_code == 403
    assert changed.json()["grants"] == [{"principal": "ben", "privileges": ["SELECT", "BROWSE"]}]
    # Clients of Unity Catalog reject privileges that they do not know.
    assert shown.json()["privilege_assignments"] == [{"principal": "ben", "privileges": ["SELECT"]}]
    unknown = {"changes": [{"principal": "ben", "add": ["BROWSE"]}]}
    by_unity = await server.client.patch(f"{UNITY}/permissions/catalog/main", json=unknown, headers=server.admin)
    assert by_unity.status_code == 400


async def test_effective_privileges_explain_what_somebody_may_do(server: Server) -> None:
    await server.grant("catalog", "main", "analysts", "USE CATALOG")
    await server.grant("schema", "main.sales", "everyone", "SELECT")
    path = f"{OWN}/effective-privileges/table/main.sales.orders"

    by_admin = await server.client.get(path, params={"principal": "ann"}, headers=server.admin)
    by_ann = await server.client.get(path, headers=server.ann)
    about_ben = await server.client.get(path, params={"principal": "ben"}, headers=server.ann)

    assert by_admin.json() == {
        "privileges": [
            {
                "privilege": "USE CATALOG",
                "securable_type": "catalog",
                "full_name": "main",
                "granted_to": "analysts",
            },
            {
                "privilege": "SELECT",
                "securable_type": "schema",
                "full_name": "main.sales",
                "granted_to": "everyone",
            },
        ]
    }
    assert by_ann.json() == by_admin.json()
    assert about_ben.status_code == 403


async def test_a_fenced_revocation_ends_with_the_bump_of_the_table(server: Server) -> None:
    await server.grant("catalog", "main", "ann", "USE CATALOG", "USE SCHEMA")
    await server.grant("table", "main.sales.orders", "ann", "SELECT")
    body = {"changes": [{"principal": "ann", "remove": ["SELECT"]}]}

    path = f"{OWN}/grants/table/main.sales.orders"
    revoked = await server.client.patch(path, params={"fenced": "true"}, json=body, headers=server.admin)
    on_schema = await server.client.patch(
        f"{OWN}/grants/schema/main.sales", params={"fenced": "true"}, json=body, headers=server.admin
    )

    assert revoked.json()["grants"] == []
    assert on_schema.status_code == 400
    assert (await server.client.get(TABLE, headers=server.ann)).status_code == 404


@pytest.mark.parametrize(
    ("type_", "name"),
    [("catalog", "main"), ("schema", "main.sales"), ("table", "main.sales.orders"), ("metastore", "metastore")],
)
async def test_an_owner_is_changed_by_who_manages_the_securable(server: Server, type_: str, name: str) -> None:
    path = f"{OWN}/owners/{type_}/{name}"
    await server.grant("catalog", "main", "ann", "USE CATALOG", "USE SCHEMA")
    grants = f"{UNITY}/permissions/{type_}/{name}"
    give = {"changes": [{"principal": "ben", "add": ["SELECT"]}]}

    refused = await server.client.put(path, json={"owner": "ann"}, headers=server.ann)
    unknown = await server.client.put(path, json={"owner": "nobody"}, headers=server.admin)
    before = await server.client.patch(grants, json=give, headers=server.ann)
    changed = await server.client.put(path, json={"owner": "ann"}, headers=server.admin)
    after = await server.client.patch(grants, json=give, headers=server.ann)

    assert refused.status_code in {403, 404}
    assert unknown.status_code == 404
    assert before.status_code in {403, 404}
    assert changed.status_code == 204, changed.text
    assert after.status_code == 200, after.text


async def test_the_owner_is_one_of_the_fields_that_unity_catalog_changes(server: Server) -> None:
    client, admin = server.client, server.admin
    volume = {"catalog_name": "main", "schema_name": "sales", "name": "files", "volume_type": "MANAGED"}
    await client.post(f"{UNITY}/volumes", json=volume, headers=admin)
    await client.post(f"{UNITY}/credentials", json={"name": "k"}, headers=admin)
    await server.grant("catalog", "main", "ann", "USE CATALOG", "USE SCHEMA")

    for path in ("/catalogs/main", "/schemas/main.sales", "/volumes/main.sales.files", "/credentials/k"):
        changed = await client.patch(UNITY + path, json={"owner": "ann"}, headers=admin)
        assert (changed.status_code, changed.json().get("owner")) == (200, "ann"), changed.text
        assert (await client.get(UNITY + path, headers=server.ann)).json()["owner"] == "ann"
        again = await client.patch(UNITY + path, json={"comment": "mine"}, headers=server.ann)
        assert again.status_code == 200, again.text

    listed = await client.get(f"{UNITY}/catalogs", headers=server.ann)
    assert [catalog["owner"] for catalog in listed.json()["catalogs"]] == ["ann"]


async def test_credentials_need_the_right_to_the_data(server: Server) -> None:
    client = server.client
    table = (await client.get(f"{UNITY}/tables/main.sales.orders", headers=server.admin)).json()["table_id"]
    await server.grant("catalog", "main", "ann", "USE CATALOG", "USE SCHEMA", "SELECT")

    async def status(operation: str, headers: dict[str, str]) -> int:
        body = {"table_id": table, "operation": operation}
        return (await client.post(f"{UNITY}/temporary-table-credentials", json=body, headers=headers)).status_code

    assert await status("READ", server.ann) == 200
    assert await status("READ_WRITE", server.ann) == 403
    assert await status("READ", server.ben) == 404
