"""What a server remembers about tokens, rights and tables: every change counts from the very next request on."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import httpx
import pytest
from msgspec.structs import replace

from sandur.clock import SystemClock
from sandur.server.serve import build
from sandur.storage import shared_reads
from sandur.storage.contract import ObjectStore
from sandur.storage.locations import connect
from sandur.storage.memory import MemoryStore
from sandur.storage.shared_reads import SharingStore
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.server.logins import PRINCIPALS, SECURED, bearer, make_principal, quiet
from tests.server.requests import create_table
from tests.server.unity.client import UNITY

T = TypeVar("T")

TABLES: Final = "/v1/namespaces/sales/tables"
ORDERS: Final = f"{TABLES}/orders"
GRANTED: Final = {"table/main.sales.orders": "SELECT", "schema/main.sales": "USE SCHEMA", "catalog/main": "USE CATALOG"}


@dataclass
class Scene:
    """Two servers on one store: `ann` reads through the first, and the administrator uses the second."""

    reader: httpx.AsyncClient
    administrator: httpx.AsyncClient

    async def read(self, path: str = ORDERS) -> int:
        return (await self.reader.get(path)).status_code

    async def change(self, method: str, path: str, body: object = None) -> dict[str, str]:
        answer = await self.administrator.request(method, path, json=body)
        assert answer.is_success, answer.text
        return dict(answer.json()) if answer.content else {}

    async def grant(self, securable: str, *, add: str = "", remove: str = "", principal: str = "ann") -> None:
        changes = [{"principal": principal, "add": [add] if add else [], "remove": [remove] if remove else []}]
        await self.change("PATCH", f"{UNITY}/permissions/{securable}", {"changes": changes})


@asynccontextmanager
async def serving(store: ObjectStore) -> AsyncIterator[httpx.AsyncClient]:
    app, catalog = build(quiet(SECURED), store=store)
    await catalog.start()
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost", timeout=60)
    async with client:
        yield client
    await catalog.close()


@pytest.fixture(params=["memory", "folder"])
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    """`ann` has read the table several times, so that everything is remembered."""
    where = "memory:" if request.param == "memory" else str(tmp_path)
    store = connect(replace(SECURED, store=where, fsync="never"), SystemClock())
    async with serving(store) as reader, serving(store) as administrator:
        admin = await bearer(administrator)
        administrator.headers.update(admin)
        made = Scene(reader, administrator)
        await made.change("POST", "/v1/namespaces", {"namespace": ["sales"]})
        await made.change("POST", TABLES, create_table("orders"))
        reader.headers.update(await make_principal(administrator, admin, "ann"))
        for securable, privilege in GRANTED.items():
            await made.grant(securable, add=privilege)
        assert [await made.read() for _ in range(4)] == [200] * 4
        yield made


async def test_a_revoked_right_ends_with_the_next_request_and_a_new_one_begins_with_it(scene: Scene) -> None:
    for securable, privilege in GRANTED.items():
        await scene.grant(securable, remove=privilege)
        assert await scene.read() in {403, 404}
        await scene.grant(securable, add=privilege)
        assert [await scene.read(), await scene.read()] == [200, 200]


async def test_a_right_through_a_group_ends_with_the_membership(scene: Scene) -> None:
    await scene.grant("table/main.sales.orders", remove="SELECT")
    await scene.change("PUT", f"{PRINCIPALS}/ann/groups", {"groups": ["analysts"]})
    await scene.grant("table/main.sales.orders", add="SELECT", principal="analysts")
    assert [await scene.read(), await scene.read()] == [200, 200]

    await scene.change("PUT", f"{PRINCIPALS}/ann/groups", {"groups": []})

    assert await scene.read() == 404


async def test_a_disabled_principal_is_refused_with_the_next_request_and_its_token_stays_invalid(scene: Scene) -> None:
    await scene.change("PATCH", f"{PRINCIPALS}/ann", {"disabled": True})
    assert await scene.read() == 401

    await scene.change("PATCH", f"{PRINCIPALS}/ann", {"disabled": False})
    assert await scene.read() == 401


async def test_a_removed_principal_is_refused_with_the_next_request(scene: Scene) -> None:
    await scene.change("DELETE", f"{PRINCIPALS}/ann")

    assert await scene.read() == 401


async def test_a_removed_api_key_is_refused_with_the_next_request(scene: Scene) -> None:
    made = await scene.change("POST", f"{PRINCIPALS}/ann/api-keys")
    scene.reader.headers["Authorization"] = f"Bearer {made['api_key']}"
    assert [await scene.read() for _ in range(3)] == [200] * 3

    await scene.change("DELETE", f"{PRINCIPALS}/ann/api-keys/{made['id']}")

    assert await scene.read() == 401


async def test_a_new_owner_has_its_rights_with_the_next_request_and_the_old_one_none(scene: Scene) -> None:
    await scene.grant("table/main.sales.orders", remove="SELECT")
    assert await scene.read() == 404
    owners = "/api/sandur/v1/owners/table/main.sales.orders"

    await scene.change("PUT", owners, {"owner": "ann"})
    assert [await scene.read(), await scene.read()] == [200, 200]
    await scene.change("PUT", owners, {"owner": "admin"})

    assert await scene.read() == 404


async def test_a_renamed_table_is_found_under_its_new_name_only_with_the_rights_of_its_new_place(scene: Scene) -> None:
    await scene.change("POST", "/v1/namespaces", {"namespace": ["hidden"]})
    here = {"namespace": ["sales"], "name": "orders"}
    there = {"namespace": ["hidden"], "name": "orders"}

    await scene.change("POST", "/v1/tables/rename", {"source": here, "destination": there})

    assert await scene.read() == 404
    assert await scene.read("/v1/namespaces/hidden/tables/orders") in {403, 404}


async def test_a_table_made_again_under_the_name_inherits_no_right(scene: Scene) -> None:
    await scene.change("DELETE", ORDERS)
    assert await scene.read() == 404

    await scene.change("POST", TABLES, create_table("orders"))

    assert await scene.read() == 404


async def test_new_row_filters_and_masks_count_for_the_next_request(scene: Scene) -> None:
    policy = {"required-row-filter": {"type": "eq", "term": "id", "value": 1}}
    await scene.change("PUT", "/api/sandur/v1/restrictions/main.sales.orders", policy)

    assert await scene.read() == 403


async def test_another_token_or_workspace_is_never_answered_with_what_is_remembered(scene: Scene) -> None:
    token = scene.reader.headers["Authorization"]
    for changed in (token[:-1], f"{token}x", token.swapcase(), "Bearer x", ""):
        answer = await scene.reader.get(ORDERS, headers={"Authorization": changed})
        assert answer.status_code == 401, changed
    elsewhere = await scene.reader.get(ORDERS, headers={"X-Sandur-Workspace": "other"})

    assert elsewhere.status_code == 403
    assert await scene.read() == 200


class HeldStore(WrappingStore):
    """Holds every call back while it is closed, and counts the reads by key."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.reads: Counter[str] = Counter()

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        self.reads[call.key] += not call.is_write
        await self.may_go.wait()
        return await perform()


async def test_principals_whose_requests_share_a_read_get_decisions_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request of the administrator reads alone. Those of `ann` and `bob` wait for it, and share the next read."""
    monkeypatch.setattr(shared_reads, "JOIN_SECONDS_MAX", 3_600.0)
    store = HeldStore()
    async with serving(SharingStore(store)) as client:
        client.headers.update(admin := await bearer(client))
        scene = Scene(client, client)
        await scene.change("POST", "/v1/namespaces", {"namespace": ["sales"]})
        await scene.change("POST", TABLES, create_table("orders"))
        ann, bob = [await make_principal(client, admin, name) for name in ("ann", "bob")]
        for securable, privilege in GRANTED.items():
            await scene.grant(securable, add=privilege)
        callers = (admin, ann, bob)
        alone = [(await client.get(ORDERS, headers=one)).status_code for one in callers * 2]
        store.reads.clear()
        store.may_go.clear()

        sent = [asyncio.create_task(client.get(ORDERS, headers=one)) for one in callers]
        for _ in range(100):
            await asyncio.sleep(0)
        begun = Counter(store.reads)
        store.may_go.set()
        answers = await asyncio.gather(*sent)

    assert [answer.status_code for answer in answers] == [200, 200, 404] == alone[3:]
    assert "metadata" in answers[1].json()
    assert "metadata" not in answers[2].json()
    assert set(begun.values()) == {1}
    assert {store.reads[key] for key in begun if "metadata" not in key} == {2}
