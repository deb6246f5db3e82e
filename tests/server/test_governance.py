"""Owner, tags, and who created and changed what: kept by the catalog and the same in both protocols."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx
import pytest

from sandur.catalog.identifiers import Namespace
from sandur.storage.contract import ObjectStore
from sandur.storage.layout import Layout
from sandur.storage.memory import MemoryStore
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.server.conftest import Catalogs
from tests.server.logins import PRINCIPALS, SECURED, bearer
from tests.server.requests import create_table, create_view, rename, set_properties
from tests.server.unity.client import UNITY

Answer = TypeVar("Answer")
TAGS = "/api/sandur/v1/tags"
T = "/v1/namespaces/ns/tables/t"
WHERE = {"catalog_name": "main", "schema_name": "ns"}


@pytest.fixture
async def client(catalogs: Catalogs) -> httpx.AsyncClient:
    client = await catalogs.open()
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})
    await client.post("/v1/namespaces/ns/tables", json=create_table("t", properties={"comment": "all orders"}))
    return client


async def tags(client: httpx.AsyncClient, where: str, **headers: str) -> dict[str, Any]:
    answer = await client.get(f"{TAGS}/{where}", headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_tags_are_set_and_removed_and_others_stay(client: httpx.AsyncClient) -> None:
    where = f"{TAGS}/table/main.ns.t"
    await client.patch(where, json={"set": {"pii": "yes", "team": "sales"}})

    changed = await client.patch(where, json={"set": {"pii": "no"}, "remove": ["team", "unknown"]})

    assert (changed.status_code, changed.json()["tags"]) == (200, {"pii": "no"})
    assert (await tags(client, "table/main.ns.t"))["tags"] == {"pii": "no"}


async def test_both_protocols_show_the_same(client: httpx.AsyncClient) -> None:
    await client.patch(f"{TAGS}/table/main.ns.t", json={"set": {"a": "b"}})

    own = await tags(client, "table/main.ns.t")
    iceberg = (await client.get(f"{T}/governance")).json()
    unity = (await client.get(f"{UNITY}/tables/main.ns.t")).json()

    assert iceberg == own
    shared = ("owner", "comment", "created_at", "created_by", "updated_at", "updated_by")
    assert {name: unity.get(name) for name in shared} == {name: own[name] for name in shared}
    assert (own["owner"], own["created_by"], own["updated_by"], own["comment"]) == (
        "anonymous",
        "anonymous",
        "anonymous",
        "all orders",
    )


async def test_a_rename_keeps_everything_but_the_last_change(client: httpx.AsyncClient) -> None:
    await client.patch(f"{TAGS}/table/main.ns.t", json={"set": {"a": "b"}})
    await client.patch(f"{TAGS}/table/main.ns.t", json={"set": {"c": "d"}, "column": "id"})
    before = await tags(client, "table/main.ns.t")

    await client.post("/v1/tables/rename", json=rename("t", "renamed"))

    after = await tags(client, "table/main.ns.renamed")
    kept = ("tags", "column_tags", "owner", "comment", "created_at", "created_by")
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert after["updated_at"] >= before["updated_at"]


async def test_a_commit_keeps_tags_and_creation(client: httpx.AsyncClient) -> None:
    await client.patch(f"{TAGS}/table/main.ns.t", json={"set": {"a": "b"}})
    before = await tags(client, "table/main.ns.t")

    await client.post(T, json=set_properties(comment="new"))

    after = await tags(client, "table/main.ns.t")
    assert (after["tags"], after["created_at"], after["comment"]) == ({"a": "b"}, before["created_at"], "new")


async def test_the_tags_of_a_column_follow_its_field(client: httpx.AsyncClient) -> None:
    where = f"{TAGS}/table/main.ns.t"
    await client.patch(where, json={"set": {"pii": "yes"}, "column": "text"})
    schema = (await client.get(T)).json()["metadata"]["schemas"][0]
    schema["fields"][1]["name"] = "words"
    updates = [{"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}]

    await client.post(T, json={"requirements": [], "updates": updates})

    found = await tags(client, "table/main.ns.t")
    assert (found["tags"], found["column_tags"]) == ({}, {"words": {"pii": "yes"}})
    assert (await client.patch(where, json={"set": {"a": "b"}, "column": "text"})).status_code == 404


async def _make_all(client: httpx.AsyncClient) -> None:
    await client.post("/v1/namespaces/ns/views", json=create_view("v"))
    delta = {
        "name": "d",
        "table_type": "EXTERNAL",
        "data_source_format": "PARQUET",
        "storage_location": "memory://store/tables/default/default/main/d",
        "columns": [{"name": "x", "type_text": "int", "type_name": "INT", "type_json": '"integer"', "position": 0}],
    }
    assert (await client.post(f"{UNITY}/tables", json={**WHERE, **delta})).status_code == 200
    await client.post(f"{UNITY}/volumes", json={**WHERE, "name": "files", "volume_type": "MANAGED"})
    await client.post(f"{UNITY}/models", json={**WHERE, "name": "m"})
    credential = {"name": "c", "purpose": "STORAGE", "aws_iam_role": {"role_arn": "arn:aws:iam::123456789012:role/r"}}
    await client.post(f"{UNITY}/credentials", json=credential)


@pytest.mark.parametrize(
    "where",
    [
        "catalog/main",
        "schema/main.ns",
        "table/main.ns.v",
        "table/main.ns.d",
        "volume/main.ns.files",
        "registered_model/main.ns.m",
        "credential/c",
    ],
)
async def test_every_securable_has_tags(client: httpx.AsyncClient, where: str) -> None:
    await _make_all(client)

    changed = await client.patch(f"{TAGS}/{where}", json={"set": {"team": "sales"}})

    assert changed.status_code == 200, changed.text
    assert (await tags(client, where))["tags"] == {"team": "sales"}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"set": {"": "x"}},
        {"set": {"k" * 128: "x"}},
        {"set": {"k": "x" * 257}},
        {"set": {"a": "b"}, "remove": ["a"]},
        {"set": {str(number): "" for number in range(51)}},
    ],
)
async def test_invalid_tags_are_refused(client: httpx.AsyncClient, change: dict[str, object]) -> None:
    answer = await client.patch(f"{TAGS}/table/main.ns.t", json=change)

    assert answer.status_code == 400
    assert (await tags(client, "table/main.ns.t"))["tags"] == {}


async def test_tags_need_the_right_to_manage_and_are_hidden_with_their_securable(catalogs: Catalogs) -> None:
    secured = await catalogs.open_with(SECURED)
    admin = await bearer(secured)
    await secured.post("/v1/main/namespaces", json={"namespace": ["ns"]}, headers=admin)
    await secured.post("/v1/main/namespaces/ns/tables", json=create_table("t"), headers=admin)
    made = (await secured.post(PRINCIPALS, json={"name": "etl"}, headers=admin)).json()
    etl = await bearer(secured, "etl", made["client_secret"])
    where, change = f"{TAGS}/table/main.ns.t", {"set": {"a": "b"}}

    hidden = [
        (await secured.get(where, headers=etl)).status_code,
        (await secured.patch(where, json=change, headers=etl)).status_code,
    ]
    grant = {"changes": [{"principal": "etl", "add": ["USE CATALOG", "USE SCHEMA", "SELECT"]}]}
    await secured.patch(f"{UNITY}/permissions/catalog/main", json=grant, headers=admin)
    shown = (await secured.get(where, headers=etl)).status_code
    refused = (await secured.patch(where, json=change, headers=etl)).status_code
    changed = (await secured.patch(where, json=change, headers=admin)).json()

    assert (hidden, shown, refused) == ([404, 404], 200, 403)
    assert (changed["tags"], changed["owner"], changed["created_by"]) == ({"a": "b"}, "admin", "admin")


class RemakingStore(WrappingStore):
    """Calls `remake` after the first read of an object; reads of it follow one another."""

    def __init__(self, inner: ObjectStore, key: str) -> None:
        super().__init__(inner)
        self._key = key
        self._lock = asyncio.Lock()
        self.remake: Callable[[], Awaitable[None]] | None = None

    async def _around(self, call: Call, perform: Callable[[], Awaitable[Answer]]) -> Answer:
        if call.key != self._key or call.is_write:
            return await perform()
        async with self._lock:
            found = await perform()
            if remake := self.remake:
                self.remake = None
                await remake()
            return found


async def test_a_schema_that_is_made_again_meanwhile_shows_nothing_of_itself(catalogs: Catalogs) -> None:
    """A4: what is shown is what was authorized, also if another one gets its name between two reads."""
    inner = MemoryStore()
    store = RemakingStore(inner, Layout("default", "default").namespace(Namespace("main", ("ns",))))
    client, other = await catalogs.open(store), await catalogs.open(inner)
    await other.post("/v1/namespaces", json={"namespace": ["ns"], "properties": {"comment": "old"}})
    await client.get(f"{TAGS}/schema/main.ns")

    async def remake() -> None:
        (await other.delete("/v1/namespaces/ns")).raise_for_status()
        made = {"namespace": ["ns"], "properties": {"comment": "of another one"}}
        (await other.post("/v1/namespaces", json=made)).raise_for_status()

    store.remake = remake
    during = await client.get(f"{TAGS}/schema/main.ns")
    after = await tags(client, "schema/main.ns")

    assert during.status_code == 404, during.text
    assert after["comment"] == "of another one"
