"""A client of a streamed answer of an application in this process: httpx would wait for the end of the answer."""

import asyncio
from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from sandur.server.app import App

SECONDS_MAX = 20.0


class SentEvent(NamedTuple):
    id: str
    type: str
    data: Mapping[str, Any]


class Stream:
    """An answer as it arrives. `read` waits for the next event."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Mapping[bytes, bytes] = {}
        self.is_begun = asyncio.Event()
        self.is_ended = asyncio.Event()
        self._events: asyncio.Queue[SentEvent] = asyncio.Queue()
        self._rest = b""
        self.gone = asyncio.Event()
        self.stalled = asyncio.Event()

    async def receive(self) -> MutableMapping[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = dict(message["headers"])
            self.is_begun.set()
            return
        if self.stalled.is_set():
            await asyncio.Event().wait()  # As a client that no longer reads.
        *whole, self._rest = (self._rest + message.get("body", b"")).split(b"\n\n")
        for block in whole:
            fields = dict(line.split(": ", 1) for line in block.decode().splitlines())
            if "event" in fields:
                data = msgspec.json.decode(fields["data"])
                self._events.put_nowait(SentEvent(fields["id"], fields["event"], data))
        if not message.get("more_body"):
            self.is_ended.set()

    async def read(self, *, with_heartbeats: bool = False) -> SentEvent:
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                event = await self._events.get()
                if with_heartbeats or event.type != "heartbeat":
                    return event


@asynccontextmanager
async def streamed(app: App, path: str, **headers: str) -> AsyncIterator[Stream]:
    """The answer to a GET; at the end of the block the client disconnects."""
    stream = Stream()
    target, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": "GET",
        "raw_path": target.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"localhost"), *((k.replace("_", "-").encode(), v.encode()) for k, v in headers.items())],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }
    serving = asyncio.create_task(app(scope, stream.receive, stream.send))
    try:
        async with asyncio.timeout(SECONDS_MAX):
            await stream.is_begun.wait()
        yield stream
    finally:
        stream.gone.set()
        async with asyncio.timeout(SECONDS_MAX):
            await serving
