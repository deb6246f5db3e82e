"""An STS on a free port of loopback: it answers AssumeRole, or fails as a test says, and keeps the forms it got."""

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from sandur.clock import Clock

_ANSWER = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>ASIA{number}</AccessKeyId><SecretAccessKey>issued-secret-{number}</SecretAccessKey>
<SessionToken>issued-token-{number}</SessionToken><Expiration>{expires}</Expiration>
</Credentials></AssumeRoleResult></AssumeRoleResponse>"""
_ERROR = "<ErrorResponse><Error><Code>{code}</Code><Message>refused: secret detail</Message></Error></ErrorResponse>"


@dataclass
class FakeSts:
    """`fails_with` holds the statuses and codes of the next answers that fail; `answer` replaces every answer."""

    clock: Clock
    url: str = ""
    forms: list[dict[str, str]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    expires_ms: list[int] = field(default_factory=list)
    fails_with: list[tuple[int, str]] = field(default_factory=list)
    answer: str | None = None
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    is_asked: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_answer.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        form = {key: values[0] for key, values in parse_qs((await reader.readexactly(length)).decode()).items()}
        self.forms.append(form)
        self.heads.append(head)
        self.is_asked.set()
        await self.may_answer.wait()
        status, body = self._answer(form)
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode("latin-1")
        )
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    def _answer(self, form: dict[str, str]) -> tuple[int, str]:
        if self.fails_with:
            status, code = self.fails_with.pop(0)
            return status, _ERROR.format(code=code)
        if self.answer is not None:
            return 200, self.answer
        expires_seconds = self.clock.now_ms() // 1_000 + int(form["DurationSeconds"])
        self.expires_ms.append(expires_seconds * 1_000)
        expires = dt.datetime.fromtimestamp(expires_seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return 200, _ANSWER.format(number=len(self.forms), expires=expires)


@contextlib.asynccontextmanager
async def fake_sts(clock: Clock) -> AsyncIterator[FakeSts]:
    """A running STS whose credentials expire by the clock."""
    sts = FakeSts(clock)
    server = await asyncio.start_server(sts.serve, "127.0.0.1", 0)
    sts.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield sts
