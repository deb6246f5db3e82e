"""Tokens of a real identity provider: who their bearers are, key rotation, outages, and clocks that differ."""

from typing import Any, get_args

import httpx
import pytest

from sandur.catalog.records import Request
from sandur.catalog.security.manifest import Authority, ObjectGrants
from sandur.clock import SystemClock
from sandur.errors import BadRequest
from sandur.operations.lake import Lakes
from sandur.operations.security import SecurityChange, SecurityEdit
from sandur.server.serve import build
from sandur.settings import OidcSettings, Settings
from sandur.storage.memory import MemoryStore
from tests.fakes.spy_store import SpyStore
from tests.server.conftest import Catalogs
from tests.server.logins import PRINCIPALS, SECURED, TOKENS, bearer, quiet
from tests.server.providers import HOUR, ME, MINUTE, SECOND, ShiftedClock, accepting, sent_by, unsigned
from tests.servers.oidc_provider import Algorithm, Client, OidcProvider, Outage

EXCHANGE = {"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange"}
UNITY_TOKENS = "/api/1.0/unity-control/auth/tokens"


async def described(server: httpx.AsyncClient, token: str, **headers: str) -> Any:
    answer = await server.get(ME, headers={**sent_by(token), **headers})
    return answer.json() if answer.status_code == 200 else answer.status_code


@pytest.mark.parametrize("algorithm", get_args(Algorithm))
async def test_a_token_of_a_configured_provider_is_accepted(
    oidc: OidcProvider, catalogs: Catalogs, algorithm: Algorithm
) -> None:
    server = await catalogs.open_with(accepting(oidc))
    oidc.configure({"etl": Client(algorithm=algorithm)})

    me = await described(server, oidc.token())

    assert (me["name"], me["kind"], me["tenant"], me["issuer"]) == ("127.0.0.1~etl", "user", "default", oidc.issuer)


async def test_only_the_listed_algorithms_are_accepted(oidc: OidcProvider, catalogs: Catalogs) -> None:
    server = await catalogs.open_with(accepting(oidc, algorithms=("ES256",)))

    assert await described(server, oidc.token()) == 401


async def test_groups_tenant_and_name_come_from_the_configured_claims(oidc: OidcProvider, catalogs: Catalogs) -> None:
    server = await catalogs.open_with(
        accepting(oidc, groups_claim="groups", tenant_claim="company", name_claim="email", name="okta")
    )
    claims = {"groups": ["analysts", "unknown"], "email": "ann@x.org"}
    oidc.configure({"ann": Client(claims=claims), "bob": Client(claims={**claims, "company": "acme"})})
    admin = await bearer(server)
    await server.post(PRINCIPALS, json={"name": "someone", "groups": ["analysts"]}, headers=admin)

    ann, bob = [await described(server, oidc.token(who)) for who in ("ann", "bob")]

    assert (ann["name"], ann["groups"], ann["tenant"]) == ("ann@x.org", ["analysts"], "default")
    assert (bob["groups"], bob["tenant"]) == ([], "acme")


async def test_a_token_without_a_tenant_belongs_to_the_tenant_of_its_issuer(
    oidc: OidcProvider, catalogs: Catalogs
) -> None:
    server = await catalogs.open_with(accepting(oidc, tenant="acme", tenant_claim="company"))
    token = oidc.token()

    assert (await described(server, token))["tenant"] == "acme"
    assert await described(server, token, **{"X-Sandur-Tenant": "rival"}) == 403


async def test_a_claimed_name_finds_a_registered_user_and_no_service(oidc: OidcProvider, catalogs: Catalogs) -> None:
    server = await catalogs.open_with(accepting(oidc, name_claim="login"))
    clients = {name: Client(claims={"login": name}) for name in ("Ann", "admin", "robot", "okta~7", "everyone")}
    oidc.configure(clients)
    admin = await bearer(server)
    ann = (await server.post(PRINCIPALS, json={"name": "ann", "kind": "user"}, headers=admin)).json()
    await server.put(f"{PRINCIPALS}/ann/groups", json=["analysts"], headers=admin)
    robot = (await server.post(PRINCIPALS, json={"name": "robot"}, headers=admin)).json()

    found = {name: await described(server, oidc.token(name)) for name in clients}

    assert (found["Ann"]["id"], found["Ann"]["groups"]) == (ann["id"], ["analysts"])
    assert found["robot"]["id"] != robot["id"]
    assert {found[name]["name"] for name in ("admin", "okta~7", "everyone")} == {
        "127.0.0.1~admin",
        "127.0.0.1~okta~7",
        "127.0.0.1~everyone",
    }
    assert (await server.get(PRINCIPALS, headers=sent_by(oidc.token("admin")))).status_code == 403


async def test_an_address_that_is_not_verified_is_no_name(oidc: OidcProvider, catalogs: Catalogs) -> None:
    server = await catalogs.open_with(accepting(oidc, name_claim="email"))
    oidc.configure({"eve": Client(claims={"email": "ann@x.org", "email_verified": False})})

    assert (await described(server, oidc.token("eve")))["name"] == "127.0.0.1~eve"


async def test_a_disabled_user_is_refused_at_the_next_request(oidc: OidcProvider, catalogs: Catalogs) -> None:
    server = await catalogs.open_with(accepting(oidc, name_claim="login"))
    oidc.configure({"ann": Client(claims={"login": "ann"})})
    admin, token = await bearer(server), oidc.token("ann")
    await server.post(PRINCIPALS, json={"name": "ann", "kind": "user"}, headers=admin)
    exchanged = (await server.post(TOKENS, data={**EXCHANGE, "subject_token": token})).json()["access_token"]

    before = [(await described(server, one))["name"] for one in (token, exchanged)]
    await server.patch(f"{PRINCIPALS}/ann", json={"disabled": True}, headers=admin)

    assert before == ["ann", "ann"]
    assert [await described(server, one) for one in (token, exchanged)] == [401, 401]
    assert (await server.post(TOKENS, data={**EXCHANGE, "subject_token": token})).status_code == 401


async def test_a_new_key_is_fetched_once_and_an_old_one_is_forgotten(oidc: OidcProvider, catalogs: Catalogs) -> None:
    clock = ShiftedClock()
    server = await catalogs.open_with(accepting(oidc), clock=clock)
    old = oidc.token()
    assert await described(server, old) != 401

    oidc.rotate(keep_old=False)
    new = oidc.token()
    too_soon = await described(server, new)
    clock.shift_ms = 31 * SECOND
    fetched = await described(server, new)
    clock.shift_ms = 6 * MINUTE  # The old token is no longer remembered.

    assert (too_soon, fetched["name"]) == (401, "127.0.0.1~etl")
    assert await described(server, old) == 401
    assert oidc.fetches().jwks == 3  # At first, for the new key, and for the old one that is unknown by then.


async def test_keys_are_used_for_ten_minutes(oidc: OidcProvider, catalogs: Catalogs) -> None:
    clock = ShiftedClock()
    server = await catalogs.open_with(accepting(oidc), clock=clock)
    oidc.configure({"etl": Client(lifetime_seconds=3_600)})

    for minutes in (0, 6, 9, 11, 20):
        clock.shift_ms = minutes * MINUTE
        assert (await described(server, oidc.token()))["name"] == "127.0.0.1~etl"

    assert oidc.fetches().jwks == 2


@pytest.mark.parametrize("how", ["error", "garbage", "deep", "empty", "disconnect"])
async def test_keys_survive_a_bounded_outage(oidc: OidcProvider, catalogs: Catalogs, how: Outage) -> None:
    clock = ShiftedClock()
    server = await catalogs.open_with(accepting(oidc), clock=clock)
    oidc.configure({"etl": Client(lifetime_seconds=80_000)})
    token = oidc.token()
    assert await described(server, token) != 401

    oidc.break_keys(how)
    clock.shift_ms = 3 * HOUR
    during = await described(server, token)
    clock.shift_ms = 5 * HOUR
    too_long = await described(server, token)
    oidc.mend()
    clock.shift_ms = 5 * HOUR + MINUTE

    assert (during["name"], too_long) == ("127.0.0.1~etl", 503)
    assert (await described(server, token))["name"] == "127.0.0.1~etl"


async def test_a_provider_that_never_answered_is_unavailable(oidc: OidcProvider, catalogs: Catalogs) -> None:
    server = await catalogs.open_with(accepting(oidc))
    oidc.break_keys("error")

    assert [await described(server, oidc.token()) for _ in range(3)] == [503] * 3
    assert oidc.fetches().discovery == 1
    assert (await server.get(ME, headers=await bearer(server))).status_code == 200


@pytest.mark.parametrize(("offset_seconds", "is_accepted"), [(45, True), (300, False), (-630, True), (-900, False)])
async def test_clocks_may_differ_by_a_minute(
    oidc: OidcProvider, catalogs: Catalogs, offset_seconds: int, *, is_accepted: bool
) -> None:
    server = await catalogs.open_with(accepting(oidc))
    oidc.configure({"etl": Client(clock_offset_seconds=offset_seconds)})

    assert (await described(server, oidc.token()) != 401) == is_accepted


async def test_a_foreign_token_is_exchanged_for_one_that_ends_no_later(oidc: OidcProvider, catalogs: Catalogs) -> None:
    server = await catalogs.open_with(accepting(oidc, groups_claim="groups"))
    oidc.configure({"etl": Client(claims={"groups": ["analysts"]}, lifetime_seconds=300)})

    granted = (await server.post(TOKENS, data={**EXCHANGE, "subject_token": oidc.token()})).json()
    again = (await server.post(TOKENS, data={**EXCHANGE, "subject_token": granted["access_token"]})).json()

    assert granted["expires_in"] <= 300
    assert again["expires_in"] <= 300
    assert (await described(server, again["access_token"]))["name"] == "127.0.0.1~etl"


async def test_unity_catalog_exchanges_tokens_of_registered_users_only(oidc: OidcProvider, catalogs: Catalogs) -> None:
    server = await catalogs.open_with(accepting(oidc, name_claim="login"))
    oidc.configure({"ann": Client(claims={"login": "ann"})})
    form = {**EXCHANGE, "subject_token": oidc.token("ann")}

    unknown = await server.post(UNITY_TOKENS, data=form)
    await server.post(PRINCIPALS, json={"name": "ann", "kind": "user"}, headers=await bearer(server))
    known = await server.post(UNITY_TOKENS, data=form)

    assert (unknown.status_code, known.status_code) == (401, 200)
    assert (await described(server, known.json()["access_token"]))["kind"] == "user"


async def test_a_verified_token_costs_no_storage_call_of_its_own(oidc: OidcProvider, catalogs: Catalogs) -> None:
    store = SpyStore(MemoryStore())
    server = await catalogs.open_with(quiet(accepting(oidc)), store)
    admin, token = await bearer(server), oidc.token()
    for headers in (admin, sent_by(token)):
        await server.get(ME, headers=headers)
        store.reset()

        await server.get(ME, headers=headers)

        assert [call.name for call in store.calls] == ["get_if_changed"]  # A1: the manifest, by the operation.


@pytest.mark.parametrize(
    ("issuer", "audience"),
    [("http://idp.example", "x"), ("ftp://idp.example", "x"), ("https://u:p@idp.example", "x"), ("https://i", "")],
)
def test_an_unsafe_provider_is_refused_at_the_start(issuer: str, audience: str) -> None:
    with pytest.raises(BadRequest, match="setting oidc"):
        build(Settings(store="memory:", oidc=(OidcSettings(issuer=issuer, audience=audience),)))


def test_an_issuer_is_configured_once() -> None:
    twice = OidcSettings(issuer="https://idp.example", audience="x")

    with pytest.raises(BadRequest, match="same issuer"):
        build(Settings(store="memory:", oidc=(twice, twice)))


async def allow_impersonation(store: MemoryStore, principal_id: str) -> None:
    lake = Lakes(SECURED, SystemClock(), store).lake("default", "default")

    def decide(authority: Authority) -> SecurityEdit:
        grants = ObjectGrants(type="metastore", subjects={principal_id: ("IMPERSONATE",)})
        return SecurityEdit(grants={authority.manifest.metastore_id: grants})

    await SecurityChange(lake, Request("grant"), "grant", decide).run()


async def test_an_engine_acts_for_a_registered_user_if_it_may(catalogs: Catalogs) -> None:
    """Trino with a session per user: an unsigned token names the user, the engine's own token is the actor."""
    store = MemoryStore()
    server = await catalogs.open_with(SECURED, store)
    admin = await bearer(server)
    made = (await server.post(PRINCIPALS, json={"name": "trino"}, headers=admin)).json()
    trino = await bearer(server, "trino", made["client_secret"])
    ann = (await server.post(PRINCIPALS, json={"name": "ann", "kind": "user"}, headers=admin)).json()
    form = {
        **EXCHANGE,
        "subject_token": unsigned({"sub": "ann"}),
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "actor_token": trino["Authorization"].removeprefix("Bearer "),
        "actor_token_type": "urn:ietf:params:oauth:token-type:access_token",
    }

    alone = await server.post(TOKENS, data={**form, "actor_token": ""})
    ungranted = await server.post(TOKENS, data=form, headers=trino)
    await allow_impersonation(store, made["id"])
    acting = await server.post(TOKENS, data=form, headers=trino)
    others = [
        await server.post(TOKENS, data={**form, "subject_token": unsigned({"sub": name})}, headers=trino)
        for name in ("admin", "trino", "nobody", "")
    ]
    token = acting.json()["access_token"]

    assert (alone.status_code, ungranted.status_code, acting.status_code) == (401, 403, 200)
    assert [answer.status_code for answer in others] == [401] * 4
    assert (await described(server, token))["id"] == ann["id"]
    assert (await server.post(f"{PRINCIPALS}/ann/api-keys", headers=sent_by(token))).status_code == 403
    await server.post(f"{PRINCIPALS}/trino/revoke-tokens", headers=admin)
    assert await described(server, token) == 401
