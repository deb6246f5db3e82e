"""Row filters and column masks: who is restricted, what a client that applies them gets, and what all others get."""

from typing import Final, NamedTuple

import httpx
import pytest

from tests.server.conftest import Catalogs
from tests.server.logins import SECURED, bearer, make_principal
from tests.server.requests import create_table, set_properties

UNITY: Final = "/api/2.1/unity-catalog"
POLICY: Final = "/api/sandur/v1/restrictions/main.sales.orders"
TABLE: Final = "/v1/main/namespaces/sales/tables/orders"
CAPABLE: Final = {"X-Sandur-Capabilities": "read-restrictions"}
RESTRICTIONS: Final = {
    "required-row-filter": {"type": "eq", "term": "text", "value": "public"},
    "required-column-projections": [{"field-id": 2, "action": "show-last-4"}],
}


class Server(NamedTuple):
    """A server with a restricted table of the administrator, which `ann` may read and write."""

    client: httpx.AsyncClient
    admin: dict[str, str]
    ann: dict[str, str]

    async def restrict(self, **fields: object) -> httpx.Response:
        return await self.client.put(POLICY, json={**RESTRICTIONS, **fields}, headers=self.admin)


@pytest.fixture
async def server(catalogs: Catalogs) -> Server:
    client = await catalogs.open_with(SECURED)
    admin = await bearer(client)
    ann = await make_principal(client, admin, "ann", "analysts")
    await client.post("/v1/main/namespaces", json={"namespace": ["sales"]}, headers=admin)
    await client.post("/v1/main/namespaces/sales/tables", json=create_table("orders"), headers=admin)
    grants = {"changes": [{"principal": "ann", "add": ["USE CATALOG", "USE SCHEMA", "SELECT", "MODIFY"]}]}
    await client.patch(f"{UNITY}/permissions/catalog/main", json=grants, headers=admin)
    made = Server(client, admin, ann)
    assert (await made.restrict()).status_code == 204
    return made


async def test_a_client_that_applies_restrictions_gets_them_with_the_table(server: Server) -> None:
    loaded = await server.client.get(TABLE, headers={**server.ann, **CAPABLE})

    assert loaded.status_code == 200
    assert loaded.json()["read-restrictions"] == RESTRICTIONS
    assert "ETag" not in loaded.headers


async def test_a_client_that_would_ignore_them_is_refused_and_learns_why(server: Server) -> None:
    for path in (TABLE, f"{UNITY}/tables/main.sales.orders"):
        refused = await server.client.get(path, headers=server.ann)
        assert refused.status_code == 403
        assert "X-Sandur-Capabilities: read-restrictions" in refused.text


async def test_nobody_who_is_restricted_gets_plans_or_credentials(server: Server) -> None:
    table = (await server.client.get(f"{UNITY}/tables/main.sales.orders", headers=server.admin)).json()["table_id"]

    for headers in (server.ann, {**server.ann, **CAPABLE}):
        plan = await server.client.post(f"{TABLE}/plan", json={}, headers=headers)
        credentials = [
            await server.client.post(
                f"{UNITY}/temporary-table-credentials",
                json={"table_id": table, "operation": operation},
                headers=headers,
            )
            for operation in ("READ", "READ_WRITE")
        ]
        assert [answer.status_code for answer in (plan, *credentials)] == [403, 403, 403]
        assert "row filters or column masks" in plan.text


async def test_the_owner_and_who_is_exempt_read_everything(server: Server) -> None:
    by_owner = await server.client.get(TABLE, headers=server.admin)
    await server.restrict(exempt=["analysts"])
    by_ann = await server.client.get(TABLE, headers=server.ann)

    for loaded in (by_owner, by_ann):
        assert loaded.status_code == 200
        assert "read-restrictions" not in loaded.json()
        assert "ETag" in loaded.headers


async def test_a_cached_table_is_not_confirmed_once_it_is_restricted(server: Server) -> None:
    await server.client.delete(POLICY, headers=server.admin)
    first = await server.client.get(TABLE, headers=server.ann)
    await server.restrict()

    headers = {**server.ann, "If-None-Match": first.headers["ETag"]}
    again = await server.client.get(TABLE, headers={**headers, **CAPABLE})
    refused = await server.client.get(TABLE, headers=headers)

    assert (again.status_code, again.json()["read-restrictions"]) == (200, RESTRICTIONS)
    assert refused.status_code == 403


async def test_writers_still_write(server: Server) -> None:
    assert (await server.client.post(TABLE, json=set_properties(a="b"), headers=server.ann)).status_code == 200


async def test_only_who_manages_a_table_sees_and_changes_its_policy(server: Server) -> None:
    shown = await server.client.get(POLICY, headers=server.admin)
    by_ann = [
        await server.client.get(POLICY, headers=server.ann),
        await server.client.put(POLICY, json=RESTRICTIONS, headers=server.ann),
        await server.client.delete(POLICY, headers=server.ann),
    ]
    removed = await server.client.delete(POLICY, headers=server.admin)

    assert shown.json() == {**RESTRICTIONS, "exempt": []}
    assert [answer.status_code for answer in by_ann] == [403, 403, 403]
    assert removed.status_code == 204
    assert (await server.client.get(POLICY, headers=server.admin)).status_code == 404
    assert (await server.client.get(TABLE, headers=server.ann)).status_code == 200


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"required-row-filter": {"type": "eq", "term": "none", "value": 1}}, 400),
        ({"required-row-filter": {"type": "nonsense"}}, 400),
        ({"required-column-projections": [{"field-id": 99, "action": "show-last-4"}]}, 400),
        ({"required-column-projections": [{"field-id": 2, "action": "nonsense"}]}, 400),
        ({"required-column-projections": [{"field-id": 2, "action": "show-last-4"}] * 2}, 400),
        ({"required-row-filter": None, "required-column-projections": []}, 400),
        ({"exempt": ["nobody"]}, 404),
    ],
)
async def test_a_policy_that_cannot_be_applied_is_refused(
    server: Server, fields: dict[str, object], status: int
) -> None:
    assert (await server.restrict(**fields)).status_code == status
    assert (await server.client.get(POLICY, headers=server.admin)).json() == {**RESTRICTIONS, "exempt": []}


async def test_a_table_that_is_created_again_is_not_restricted(server: Server) -> None:
    await server.client.delete(TABLE, headers=server.admin)
    await server.client.post("/v1/main/namespaces/sales/tables", json=create_table("orders"), headers=server.admin)

    assert (await server.client.get(TABLE, headers=server.ann)).status_code == 200  # A3
