"""Credentials for Google Cloud Storage and Azure over Unity Catalog's API and the Delta API."""

from urllib.parse import parse_qs

import msgspec
import obstore
import pytest
from obstore.exceptions import PermissionDeniedError

from sandur.clock import SystemClock
from sandur.operations.credentials.sealed_secrets import new_sealing_key
from sandur.settings import Settings
from tests.credentials.gcs_client import gcs_client
from tests.credentials.scripted_issuer import Answer, scripted_issuer
from tests.server.conftest import Catalogs
from tests.server.unity.client import Json, Unity, code
from tests.server.unity.delta_requests import SCHEMA, creation, staged
from tests.servers.azurite import ACCOUNT, ACCOUNT_KEY
from tests.servers.gcs import BUCKET, TOKEN

HIERARCHICAL = Answer(headers={"x-ms-is-hns-enabled": "true"})
HOST = f"{ACCOUNT}.dfs.core.windows.net"


async def on_gcs(catalogs: Catalogs, settings: Settings, store: str, **gcs: str) -> Unity:
    chosen = msgspec.structs.replace(settings.gcs, **{"access": "vend", **gcs})
    return Unity(await catalogs.open_with(Settings(store=store, log_level="error", gcs=chosen)))


@pytest.fixture
def store() -> str:
    return f"gs://{BUCKET}/{SystemClock().new_id()}"


@pytest.fixture
async def vending(catalogs: Catalogs, gcs_settings: Settings, store: str) -> Unity:
    unity = await on_gcs(catalogs, gcs_settings, store)
    await unity.made("/schemas", {"catalog_name": "main", "name": "s"})
    return unity


async def delta_table(unity: Unity, name: str) -> Json:
    stage = await staged(unity, name)
    await unity.made(f"{SCHEMA}/tables", creation(stage, name))
    return stage


def key_of(location: str, name: str) -> str:
    return f"{location.removeprefix(f'gs://{BUCKET}/')}/{name}"


@pytest.mark.parametrize("api", ["Unity Catalog", "Delta"])
async def test_a_token_opens_its_delta_table_and_no_neighbour(vending: Unity, gcs_settings: Settings, api: str) -> None:
    one, other = await delta_table(vending, "one"), await delta_table(vending, "other")

    if api == "Delta":
        answer = (await vending.get(f"{SCHEMA}/tables/one/credentials", operation="READ_WRITE")).json()
        [entry] = answer["storage-credentials"]
        token = entry["config"]["gcs.oauth-token"]
    else:
        body = {"table_id": one["table-id"], "operation": "READ_WRITE"}
        answer = await vending.made("/temporary-table-credentials", body)
        assert set(answer) == {"gcp_oauth_token", "expiration_time", "url"}
        token = answer["gcp_oauth_token"]["oauth_token"]

    store = gcs_client(gcs_settings, token)
    await obstore.put_async(store, key_of(one["location"], "part-0.parquet"), b"rows")
    assert token != TOKEN
    for place in (other["location"], f"{one['location']}-x"):
        with pytest.raises(PermissionDeniedError):
            await obstore.put_async(store, key_of(place, "part-0.parquet"), b"rows")


async def test_a_service_that_refuses_is_503_for_credentials_only(
    catalogs: Catalogs, gcs_settings: Settings, store: str, vending: Unity
) -> None:
    stage = await delta_table(vending, "one")
    with scripted_issuer(Answer(403, f'{{"error":"access_denied","error_description":"{TOKEN}"}}'.encode())) as script:
        unity = await on_gcs(catalogs, gcs_settings, store, sts_endpoint=script.url)

        answer = await unity.post("/temporary-table-credentials", {"table_id": stage["table-id"], "operation": "READ"})

    assert code(answer) == (503, "UNAVAILABLE")
    assert "refuses: 403 access_denied" in answer.json()["message"]
    assert TOKEN not in answer.text
    assert (await unity.get("/tables/main.s.one")).status_code == 200


async def on_azure(catalogs: Catalogs, endpoint: str) -> Unity:
    """A server with an external location on Azure, whose credential has the key of the account."""
    root = f"abfss://data@{HOST}/lake"
    unity = Unity(await catalogs.open(allowed_locations=(root,), sealing_keys=(new_sealing_key(),)))
    storage = {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY, "endpoint": endpoint}
    await unity.made("/credentials", {"name": "k", "storage": storage})
    await unity.made("/external-locations", {"name": "landing", "url": f"{root}/landing", "credential_name": "k"})
    return unity


async def test_a_signature_is_for_the_directory_of_a_path(catalogs: Catalogs) -> None:
    with scripted_issuer(HIERARCHICAL) as script:
        unity = await on_azure(catalogs, script.url)

        body = {"url": f"abfss://data@{HOST}/lake/landing/x", "operation": "PATH_READ"}
        given = await unity.made("/temporary-path-credentials", body)

    query = parse_qs(given["azure_user_delegation_sas"]["sas_token"])
    assert set(given) == {"azure_user_delegation_sas", "expiration_time", "url"}
    assert (query["sr"], query["sdd"], query["sp"]) == (["d"], ["3"], ["rl"])


async def test_a_flat_account_is_refused_with_the_reason(catalogs: Catalogs, azurite_settings: Settings) -> None:
    unity = await on_azure(catalogs, azurite_settings.azure.endpoint)

    body = {"url": f"abfss://data@{HOST}/lake/landing/x", "operation": "PATH_READ"}
    answer = await unity.post("/temporary-path-credentials", body)

    assert answer.status_code == 400
    assert "opens the whole container" in answer.json()["message"]
    assert ACCOUNT_KEY not in answer.text
