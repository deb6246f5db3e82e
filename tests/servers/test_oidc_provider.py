"""The OpenID Connect provider of the tests does what a company's provider does, and fails on request."""

import subprocess
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, get_args

import httpx
import jwt
import pytest

from tests.servers.browser import refuse, sign_in
from tests.servers.oidc_provider import SCOPE, Algorithm, Client, OidcProvider, Outage

DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"


def keys_of(provider: OidcProvider) -> jwt.PyJWKSet:
    discovered = httpx.get(f"{provider.issuer}/.well-known/openid-configuration").raise_for_status().json()
    return jwt.PyJWKSet.from_dict(httpx.get(discovered["jwks_uri"]).raise_for_status().json())


def verified(token: str, provider: OidcProvider, *, leeway: int = 0) -> Mapping[str, Any]:
    """The claims of a token that a resource server accepts."""
    header = jwt.get_unverified_header(token)
    required = ["exp", "iat", "iss", "aud", "sub"]
    claims: Mapping[str, Any] = jwt.decode(
        token,
        keys_of(provider)[header["kid"]].key,
        algorithms=[header["alg"]],
        audience=provider.audience,
        issuer=provider.issuer,
        leeway=leeway,
        options={"require": required},
    )
    return claims


def test_discovery_names_the_issuer_and_every_endpoint_of_a_login(oidc: OidcProvider) -> None:
    found = httpx.get(f"{oidc.issuer}/.well-known/openid-configuration").json()

    assert found["issuer"] == oidc.issuer
    assert found["token_endpoint"] == oidc.token_endpoint
    assert {"jwks_uri", "authorization_endpoint", "device_authorization_endpoint"} <= set(found)
    assert found["code_challenge_methods_supported"] == ["S256"]


@pytest.mark.parametrize("algorithm", get_args(Algorithm))
def test_a_program_gets_a_signed_token_with_its_claims(oidc: OidcProvider, algorithm: Algorithm) -> None:
    claims = {"groups": ["writers"], "tenant": "acme"}
    oidc.configure({"loader": Client(algorithm=algorithm, claims=claims)})

    token = oidc.token("loader")

    assert jwt.get_unverified_header(token)["alg"] == algorithm
    assert verified(token, oidc).items() >= {**claims, "sub": "loader", "client_id": "loader"}.items()


def test_a_program_may_send_its_secret_by_basic_authentication(oidc: OidcProvider) -> None:
    answer = httpx.post(
        oidc.token_endpoint, auth=("etl", oidc.secret("etl")), data={"grant_type": "client_credentials", "scope": SCOPE}
    )

    assert verified(answer.json()["access_token"], oidc)["sub"] == "etl"


def test_a_wrong_secret_gets_no_token(oidc: OidcProvider) -> None:
    answer = httpx.post(oidc.token_endpoint, auth=("etl", "wrong"), data={"grant_type": "client_credentials"})

    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")


def test_audience_lifetime_and_clock_are_chosen_per_client(oidc: OidcProvider) -> None:
    oidc.configure(
        {
            "elsewhere": Client(audience="another"),
            "hasty": Client(lifetime_seconds=5),
            "late": Client(clock_offset_seconds=-3_600),
            "early": Client(clock_offset_seconds=3_600),
            "odd": Client(changed_claims={"sub": None, "aud": ["sandur", "another"]}),
        }
    )

    with pytest.raises(jwt.InvalidAudienceError):
        verified(oidc.token("elsewhere"), oidc)
    with pytest.raises(jwt.ExpiredSignatureError):
        verified(oidc.token("late"), oidc)
    with pytest.raises(jwt.ImmatureSignatureError):
        verified(oidc.token("early"), oidc)
    with pytest.raises(jwt.MissingRequiredClaimError, match="sub"):
        verified(oidc.token("odd"), oidc)
    hasty = verified(oidc.token("hasty"), oidc, leeway=600)
    assert hasty["exp"] - hasty["iat"] == 5


def test_after_a_rotation_old_tokens_are_valid_while_their_key_is_published(oidc: OidcProvider) -> None:
    old = oidc.token()

    oidc.rotate(keep_old=True)
    new = oidc.token()

    assert jwt.get_unverified_header(new)["kid"] != jwt.get_unverified_header(old)["kid"]
    assert verified(old, oidc)["sub"] == verified(new, oidc)["sub"] == "etl"

    oidc.rotate(keep_old=False)

    with pytest.raises(KeyError):
        verified(old, oidc)
    assert verified(oidc.token(), oidc)["sub"] == "etl"


@pytest.mark.parametrize("how", ["error", "garbage", "disconnect"])
def test_in_an_outage_keys_cannot_be_read_and_programs_still_log_in(oidc: OidcProvider, how: Outage) -> None:
    token = oidc.token()

    oidc.break_keys(how)

    with pytest.raises((httpx.HTTPStatusError, httpx.RemoteProtocolError, ValueError)):
        keys_of(oidc)
    assert oidc.token()

    oidc.mend()

    assert verified(token, oidc)["sub"] == "etl"


def test_an_endpoint_that_hangs_gives_no_answer_before_the_outage_ends(oidc: OidcProvider) -> None:
    oidc.break_keys("hang")

    with pytest.raises(httpx.ReadTimeout):
        httpx.get(f"{oidc.issuer}/jwks", timeout=0.2)


def test_requests_for_keys_are_counted(oidc: OidcProvider) -> None:
    token = oidc.token()
    before = oidc.fetches()

    verified(token, oidc)
    verified(token, oidc)

    after = oidc.fetches()
    assert (after.discovery - before.discovery, after.jwks - before.jwks, after.token - before.token) == (2, 2, 0)


def test_a_person_logs_in_with_an_authorization_code_and_pkce(oidc: OidcProvider) -> None:
    tokens = oidc.login("ann")

    assert verified(tokens.access_token, oidc).items() >= {"sub": "ann", "groups": ["analysts"]}.items()
    identity = jwt.decode(tokens.id_token, options={"verify_signature": False})
    assert identity.items() >= {"sub": "ann", "aud": "cli", "name": "Ann"}.items()


def test_a_refresh_token_gets_a_token_with_the_new_claims_of_the_person(oidc: OidcProvider) -> None:
    tokens = oidc.login("ann")
    oidc.configure(people={"ann": {"groups": ["admins"]}})

    form = {"grant_type": "refresh_token", "client_id": "cli", "refresh_token": tokens.refresh_token}
    answer = httpx.post(oidc.token_endpoint, data=form)

    assert verified(answer.json()["access_token"], oidc)["groups"] == ["admins"]


def test_a_stolen_code_is_worthless_without_the_verifier(oidc: OidcProvider) -> None:
    sent_to = httpx.URL(sign_in(oidc.authorization_address(), "ann"))
    form = {"grant_type": "authorization_code", "client_id": "cli", "redirect_uri": "http://127.0.0.1/callback"}

    answer = httpx.post(
        oidc.token_endpoint, data={**form, "code": sent_to.params["code"], "code_verifier": "wrong" * 10}
    )

    assert answer.json()["error"] == "invalid_grant"


def test_a_person_who_cancels_sends_an_error_to_the_tool(oidc: OidcProvider) -> None:
    sent_to = httpx.URL(refuse(oidc.authorization_address()))

    assert sent_to.params["error"] == "access_denied"


def test_a_person_logs_in_on_another_device_with_a_code(oidc: OidcProvider) -> None:
    started = httpx.post(f"{oidc.issuer}/device/auth", data={"client_id": "cli", "scope": f"openid {SCOPE}"}).json()
    form = {"grant_type": DEVICE_CODE, "client_id": "cli", "device_code": started["device_code"]}

    waiting = httpx.post(oidc.token_endpoint, data=form).json()
    sign_in(started["verification_uri_complete"], "bob")
    done = httpx.post(oidc.token_endpoint, data=form).json()

    assert waiting["error"] == "authorization_pending"
    assert verified(done["access_token"], oidc)["sub"] == "bob"


class Callback(BaseHTTPRequestHandler):
    """The page of a tool that waits for the browser of its user."""

    visited: str = ""

    def do_GET(self) -> None:
        type(self).visited = self.path
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def test_the_browser_as_a_program_ends_at_the_page_of_the_tool(oidc: OidcProvider) -> None:
    with HTTPServer(("127.0.0.1", 0), Callback) as tool:
        threading.Thread(target=tool.handle_request).start()
        address = oidc.authorization_address(redirect_uri=f"http://127.0.0.1:{tool.server_port}/callback")
        command = [sys.executable, "-m", "tests.servers.browser", "ann", address]
        subprocess.run(command, cwd=Path(__file__).parents[2], timeout=120, check=True)

    assert Callback.visited.startswith("/callback?code=")
