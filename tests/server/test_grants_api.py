"""Sandur's own API: grants with every privilege, members of groups, and the open description of how to log in."""

import asyncio

import httpx
import msgspec
import pytest

from sandur.settings import OidcSettings
from tests.server.conftest import Catalogs
from tests.server.logins import PRINCIPALS, SECURED, bearer, make_principal

GRANTS = "/api/sandur/v1/grants"
GROUPS = "/api/sandur/v1/groups"
EFFECTIVE = "/api/sandur/v1/effective-privileges"
LOGIN = "/api/sandur/v1/login"


@pytest.fixture
async def secured(catalogs: Catalogs) -> httpx.AsyncClient:
    """A server with authentication, the namespace `sales` and a table in it."""
    client = await catalogs.open_with(SECURED)
    admin = await bearer(client)
    await client.post("/v1/namespaces", json={"namespace": ["sales"]}, headers=admin)
    fields = [{"id": 1, "name": "id", "type": "long", "required": False}]
    table = {"name": "orders", "schema": {"type": "struct", "fields": fields}}
    made = await client.post("/v1/namespaces/sales/tables", json=table, headers=admin)
    assert made.status_code == 200, made.text
    return client


async def grant(client: httpx.AsyncClient, admin: dict[str, str], on: str, **change: object) -> httpx.Response:
    return await client.patch(f"{GRANTS}/{on}", json={"changes": [change]}, headers=admin)


async def test_every_privilege_is_granted_listed_and_revoked(secured: httpx.AsyncClient) -> None:
    admin = await bearer(secured)
    await make_principal(secured, admin, "etl")

    given = await grant(secured, admin, "schema/main.sales", principal="etl", add=["SELECT", "BROWSE", "MANAGE"])
    listed = await secured.get(f"{GRANTS}/schema/main.sales", headers=admin)
    taken = await grant(secured, admin, "schema/main.sales", principal="etl", remove=["SELECT", "MANAGE"])

    assert given.status_code == 200, given.text
    assert given.json() == listed.json()
    assert listed.json() == {
        "securable_type": "schema",
        "full_name": "main.sales",
        "grants": [{"principal": "etl", "privileges": ["SELECT", "BROWSE", "MANAGE"]}],
    }
    assert listed.headers["cache-control"] == "no-store"
    assert taken.json()["grants"] == [{"principal": "etl", "privileges": ["BROWSE"]}]


async def test_a_fenced_revocation_is_for_a_table(secured: httpx.AsyncClient) -> None:
    admin = await bearer(secured)
    etl = await make_principal(secured, admin, "etl")
    for on, privilege in (("catalog/main", "USE CATALOG"), ("schema/main.sales", "USE SCHEMA")):
        await grant(secured, admin, on, principal="etl", add=[privilege])
    await grant(secured, admin, "table/main.sales.orders", principal="etl", add=["SELECT"])
    allowed = await secured.get("/v1/namespaces/sales/tables/orders", headers=etl)

    body = {"changes": [{"principal": "etl", "remove": ["SELECT"]}], "fenced": True}
    taken = await secured.patch(f"{GRANTS}/table/main.sales.orders", json=body, headers=admin)
    elsewhere = await secured.patch(f"{GRANTS}/schema/main.sales", json=body, headers=admin)

    assert (allowed.status_code, taken.status_code, elsewhere.status_code) == (200, 200, 400)
    assert (await secured.get("/v1/namespaces/sales/tables/orders", headers=etl)).status_code == 404


async def test_effective_privileges_say_where_each_one_comes_from(secured: httpx.AsyncClient) -> None:
    admin = await bearer(secured)
    etl = await make_principal(secured, admin, "etl", "writers")
    await grant(secured, admin, "catalog/main", principal="writers", add=["USE CATALOG"])
    await grant(secured, admin, "schema/main.sales", principal="etl", add=["SELECT"])

    own = await secured.get(f"{EFFECTIVE}/schema/main.sales", headers=etl)
    others = await secured.get(f"{EFFECTIVE}/schema/main.sales?principal=admin", headers=etl)
    explained = await secured.get(f"{EFFECTIVE}/schema/main.sales?principal=etl", headers=admin)

    found = [tuple(one.values()) for one in own.json()["privileges"]]
    assert found == [("USE CATALOG", "catalog", "main", "writers"), ("SELECT", "schema", "main.sales", "etl")]
    assert explained.json() == own.json()
    assert others.status_code == 403


async def test_only_who_manages_a_securable_changes_its_grants(secured: httpx.AsyncClient) -> None:
    admin = await bearer(secured)
    etl = await make_principal(secured, admin, "etl")
    await grant(secured, admin, "schema/main.sales", principal="etl", add=["USE SCHEMA"])

    refused = await grant(secured, etl, "schema/main.sales", principal="etl", add=["MANAGE"])
    hidden = await grant(secured, etl, "catalog/other", principal="etl", add=["MANAGE"])
    listed = await secured.get(f"{GRANTS}/schema/main.sales", headers=etl)

    assert (refused.status_code, hidden.status_code) == (403, 404)
    assert listed.json()["grants"] == [{"principal": "etl", "privileges": ["USE SCHEMA"]}]


@pytest.mark.parametrize(
    ("on", "change", "status"),
    [
        ("planet/main", {"principal": "admin", "add": ["SELECT"]}, 400),
        ("schema/main.sales", {"principal": "admin", "add": ["ALL"]}, 400),
        ("schema/main.sales", {"principal": "", "add": ["SELECT"]}, 400),
        ("schema/main.sales", {"principal": "stranger", "add": ["SELECT"]}, 404),
        ("table/main.sales.other", {"principal": "admin", "add": ["SELECT"]}, 404),
    ],
)
async def test_a_wrong_change_of_grants_is_refused(
    secured: httpx.AsyncClient, on: str, change: dict[str, object], status: int
) -> None:
    assert (await grant(secured, await bearer(secured), on, **change)).status_code == status


async def test_without_a_token_a_client_learns_how_to_log_in(catalogs: Catalogs) -> None:
    okta = OidcSettings(issuer="https://id.example", audience="sandur", cli_client_id="cli", cli_scopes="openid x")
    other = OidcSettings(issuer="https://other.example", audience="lake", tenant="acme", groups_claim="teams")
    secured = await catalogs.open_with(msgspec.structs.replace(SECURED, oidc=(okta, other)))

    answer = await secured.get(LOGIN)

    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert answer.json() == {
        "authentication": "on",
        "issuers": [
            {"issuer": "https://id.example", "audience": "sandur", "client_id": "cli", "scopes": "openid x"},
            {
                "issuer": "https://other.example",
                "audience": "lake",
                "client_id": None,
                "scopes": "openid offline_access",
            },
        ],
    }


async def test_a_server_without_authentication_names_no_provider(catalogs: Catalogs) -> None:
    provider = OidcSettings(issuer="https://id.example", audience="sandur")
    server = await catalogs.open(oidc=(provider,))

    assert (await server.get(LOGIN)).json() == {"authentication": "off", "issuers": []}


async def test_members_that_are_added_at_the_same_time_are_all_kept(secured: httpx.AsyncClient) -> None:
    admin, names = await bearer(secured), [f"member-{number}" for number in range(6)]
    for name in names:
        await secured.post(PRINCIPALS, json={"name": name}, headers=admin)
    await secured.post(GROUPS, json={"name": "crowd", "members": names[:1]}, headers=admin)

    async def change(**members: list[str]) -> int:
        return (await secured.patch(f"{GROUPS}/crowd/members", json=members, headers=admin)).status_code

    changed = await asyncio.gather(*(change(add=[name]) for name in names[1:]), change(remove=names[:1]))

    assert set(changed) == {200}
    assert (await secured.get(f"{GROUPS}/crowd", headers=admin)).json()["members"] == names[1:]
    assert [await change(**{key: ["stranger"]}) for key in ("add", "remove")] == [404, 404]
