"""Attacks on the grants over HTTP: replays, plans, renames, revocations, and what is created again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest

from tests.server.conftest import Catalogs
from tests.server.logins import PRINCIPALS, SECURED, bearer, make_principal
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

    async def send(
        self, who: str, method: str, path: str, body: Any = None, *, key: str = "", **headers: str
    ) -> httpx.Response:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        keyed = {"Idempotency-Key": key} if key else {}
        return await self.http.request(method, path, json=body, headers={**self.tokens[who], **keyed, **named})

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
    server = Server(http, {"admin": admin})
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
