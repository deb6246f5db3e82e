"""Calls of the services: each passes through what every request passes through, then its handler.

A change that has begun is finished, also if its client cancels it or its deadline passes: the client cannot know how
far it got, and half of a protocol would be left to others. What the client missed, it learns by a read, or by sending
the call again with its idempotency key.
"""

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote

import grpc
import msgspec
from google.protobuf.message import DecodeError, Message

from sandur.catalog.security.privileges import Needs
from sandur.server.context import Call
from sandur.server.grpc.errors import DEADLINE_STATUS, Failure, failure_of
from sandur.server.grpc.messages import Form, FormOf
from sandur.server.http import BODY_SECONDS_MAX, HttpRequest, Refused
from sandur.server.metrics import Rounds
from sandur.server.requests import READS, Requests, RunningExchange
from sandur.settings import Settings

M = TypeVar("M", bound=Message)

PROTOCOL: Final = "grpc"
DEADLINE_SECONDS_MIN: Final = 0.05
"""A call with less time left is refused: its answer would hardly reach the client."""

STREAM_WRITE_SECONDS_MAX: Final = 60.0
"""A stream is ended if its client does not read a message for this long."""

_DONE_STATUS: Final = 200
_SERVER_ERROR: Final = 500
_OK: Final = "OK"
_CANCELLED: Final = "CANCELLED"
_REQUEST_ID: Final = "x-request-id"

Metadata = tuple[tuple[str, str | bytes], ...]


class Context(Protocol):
    """What this module uses of a call of grpc.aio."""

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]] | None: ...
    def peer(self) -> str: ...
    def time_remaining(self) -> float | None: ...
    def set_trailing_metadata(self, metadata: Metadata) -> None: ...
    async def write(self, message: bytes) -> None: ...
    async def abort(self, code: grpc.StatusCode, details: str, trailing_metadata: Metadata) -> None: ...


Unary = Callable[[Call, M], Awaitable[Message]]
Stream = Callable[[Call, M], AsyncGenerator[Message, None]]


class Method(NamedTuple):
    """A method of a service: the operation that it calls, as the REST APIs name it, and the privileges that it needs.

    `verb` is the method of HTTP for the operation: GET reads. Either `unary` or `stream` is set. A stream that is
    endless counts as a request until its first answer.
    """

    operation: str
    verb: str
    message: type[Message]
    needs: Needs
    form: FormOf[Message]
    unary: Unary[Message] | None = None
    stream: Stream[Message] | None = None
    is_endless: bool = False


def unary(operation: str, verb: str, message: type[M], needs: Needs, form: FormOf[M], handler: Unary[M]) -> Method:
    """A method with one answer; its handler and its form take its own message."""
    return Method(operation, verb, message, needs, form, unary=handler)


def stream(
    operation: str,
    verb: str,
    message: type[M],
    needs: Needs,
    form: FormOf[M],
    handler: Stream[M],
    *,
    is_endless: bool = False,
) -> Method:
    """A method with a stream of answers."""
    return Method(operation, verb, message, needs, form, stream=handler, is_endless=is_endless)


class Services(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no types.
    """The methods of one process.

    To gRPC, every method takes a stream of messages: it reads the message of any other method before it calls the
    method, also that of a client without a valid token.
    """

    def __init__(self, methods: Mapping[str, Method], requests: Requests, settings: Settings) -> None:
        self._requests = requests
        self._settings = settings
        self._changes: set[asyncio.Task[bytes | Failure]] = set()
        self._handlers = {path: self._handler(path, method) for path, method in methods.items()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._handlers.get(handler_call_details.method)

    async def finish_changes(self, within_seconds: float) -> None:
        """Wait for changes whose clients may be gone, at most for this long."""
        if self._changes:
            await asyncio.wait(self._changes, timeout=within_seconds)

    def _handler(self, path: str, method: Method) -> grpc.RpcMethodHandler:
        if method.stream:
            return grpc.stream_stream_rpc_method_handler(functools.partial(self._stream, path, method))
        return grpc.stream_unary_rpc_method_handler(functools.partial(self._unary, path, method))

    async def _unary(self, path: str, method: Method, sent: AsyncIterator[bytes], context: Context) -> bytes:
        exchange = self._exchange(path, method, context)
        work = self._concluded(exchange, self._answer(exchange, method, sent, context.time_remaining()))
        if method.verb in READS:
            answer = await work
        else:
            change = asyncio.create_task(work, name=path)
            self._changes.add(change)
            change.add_done_callback(self._changes.discard)
            answer = await asyncio.shield(change)
        return await self._sent(exchange, answer, context)

    async def _stream(self, path: str, method: Method, sent: AsyncIterator[bytes], context: Context) -> None:
        exchange = self._exchange(path, method, context)
        answer = await self._concluded(exchange, self._send_answers(exchange, method, sent, context))
        await self._sent(exchange, answer, context)

    async def _concluded(self, exchange: RunningExchange, work: Awaitable[bytes]) -> bytes | Failure:
        """The result of the work, also if it fails, with its audit record, its metrics and its log line."""
        self._requests.begin(exchange)
        status = _CANCELLED
        try:
            answer: bytes | Failure = (done := await work)
            self._requests.check_decided(exchange)
            exchange.status, status, exchange.sent_bytes = _DONE_STATUS, _OK, len(done)
        except asyncio.CancelledError as raised:
            exchange.error = raised
            raise
        except Exception as raised:  # noqa: BLE001 - the one place that turns errors into answers
            answer = self._failed(raised, exchange)
            status = answer.code
        finally:
            self._requests.end(exchange)
            self._requests.observe(exchange, _path(exchange), status)
        return answer

    async def _answer(
        self, exchange: RunningExchange, method: Method, sent: AsyncIterator[bytes], seconds_left: float | None
    ) -> bytes:
        call, message = await self._admitted(exchange, method, sent, seconds_left)
        assert method.unary  # noqa: S101 - a method has one of the two
        handler = method.unary
        answer = await call.with_current_names(lambda current: handler(current, message))
        return answer.SerializeToString()  # type: ignore[no-any-return] # protobuf has no types.

    async def _send_answers(
        self, exchange: RunningExchange, method: Method, sent: AsyncIterator[bytes], context: Context
    ) -> bytes:
        call, message = await self._admitted(exchange, method, sent, context.time_remaining())
        assert method.stream  # noqa: S101 - a method has one of the two
        call = await call.with_current_names(_itself)
        async with contextlib.aclosing(method.stream(call, message)) as answers:
            async for answer in answers:
                self._requests.check_decided(exchange)
                if method.is_endless and not exchange.is_ended:
                    exchange.status = _DONE_STATUS
                    self._requests.end(exchange)
                await _write(context, answer.SerializeToString())
        return b""

    async def _sent(self, exchange: RunningExchange, answer: bytes | Failure, context: Context) -> bytes:
        """The answer itself; a failure ends the call with its code and details."""
        trailers: Metadata = ((_REQUEST_ID, exchange.request_id),)
        if isinstance(answer, Failure):
            await context.abort(answer.grpc_code, answer.details.message, (*trailers, *answer.trailers))
            return b""
        context.set_trailing_metadata(trailers)
        return answer

    def _exchange(self, path: str, method: Method, context: Context) -> RunningExchange:
        began = time.perf_counter()
        headers = dict(_header(*pair) for pair in context.invocation_metadata() or ())
        peer = _address(context.peer())
        scope = {"method": method.verb, "client": (peer,) if peer else None}
        return RunningExchange(
            scope,
            headers,
            self._requests.request_id(headers),
            PROTOCOL,
            method.operation,
            method.needs,
            {},
            route=path,
            rounds=Rounds(method.operation),
            began=began,
        )

    async def _admitted(
        self, exchange: RunningExchange, method: Method, sent: AsyncIterator[bytes], seconds_left: float | None
    ) -> tuple[Call, Message]:
        """The call of an identified and admitted client, and its message."""
        if seconds_left is not None and seconds_left < DEADLINE_SECONDS_MIN:
            left_ms = max(0, round(seconds_left * 1_000))
            raise Refused(
                DEADLINE_STATUS, f"Nothing was done: the deadline is in {left_ms} ms; allow at least a second"
            )
        peer = (exchange.scope["client"] or ("",))[0]
        path = exchange.route.encode()
        request = HttpRequest(method.verb, path, b"", exchange.headers, b"", exchange.request_id, peer)
        await self._requests.identify(exchange, request)
        message = _decoded(method.message, await _received(sent))
        form: Form = method.form(message, self._settings.default_catalog)
        exchange.values, exchange.body = form.values, form.body
        request = msgspec.structs.replace(request, query=form.query, body=form.body)
        return await self._requests.authorize(exchange, request), message

    def _failed(self, error: Exception, exchange: RunningExchange) -> Failure:
        is_public = self._settings.authentication != "off"
        failure = failure_of(error, exchange.operation, exchange.request_id, is_public=is_public)
        exchange.status = failure.status
        self._requests.note_failure(error, exchange, is_server_error=failure.status >= _SERVER_ERROR)
        return failure


async def _received(sent: AsyncIterator[bytes]) -> bytes:
    """The message of a call."""
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            async for message in sent:
                return message
    except TimeoutError:
        raise Refused(408, f"The message did not arrive within {BODY_SECONDS_MAX:g} seconds") from None
    raise Refused(400, "The call has no message")


def _decoded(kind: type[Message], sent: bytes) -> Message:
    try:
        return kind.FromString(sent)
    except DecodeError:
        raise Refused(400, f"The message is not a {kind.DESCRIPTOR.full_name}") from None


async def _write(context: Context, message: bytes) -> None:
    try:
        async with asyncio.timeout(STREAM_WRITE_SECONDS_MAX):
            await context.write(message)
    except TimeoutError:
        text = f"The client did not read for {STREAM_WRITE_SECONDS_MAX:g} seconds; call again"
        raise Refused(413, text) from None


async def _itself(call: Call) -> Call:
    return call


def _path(exchange: RunningExchange) -> bytes:
    """What the log shows of a change: its method and the names in its message."""
    return b"/".join((exchange.route.encode(), *exchange.values.values()))


def _header(name: str, value: str | bytes) -> tuple[bytes, bytes]:
    return name.encode(), value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


def _address(peer: str) -> str:
    """The address in `ipv4:127.0.0.1:4242` or `ipv6:%5B::1%5D:4242`; empty if the peer has none."""
    family, _, rest = unquote(peer).partition(":")
    return rest.rpartition(":")[0].strip("[]") if family in {"ipv4", "ipv6"} else ""
