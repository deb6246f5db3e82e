"""Attacks on the grants over HTTP: replays, plans, renames, revocations, and what is created again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest
from msgspec.structs import replace

from sandur.storage.memory import MemoryStore
from tests.authorization.scene import CREATION
from tests.server.conftest import Catalogs
from tests.server.logins import ADMIN_SECRET, PRINCIPALS, SECURED, bearer, make_principal
from tests.server.requests import create_table, create_view, set_properties
from tests.server.unity.client import CONTROL, UNITY

NAMESPACE: Final = "/v1/main/namespaces/sales"
TABLE: Final = f"{NAMESPACE}/tables/orders"
KEY: Final = "0197f22e-79b0-7cc3-98c4-dc0c0c07398f"
USE: Final = ("USE CATALOG", "USE SCHEMA")


@dataclass(frozen=True)
class Server:
    """A server with the table `main.sales.orders` of the administrator, and two principals without rights."""

    http: httpx.AsyncClient
    tokens: dict[str, dict[str, str]]
    catalogs: Catalogs

    async def send(
        self, who: str, method: str, path: str, body: Any = None, *, key: str = "", **headers: str
    ) -> httpx.Response:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        keyed = {"Idempotency-Key": key} if key else {}
        answer = await self.http.request(method, path, json=body, headers={**self.tokens[who], **keyed, **named})
        await self.catalogs.settled()  # Until the end of its claim, a key is refused as active.
        return answer

    async def status(self, who: str, method: str, path: str, body: Any = None, **headers: str) -> int:
        return (await self.send(who, method, path, body, **headers)).status_code

    async def change_grants(self, who: str, on: str, subject: str, *add: str, remove: tuple[str, ...] = ()) -> int:
        change = {"changes": [{"principal": subject, "add": list(add), "remove": list(remove)}]}
        return await self.status(who, "PATCH", f"{UNITY}/permissions/{on}", change)

    async def grant(self, on: str, subject: str, *privileges: str) -> None:
        assert await self.change_grants("admin", on, subject, *privileges) == 200

    async def revoke(self, on: str, subject: str, *privileges: str) -> None:
        assert await self.change_grants("admin", on, subject, remove=privileges) == 200


@asynccontextmanager
async def opened(catalogs: Catalogs) -> AsyncIterator[Server]:
    http = await catalogs.open_with(SECURED)
    admin = await bearer(http)
    server = Server(http, {"admin": admin}, catalogs)
    for name in ("ann", "ben"):
        server.tokens[name] = await make_principal(http, admin, name)
    for level in ("sales", "hr"):
        assert await server.status("admin", "POST", "/v1/main/namespaces", {"namespace": [level]}) == 200
    assert await server.status("admin", "POST", f"{NAMESPACE}/tables", create_table("orders")) == 200
    yield server


@pytest.fixture
async def server(catalogs: Catalogs) -> AsyncIterator[Server]:
    async with opened(catalogs) as made:
        yield made


async def manage(server: Server, *names: str) -> None:
    """Rights to create and to change everything in the schema."""
    for name in names:
        await server.grant("catalog/main", name, "USE CATALOG")
        await server.grant("schema/main.sales", name, "USE SCHEMA", "CREATE TABLE", "SELECT", "MODIFY")


MUTATIONS: Final = {
    "create table": ("POST", f"{NAMESPACE}/tables", create_table("new")),
    "commit": ("POST", TABLE, set_properties(k="v")),
    "create view": ("POST", f"{NAMESPACE}/views", create_view("shown")),
    "transaction": (
        "POST",
        "/v1/main/transactions/commit",
        {"table-changes": [{"identifier": {"namespace": ["sales"], "name": "orders"}, **set_properties(k="v")}]},
    ),
    "create namespace": ("POST", "/v1/main/namespaces", {"namespace": ["new"]}),
    "create volume": (
        "POST",
        f"{UNITY}/volumes",
        {"catalog_name": "main", "schema_name": "sales", "name": "new", "volume_type": "MANAGED"},
    ),
    "create model": ("POST", f"{UNITY}/models", {"catalog_name": "main", "schema_name": "sales", "name": "new"}),
    "create credential": ("POST", f"{UNITY}/credentials", {"name": "new"}),
    "create catalog": ("POST", f"{UNITY}/catalogs", {"name": "new"}),
    "create schema": ("POST", f"{UNITY}/schemas", {"catalog_name": "main", "name": "new"}),
    "create user": ("POST", f"{CONTROL}/scim2/Users", {"emails": [{"value": "new@example.org"}]}),
    "create principal": ("POST", PRINCIPALS, {"name": "new"}),
}


@pytest.mark.parametrize("name", MUTATIONS)
async def test_the_key_of_another_principal_opens_nothing(server: Server, name: str) -> None:
    """Attack 9: the answer to a request is not for others who learn its key."""
    first = await server.send("admin", *MUTATIONS[name], key=KEY)
    stolen = await server.send("ann", *MUTATIONS[name], key=KEY)
    unused = await server.send("ann", *MUTATIONS[name], key=KEY.replace("0197", "0198"))

    assert first.is_success
    assert stolen.status_code in {403, 404}
    assert (stolen.status_code, stolen.text) == (unused.status_code, unused.text)


async def test_the_key_of_another_principal_opens_nothing_after_the_drop(server: Server) -> None:
    drop = ("DELETE", TABLE, None)
    assert (await server.send("admin", *MUTATIONS["commit"], key=KEY)).is_success
    assert (await server.send("admin", *drop, key=KEY.replace("7cc3", "7cc4"))).is_success

    for path, key in ((MUTATIONS["commit"], KEY), (drop, KEY.replace("7cc3", "7cc4"))):
        stolen = await server.send("ann", *path, key=key)
        assert (stolen.status_code, "orders" in stolen.text) == (404, True)


RIGHTS: Final = {
    "create table": ("schema/main.sales", "CREATE TABLE"),
    "commit": ("schema/main.sales", "MODIFY"),
    "create view": ("schema/main.sales", "CREATE TABLE"),
    "transaction": ("schema/main.sales", "MODIFY"),
    "create namespace": ("catalog/main", "CREATE SCHEMA"),
    "create schema": ("catalog/main", "CREATE SCHEMA"),
    "create volume": ("schema/main.sales", "CREATE VOLUME"),
    "create model": ("schema/main.sales", "CREATE MODEL"),
    "create credential": ("metastore/metastore", "CREATE STORAGE CREDENTIAL"),
    "create catalog": ("metastore/metastore", "CREATE CATALOG"),
}


@pytest.mark.parametrize("name", RIGHTS)
async def test_a_replay_after_a_revocation_is_refused(server: Server, name: str) -> None:
    """A9: a replay is authorized as the first request was; who made the object still owns it, but may not create."""
    on, privilege = RIGHTS[name]
    await server.grant("catalog/main", "ann", *USE)
    await server.grant(on, "ann", privilege)
    first = await server.send("ann", *MUTATIONS[name], key=KEY)
    replayed = await server.send("ann", *MUTATIONS[name], key=KEY)
    await server.revoke(on, "ann", privilege)

    refused = await server.send("ann", *MUTATIONS[name], key=KEY)
    unused = await server.send("ann", *MUTATIONS[name], key=KEY.replace("0197", "0198"))

    assert first.is_success, first.text
    assert (replayed.status_code, replayed.text) == (first.status_code, first.text)
    assert refused.status_code in {403, 404}, refused.text
    assert (refused.status_code, refused.text) == (unused.status_code, unused.text)


RENAMED: Final = {
    "source": {"namespace": ["sales"], "name": "mine"},
    "destination": {"namespace": ["sales"], "name": "other"},
}
REMOVALS: Final = {
    "drop table": ("DELETE", f"{NAMESPACE}/tables/mine", None),
    "drop table in Unity": ("DELETE", f"{UNITY}/tables/main.sales.mine", None),
    "rename": ("POST", "/v1/main/tables/rename", RENAMED),
    "drop volume": ("DELETE", f"{UNITY}/volumes/main.sales.files", None),
    "rename volume": ("PATCH", f"{UNITY}/volumes/main.sales.files", {"new_name": "other"}),
    "drop namespace": ("DELETE", "/v1/main/namespaces/own", None),
    "drop schema": ("DELETE", f"{UNITY}/schemas/main.own", None),
    "drop model": ("DELETE", f"{UNITY}/models/main.sales.churn", None),
}


@pytest.mark.parametrize("name", REMOVALS)
async def test_the_replay_of_a_removal_after_a_revocation_is_refused(server: Server, name: str) -> None:
    """A9: the owner of what was removed still needs the use of the containers."""
    rights = (*USE, "CREATE TABLE", "CREATE SCHEMA", "CREATE VOLUME", "CREATE MODEL")
    await server.grant("catalog/main", "ann", *rights)
    in_sales = {"catalog_name": "main", "schema_name": "sales"}
    for path, body in (
        (f"{NAMESPACE}/tables", create_table("mine")),
        ("/v1/main/namespaces", {"namespace": ["own"]}),
        (f"{UNITY}/volumes", {**in_sales, "name": "files", "volume_type": "MANAGED"}),
        (f"{UNITY}/models", {**in_sales, "name": "churn"}),
    ):
        assert await server.status("ann", "POST", path, body) == 200
    first = await server.send("ann", *REMOVALS[name], key=KEY)
    replayed = await server.send("ann", *REMOVALS[name], key=KEY)
    await server.revoke("catalog/main", "ann", *rights)

    refused = await server.send("ann", *REMOVALS[name], key=KEY)

    assert first.is_success, first.text
    assert (replayed.status_code, replayed.text) == (first.status_code, first.text)
    assert refused.status_code in {403, 404}, refused.text


async def test_a_plan_of_another_principal_does_not_exist(server: Server) -> None:
    """Attack 10, and its variant: the own plan after the right was revoked."""
    await manage(server, "ann", "ben")
    plan = await server.send("ann", "POST", f"{TABLE}/plan", {})
    assert plan.status_code == 200, plan.text
    path = f"{TABLE}/plan/{plan.json()['plan-id']}"
    assert await server.status("ann", "GET", path) == 200

    foreign = [await server.send("ben", method, path) for method in ("GET", "DELETE")]
    absent = [await server.send("ben", method, f"{TABLE}/plan/zzzz") for method in ("GET", "DELETE")]
    await server.revoke("schema/main.sales", "ann", "SELECT", "MODIFY")

    assert [one.status_code for one in foreign] == [one.status_code for one in absent]
    assert foreign[0].status_code == 404
    assert await server.status("ann", "GET", path) == 404
    assert await server.status("ann", "POST", f"{TABLE}/tasks", {"plan-task": "x"}) == 404


async def test_a_renamed_table_has_the_grants_of_its_new_parent(server: Server) -> None:
    """Attack 24: the grants of the old parent end with the rename, and those on the table itself stay."""
    await server.grant("catalog/main", "ann", *USE)
    await server.grant("schema/main.sales", "ann", "SELECT")
    await server.grant("catalog/main", "ben", *USE)
    await server.grant("table/main.sales.orders", "ben", "SELECT")
    moved = {
        "source": {"namespace": ["sales"], "name": "orders"},
        "destination": {"namespace": ["hr"], "name": "orders"},
    }
    assert await server.status("ann", "GET", TABLE) == 200

    assert await server.status("admin", "POST", "/v1/main/tables/rename", moved) == 204

    there = "/v1/main/namespaces/hr/tables/orders"
    for path in (there, TABLE, f"{UNITY}/tables/main.hr.orders"):
        assert await server.status("ann", "GET", path) == 404
    assert await server.status("ben", "GET", there) == 200
    await server.grant("schema/main.hr", "ann", "SELECT")
    assert await server.status("ann", "GET", there) == 200


async def test_an_unchanged_table_is_not_confirmed_to_who_may_not_load_it(server: Server) -> None:
    await server.grant("catalog/main", "ann", *USE)
    await server.grant("schema/main.sales", "ann", "SELECT")
    etag = (await server.send("ann", "GET", TABLE)).headers["etag"]

    cached = await server.send("ann", "GET", TABLE, If_None_Match=etag)
    foreign = await server.send("ben", "GET", TABLE, If_None_Match=etag)
    await server.revoke("schema/main.sales", "ann", "SELECT")
    revoked = await server.send("ann", "GET", TABLE, If_None_Match=etag)

    assert (cached.status_code, foreign.status_code, revoked.status_code) == (304, 404, 404)
    assert "etag" not in foreign.headers
    assert "etag" not in revoked.headers


@pytest.mark.parametrize("header", ["X-Sandur-Tenant", "X-Sandur-Workspace"])
async def test_a_header_leads_to_no_other_tenant(server: Server, header: str) -> None:
    before = await server.send("admin", "GET", "/v1/main/namespaces")

    for path in ("/v1/main/namespaces", TABLE, f"{UNITY}/catalogs", PRINCIPALS):
        assert await server.status("admin", "GET", path, **{header: "other"}) == 403

    assert (await server.send("admin", "GET", "/v1/main/namespaces")).json() == before.json()


async def test_only_who_manages_an_object_grants_on_it(server: Server) -> None:
    await server.grant("catalog/main", "ann", *USE)
    await server.grant("schema/main.sales", "ann", "SELECT", "MODIFY", "CREATE TABLE")

    for subject in ("ann", "ben"):
        assert await server.change_grants("ann", "table/main.sales.orders", subject, "SELECT") == 403
        assert await server.change_grants("ann", "catalog/main", subject, "CREATE SCHEMA") == 403
        assert await server.change_grants("ann", "metastore/metastore", subject, "CREATE CATALOG") == 403
        for hidden in ("table/main.sales.orders", "schema/main.sales", "catalog/main"):
            missing = hidden.replace("orders", "zz").replace("sales", "zz") if "." in hidden else "catalog/zz"
            assert await server.change_grants("ben", hidden, subject, "SELECT") == 404
            assert await server.change_grants("ben", missing, subject, "SELECT") == 404
    assert await server.status("ann", "POST", f"{NAMESPACE}/tables", create_table("mine")) == 200
    assert await server.change_grants("ann", "table/main.sales.mine", "ben", "SELECT") == 200
    assert await server.status("ben", "GET", TABLE) == 404


async def test_a_member_has_the_rights_of_its_group_until_it_leaves(server: Server) -> None:
    groups, admin = f"{PRINCIPALS}/ann/groups", server.tokens["admin"]
    await server.http.put(groups, json=["readers"], headers=admin)
    await server.grant("catalog/main", "readers", *USE, "SELECT")
    inside = await server.status("ann", "GET", TABLE)
    await server.http.put(groups, json=[], headers=admin)
    outside = await server.status("ann", "GET", TABLE)
    refused = await server.http.put(groups, json=["readers"], headers=server.tokens["ann"])

    assert (inside, outside, refused.status_code) == (200, 404, 403)
    assert await server.status("ann", "GET", TABLE) == 404


async def test_a_disabled_principal_may_nothing_and_enabled_again_the_same_as_before(server: Server) -> None:
    await manage(server, "ann")
    key = (await server.send("ann", "POST", f"{PRINCIPALS}/ann/api-keys")).json()["api_key"]
    server.tokens["key"] = {"Authorization": f"Bearer {key}"}

    await server.send("admin", "PATCH", f"{PRINCIPALS}/ann", {"disabled": True})
    disabled = [await server.status(who, *request) for who in ("ann", "key") for request in MUTATIONS.values()]
    await server.send("admin", "PATCH", f"{PRINCIPALS}/ann", {"disabled": False})

    assert set(disabled) == {401}
    assert await server.status("key", "GET", TABLE) == 200


async def test_a_removed_principal_reads_no_metrics(server: Server) -> None:
    """Nothing else of the page is decided by the grants, so nothing else would notice."""
    key = (await server.send("admin", "POST", f"{PRINCIPALS}/ann/api-keys")).json()["api_key"]
    server.tokens["key"] = {"Authorization": f"Bearer {key}"}
    before = [await server.status(who, "GET", "/metrics") for who in ("ann", "key")]
    await server.send("admin", "DELETE", f"{PRINCIPALS}/ann")

    after = [await server.status(who, "GET", "/metrics") for who in ("ann", "key")]

    assert (before, after) == ([200, 200], [401, 401])
    assert await server.status("ben", "GET", "/metrics") == 200


async def test_what_is_created_again_inherits_no_grant(server: Server) -> None:
    """A3: grants name ids, not names."""
    await server.grant("catalog/main", "ann", *USE)
    await server.grant("table/main.sales.orders", "ann", "SELECT")
    await server.grant("schema/main.hr", "ann", "CREATE TABLE")
    await server.grant("table/main.sales.orders", "ben", "SELECT")
    await server.grant("catalog/main", "ben", *USE)

    for method, path, body in (
        ("DELETE", TABLE, None),
        ("POST", f"{NAMESPACE}/tables", create_table("orders")),
        ("DELETE", "/v1/main/namespaces/hr", None),
        ("POST", "/v1/main/namespaces", {"namespace": ["hr"]}),
    ):
        assert (await server.send("admin", method, path, body)).is_success

    assert await server.status("ann", "GET", TABLE) == 404
    assert await server.status("ann", "POST", "/v1/main/namespaces/hr/tables", create_table("t")) == 403
    await server.grant("table/main.sales.orders", "ben", "SELECT")
    assert await server.status("ben", "GET", TABLE) == 200
    assert await server.status("admin", "DELETE", f"{PRINCIPALS}/ben") == 204
    server.tokens["ben"] = await make_principal(server.http, server.tokens["admin"], "ben")
    assert await server.status("ben", "GET", TABLE) == 404


async def test_a_transaction_with_one_denied_table_changes_nothing(server: Server) -> None:
    await manage(server, "ann")
    await server.send("admin", "POST", "/v1/main/namespaces/hr/tables", create_table("people"))
    changes = [
        {"identifier": {"namespace": [level], "name": name}, **set_properties(k="v")}
        for level, name in (("sales", "orders"), ("hr", "people"))
    ]

    for ordered in (changes, changes[::-1]):
        body = {"table-changes": ordered}
        assert await server.status("ann", "POST", "/v1/main/transactions/commit", body) in {403, 404}

    assert "k" not in (await server.send("admin", "GET", TABLE)).json()["metadata"]["properties"]


async def test_a_stage_gives_no_right(server: Server) -> None:
    """Who learns of a staged create cannot finish it without the right, and its maker not after a revocation."""
    await manage(server, "ann")
    staged = await server.send("ann", "POST", f"{NAMESPACE}/tables", create_table("new", stage_create=True))
    assigned = {"action": "assign-uuid", "uuid": staged.json()["metadata"]["table-uuid"]}
    finish = {**CREATION, "updates": [assigned, *CREATION["updates"][1:]]}
    delta = f"{UNITY}/delta/v1/catalogs/main/schemas/sales/staging-tables"
    stage = (await server.send("ann", "POST", delta, {"name": "events"})).json()
    credentials = f"{UNITY}/delta/v1/staging-tables/{stage['table-id']}/credentials"
    assert await server.status("ann", "GET", credentials) == 200
    await manage(server, "ben")
    assert await server.status("ben", "GET", credentials) == 404
    await server.revoke("schema/main.sales", "ann", "CREATE TABLE")

    assert await server.status("ann", "GET", credentials) in {403, 404}
    assert await server.status("ann", "POST", f"{NAMESPACE}/tables/new", finish) == 403
    assert await server.status("admin", "GET", f"{NAMESPACE}/tables/new") == 404


async def test_pages_are_full_after_filtering_and_tokens_carry_no_right(server: Server) -> None:
    names = [f"t{number:02}" for number in range(12)]
    for name in names:
        await server.send("admin", "POST", f"{NAMESPACE}/tables", create_table(name))
    await server.grant("catalog/main", "ann", *USE)
    for name in names[::3]:
        await server.grant(f"table/main.sales.{name}", "ann", "SELECT")

    first = (await server.send("ann", "GET", f"{NAMESPACE}/tables?pageToken=&pageSize=2")).json()
    token = first["next-page-token"]
    second = (await server.send("ann", "GET", f"{NAMESPACE}/tables?pageSize=2&pageToken={token}")).json()
    all_tables = (await server.send("admin", "GET", f"{NAMESPACE}/tables?pageToken=&pageSize=2")).json()
    stolen = await server.send("ann", "GET", f"{NAMESPACE}/tables?pageToken={all_tables['next-page-token']}")
    foreign = await server.send("ben", "GET", f"{NAMESPACE}/tables?pageToken={token}")

    assert [[one["name"] for one in page["identifiers"]] for page in (first, second)] == [names[:4:3], names[6::3]]
    assert {one["name"] for one in stolen.json().get("identifiers", [])} <= set(names[::3])
    assert foreign.status_code == 404


async def test_a_taken_name_is_revealed_only_to_who_may_create(server: Server) -> None:
    """That a name is taken can be no secret to who creates there; everyone else gets the answer of a free name."""
    await server.grant("catalog/main", "ben", *USE)
    await server.grant("catalog/main", "ann", *USE)
    await server.grant("schema/main.sales", "ann", "CREATE TABLE")
    creator, others = [
        [await server.send(who, "POST", f"{NAMESPACE}/tables", create_table(name)) for name in ("orders", "absent")]
        for who in ("ann", "ben")
    ]
    renames = [
        await server.send(
            "ben",
            "POST",
            "/v1/main/tables/rename",
            {
                "source": {"namespace": ["sales"], "name": "absent"},
                "destination": {"namespace": ["sales"], "name": name},
            },
        )
        for name in ("orders", "free")
    ]

    assert [one.status_code for one in creator] == [409, 200]
    assert [one.status_code for one in others] == [403, 403]
    assert others[0].text == others[1].text
    assert (renames[0].status_code, renames[0].text) == (renames[1].status_code, renames[1].text)


async def test_authentication_switched_on_over_an_existing_store_opens_it_to_the_administrator_only(
    catalogs: Catalogs,
) -> None:
    store = MemoryStore()
    before = await catalogs.open_with(replace(SECURED, authentication="off"), store)
    await before.post("/v1/main/namespaces", json={"namespace": ["sales"]})
    await before.post(f"{NAMESPACE}/tables", json=create_table("orders"))
    await before.post(f"{CONTROL}/scim2/Users", json={"emails": [{"value": "old@example.org"}]})

    after = await catalogs.open_with(SECURED, store)
    admin = await bearer(after, "admin", ADMIN_SECRET)
    ann = await make_principal(after, admin, "ann")

    assert (await after.get(TABLE)).status_code == 401
    assert (await after.get(TABLE, headers=ann)).status_code == 404
    assert (await after.get("/v1/main/namespaces", headers=ann)).status_code == 404
    assert (await after.get(f"{UNITY}/catalogs", headers=ann)).json()["catalogs"] == []
    assert (await after.get(TABLE, headers=admin)).status_code == 200
    assert (await after.post(TABLE, json=set_properties(k="v"), headers=admin)).status_code == 200
    users = (await after.get(f"{CONTROL}/scim2/Users", headers=admin)).json()["Resources"]
    assert [one["emails"][0]["value"] for one in users] == ["old@example.org"]
    assert (await after.delete(TABLE, headers=admin)).status_code == 204


async def test_a_workspace_without_principals_is_closed(server: Server) -> None:
    other = {"X-Sandur-Workspace": "other"}

    statuses = {await server.status(who, "GET", "/v1/main/namespaces", **other) for who in ("admin", "ann")}

    assert statuses == {403}
    form = {"grant_type": "client_credentials", "client_id": "admin", "client_secret": ADMIN_SECRET}
    assert (await server.http.post("/v1/oauth/tokens", data=form, headers=other)).status_code == 401
