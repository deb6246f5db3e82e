"""A proxy in front of a server that forwards every request and loses every fifth answer."""

import asyncio
import contextlib
import itertools
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

from tests.servers.processes import LOOPBACK

LOSES_EVERY: Final = 5

_HEAD_BYTES_MAX: Final = 1 << 16
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


class LossyProxy:
    """Accepts connections with one request each, and closes each one after the answer, or instead of it.

    `numbers` counts the requests of all proxies that share it. Every other lost answer is lost at once: the client then
    retries while the server is still working on the first attempt.
    """

    def __init__(self, server_port: int, numbers: Iterator[int]) -> None:
        self._server_port = server_port
        self._numbers = numbers
        self._underway: set[asyncio.Task[None]] = set()
        self._silent: set[asyncio.StreamWriter] = set()
        self._listener: asyncio.Server | None = None
        self.lost = 0

    @property
    def url(self) -> str:
        assert self._listener is not None
        return f"http://{LOOPBACK}:{self._listener.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._take, LOOPBACK, 0, limit=_HEAD_BYTES_MAX)

    async def stop(self) -> None:
        """Accept no more connections, and wait for pending answers.

        A client that timed out during the connect leaves a connection without a request.
        """
        assert self._listener is not None
        self._listener.close()
        for writer in self._silent:
            writer.close()
        await asyncio.gather(*self._underway, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._underway.add(task)
        self._silent.add(writer)
        try:
            # Without a server there is no answer; in both cases the client sees a closed connection.
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                request = await _request(reader)
                self._silent.discard(writer)
                await self._pass_on(request, writer)
        finally:
            self._silent.discard(writer)
            self._underway.discard(task)
            await _end(writer)

    async def _pass_on(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(LOOPBACK, self._server_port)
        try:
            to_server.write(request)
            await to_server.drain()
            number = next(self._numbers)
            is_lost = number % LOSES_EVERY == 0
            self.lost += is_lost
            if is_lost and number % (2 * LOSES_EVERY) == 0:
                await _end(writer)
            answer = await from_server.read()
            if not is_lost:
                writer.write(answer)
                await writer.drain()
        finally:
            await _end(to_server)


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return head + (await reader.readexactly(int(length[1])) if length else b"")


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@contextlib.asynccontextmanager
async def lossy_proxies(server_ports: Sequence[int]) -> AsyncIterator[Sequence[LossyProxy]]:
    """One proxy before each server; together they lose every fifth answer."""
    numbers = itertools.count(1)
    proxies = [LossyProxy(port, numbers) for port in server_ports]
    for proxy in proxies:
        await proxy.start()
    try:
        yield proxies
    finally:
        for proxy in proxies:
            await proxy.stop()
