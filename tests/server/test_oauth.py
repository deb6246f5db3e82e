"""Tokens: for every client when authentication is off, otherwise for a valid secret."""

import httpx
import pytest

from tests.server.conftest import Catalogs

TOKENS = "/v1/oauth/tokens"
FORM = {"grant_type": "client_credentials", "client_id": "me", "client_secret": "hush", "scope": "catalog"}


async def test_without_authentication_any_client_gets_a_token_that_is_accepted(client: httpx.AsyncClient) -> None:
    granted = (await client.post(TOKENS, data=FORM)).json()

    assert {"bearer", "urn:ietf:params:oauth:token-type:access_token", "catalog"} <= {
        str(value) for value in granted.values()
    }
    headers = {"Authorization": f"Bearer {granted['access_token']}"}
    assert (await client.get("/v1/namespaces", headers=headers)).status_code == 200


async def test_with_authentication_the_secret_is_exchanged_for_the_token(catalogs: Catalogs) -> None:
    client = await catalogs.open(authentication="token", token="hush")  # noqa: S106 - a test's secret

    refused = await client.get("/v1/namespaces")
    granted = (await client.post(TOKENS, data=FORM)).json()
    headers = {"Authorization": f"Bearer {granted['access_token']}"}

    assert refused.status_code == 401
    assert refused.json()["error"]["type"] == "NotAuthorizedException"
    assert refused.headers["www-authenticate"] == "Bearer"
    assert (await client.get("/v1/namespaces", headers=headers)).status_code == 200


async def test_a_token_can_be_exchanged_for_a_token(catalogs: Catalogs) -> None:
    client = await catalogs.open(authentication="token", token="hush")  # noqa: S106 - a test's secret
    form = {"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "subject_token": "hush"}

    assert "hush" in (await client.post(TOKENS, data=form)).json().values()
    assert (await client.post(TOKENS, data={**form, "subject_token": "wrong"})).status_code == 401


@pytest.mark.parametrize(
    ("form", "status", "error"),
    [
        ({**FORM, "client_secret": "wrong"}, 401, "invalid_client"),
        ({"grant_type": "client_credentials"}, 401, "invalid_client"),
        ({"grant_type": "password"}, 400, "unsupported_grant_type"),
        ({}, 400, "invalid_request"),
    ],
)
async def test_a_refusal_has_the_form_of_oauth(
    catalogs: Catalogs, form: dict[str, str], status: int, error: str
) -> None:
    client = await catalogs.open(authentication="token", token="hush")  # noqa: S106 - a test's secret

    answer = await client.post(TOKENS, data=form)

    assert answer.status_code == status
    assert answer.json()["error"] == error
    assert answer.headers["cache-control"] == "no-store"


async def test_a_body_that_is_not_a_form_is_an_invalid_request(client: httpx.AsyncClient) -> None:
    answer = await client.post(TOKENS, content=b"\xff\xfe")

    assert answer.status_code == 400
    assert answer.json()["error"] == "invalid_request"
