"""Principals over HTTP: their secrets, API keys and groups, and what ends their tokens."""

import httpx
import pytest

from sandur.storage.contract import list_all
from sandur.storage.memory import MemoryStore
from tests.server.conftest import Catalogs
from tests.server.logins import ADMIN_SECRET, PRINCIPALS, SECURED, TOKENS, bearer, make_principal, token_of

ME = "/api/sandur/v1/me"
KEY = {"Idempotency-Key": "0197f22e-79b0-7cc3-98c4-dc0c0c07398f"}


@pytest.fixture
async def secured(catalogs: Catalogs) -> httpx.AsyncClient:
    return await catalogs.open_with(SECURED)


@pytest.fixture
async def admin(secured: httpx.AsyncClient) -> dict[str, str]:
    return await bearer(secured)


def keyed(api_key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"}


async def test_a_principal_is_created_loaded_listed_and_dropped(
    secured: httpx.AsyncClient, admin: dict[str, str]
) -> None:
    made = await secured.post(PRINCIPALS, json={"name": "etl"}, headers=admin)
    loaded = await secured.get(f"{PRINCIPALS}/etl", headers=admin)
    listed = await secured.get(PRINCIPALS, headers=admin)

    assert (made.status_code, made.json()["client_id"]) == (201, "etl")
    assert made.headers["cache-control"] == "no-store"
    assert loaded.json() == {key: value for key, value in made.json().items() if key != "client_secret"}
    assert [one["name"] for one in listed.json()["principals"]] == ["admin", "etl"]
    assert made.json()["client_secret"] not in listed.text
    assert (await secured.delete(f"{PRINCIPALS}/etl", headers=admin)).status_code == 204
    assert (await secured.get(f"{PRINCIPALS}/etl", headers=admin)).status_code == 404
    assert (await secured.delete(f"{PRINCIPALS}/etl", headers=admin)).status_code == 404


async def test_only_the_hash_of_a_secret_is_stored(catalogs: Catalogs) -> None:
    store = MemoryStore()
    secured = await catalogs.open_with(SECURED, store)
    admin = await bearer(secured)

    made = (await secured.post(PRINCIPALS, json={"name": "etl"}, headers={**admin, **KEY})).json()
    key = (await secured.post(f"{PRINCIPALS}/etl/api-keys", headers=admin)).json()

    stored = b"".join([found.data for one in await list_all(store, "") if (found := await store.get(one.key))])
    assert b"scrypt$" in stored
    for secret in (made["client_secret"], ADMIN_SECRET, key["api_key"].split("_", 2)[2]):
        assert secret.encode() not in stored


async def test_a_repeated_creation_does_not_show_the_secret_again(
    secured: httpx.AsyncClient, admin: dict[str, str]
) -> None:
    """A13: only the request whose swap made the secret valid shows it."""
    first, again = [await secured.post(PRINCIPALS, json={"name": "etl"}, headers={**admin, **KEY}) for _ in range(2)]

    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json()["id"] == first.json()["id"]
    assert "client_secret" not in again.json()
    assert await token_of(secured, "etl", first.json()["client_secret"])


@pytest.mark.parametrize("name", ["", "everyone", "Everyone", "anonymous", "a b", "a:b", "a/b", "é", "-a", "x" * 129])
async def test_an_invalid_name_is_refused(secured: httpx.AsyncClient, admin: dict[str, str], name: str) -> None:
    refused = await secured.post(PRINCIPALS, json={"name": name}, headers=admin)

    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "BadRequestException")


async def test_a_name_belongs_to_one_principal_or_group(secured: httpx.AsyncClient, admin: dict[str, str]) -> None:
    await secured.post(PRINCIPALS, json={"name": "etl", "groups": ["analysts"]}, headers=admin)

    for taken in ("etl", "ETL", "admin", "Analysts"):
        assert (await secured.post(PRINCIPALS, json={"name": taken}, headers=admin)).status_code == 409


async def test_a_principal_made_again_is_another_one(secured: httpx.AsyncClient, admin: dict[str, str]) -> None:
    """A3: what is made again inherits nothing."""
    before = await make_principal(secured, admin, "etl", "analysts")
    await secured.delete(f"{PRINCIPALS}/etl", headers=admin)
    after = await make_principal(secured, admin, "etl")

    assert (await secured.get(ME, headers=before)).status_code == 401
    assert (await secured.get(ME, headers=after)).json()["groups"] == []


async def test_groups_are_made_if_absent_and_set_exactly(secured: httpx.AsyncClient, admin: dict[str, str]) -> None:
    etl = await make_principal(secured, admin, "etl")
    groups = f"{PRINCIPALS}/etl/groups"

    await secured.put(groups, json={"groups": ["analysts", "writers"]}, headers=admin)
    both = (await secured.get(ME, headers=etl)).json()["groups"]
    changed = await secured.put(groups, json=["writers", "readers"], headers=admin)

    assert both == ["analysts", "writers"]
    assert changed.json()["groups"] == ["readers", "writers"]
    assert (await secured.get(ME, headers=etl)).json()["groups"] == ["readers", "writers"]
    assert (await secured.put(f"{PRINCIPALS}/nobody/groups", json=[], headers=admin)).status_code == 404
    for wrong in ({"groups": "x"}, [1], {}, ["everyone"], ["admin"]):
        assert (await secured.put(groups, json=wrong, headers=admin)).status_code in {400, 409}


async def test_only_administrators_manage_principals(secured: httpx.AsyncClient, admin: dict[str, str]) -> None:
    etl = await make_principal(secured, admin, "etl")
    other = f"{PRINCIPALS}/admin"

    refused = [
        await secured.post(PRINCIPALS, json={"name": "mine"}, headers=etl),
        await secured.get(PRINCIPALS, headers=etl),
        await secured.get(other, headers=etl),
        await secured.get(f"{PRINCIPALS}/nobody", headers=etl),
        await secured.delete(f"{PRINCIPALS}/etl", headers=etl),
        await secured.patch(other, json={"disabled": True}, headers=etl),
        await secured.put(f"{PRINCIPALS}/etl/groups", json=["admins"], headers=etl),
        await secured.post(f"{other}/revoke-tokens", headers=etl),
        await secured.post(f"{other}/secrets", headers=etl),
        await secured.post(f"{other}/api-keys", headers=etl),
    ]

    assert [answer.status_code for answer in refused] == [403] * len(refused)
    assert len({refused[2].json()["error"]["message"], refused[3].json()["error"]["message"]}) == 1
    assert [one["name"] for one in (await secured.get(PRINCIPALS, headers=admin)).json()["principals"]] == [
        "admin",
        "etl",
    ]


async def test_two_secrets_are_live_and_a_third_ends_the_oldest(
    secured: httpx.AsyncClient, admin: dict[str, str]
) -> None:
    made = (await secured.post(PRINCIPALS, json={"name": "etl"}, headers=admin)).json()
    secrets = [made["client_secret"]]
    for _ in range(2):
        added = await secured.post(f"{PRINCIPALS}/etl/secrets", headers=admin)
        secrets.append(added.json()["client_secret"])

    form = {"grant_type": "client_credentials", "client_id": "etl"}
    statuses = [(await secured.post(TOKENS, data={**form, "client_secret": one})).status_code for one in secrets]

    assert statuses == [401, 200, 200]


async def test_a_removed_secret_and_its_tokens_end(secured: httpx.AsyncClient, admin: dict[str, str]) -> None:
    etl = await make_principal(secured, admin, "etl")
    (secret,) = (await secured.get(f"{PRINCIPALS}/etl", headers=etl)).json()["secrets"]

    removed = await secured.delete(f"{PRINCIPALS}/etl/secrets/{secret['id']}", headers=admin)

    assert removed.status_code == 204
    assert (await secured.get(ME, headers=etl)).status_code == 401
    assert (await secured.delete(f"{PRINCIPALS}/etl/secrets/{secret['id']}", headers=admin)).status_code == 404


async def test_an_api_key_is_a_bearer_token_until_it_is_removed(
    secured: httpx.AsyncClient, admin: dict[str, str]
) -> None:
    etl = await make_principal(secured, admin, "etl")
    made = (await secured.post(f"{PRINCIPALS}/etl/api-keys", headers=etl)).json()
    key = keyed(made["api_key"])
    secret = {"grant_type": "client_credentials", "client_secret": made["api_key"]}

    assert (await secured.get(ME, headers=key)).json()["name"] == "etl"
    assert (await secured.get("/v1/config", headers=key)).status_code == 200
    exchanged = (await secured.post(TOKENS, data=secret)).json()["access_token"]
    assert (await secured.get(ME, headers=keyed(exchanged))).json()["name"] == "etl"
    assert (await secured.delete(f"{PRINCIPALS}/etl/api-keys/{made['id']}", headers=etl)).status_code == 204
    assert (await secured.get(ME, headers=key)).status_code == 401
    assert (await secured.get(ME, headers=keyed(exchanged))).status_code == 401
    assert (await secured.post(TOKENS, data=secret)).status_code == 401
    assert (await secured.get(f"{PRINCIPALS}/etl/api-keys", headers=etl)).json() == {"api_keys": []}


async def test_an_api_key_of_another_server_process_is_found(catalogs: Catalogs) -> None:
    store = MemoryStore()
    one, other = await catalogs.open_with(SECURED, store), await catalogs.open_with(SECURED, store)
    made = await one.post(f"{PRINCIPALS}/admin/api-keys", headers=await bearer(one))

    assert (await other.get(ME, headers=keyed(made.json()["api_key"]))).json()["name"] == "admin"


async def test_api_keys_made_one_after_another_count_at_once_on_another_server(catalogs: Catalogs) -> None:
    store = MemoryStore()
    one, other = await catalogs.open_with(SECURED, store), await catalogs.open_with(SECURED, store)
    admin = await bearer(one)

    for _ in range(3):
        made = await one.post(f"{PRINCIPALS}/admin/api-keys", headers=admin)
        assert (await other.get(ME, headers=keyed(made.json()["api_key"]))).status_code == 200


async def test_an_api_key_counts_only_in_its_own_workspace(secured: httpx.AsyncClient, admin: dict[str, str]) -> None:
    made = (await secured.post(f"{PRINCIPALS}/admin/api-keys", headers=admin)).json()

    refused = await secured.get(ME, headers={**keyed(made["api_key"]), "X-Sandur-Tenant": "other"})

    assert refused.status_code == 401


async def test_an_expired_credential_does_not_count(secured: httpx.AsyncClient, admin: dict[str, str]) -> None:
    assert (
        await secured.post(f"{PRINCIPALS}/admin/api-keys", json={"expires_in": 0}, headers=admin)
    ).status_code == 400
    made = await secured.post(f"{PRINCIPALS}/admin/api-keys", json={"expires_in": 60}, headers=admin)

    assert made.json()["expires_at"] > made.json()["created_at"]


async def test_a_disabled_principal_is_refused_at_its_next_request(
    secured: httpx.AsyncClient, admin: dict[str, str]
) -> None:
    made = (await secured.post(PRINCIPALS, json={"name": "etl"}, headers=admin)).json()
    etl = await bearer(secured, "etl", made["client_secret"])
    key = keyed((await secured.post(f"{PRINCIPALS}/etl/api-keys", headers=etl)).json()["api_key"])
    form = {"grant_type": "client_credentials", "client_id": "etl", "client_secret": made["client_secret"]}

    await secured.patch(f"{PRINCIPALS}/etl", json={"disabled": True}, headers=admin)
    while_disabled = [(await secured.get(ME, headers=one)).status_code for one in (etl, key)]
    login = await secured.post(TOKENS, data=form)
    await secured.patch(f"{PRINCIPALS}/etl", json={"disabled": False}, headers=admin)

    assert (*while_disabled, login.status_code) == (401, 401, 401)
    assert (await secured.get(ME, headers=etl)).status_code == 401  # Its old tokens have ended for good.
    assert (await secured.get(ME, headers=key)).status_code == 200
    assert (await secured.post(TOKENS, data=form)).status_code == 200


async def test_revoked_tokens_end_and_new_ones_do_not(secured: httpx.AsyncClient, admin: dict[str, str]) -> None:
    made = (await secured.post(PRINCIPALS, json={"name": "etl"}, headers=admin)).json()
    before = await bearer(secured, "etl", made["client_secret"])

    await secured.post(f"{PRINCIPALS}/etl/revoke-tokens", headers=admin)

    assert (await secured.get(ME, headers=before)).status_code == 401
    assert (await secured.get(ME, headers=await bearer(secured, "etl", made["client_secret"]))).status_code == 200


async def test_the_owner_of_the_metastore_cannot_be_dropped(secured: httpx.AsyncClient, admin: dict[str, str]) -> None:
    assert (await secured.delete(f"{PRINCIPALS}/admin", headers=admin)).status_code == 400


async def test_a_token_counts_only_in_its_own_workspace(secured: httpx.AsyncClient, admin: dict[str, str]) -> None:
    refused = await secured.get("/v1/namespaces", headers={**admin, "X-Sandur-Workspace": "other"})

    assert refused.status_code == 403


async def test_an_unknown_path_and_method_get_an_error_of_this_api(
    secured: httpx.AsyncClient, admin: dict[str, str]
) -> None:
    unknown = await secured.get("/api/sandur/v1/nothing", headers=admin)
    wrong = await secured.put(PRINCIPALS, headers=admin)

    assert (unknown.status_code, unknown.json()["error"]["type"]) == (404, "NotFoundException")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST, GET")
