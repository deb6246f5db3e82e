"""The services of a server in this process, called without a network."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import httpx
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message
from google.rpc import status_pb2

from sandur.clock import Clock
from sandur.server.grpc.routes import METHODS
from sandur.server.grpc.server import GrpcServer
from sandur.server.grpc.service import Metadata, Services
from sandur.server.requests import Requests
from sandur.server.serve import build
from sandur.settings import Settings
from sandur.storage.contract import ObjectStore
from tests.grpc.stubs import Problem, details_of
from tests.server.conftest import with_plain_names


class Aborted(Exception):
    """The server ended a call with an error."""

    def __init__(self, code: grpc.StatusCode, text: str, trailers: Metadata) -> None:
        super().__init__(f"{code.name}: {text}")
        details = dict(trailers).get("grpc-status-details-bin", b"")
        assert isinstance(details, bytes)
        self.problem = Problem(code.name, text, details_of(status_pb2.Status.FromString(details)))


class FakeContext:
    """What a call knows of its connection."""

    def __init__(self, metadata: Sequence[tuple[str, str | bytes]], seconds_left: float | None) -> None:
        self._metadata = metadata
        self._seconds_left = seconds_left
        self.written: list[bytes] = []
        self.trailers: Metadata = ()

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        return self._metadata

    def peer(self) -> str:
        return "ipv6:%5B::1%5D:4242"

    def time_remaining(self) -> float | None:
        return self._seconds_left

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        self.trailers = metadata

    async def write(self, message: bytes) -> None:
        self.written.append(message)

    async def abort(self, code: grpc.StatusCode, details: str, trailing_metadata: Metadata) -> None:
        raise Aborted(code, details, trailing_metadata)


class _Details(NamedTuple):
    method: str


class Direct:
    """The services, and the REST APIs of the same server."""

    def __init__(self, settings: Settings, store: ObjectStore | None = None, clock: Clock | None = None) -> None:
        app, self.catalog = build(settings, store=store, clock=clock)
        self.settings = settings
        self.requests: Requests = app.requests
        self.services = Services(METHODS, app.requests, settings)
        self.metadata: tuple[tuple[str, str], ...] = ()
        transport = httpx.ASGITransport(with_plain_names(app))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30)

    async def start(self) -> None:
        await self.catalog.start()

    async def close(self) -> None:
        await self.http.aclose()
        await self.catalog.close()

    async def listen(self) -> GrpcServer:
        """A port of the same server, on which its services listen."""
        server = GrpcServer(self.settings, self.catalog, self.requests, port=0)
        await server.start()
        return server

    async def call(
        self,
        method: str,
        sent: Message | bytes,
        *metadata: tuple[str, str],
        seconds_left: float | None = None,
    ) -> Any:
        """The answer; a list if the method has a stream of them. Raises Aborted."""
        context = FakeContext((*self.metadata, *metadata), seconds_left)
        return await run(self.services, f"/sandur.v1.{method.replace('.', '/')}", sent, context)

    async def problem(self, method: str, sent: Message | bytes, *metadata: tuple[str, str]) -> Problem:
        """The error of a call that must fail."""
        try:
            answer = await self.call(method, sent, *metadata)
        except Aborted as aborted:
            return aborted.problem
        raise AssertionError(f"{method} succeeded: {answer}")


async def run(services: Services, path: str, sent: Message | bytes, context: FakeContext) -> Any:
    """Call a method of the services, as grpc does."""
    handler = services.service(_Details(path))
    assert handler, path
    raw = sent if isinstance(sent, bytes) else sent.SerializeToString()
    service, _, name = path.removeprefix("/").partition("/")
    answer_type = _answer_type(service, name)
    if handler.response_streaming:
        await handler.stream_stream(_one(raw), context)
        return [answer_type.FromString(message) for message in context.written]
    return answer_type.FromString(await handler.stream_unary(_one(raw), context))


async def _one(message: bytes) -> AsyncIterator[bytes]:
    yield message


def _answer_type(service: str, name: str) -> Any:
    method = descriptor_pool.Default().FindServiceByName(service).FindMethodByName(name)
    return message_factory.GetMessageClass(method.output_type)


async def opened(
    store: ObjectStore | None = None, *, folder: Path | None = None, clock: Clock | None = None, **settings: object
) -> Direct:
    """The services on this store, on this folder, or on a fresh store in memory."""
    where = {"store": str(folder), "fsync": "never"} if folder else {"store": "memory:"}
    given = Settings(**{**where, "log_level": "error", **settings})  # type: ignore[arg-type] # Given by name.
    direct = Direct(given, store, clock)
    await direct.start()
    return direct
