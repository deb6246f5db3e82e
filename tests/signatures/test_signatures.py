"""Signatures are those of botocore, byte for byte."""

import datetime as dt
import random  # noqa: TID251 - seeded
from unittest import mock

import botocore.auth
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from msgspec.structs import replace

from sandur.catalog.credentials.profiles import Keys
from sandur.catalog.credentials.signed_requests import JudgedRequest, home_of, judge
from sandur.storage.credentials.signatures import signed_headers
from tests.signatures.generated import BUCKET, HOME, home_profile, homes, valid_request

NOW_MS = 1_790_000_000_123
HEADERS = {
    "Content-Type": ["application/x;  charset=a"],
    "x-amz-checksum-crc32": ["AAAA=="],
    "Content-MD5": [" padded "],
    "x-amz-content-sha256": ["e" * 64],
    "Range": ["bytes=0-1"],
}


class _Declared(S3SigV4Auth):  # type: ignore[misc] # botocore has no types
    """botocore's signer, for a body with this hash."""

    hash = ""

    def payload(self, _request: AWSRequest) -> str:
        return self.hash


def by_botocore(request: JudgedRequest, keys: Keys) -> dict[str, str]:
    signer = _Declared(Credentials(*keys[:2], keys.session_token or None), "s3", request.profile.region)
    signer.hash = request.payload_hash
    sent = AWSRequest(method=request.method, url=request.uri, headers=dict(request.headers))
    now = dt.datetime.fromtimestamp(NOW_MS // 1_000, dt.UTC)
    with mock.patch.object(botocore.auth, "get_current_datetime", return_value=now):  # botocore takes no clock.
        signer.add_auth(sent)
    return {name.lower(): value for name, value in sent.headers.items()}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("session_token", ["", "a session token"])
def test_every_signature_is_that_of_botocore(seed: int, session_token: str) -> None:
    chance = random.Random(seed)
    keys = Keys("AKID", "secret/+=", session_token)
    for _ in range(50):
        headers = {name: HEADERS[name] for name in HEADERS if chance.random() < 0.5}
        request = judge(valid_request(chance)._replace(headers=headers), homes(home_profile()))

        assert {name.lower(): value for name, value in signed_headers(request, keys, NOW_MS).items()} == by_botocore(
            request, keys
        )


@pytest.mark.parametrize("region", ["eu-west-1", "us-east-1"])
def test_the_signature_of_another_day_or_region_is_another_one(region: str) -> None:
    profile = replace(home_profile(""), region=region)
    uri = f"https://{BUCKET}.s3.{region}.amazonaws.com/{HOME}/a"
    request = judge(
        valid_request(random.Random(1))._replace(method="GET", uri=uri, region=region, body=None),
        [home_of(profile, f"s3://{BUCKET}/{HOME}")],
    )
    keys = Keys("AKID", "secret")

    today, tomorrow = (signed_headers(request, keys, NOW_MS + days * 86_400_000) for days in (0, 1))

    assert today["Authorization"] != tomorrow["Authorization"]
    assert f"/{region}/s3/aws4_request" in today["Authorization"]
    assert {name.lower(): value for name, value in today.items()} == by_botocore(request, keys)
