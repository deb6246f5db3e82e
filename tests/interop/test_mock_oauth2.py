"""The second identity provider of the tests: several issuers, each with its own claims."""

from pathlib import Path

import httpx
import jwt
import pytest

from tests.interop.engines.environments import NotInstalled
from tests.servers.mock_oauth2 import mock_oauth2

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


def test_each_issuer_signs_tokens_with_the_claims_of_its_clients(tmp_path: Path) -> None:
    issuers = {
        "acme": {"etl": {"sub": "etl", "aud": ["sandur"], "groups": ["writers"]}},
        "rival": {"etl": {"sub": "etl", "aud": ["another"]}},
    }
    try:
        with mock_oauth2(tmp_path, issuers) as provider:
            issuer = provider.issuer("acme")
            token, foreign = provider.token("acme", "etl"), provider.token("rival", "etl")
            discovered = httpx.get(f"{issuer}/.well-known/openid-configuration").json()
            keys = jwt.PyJWKSet.from_dict(httpx.get(discovered["jwks_uri"]).json())
    except NotInstalled as reason:
        pytest.skip(str(reason))

    key = keys[jwt.get_unverified_header(token)["kid"]].key
    claims = jwt.decode(token, key, algorithms=["RS256"], audience="sandur", issuer=issuer)
    assert claims.items() >= {"sub": "etl", "groups": ["writers"]}.items()
    with pytest.raises(jwt.InvalidTokenError):
        jwt.decode(foreign, key, algorithms=["RS256"], audience="sandur", issuer=issuer)
