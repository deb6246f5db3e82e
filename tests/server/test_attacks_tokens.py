"""Attacks with tokens: forged, confused, expired, for others, and floods of them. All are refused with 401."""

import base64
import hashlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final

import httpx
import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from sandur.storage.memory import MemoryStore
from tests.fakes.spy_store import SpyStore
from tests.server.conftest import Catalogs
from tests.server.logins import SECURED, quiet, token_of
from tests.server.providers import ME, accepting, hmac_signed, own_key, public_pem, published_key, sent_by, unsigned
from tests.servers.oidc_provider import Client, OidcProvider

Forge = Callable[[dict[str, Any], dict[str, Any], bytes], str]
"""A forged token, from the header and the claims of a valid one and the public key that verifies it (PEM)."""

EVE: Final = ec.generate_private_key(ec.SECP256R1())


def parts_of(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    header, claims = (
        msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=dict)
        for part in token.split(".")[:2]
    )
    return header, claims


def signed_by_eve(claims: dict[str, Any], **header: Any) -> str:
    return jwt.encode(claims, EVE, algorithm="ES256", headers=header)


def eve_jwk() -> dict[str, Any]:
    return dict(ECAlgorithm.to_jwk(EVE.public_key(), as_dict=True))


FORGERIES: Final[dict[str, Forge]] = {
    "alg none": lambda header, claims, _: unsigned(claims, kid=header["kid"]),
    "alg None": lambda header, claims, _: unsigned(claims, kid=header["kid"]).replace(
        base64.urlsafe_b64encode(b'"none"').rstrip(b"=").decode(),
        base64.urlsafe_b64encode(b'"None"').rstrip(b"=").decode(),
    ),
    "HS256 with the public key": lambda header, claims, pem: hmac_signed(claims, pem, kid=header["kid"]),
    "HS256 with the key id": lambda header, claims, _: hmac_signed(claims, header["kid"].encode(), kid=header["kid"]),
    "another key with the known id": lambda header, claims, _: signed_by_eve(claims, kid=header["kid"]),
    "another key with an unknown id": lambda _header, claims, _pem: signed_by_eve(claims, kid="eve"),
    "a key in the header": lambda header, claims, _: signed_by_eve(claims, kid=header["kid"], jwk=eve_jwk()),
    "a path as key id": lambda _header, claims, _pem: signed_by_eve(claims, kid="../../../../dev/null"),
    "a key id that is a number": lambda _header, claims, _pem: (
        base64.urlsafe_b64encode(b'{"alg":"ES256","kid":1}').rstrip(b"=").decode()
        + "."
        + base64.urlsafe_b64encode(msgspec.json.encode(claims)).rstrip(b"=").decode()
        + ".AAAA"
    ),
}


@pytest.fixture
async def secured(catalogs: Catalogs) -> httpx.AsyncClient:
    return await catalogs.open_with(SECURED)


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
async def test_a_forged_token_of_this_server_is_refused(secured: httpx.AsyncClient, forge: Forge) -> None:
    header, claims = parts_of(await token_of(secured))
    (jwk,) = (await secured.get("/.well-known/jwks.json")).json()["keys"]
    public = ECAlgorithm.from_jwk(jwk)
    assert isinstance(public, ec.EllipticCurvePublicKey)

    refused = await secured.get(ME, headers=sent_by(forge(header, claims, public_pem(public))))

    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == 'Bearer error="invalid_token"'


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
async def test_a_forged_token_of_a_provider_is_refused(oidc: OidcProvider, catalogs: Catalogs, forge: Forge) -> None:
    server = await catalogs.open_with(accepting(oidc))
    header, claims = parts_of(oidc.token())
    public = RSAAlgorithm.from_jwk(published_key(oidc, "RS256"))

    refused = await server.get(ME, headers=sent_by(forge(header, claims, public_pem(public))))  # type: ignore[arg-type] # An RSA public key.

    assert refused.status_code == 401


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": "another server"},
        {"aud": []},
        {"iss": "https://elsewhere.example"},
        {"sub": ""},
        {"sub": "  "},
        {"sub": None},
        {"sub": 7},
        {"exp": None},
        {"exp": 1},
        {"exp": "tomorrow"},
        {"nbf": 4_000_000_000},
        {"exp": 4_000_000_000},
        {"iat": 4_000_000_000, "exp": 4_000_000_600},
    ],
    ids=str,
)
async def test_a_signed_token_with_wrong_claims_is_refused(
    oidc: OidcProvider, catalogs: Catalogs, changed: dict[str, object]
) -> None:
    server = await catalogs.open_with(accepting(oidc))
    oidc.configure({"etl": Client(changed_claims=changed)})

    assert (await server.get(ME, headers=sent_by(oidc.token()))).status_code == 401


class KeyServer(BaseHTTPRequestHandler):
    """An attacker's key set, which counts its visitors."""

    visits = 0

    def do_GET(self) -> None:
        type(self).visits += 1
        body = msgspec.json.encode({"keys": [{**eve_jwk(), "kid": "eve", "alg": "ES256"}]})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def key_server() -> Iterator[str]:
    KeyServer.visits = 0
    with HTTPServer(("127.0.0.1", 0), KeyServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("name", ["jku", "x5u", "iss"])
async def test_no_key_is_fetched_from_where_a_token_says(
    oidc: OidcProvider, catalogs: Catalogs, key_server: str, name: str
) -> None:
    server = await catalogs.open_with(accepting(oidc))
    _, claims = parts_of(oidc.token())
    if name == "iss":
        forged = signed_by_eve({**claims, "iss": key_server}, kid="eve")
    else:
        forged = signed_by_eve(claims, kid="eve", **{name: key_server})

    assert (await server.get(ME, headers=sent_by(forged))).status_code == 401
    assert KeyServer.visits == 0


async def test_a_flood_of_unknown_keys_fetches_the_keys_once(oidc: OidcProvider, catalogs: Catalogs) -> None:
    server = await catalogs.open_with(accepting(oidc))
    _, claims = parts_of(oidc.token())

    statuses = {
        (await server.get(ME, headers=sent_by(signed_by_eve(claims, kid=f"key-{number}")))).status_code
        for number in range(100)
    }

    assert statuses == {401}
    assert oidc.fetches().jwks <= 1


@pytest.mark.parametrize("state", ["a=1 ", "a=1\t", " ", "\x7f", "a" * 513, "é"])
async def test_a_stranger_cannot_stop_the_fetch_of_keys_by_its_trace(
    oidc: OidcProvider, catalogs: Catalogs, state: str
) -> None:
    """Requests to the provider continue the trace of a client, and HTTP forbids some values that a client can send.

    A fetch that fails is not tried again for 30 seconds: until then no one could log in.
    """
    server = await catalogs.open_with(accepting(oidc))
    token = oidc.token()
    trace = {b"traceparent": f"00-{'a' * 32}-{'b' * 16}-01".encode(), b"tracestate": state.encode()}

    forged = await server.get(
        ME, headers={**trace, b"Authorization": f"Bearer {signed_by_eve(parts_of(token)[1], kid='eve')}".encode()}
    )
    honest = await server.get(ME, headers=sent_by(token))

    assert (forged.status_code, honest.status_code) == (401, 200), honest.text


async def test_bad_tokens_and_keys_cost_no_storage_call(oidc: OidcProvider, catalogs: Catalogs) -> None:
    store = SpyStore(MemoryStore())
    server = await catalogs.open_with(quiet(accepting(oidc)), store)
    own, foreign = await token_of(server), oidc.token()
    bad = [
        "x",
        "a.b.c",
        "." * 1_000,
        own[:-4] + "AAAA",
        foreign[:-4] + "AAAA",
        signed_by_eve(parts_of(own)[1], kid="eve"),
        signed_by_eve(parts_of(foreign)[1], kid="eve"),
        jwt.encode(parts_of(foreign)[1], own_key(), algorithm="RS256", headers={"kid": "RS256-1"}),
        f"sdr_{'a' * 26}_{'b' * 43}",
        *(
            f"sdr_{base64.b32encode(hashlib.sha256(b'%d' % n).digest()[:16]).decode().lower()[:26]}_{'b' * 43}"
            for n in range(50)
        ),
    ]
    store.reset()

    statuses = {(await server.get("/v1/namespaces", headers=sent_by(token))).status_code for token in bad}

    assert statuses == {401}
    assert store.calls == []


async def test_a_token_of_another_store_is_refused(catalogs: Catalogs, secured: httpx.AsyncClient) -> None:
    other = await catalogs.open_with(SECURED)

    assert (await secured.get(ME, headers=sent_by(await token_of(other)))).status_code == 401


async def test_the_refusal_of_a_token_does_not_repeat_it(secured: httpx.AsyncClient) -> None:
    refused = await secured.get(ME, headers=sent_by("eyJhbGciOiJub25lIn0.e30."))

    assert "eyJ" not in refused.text
