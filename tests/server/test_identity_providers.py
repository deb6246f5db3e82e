"""A server that trusts real identity providers: floods of bad tokens, a provider that hangs, two that look alike."""

from pathlib import Path

import httpx
import jwt
import msgspec
import pytest

from sandur.settings import OidcSettings
from sandur.storage.memory import MemoryStore
from tests.fakes.spy_store import SpyStore
from tests.server.conftest import Catalogs
from tests.server.logins import SECURED
from tests.server.providers import ME, accepting, sent_by
from tests.servers.oidc_provider import AUDIENCE, Client, OidcProvider, oidc_provider

BAD_TOKENS = 10_000
# Records of refusals are written in batches of thousands, not one by one.
AUDIT_WRITES_MAX = 20


async def status_of(server: httpx.AsyncClient, token: str) -> int:
    return (await server.get(ME, headers=sent_by(token))).status_code


@pytest.mark.slow
async def test_ten_thousand_bad_tokens_read_nothing_and_fetch_no_keys(oidc: OidcProvider, catalogs: Catalogs) -> None:
    store = SpyStore(MemoryStore())
    server = await catalogs.open_with(accepting(oidc), store)
    good = oidc.token()
    assert await status_of(server, good) == 200
    head, claims, signature = good.split(".")
    unsigned = jwt.encode({"sub": "admin", "iss": oidc.issuer, "aud": AUDIENCE}, "", algorithm="none")
    store.reset()

    refused = 0
    for number in range(BAD_TOKENS // 4):
        for bad in (
            f"{head}.{claims}.{signature[:-8]}{number:08d}",
            jwt.encode({"sub": "admin", "iss": oidc.issuer}, "k" * 32, headers={"kid": f"unknown-{number}"}),
            f"{unsigned}{number}",
            f"nonsense-{number}",
        ):
            refused += await status_of(server, bad) == 401

    assert refused == BAD_TOKENS
    assert {call.name for call in store.calls} <= {"put"}
    assert all("/audit/" in key for key in store.keys("put"))
    assert len(store.calls) <= AUDIT_WRITES_MAX
    assert oidc.fetches().jwks == 1


async def test_a_provider_that_hangs_ends_no_request_but_its_own(oidc: OidcProvider, catalogs: Catalogs) -> None:
    """The fetch has a time limit; without one, the request would wait until the end of the outage."""
    server = await catalogs.open_with(accepting(oidc))
    oidc.break_keys("hang")
    token = oidc.token()

    assert await status_of(server, token) == 503
    assert await status_of(server, token) == 503
    assert oidc.fetches().discovery == 1


async def test_keys_of_one_provider_do_not_verify_tokens_of_another(
    oidc: OidcProvider, catalogs: Catalogs, tmp_path: Path
) -> None:
    """Both providers name their keys alike, as products with default settings do."""
    with oidc_provider(tmp_path) as other:
        while key_id(other.token()) != key_id(oidc.token()):
            other.rotate()
        trusted = tuple(OidcSettings(issuer=one.issuer, audience=AUDIENCE) for one in (oidc, other))
        server = await catalogs.open_with(msgspec.structs.replace(SECURED, oidc=trusted))
        accepted = [await status_of(server, one.token()) for one in (oidc, other)]

        oidc.configure({"etl": Client(changed_claims={"iss": other.issuer})})

        assert accepted == [200, 200]
        assert await status_of(server, oidc.token()) == 401


def key_id(token: str) -> str:
    return str(jwt.get_unverified_header(token)["kid"])
