"""Handlers that sign requests to object storage, for clients without keys."""

from typing import Final

import msgspec

from sandur.catalog.credentials.signed_requests import StorageRequest
from sandur.errors import BadRequest
from sandur.operations.credentials.sign import SignedRequest, sign_located_request, sign_request
from sandur.server.context import Call
from sandur.server.http import CACHE_CONTROL, Answer, json_answer
from sandur.server.iceberg_rest.tables import PRIVATE, encode, table_of
from sandur.splicing import decode

_NO_CACHE: Final = (CACHE_CONTROL, b"no-cache")
_S3: Final = "s3"


class SignBody(msgspec.Struct, frozen=True):
    """A request to be signed. `properties` of the specification mean nothing to this server."""

    method: str
    uri: str
    region: str
    headers: dict[str, list[str]]
    body: str | None = None
    provider: str | None = None


async def sign(call: Call) -> Answer:
    return _answer(await sign_request(call.lake, table_of(call), _request(call)))


async def sign_located(call: Call) -> Answer:
    return _answer(await sign_located_request(call.lake, _request(call)))


def _request(call: Call) -> StorageRequest:
    body = decode(call.http.body, SignBody, "sign request")
    if body.provider not in {None, _S3}:
        raise BadRequest(f"Invalid provider: only requests to {_S3} are signed")
    return StorageRequest(body.method, body.uri, body.region, body.headers, body.body)


def _answer(signed: SignedRequest) -> Answer:
    body = encode({"uri": signed.uri, "headers": {name: [value] for name, value in signed.headers.items()}})
    # Java keeps an answer that is private for half a minute, by method and URI: only reads are the same each time.
    return json_answer(body, *PRIVATE) if signed.is_read else json_answer(body, _NO_CACHE)
