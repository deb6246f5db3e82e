"""Send a delivery: resolve the host once, connect to the address that was checked, follow no redirect."""

import asyncio
import contextlib
import email.utils
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

import httpx

from sandur import __version__
from sandur.catalog.event_feed.subscriptions import Answered
from sandur.catalog.event_feed.webhooks import (
    CONTENT_TYPE,
    IpAddress,
    Receiver,
    checked_receiver,
    parse_networks,
    refusal_of,
)
from sandur.errors import Invalid
from sandur.settings import Settings

ANSWER_SECONDS_MAX: Final = 10.0
_ANSWER_BYTES_MAX: Final = 64 << 10
_CONNECTIONS_MAX: Final = 200
"""The most connections to one host."""
_HOSTS_MAX: Final = 1_000
"""How many hosts keep their connections. A delivery to another one that is in progress is tried again."""
_ADDRESSES_MAX: Final = 4
"""How many addresses of a host are tried."""

Resolve = Callable[[str, int], Awaitable[Sequence[IpAddress]]]


class Sender(Protocol):
    """Posts a body to a receiver and returns what it answered. Never raises for anything that the receiver does."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answered: ...


class HttpSender:
    """The sender of one process."""

    def __init__(
        self, settings: Settings, *, resolve: Resolve | None = None, context: ssl.SSLContext | None = None
    ) -> None:
        self._allowed = parse_networks(settings.delivery_addresses)
        self._resolve = resolve or resolve_host
        self._context = context
        self._clients: dict[str, httpx.AsyncClient] = {}

    async def _client_of(self, host: str) -> httpx.AsyncClient:
        """The client of one host, with connections of its own.

        Connections are to addresses. Shared with another host at the same address, one would carry deliveries to it
        although that host has shown no certificate.
        """
        found = self._clients.pop(host, None)
        if found is None:
            if self._context is None:  # Not before the first use: to read the certificates takes a while.
                self._context = ssl.create_default_context()
            found = httpx.AsyncClient(
                verify=self._context,
                timeout=ANSWER_SECONDS_MAX,
                follow_redirects=False,
                trust_env=False,  # A proxy would resolve the name again.
                limits=httpx.Limits(max_connections=_CONNECTIONS_MAX),
                headers={"User-Agent": f"sandur/{__version__}", "Content-Type": CONTENT_TYPE},
            )
        self._clients[host] = found  # The newest is last.
        if len(self._clients) > _HOSTS_MAX:
            await self._clients.pop(next(iter(self._clients))).aclose()
        return found

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answered:
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                receiver = checked_receiver(url, self._allowed)
                addresses = await self._addresses(receiver)
                return await self._post(receiver, addresses, body, headers)
        except TimeoutError:
            return Answered(0, f"no answer within {ANSWER_SECONDS_MAX:g} s")
        except Invalid as error:
            return Answered(0, str(error))
        except OSError as error:  # The name cannot be resolved.
            return Answered(0, f"{type(error).__name__}: {error}")
        except httpx.HTTPError as error:
            return Answered(0, f"{type(error).__name__}: {error}")

    async def _addresses(self, receiver: Receiver) -> Sequence[IpAddress]:
        """The addresses that may be connected to; raises Invalid if no address is allowed."""
        found = await self._resolve(receiver.host, receiver.port)
        reasons = {address: refusal_of(address, receiver, self._allowed) for address in found}
        allowed = [address for address, reason in reasons.items() if not reason]
        if not allowed:
            raise Invalid(next(iter(reasons.values()), f"{receiver.host} has no address"))
        return allowed[:_ADDRESSES_MAX]

    async def _post(
        self, receiver: Receiver, addresses: Sequence[IpAddress], body: bytes, headers: Mapping[str, str]
    ) -> Answered:
        """Try one address after the other, until one accepts the connection."""
        sent = {**headers, "Host": receiver.authority}
        for number, address in enumerate(addresses, 1):
            host = f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004 - the version of IP
            url = f"{receiver.scheme}://{host}:{receiver.port}{receiver.path}"
            # The certificate must be that of the host, although the connection is to an address.
            extensions = {"sni_hostname": receiver.host}
            client = await self._client_of(receiver.host)
            with contextlib.suppress(*((httpx.ConnectError,) if number < len(addresses) else ())):
                async with client.stream("POST", url, content=body, headers=sent, extensions=extensions) as answer:
                    await _discard(answer)
                    return Answered(answer.status_code, _reason(answer), _retry_after_ms(answer))
        raise Invalid(f"{receiver.host} has no address")


async def resolve_host(host: str, port: int) -> Sequence[IpAddress]:
    """Every address of a host, in the order of the resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ipaddress.ip_address(one[4][0]) for one in found))


async def _discard(answer: httpx.Response) -> None:
    """Read a small body, so that the connection can be used again; leave a large one."""
    size_bytes = 0
    async for part in answer.aiter_raw():
        size_bytes += len(part)
        if size_bytes > _ANSWER_BYTES_MAX:
            return


def _reason(answer: httpx.Response) -> str:
    if answer.is_success:
        return ""
    redirect = "; redirects are not followed" if answer.is_redirect else ""
    return f"status {answer.status_code}{redirect}"


def _retry_after_ms(answer: httpx.Response) -> int:
    """What `Retry-After` says, in seconds or as a date; 0 without it."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return int(text[:9]) * 1_000
    date = answer.headers.get("date", "")
    try:
        until = email.utils.parsedate_to_datetime(text)
        return max(0, round((until - email.utils.parsedate_to_datetime(date)).total_seconds() * 1_000))
    except (ValueError, TypeError):
        return 0
