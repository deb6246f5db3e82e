"""Signatures of requests to S3 (AWS Signature Version 4).

botocore signs too, at about 100 µs a request; here the key of the day is remembered, and the parts come from the judge.
"""

import functools
import hashlib
import hmac
import time
from collections.abc import Mapping
from typing import Final

from sandur.catalog.credentials.profiles import Keys
from sandur.catalog.credentials.signed_requests import JudgedRequest, region_of

LIFETIME_MS: Final = 15 * 60 * 1_000
"""How long services accept a signature."""

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_KEYS_REMEMBERED_MAX: Final = 64
_DATE_LENGTH: Final = 8


def signed_headers(request: JudgedRequest, keys: Keys, now_ms: int) -> Mapping[str, str]:
    """The headers that the request must be sent with: those that are signed, and the signature."""
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_ms // 1_000))
    headers = {
        **request.headers,
        "host": request.host,
        "x-amz-content-sha256": request.payload_hash,
        "x-amz-date": moment,
    }
    if keys.session_token:
        headers["x-amz-security-token"] = keys.session_token
    names = sorted(headers)
    lines = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in names)
    signed = ";".join(names)
    canonical = f"{request.method}\n{request.path}\n{request.query}\n{lines}\n{signed}\n{request.payload_hash}"
    day, region = moment[:_DATE_LENGTH], region_of(request.profile)
    scope = f"{day}/{region}/s3/aws4_request"
    text = f"{_ALGORITHM}\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    signature = hmac.digest(_key_of_day(keys.secret_access_key, day, region), text.encode(), "sha256").hex()
    del headers["host"]
    headers["Authorization"] = (
        f"{_ALGORITHM} Credential={keys.access_key_id}/{scope}, SignedHeaders={signed}, Signature={signature}"
    )
    return headers


@functools.lru_cache(_KEYS_REMEMBERED_MAX)
def _key_of_day(secret: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
