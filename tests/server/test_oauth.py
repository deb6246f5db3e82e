"""The token endpoint: client credentials by Basic and by form, and the exchange of tokens."""

import asyncio
import base64

import httpx
import pytest

from tests.server.conftest import Catalogs
from tests.server.logins import ADMIN_SECRET, PRINCIPALS, SECURED, TOKENS, bearer, token_of

FORM = {"grant_type": "client_credentials", "client_id": "admin", "client_secret": ADMIN_SECRET, "scope": "catalog"}
EXCHANGE = {"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange"}
ME = "/api/sandur/v1/me"


@pytest.fixture
async def secured(catalogs: Catalogs) -> httpx.AsyncClient:
    return await catalogs.open_with(SECURED)


def basic(name: str, secret: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()}


async def test_without_authentication_any_client_gets_a_token_that_is_accepted(client: httpx.AsyncClient) -> None:
    granted = (await client.post(TOKENS, data={**FORM, "client_secret": "any"})).json()

    assert {"bearer", "urn:ietf:params:oauth:token-type:access_token", "catalog"} <= {
        str(value) for value in granted.values()
    }
    headers = {"Authorization": f"Bearer {granted['access_token']}"}
    assert (await client.get("/v1/namespaces", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        TOKENS,
        "/iceberg/v1/oauth/tokens",
        "/api/2.1/unity-catalog/iceberg/v1/oauth/tokens",
        "/api/1.0/unity-control/auth/tokens",
    ],
)
@pytest.mark.parametrize("way", ["form", "basic"])
async def test_a_secret_is_exchanged_for_a_token_that_opens_every_api(
    secured: httpx.AsyncClient, path: str, way: str
) -> None:
    form = FORM if way == "form" else {"grant_type": "client_credentials"}
    headers = basic("admin", ADMIN_SECRET) if way == "basic" else {}

    refused = await secured.get("/v1/namespaces")
    granted = await secured.post(path, data=form, headers=headers)

    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert refused.json()["error"]["type"] == "NotAuthorizedException"
    assert granted.headers["cache-control"] == "no-store"
    assert 3_500 < granted.json()["expires_in"] <= 3_600
    admin = {"Authorization": f"Bearer {granted.json()['access_token']}"}
    for opened in ("/v1/namespaces", "/api/2.1/unity-catalog/catalogs", ME, "/api/1.0/unity-control/scim2/Me"):
        assert (await secured.get(opened, headers=admin)).status_code == 200


async def test_the_id_of_a_principal_is_a_client_id_too(secured: httpx.AsyncClient) -> None:
    admin = await bearer(secured)
    principal_id = (await secured.get(ME, headers=admin)).json()["id"]

    assert await token_of(secured, principal_id)


async def test_a_token_is_refreshed_by_a_token(secured: httpx.AsyncClient) -> None:
    first = await token_of(secured)
    form = {**EXCHANGE, "subject_token": first}

    refreshed = await secured.post(TOKENS, data=form, headers={"Authorization": f"Bearer {first}"})
    again = await secured.get(ME, headers={"Authorization": f"Bearer {refreshed.json()['access_token']}"})

    assert refreshed.json()["access_token"] != first
    assert again.json()["name"] == "admin"
    assert (await secured.post(TOKENS, data={**form, "subject_token": first[:-8] + "AAAAAAAA"})).status_code == 401


async def test_a_revoked_token_is_not_refreshed(secured: httpx.AsyncClient) -> None:
    token = await token_of(secured)
    await secured.post(f"{PRINCIPALS}/admin/revoke-tokens", headers={"Authorization": f"Bearer {token}"})

    refused = await secured.post(TOKENS, data={**EXCHANGE, "subject_token": token})

    assert (refused.status_code, refused.json()["error"]) == (401, "invalid_grant")


async def test_a_token_is_only_renewed_by_the_secret_of_its_own_principal(secured: httpx.AsyncClient) -> None:
    admin = await bearer(secured)
    made = (await secured.post(PRINCIPALS, json={"name": "etl"}, headers=admin)).json()
    form = {**EXCHANGE, "subject_token": await token_of(secured)}

    own = await secured.post(TOKENS, data=form, headers=basic("admin", ADMIN_SECRET))
    others = await secured.post(TOKENS, data=form, headers=basic("etl", made["client_secret"]))

    assert own.status_code == 200
    assert (others.status_code, others.json()["error"]) == (401, "invalid_grant")


@pytest.mark.parametrize(
    ("form", "status", "error"),
    [
        ({**FORM, "client_secret": "wrong"}, 401, "invalid_client"),
        ({**FORM, "client_id": "stranger"}, 401, "invalid_client"),
        ({"grant_type": "client_credentials", "client_secret": ADMIN_SECRET}, 401, "invalid_client"),
        ({"grant_type": "client_credentials"}, 401, "invalid_client"),
        ({"grant_type": "password"}, 400, "unsupported_grant_type"),
        ({**EXCHANGE}, 400, "invalid_request"),
        ({**EXCHANGE, "subject_token": "x", "subject_token_type": "y"}, 400, "invalid_request"),
        ({**EXCHANGE, "subject_token": "x"}, 401, "invalid_grant"),
        ({}, 400, "invalid_request"),
    ],
)
async def test_a_refusal_has_the_form_of_oauth(
    secured: httpx.AsyncClient, form: dict[str, str], status: int, error: str
) -> None:
    answer = await secured.post(TOKENS, data=form)

    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert answer.headers["cache-control"] == "no-store"
    assert ADMIN_SECRET not in answer.text


async def test_a_secret_that_is_sent_twice_is_an_invalid_request(secured: httpx.AsyncClient) -> None:
    answer = await secured.post(TOKENS, data=FORM, headers=basic("admin", ADMIN_SECRET))

    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


@pytest.mark.parametrize("value", ["Basic", "Basic !", "Basic " + base64.b64encode(b"\xff").decode(), "Basic eDp5"])
async def test_a_broken_basic_header_gets_no_token(secured: httpx.AsyncClient, value: str) -> None:
    form = {"grant_type": "client_credentials"}

    assert (await secured.post(TOKENS, data=form, headers={"Authorization": value})).status_code in {400, 401}


async def test_a_body_that_is_not_a_form_is_an_invalid_request(client: httpx.AsyncClient) -> None:
    answer = await client.post(TOKENS, content=b"\xff\xfe")

    assert answer.status_code == 400
    assert answer.json()["error"] == "invalid_request"


async def test_failed_logins_are_limited_per_client(secured: httpx.AsyncClient) -> None:
    wrong = {**FORM, "client_secret": "wrong"}

    statuses = [(await secured.post(TOKENS, data=wrong)).status_code for _ in range(12)]
    limited = await secured.post(TOKENS, data=FORM)

    assert statuses == [401] * 10 + [429] * 2
    assert (limited.status_code, 0 < int(limited.headers["retry-after"]) <= 60) == (429, True)
    assert (await secured.post(TOKENS, data={**wrong, "client_id": "other"})).status_code == 401


async def test_other_spellings_of_a_name_give_no_further_guesses(secured: httpx.AsyncClient) -> None:
    """Names are compared in any case, so a limit for each spelling would be no limit."""
    names = [FORM["client_id"], FORM["client_id"].upper(), f" {FORM['client_id'].title()} "]
    statuses = [
        (await secured.post(TOKENS, data={**FORM, "client_id": names[n % 3], "client_secret": "wrong"})).status_code
        for n in range(12)
    ]

    assert statuses == [401] * 10 + [429] * 2


async def test_guesses_that_are_sent_at_once_are_limited_too(secured: httpx.AsyncClient) -> None:
    """Who sends all guesses before the first one has failed learns of ten only, also if the right one is the last."""
    guesses = [{**FORM, "client_secret": f"wrong {n}"} for n in range(20)]

    answers = await asyncio.gather(*(secured.post(TOKENS, data=guess) for guess in (*guesses, FORM)))

    assert sorted(answer.status_code for answer in answers) == [401] * 10 + [429] * 11


async def test_the_id_of_a_principal_gives_no_further_guesses(secured: httpx.AsyncClient) -> None:
    admin = await bearer(secured)
    number = (await secured.get(f"{PRINCIPALS}/admin", headers=admin)).json()["id"]
    statuses = [
        (await secured.post(TOKENS, data={**FORM, "client_id": name, "client_secret": "wrong"})).status_code
        for name in ("admin", number) * 6
    ]

    assert statuses == [401] * 10 + [429] * 2
