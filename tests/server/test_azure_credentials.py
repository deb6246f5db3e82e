"""Iceberg tables on an Azure account without a hierarchical namespace: no credential, and the reason."""

import httpx
import msgspec

from sandur.clock import SystemClock
from sandur.settings import Settings
from tests.server.conftest import Catalogs
from tests.server.requests import create_table
from tests.servers.azurite import ACCOUNT, ACCOUNT_KEY, CONTAINER

DELEGATION = {"X-Iceberg-Access-Delegation": "vended-credentials"}


async def on_azurite(catalogs: Catalogs, settings: Settings) -> httpx.AsyncClient:
    azure = msgspec.structs.replace(settings.azure, access="vend", hierarchical=True)
    store = f"abfss://{CONTAINER}@{ACCOUNT}.dfs.core.windows.net/{SystemClock().new_id()}"
    return await catalogs.open_with(Settings(store=store, log_level="error", azure=azure))


async def test_a_table_of_a_flat_account_is_loaded_without_a_credential(
    catalogs: Catalogs, azurite_settings: Settings
) -> None:
    client = await on_azurite(catalogs, azurite_settings)
    await client.post("/v1/main/namespaces", json={"namespace": ["s"]})
    await client.post("/v1/main/namespaces/s/tables", json=create_table("t"))

    loaded = await client.get("/v1/main/namespaces/s/tables/t", headers=DELEGATION)
    refused = await client.get("/v1/main/namespaces/s/tables/t/credentials")

    assert loaded.status_code == 200
    assert "sas-token" not in loaded.text
    assert refused.status_code == 501
    assert "opens the whole container" in refused.json()["error"]["message"]
    assert ACCOUNT_KEY not in loaded.text + refused.text
