"""Signed tokens: every check of a token of this server, and the rotation of its keys."""

from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from msgspec.structs import replace

from sandur.catalog.security.manifest import Actor, Caller
from sandur.catalog.security.provider_claims import bearer_claims, external_id
from sandur.catalog.security.tokens import (
    ANNOUNCED_MS,
    AUDIENCE,
    ROTATION_MS,
    ActorClaims,
    KeyRing,
    OwnClaims,
    RingKeys,
    SigningKey,
    needs_rotation,
    rotated,
    verify_own,
)
from sandur.errors import Unauthenticated
from sandur.settings import OidcSettings

NOW = 1_800_000_000
HOUR_MS = 3_600_000


def signing_key(name: str, signs_from_ms: int = 0) -> SigningKey:
    pem = generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return SigningKey(id=name, private_pem=pem.decode(), signs_from_ms=signs_from_ms)


RING = KeyRing(id="ring", keys=(signing_key("one"),), api_key_secret="00" * 32)
KEYS = RingKeys(RING)
CLAIMS = OwnClaims(
    iss=RING.issuer,
    aud=AUDIENCE,
    sub="id-of-etl",
    jti="token-1",
    iat=NOW,
    exp=NOW + 3_600,
    tenant="acme",
    workspace="dev",
    name="etl",
    epoch=3,
)


def test_a_token_says_who_its_bearer_is() -> None:
    token = KEYS.sign(replace(CLAIMS, act=ActorClaims(sub="id-of-trino", name="trino", epoch=1)), NOW * 1_000)

    claims = verify_own(token, KEYS, (NOW + 3_599) * 1_000)

    assert (claims.tenant, claims.workspace, claims.jti) == ("acme", "dev", "token-1")
    assert claims.caller == Caller("id-of-etl", "etl", token_epoch=3, actor=Actor("id-of-trino", "trino", 1))


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": "other"},
        {"iss": "urn:sandur:other"},
        {"sub": ""},
        {"exp": NOW - 61},
        {"iat": NOW + 61, "exp": NOW + 3_600},
        {"exp": NOW + 3_601},
        {"exp": NOW + 30 * 365 * 86_400},
        {"iat": NOW - 86_400, "exp": NOW + 60},
    ],
    ids=str,
)
def test_a_token_with_a_wrong_claim_is_refused_although_its_signature_is_valid(changed: dict[str, Any]) -> None:
    token = KEYS.sign(replace(CLAIMS, **changed), NOW * 1_000)

    with pytest.raises(Unauthenticated):
        verify_own(token, KEYS, NOW * 1_000)


@pytest.mark.parametrize("name", ["iss", "aud", "sub", "exp", "iat", "tenant", "workspace"])
def test_a_token_that_lacks_a_claim_is_refused(name: str) -> None:
    claims = {key: value for key, value in msgspec.to_builtins(CLAIMS).items() if key != name}
    token = jwt.encode(claims, KEYS._private["one"], algorithm="ES256", headers={"kid": "one"})

    with pytest.raises(Unauthenticated, match="claims"):
        verify_own(token, KEYS, NOW * 1_000)


def test_a_token_that_requires_an_extension_is_refused() -> None:
    headers = {"kid": "one", "crit": ["exp"], "exp": NOW}
    token = jwt.PyJWS().encode(msgspec.json.encode(CLAIMS), KEYS._private["one"], algorithm="ES256", headers=headers)

    with pytest.raises(Unauthenticated, match="crit"):
        verify_own(token, KEYS, NOW * 1_000)


def test_an_expired_token_counts_only_where_a_secret_renews_it() -> None:
    token = KEYS.sign(CLAIMS, NOW * 1_000)
    later_ms = (NOW + 86_400) * 1_000

    with pytest.raises(Unauthenticated, match="expired"):
        verify_own(token, KEYS, later_ms)
    assert verify_own(token, KEYS, later_ms, allows_expired=True) == CLAIMS


def test_published_keys_have_no_private_part() -> None:
    (published,) = KEYS.published()["keys"]

    assert published.keys() == {"kty", "crv", "x", "y", "kid", "alg", "use"}


def test_a_successor_is_published_before_it_signs_and_the_old_key_outlives_its_tokens() -> None:
    due_ms = ROTATION_MS
    assert not needs_rotation(RING, due_ms - 1)

    ring = rotated(RING, signing_key("two", due_ms + ANNOUNCED_MS), due_ms)
    keys = RingKeys(ring)

    def signer(at_ms: int) -> str:
        return str(jwt.get_unverified_header(keys.sign(CLAIMS, at_ms))["kid"])

    assert [key.id for key in ring.keys] == ["one", "two"]
    assert (signer(due_ms), signer(due_ms + ANNOUNCED_MS)) == ("one", "two")
    assert not needs_rotation(ring, due_ms + ANNOUNCED_MS + HOUR_MS)
    later_ms = due_ms + ANNOUNCED_MS + HOUR_MS + 61_000
    assert needs_rotation(ring, later_ms)
    assert [key.id for key in rotated(ring, signing_key("three"), later_ms).keys] == ["two"]


PROVIDER = OidcSettings(issuer="https://idp.example", audience="lake", groups_claim="realm.roles", name_claim="login")
FOREIGN = {"iss": PROVIDER.issuer, "aud": ["other", "lake"], "sub": "7", "exp": NOW + 600, "iat": NOW}


def test_claims_may_be_nested_and_a_single_group_is_a_text() -> None:
    found = bearer_claims(msgspec.json.encode({**FOREIGN, "realm": {"roles": "one"}}), PROVIDER, now_ms=NOW * 1_000)

    assert (found.caller.groups, found.caller.name) == (("one",), "idp.example~7")
    assert found.caller.id == external_id("https://idp.example", "7") != external_id("https://idp.example/", "7")


@pytest.mark.parametrize("name", ["iss", "aud", "sub", "exp", "iat"])
def test_a_foreign_token_that_lacks_a_claim_is_refused(name: str) -> None:
    claims = {key: value for key, value in FOREIGN.items() if key != name}

    with pytest.raises(Unauthenticated):
        bearer_claims(msgspec.json.encode(claims), PROVIDER, now_ms=NOW * 1_000)
