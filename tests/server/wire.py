"""Talking to a server byte by byte, where a client library would tidy things up."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, Final

import uvicorn

from sandur.server.protocol import PlainHttpProtocol

Message = MutableMapping[str, Any]
AsgiApp = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]

ANSWER_SECONDS_MAX: Final = 20
_PACKET_SECONDS: Final = 0.02


class _Announcing(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_listening.set()


@contextlib.asynccontextmanager
async def serving(app: AsgiApp) -> AsyncIterator[int]:
    """Serve the application on a free port of loopback, which is given."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(
            app, http=PlainHttpProtocol, ws="none", lifespan="off", log_config=None, access_log=False
        )
        server = _Announcing(config)
        running = asyncio.create_task(server._serve([listening]))
        await server.is_listening.wait()
        try:
            yield int(listening.getsockname()[1])
        finally:
            server.should_exit = True
            await running


async def exchange(port: int, *packets: bytes, closes: bool = True) -> bytes:
    """Everything the server sends until it closes. Each packet is sent by itself, the sending side then closed.

    A server that is slow to read may take that for the end of it all; with `closes=False` the last packet has to ask
    the server to close.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            for packet in packets:
                writer.write(packet)
                await writer.drain()
                await asyncio.sleep(_PACKET_SECONDS)
            if closes:
                writer.write_eof()
            return await reader.read()
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
