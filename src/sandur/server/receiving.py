"""Taking the body of a request in, within limits of size and time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

from sandur.server.messages import CLOSE, ClientGone, Refused

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

BODY_SECONDS_MAX: Final = 60.0

# A client that is still sending does not read: an answer before the end would be lost with the connection.
_DISCARDED_FACTOR_MAX: Final = 4

_TIMEOUT: Final = 408
_TOO_LARGE: Final = 413


async def received_body(receive: Receive, headers: Mapping[bytes, bytes], bytes_max: int) -> bytes:
    """The whole body; Refused when it is too large or too slow, ClientGone when the client hangs up."""
    if b"content-length" not in headers and b"transfer-encoding" not in headers:
        return b""
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            return await _received(receive, bytes_max)
    except TimeoutError:
        raise Refused(_TIMEOUT, f"The request did not arrive within {BODY_SECONDS_MAX:g} seconds", CLOSE) from None


async def _received(receive: Receive, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    size_bytes = 0
    while size_bytes <= bytes_max * _DISCARDED_FACTOR_MAX:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size_bytes += len(part)
        if size_bytes <= bytes_max:
            parts.append(part)
        if not message.get("more_body", False):
            break
    if size_bytes > bytes_max:
        raise Refused(_TOO_LARGE, f"The body of the request has more than {bytes_max} bytes", CLOSE)
    return parts[0] if len(parts) == 1 else b"".join(parts)
