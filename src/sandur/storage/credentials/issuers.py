"""Requests to the services that issue credentials: bounded in time and size. Errors contain no secrets."""

import asyncio
import functools
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple

import httpx

from sandur.errors import Unavailable
from sandur.trace_context import WITH_TRACE

SECONDS_MAX: Final = 5
ANSWER_BYTES_MAX: Final = 64 << 10

_TRANSIENT: Final = frozenset({408, 429, 500, 502, 503, 504})


class IssuerAnswer(NamedTuple):
    """A definite answer of a service: a success or a refusal."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def send_to_issuer(
    issuer: str, method: str, url: str, *, headers: Mapping[str, str], form: Mapping[str, str]
) -> IssuerAnswer:
    """The answer to one request. Raises Unavailable, which names the issuer, if another try may get an answer."""
    try:
        async with asyncio.timeout(SECONDS_MAX):
            answer = await _send(method, url, headers=headers, form=form)
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
        # The name of the error only: its text may contain a part of the request.
        raise Unavailable(f"{issuer} does not answer: {type(error).__name__}") from None
    if answer.status in _TRANSIENT:
        raise Unavailable(f"{issuer} answered {answer.status}")
    return answer


async def _send(method: str, url: str, *, headers: Mapping[str, str], form: Mapping[str, str]) -> IssuerAnswer:
    async with (
        httpx.AsyncClient(timeout=SECONDS_MAX, follow_redirects=False, verify=_tls(), event_hooks=WITH_TRACE) as client,
        client.stream(method, url, headers=headers, data=form or None) as response,
    ):
        body = b""
        async for part in response.aiter_bytes():
            body += part
            if len(body) > ANSWER_BYTES_MAX:
                raise httpx.DecodingError("the answer is too large")
        return IssuerAnswer(response.status_code, response.headers, body)


@functools.cache
def _tls() -> ssl.SSLContext:
    """The certificates of the system, read once: that takes longer than a request."""
    return httpx.create_ssl_context()
