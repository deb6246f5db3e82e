"""Raw bytes to and from a server, for requests that a client library would repair."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, Final

import uvicorn

from sandur.server.protocol import PlainHttpProtocol

Message = MutableMapping[str, Any]
AsgiApp = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]

ANSWER_SECONDS_MAX: Final = 60
_PACKET_SECONDS: Final = 0.02
_PART_BYTES_MAX: Final = 1 << 16


class _Announcing(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_listening.set()


@contextlib.asynccontextmanager
async def serving(app: AsgiApp, http: type[PlainHttpProtocol] = PlainHttpProtocol) -> AsyncIterator[int]:
    """Serve the application on a free port of loopback, and yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, http=http, ws="none", lifespan="off", log_config=None, access_log=False)
        server = _Announcing(config)
        running = asyncio.create_task(server._serve([listening]))
        await server.is_listening.wait()
        try:
            yield int(listening.getsockname()[1])
        finally:
            server.should_exit = True
            await running


async def exchange(port: int, *packets: bytes) -> bytes:
    """All bytes that the server sends until it closes; the last packet must make it close.

    Each packet is sent by itself. The sending side stays open: a slow server would take a half-closed connection
    for a disconnect, and send no answer.
    """
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.settimeout(0)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await loop.sock_connect(connection, ("127.0.0.1", port))
            # A server that refuses a body before its end resets the connection after its answer.
            with contextlib.suppress(ConnectionError):
                for packet in packets:
                    await loop.sock_sendall(connection, packet)
                    await asyncio.sleep(_PACKET_SECONDS)
            return await _received(connection)


async def _received(connection: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    parts: list[bytes] = []
    with contextlib.suppress(ConnectionError):
        while part := await loop.sock_recv(connection, _PART_BYTES_MAX):
            parts.append(part)
    return b"".join(parts)
