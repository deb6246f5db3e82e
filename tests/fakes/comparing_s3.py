"""An S3 on a free port of loopback that compares the body of a list of objects to delete with its signed hash."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

_MISMATCH = "<Error><Code>{code}</Code></Error>"


@dataclass
class ComparingS3:
    """`deleted` are the bodies that it accepted. `fails_with` is the status and the code of every answer, if set."""

    url: str = ""
    deleted: list[str] = field(default_factory=list)
    calls: int = 0
    fails_with: tuple[int, str] | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        body = await reader.readexactly(int(_header(head, "content-length")))
        status, text = self._answer(body, _header(head, "x-amz-content-sha256"))
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode())
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    def _answer(self, body: bytes, signed: str) -> tuple[int, str]:
        if self.fails_with:
            return self.fails_with[0], _MISMATCH.format(code=self.fails_with[1])
        if hashlib.sha256(body).hexdigest() != signed:
            return 400, _MISMATCH.format(code="XAmzContentSHA256Mismatch")
        self.deleted.append(body.decode())
        return 200, "<DeleteResult/>"


def _header(head: str, name: str) -> str:
    return head.partition(f"\r\n{name}: ")[2].partition("\r\n")[0]


@contextlib.asynccontextmanager
async def comparing_s3() -> AsyncIterator[ComparingS3]:
    """A running service."""
    service = ComparingS3()
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield service
