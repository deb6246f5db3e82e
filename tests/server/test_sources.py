"""The source of a change follows the principal that an administrator trusts, never a header."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest

from sandur.catalog.events import Source
from sandur.server.process import RunningCatalog
from sandur.server.serve import build
from sandur.storage.contract import list_all
from sandur.storage.memory import MemoryStore
from tests.server.logins import PRINCIPALS, SECURED, bearer
from tests.server.requests import create_table
from tests.server.unity.client import UNITY

DECLARED = {"X-Sandur-Run-Id": "run-1", "X-Sandur-Task-Id": "system-tables"}


class Secured:
    """A server with authentication, its store, and its administrator."""

    def __init__(self, client: httpx.AsyncClient, catalog: RunningCatalog, admin: dict[str, str]) -> None:
        self.client = client
        self.lake = catalog.lakes.lake("default", "default")
        self.admin = admin

    async def make(self, name: str, **fields: object) -> dict[str, Any]:
        made = await self.client.post(PRINCIPALS, json={"name": name, **fields}, headers=self.admin)
        assert made.status_code == 201, made.text
        await self.client.patch(
            f"{UNITY}/permissions/catalog/main",
            json={"changes": [{"principal": name, "add": ["USE CATALOG", "USE SCHEMA", "CREATE TABLE", "SELECT"]}]},
            headers=self.admin,
        )
        answer: dict[str, Any] = made.json()
        return answer

    async def login(self, made: dict[str, Any]) -> dict[str, str]:
        return await bearer(self.client, made["name"], made["client_secret"])

    async def mark(self, name: str, *, pipeline: bool) -> httpx.Response:
        return await self.client.patch(f"{PRINCIPALS}/{name}", json={"pipeline": pipeline}, headers=self.admin)

    async def create(self, name: str, headers: dict[str, str]) -> int:
        answer = await self.client.post(
            "/v1/main/namespaces/ns/tables", json=create_table(name), headers={**headers, **DECLARED}
        )
        return answer.status_code

    async def sources(self) -> list[Source]:
        """The sources of all receipts of commits, in the order of their versions' times."""
        await self.lake.background.drain(within_seconds=30)
        store = self.lake.store
        keys = [one.key for one in await list_all(store, "") if "/committed/" in one.key]
        found = [await store.get(key) for key in keys if "/catalog/committed/" not in key]
        receipts = [msgspec.json.decode(one.data) for one in found if one]
        receipts.sort(key=lambda receipt: (receipt["committed_at_ms"], receipt["event_id"]))
        return [msgspec.convert(receipt["source"], Source) for receipt in receipts]


@pytest.fixture
async def secured() -> AsyncIterator[Secured]:
    app, catalog = build(SECURED, store=MemoryStore())
    await catalog.start()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        admin = await bearer(client)
        await client.post("/v1/main/namespaces", json={"namespace": ["ns"]}, headers=admin)
        yield Secured(client, catalog, admin)
    await catalog.close()


async def test_a_header_never_makes_a_client_a_pipeline(secured: Secured) -> None:
    made = await secured.make("etl")

    status = await secured.create("t", await secured.login(made))

    (source,) = await secured.sources()
    assert status == 200
    assert (source.kind, source.principal, source.run_id, source.task_id) == ("rest", "etl", "run-1", "system-tables")


async def test_a_principal_that_is_marked_as_a_pipeline_is_one(secured: Secured) -> None:
    made = await secured.make("nightly", pipeline=True)

    status = await secured.create("t", await secured.login(made))

    (source,) = await secured.sources()
    assert (status, made["pipeline"]) == (200, True)
    assert (source.kind, source.principal, source.principal_id) == ("pipeline", "nightly", made["id"])


async def test_a_token_of_a_pipeline_does_not_outlive_its_mark(secured: Secured) -> None:
    made = await secured.make("nightly", pipeline=True)
    before = await secured.login(made)

    await secured.mark("nightly", pipeline=False)
    statuses = [await secured.create("t", before), await secured.create("t", await secured.login(made))]

    assert statuses == [401, 200]
    assert [source.kind for source in await secured.sources()] == ["rest"]


async def test_an_api_key_follows_the_mark_of_its_principal(secured: Secured) -> None:
    await secured.make("nightly")
    key = (await secured.client.post(f"{PRINCIPALS}/nightly/api-keys", headers=secured.admin)).json()["api_key"]
    headers = {"Authorization": f"Bearer {key}"}

    statuses = [await secured.create("a", headers)]
    await secured.mark("nightly", pipeline=True)
    await secured.client.get("/v1/config", headers=headers)
    statuses.append(await secured.create("b", headers))
    await secured.mark("nightly", pipeline=False)
    statuses += [await secured.create("c", headers), await secured.create("c", headers)]

    assert statuses == [200, 200, 401, 200]
    assert [source.kind for source in await secured.sources()] == ["rest", "pipeline", "rest"]


async def test_the_first_version_of_a_delta_table_has_the_whole_source_of_its_creation(secured: Secured) -> None:
    made = await secured.make("nightly", pipeline=True)
    headers = await secured.login(made)
    where = {"catalog_name": "main", "schema_name": "ns", "name": "d"}
    staged = (await secured.client.post(f"{UNITY}/staging-tables", json=where, headers=headers)).json()
    body = {
        **where,
        "table_type": "MANAGED",
        "data_source_format": "DELTA",
        "columns": [],
        "properties": {"io.unitycatalog.tableId": staged["id"]},
        "storage_location": staged["staging_location"],
    }

    created = await secured.client.post(f"{UNITY}/tables", json=body, headers={**headers, **DECLARED})

    assert created.status_code == 200, created.text
    (source,) = await secured.sources()
    assert (source.kind, source.principal, source.run_id) == ("pipeline", "nightly", "run-1")


@pytest.mark.parametrize(
    ("change", "status"), [({}, 400), ({"pipeline": True}, 200), ({"pipeline": False, "disabled": True}, 200)]
)
async def test_a_change_of_a_principal_names_what_it_changes(
    secured: Secured, change: dict[str, bool], status: int
) -> None:
    await secured.make("etl", pipeline=True)

    changed = await secured.client.patch(f"{PRINCIPALS}/etl", json=change, headers=secured.admin)

    assert changed.status_code == status
    if status == 200:
        assert changed.json()["pipeline"] is change["pipeline"]
        assert changed.json()["disabled"] is change.get("disabled", False)


async def test_a_user_is_never_a_pipeline(secured: Secured) -> None:
    body = {"name": "ann@example.org", "kind": "user"}

    refused = await secured.client.post(PRINCIPALS, json={**body, "pipeline": True}, headers=secured.admin)
    await secured.client.post(PRINCIPALS, json=body, headers=secured.admin)
    marked = await secured.mark("ann@example.org", pipeline=True)

    assert (refused.status_code, marked.status_code) == (400, 400)
