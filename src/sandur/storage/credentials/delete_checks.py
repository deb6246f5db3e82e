"""Whether an S3 service compares the body of a request with the hash of it that is signed.

AWS does. Some other services do not: there, a signature for one list of objects to delete is good for any other list.
"""

import hashlib
import re
from typing import Final

import httpx

from sandur.catalog.credentials.profiles import Keys
from sandur.catalog.credentials.signed_requests import Home, JudgedRequest
from sandur.errors import Unavailable
from sandur.storage.credentials.signatures import signed_headers

_TIMEOUT: Final = httpx.Timeout(5, connect=3)
_CODE: Final = re.compile(r"<Code>([A-Za-z0-9]{1,100})</Code>")
_MISMATCHES: Final = frozenset({"XAmzContentSHA256Mismatch", "BadDigest", "InvalidDigest"})
_CLIENT_ERROR: Final = 400


async def compares_bodies(home: Home, keys: Keys, nonce: str, now_ms: int) -> bool:
    """Whether the service refuses a list of objects to delete whose hash is another one.

    The list names one object that does not exist. Raises Unavailable if the service gives no clear answer.
    """
    if not home.profile.endpoint:
        return True
    url = f"{home.profile.endpoint.rstrip('/')}/{home.bucket}?delete"
    scheme, _, rest = home.profile.endpoint.rstrip("/").partition("://")
    if not home.profile.path_style:
        url = f"{scheme}://{home.bucket}.{rest}/?delete"
    sent = httpx.URL(url)
    request = JudgedRequest(
        profile=home.profile,
        method="POST",
        uri=url,
        host=sent.netloc.decode(),
        path=sent.path,
        query="delete=",
        headers={},
        payload_hash=hashlib.sha256(b"another list").hexdigest(),
        places=(),
    )
    body = f"<Delete><Object><Key>{home.folder}{nonce}</Key></Object></Delete>".encode()
    try:
        async with httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False) as client:
            answer = await client.post(url, content=body, headers=signed_headers(request, keys, now_ms))
    except httpx.HTTPError as error:
        raise Unavailable(f"S3 at {home.profile.endpoint} does not answer: {type(error).__name__}") from None
    code = _CODE.search(answer.text)
    if answer.status_code < _CLIENT_ERROR:
        return False
    if code and code[1] in _MISMATCHES:
        return True
    raise Unavailable(f"S3 at {home.profile.endpoint} answered {answer.status_code} to a list of objects to delete")
