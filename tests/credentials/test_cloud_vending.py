"""Credentials of the server's own root on Google and Azure: by the settings, cached, and a clear failure otherwise."""

from urllib.parse import parse_qs

import pytest

from sandur.errors import ServiceRefused, Unavailable, Unsupported
from sandur.operations.credentials.vend import vend
from sandur.operations.lake import Lake
from sandur.settings import AzureSettings, GcsSettings, Settings
from sandur.storage.locations import address_of
from tests.credentials.scripted_issuer import Answer, scripted_issuer
from tests.fakes.fixed_clock import FixedClock
from tests.operations.lakes import make_lake
from tests.servers.azurite import ACCOUNT_KEY
from tests.servers.gcs import BUCKET, TOKEN

HIERARCHICAL = Answer(headers={"x-ms-is-hns-enabled": "true"})
AZURE_ROOT = "abfs://data@acct.dfs.core.windows.net/lake"


def gcs_lake(settings: Settings, **changes: str) -> Lake:
    gcs = {"endpoint": settings.gcs.endpoint, "sts_endpoint": settings.gcs.sts_endpoint, "bearer_token": TOKEN}
    return make_lake(clock=FixedClock(), own=f"gs://{BUCKET}/lake", gcs={**gcs, "access": "vend", **changes})


def azure_lake(endpoint: str, *, own: str = AZURE_ROOT, hierarchical: bool = True) -> Lake:
    azure = {
        "endpoint": endpoint,
        "account_name": "acct",
        "account_key": ACCOUNT_KEY,
        "access": "vend",
        "hierarchical": hierarchical,
        "credential_lifetime": "PT30M",
    }
    return make_lake(clock=FixedClock(), own=own, azure=azure)


def test_nothing_is_given_out_by_default() -> None:
    assert GcsSettings().access == "none"
    assert AzureSettings().access == "none"
    assert not AzureSettings().hierarchical


async def test_a_token_of_google_is_given_out_again_for_half_of_its_life(gcs_settings: Settings) -> None:
    lake = gcs_lake(gcs_settings)
    location = f"gs://{BUCKET}/lake/orders"

    first = await vend(lake, [location], writes=False)
    again = await vend(lake, [location], writes=False)
    writer = await vend(lake, [location], writes=True)

    assert first
    assert again is first
    assert writer
    assert writer.oauth_token != first.oauth_token
    assert TOKEN not in {first.oauth_token, writer.oauth_token}


async def test_access_none_gives_nothing_out(gcs_settings: Settings) -> None:
    lake = gcs_lake(gcs_settings, access="none")

    assert await vend(lake, [f"gs://{BUCKET}/lake/orders"], writes=False) is None


async def test_a_signature_of_azure_is_for_the_account_of_the_settings() -> None:
    with scripted_issuer(HIERARCHICAL) as script:
        lake = azure_lake(script.url)

        credential = await vend(lake, [f"{AZURE_ROOT}/orders"], writes=False)

    assert credential
    assert credential.profile.account_name == "acct"
    assert parse_qs(credential.sas_token)["sdd"] == ["2"]
    assert credential.expires_ms == lake.clock.now_ms() + 1_800_000


@pytest.mark.parametrize("own", ["az://data/lake", "azure://data/lake", "abfss://data@acct.dfs.core.windows.net/lake"])
async def test_every_spelling_of_azure_has_the_profile_of_the_settings(own: str) -> None:
    with scripted_issuer(HIERARCHICAL) as script:
        assert await vend(azure_lake(script.url, own=address_of(own)), [f"{own}/orders"], writes=True)


async def test_a_flat_account_is_refused_with_the_reason() -> None:
    lake = azure_lake("http://127.0.0.1:9", hierarchical=False)

    with pytest.raises(Unsupported, match="opens the whole container"):
        await vend(lake, [f"{AZURE_ROOT}/orders"], writes=False)


async def test_a_service_that_is_busy_for_a_moment_is_tried_again() -> None:
    with scripted_issuer(Answer(503)) as script:
        lake = make_lake(
            clock=FixedClock(),
            own="gs://lake/root",
            gcs={"access": "vend", "bearer_token": TOKEN, "sts_endpoint": script.url},
        )

        with pytest.raises(Unavailable, match="Security Token Service answered 503"):
            await vend(lake, ["gs://lake/root/orders"], writes=False)

    assert len(script.received) == lake.settings.retry.tries_max


async def test_a_refusal_is_not_repeated() -> None:
    with scripted_issuer(Answer(403)) as script:
        lake = make_lake(
            clock=FixedClock(),
            own="gs://lake/root",
            gcs={"access": "vend", "bearer_token": TOKEN, "sts_endpoint": script.url},
        )

        with pytest.raises(ServiceRefused, match="refuses: 403"):
            await vend(lake, ["gs://lake/root/orders"], writes=False)

    assert len(script.received) == 1
