"""The page on this machine to which an identity provider sends the browser after a login."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from sandur.errors import Unauthenticated, Unavailable

HOST: Final = "127.0.0.1"
PATH: Final = "/callback"

_HEAD_BYTES_MAX: Final = 16 << 10
_HEAD_SECONDS_MAX: Final = 10.0
_PAGE: Final = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>Sandur</title><p>{text} You can close this page."
)
_ANSWER: Final = (
    "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {length}\r\n"
    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
)


class Callback:
    """Waits for one request to the page. Its parameters are those that the provider adds."""

    def __init__(self, port: int) -> None:
        self.redirect_uri = f"http://{HOST}:{port}{PATH}"
        self._parameters: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()

    async def parameters(self, *, seconds_max: float) -> Mapping[str, str]:
        """The parameters of the first request to the page; Unauthenticated if it does not come in time."""
        try:
            async with asyncio.timeout(seconds_max):
                return await asyncio.shield(self._parameters)
        except TimeoutError:
            raise Unauthenticated(
                f"the browser did not come back within {seconds_max:.0f} seconds; try again, or use --device for a "
                "browser on another machine"
            ) from None

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection. Browsers also open connections that they do not use, and ask for an icon."""
        with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_HEAD_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
            status, text = self._receive(head)
            page = _PAGE.format(text=text)
            writer.write((_ANSWER.format(status=status, length=len(page)) + page).encode())
            await writer.drain()
        writer.close()

    def _receive(self, head: bytes) -> tuple[str, str]:
        method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        address = urlsplit(rest.partition(" ")[0])
        if method != "GET" or address.path != PATH or self._parameters.done():
            return "404 Not Found", "There is nothing here."
        found = dict(parse_qsl(address.query))
        self._parameters.set_result(found)
        if "code" in found:
            return "200 OK", "The login continues in the terminal."
        return "400 Bad Request", "The login failed."


@contextlib.asynccontextmanager
async def listening(port: int) -> AsyncIterator[Callback]:
    """A page at a port of loopback; 0 takes a free one."""
    callbacks: list[Callback] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await callbacks[0].answer(reader, writer)

    try:
        server = await asyncio.start_server(answer, HOST, port, limit=_HEAD_BYTES_MAX, start_serving=False)
    except OSError as error:
        raise Unavailable(f"cannot listen on {HOST} port {port}: {error}; choose another port with --port") from error
    callbacks.append(Callback(server.sockets[0].getsockname()[1]))
    await server.start_serving()
    try:
        yield callbacks[0]
    finally:
        server.close()
