"""A hidden object costs as many rounds of storage calls as a missing one, so that the time reveals little."""

import httpx
import pytest

from sandur.storage.memory import MemoryStore
from tests.authorization.names import Sent
from tests.fakes.spy_store import SpyStore
from tests.server.conftest import Catalogs
from tests.server.logins import SECURED, bearer, make_principal, quiet
from tests.server.requests import create_table, create_view
from tests.server.unity.client import UNITY

DELTA = f"{UNITY}/delta/v1/catalogs/main/schemas/sales/tables"
REQUESTS = [
    Sent("GET", "/v1/main/namespaces/sales/tables/orders"),
    Sent("HEAD", "/v1/main/namespaces/sales/tables/orders"),
    Sent("GET", "/v1/main/namespaces/sales/views/orders"),
    Sent("GET", f"{UNITY}/tables/main.sales.orders"),
    Sent("GET", f"{DELTA}/orders"),
    Sent("HEAD", f"{DELTA}/orders"),
]
# A name that exists leads to a record, which is read in the same round; a load may check its version again.
MORE_CALLS_MAX = 2


@pytest.fixture
async def spied(catalogs: Catalogs) -> tuple[httpx.AsyncClient, SpyStore, dict[str, str]]:
    store = SpyStore(MemoryStore())
    client = await catalogs.open_with(quiet(SECURED), store)
    admin = await bearer(client)
    ann = await make_principal(client, admin, "ann")
    for path, body in (
        ("/v1/main/namespaces", {"namespace": ["sales"]}),
        ("/v1/main/namespaces/sales/tables", create_table("orders")),
        ("/v1/main/namespaces/sales/views", create_view("recent")),
    ):
        assert (await client.post(path, json=body, headers=admin)).status_code == 200
    use = {"changes": [{"principal": "ann", "add": ["USE CATALOG", "USE SCHEMA"]}]}
    assert (await client.patch(f"{UNITY}/permissions/catalog/main", json=use, headers=admin)).status_code == 200
    await catalogs.settled()  # What follows the answers is not counted below.
    return client, store, ann


@pytest.mark.parametrize("sent", REQUESTS, ids=lambda sent: f"{sent.method} {sent.path}")
async def test_a_hidden_object_costs_as_many_rounds_as_a_missing_one(
    spied: tuple[httpx.AsyncClient, SpyStore, dict[str, str]], sent: Sent
) -> None:
    client, store, ann = spied
    calls, rounds = {}, {}
    for name in ("orders", "zzzz"):
        twin = sent.with_names({"orders": name})
        await twin.by(client, ann)  # Warms the caches.
        store.reset()
        assert (await twin.by(client, ann)).status_code == 404
        calls[name], rounds[name] = list(store.calls), store.rounds

    assert rounds["orders"] == rounds["zzzz"]
    assert 0 <= len(calls["orders"]) - len(calls["zzzz"]) <= MORE_CALLS_MAX, calls
