"""The ASGI application: finds the dialect of a request, and sees to limits, identity, numbers and logs around it."""

import re
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final, Protocol

import structlog

from sandur.clock import Clock
from sandur.errors import Busy, SandurError
from sandur.server.http import CONTENT_LENGTH, REQUEST_ID, Answer, ClientGone, HttpRequest, Receive, Refused, read_body
from sandur.server.identity import Identity, identify
from sandur.server.measured_store import Rounds, current_rounds
from sandur.server.metrics import REQUESTS_REFUSED, RequestMeasures
from sandur.settings import Settings

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_REQUEST_ID: Final = re.compile(rb"[\x21-\x7e]{1,128}\Z")
_WITHOUT_BODY: Final = frozenset({204, 304})
_FAILED: Final = 500
_CLIENT_GONE: Final = 499  # Nobody sees it; the log does.
_READING: Final = frozenset({"GET", "HEAD"})
_RENAMING: Final = "rename"
_NOTHING: Final[Mapping[str, str]] = {}
LOGGED_BYTES_MAX: Final = 1_024


class Routed(Protocol):
    """Where a request goes, known before its body is."""

    @property
    def operation(self) -> str: ...

    @property
    def template(self) -> str: ...

    @property
    def is_open(self) -> bool:
        """Whether it is for those, too, who have no token yet."""
        ...


class Dialect(Protocol):
    """One protocol spoken over HTTP."""

    @property
    def name(self) -> str: ...

    @property
    def mounts(self) -> Sequence[bytes]:
        """What the paths of its requests begin with."""
        ...

    def routed(self, method: str, path: bytes) -> Routed:
        """Where the request goes; one that leads nowhere is routed to its refusal."""
        ...

    async def answer(self, routed: Any, request: HttpRequest, identity: Identity) -> Answer:  # noqa: ANN401 - what `routed` gave
        """Raises what operations raise, and Refused."""
        ...

    def refusal(self, error: Exception, operation: str, request_id: str) -> Answer:
        """Any error in the words of the protocol."""
        ...


class Lifetime(Protocol):
    """What lives as long as the application."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...


class App:
    """The application of one process."""

    def __init__(
        self,
        *,
        dialects: Sequence[Dialect],
        beside: AsgiApp,
        lifetime: Lifetime,
        settings: Settings,
        clock: Clock,
        measures: RequestMeasures,
    ) -> None:
        mounted = [(mount, dialect) for dialect in dialects for mount in dialect.mounts]
        self.dialects = sorted(mounted, key=lambda one: -len(one[0]))  # One mount may lie below another.
        self.beside = beside
        self.lifetime = lifetime
        self.settings = settings
        self.clock = clock
        self.measures = measures
        self.log = structlog.get_logger().bind()  # Bound once: each call of an unbound one makes a new logger.

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        path = scope["raw_path"]
        for mount, dialect in self.dialects:
            if path.startswith(mount):
                await _Exchange(self, dialect, scope).held(receive, send)
                return
        await self.beside(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.lifetime.start()
        except SandurError as error:
            await send({"type": "lifespan.startup.failed", "message": f"sandur: {error}"})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.lifetime.close()
        await send({"type": "lifespan.shutdown.complete"})


class _Exchange:
    """One request and its answer."""

    __slots__ = ("_app", "_dialect", "_headers", "_identity", "_method", "_names", "_request_id", "_routed", "_scope")

    def __init__(self, app: App, dialect: Dialect, scope: Scope) -> None:
        self._app = app
        self._dialect = dialect
        self._scope = scope
        self._headers: dict[bytes, bytes] = dict(scope["headers"])
        self._method: str = scope["method"]
        self._request_id = self._chosen_request_id()
        self._routed = dialect.routed(self._method, scope["raw_path"])
        self._identity: Identity | None = None
        self._names = b""

    async def held(self, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        rounds = Rounds(self._routed.operation)
        current_rounds.set(rounds)
        answer = await self._answer(receive)
        try:
            await self._send(answer, send)
        finally:
            self._tell(answer, time.perf_counter() - began, rounds)

    def _chosen_request_id(self) -> str:
        given = self._headers.get(b"x-request-id", b"")
        return given.decode("ascii") if _REQUEST_ID.match(given) else self._app.clock.new_id()

    async def _answer(self, receive: Receive) -> Answer:
        app = self._app
        if app.measures.under_way >= app.settings.requests_at_once_max:
            REQUESTS_REFUSED.labels("busy").inc()
            return self._refusal(Busy("Too many requests are under way: try again"))
        app.measures.under_way += 1
        try:
            return await self._worked_on(receive)
        except ClientGone:
            return Answer(_CLIENT_GONE)
        except Exception as error:  # noqa: BLE001 - the one place that turns errors into answers
            return self._refusal(error)
        finally:
            app.measures.under_way -= 1

    async def _worked_on(self, receive: Receive) -> Answer:
        settings = self._app.settings
        body = await read_body(receive, self._headers, settings.request_bytes_max)
        if self._routed.operation.startswith(_RENAMING):
            self._names = body[:LOGGED_BYTES_MAX]
        request = HttpRequest(
            self._method, self._scope["raw_path"], self._scope["query_string"], self._headers, body, self._request_id
        )
        self._identity = identify(request, settings, needs_token=not self._routed.is_open)
        return await self._dialect.answer(self._routed, request, self._identity)

    def _refusal(self, error: Exception) -> Answer:
        answer = self._dialect.refusal(error, self._routed.operation, self._request_id)
        if isinstance(error, Refused):
            REQUESTS_REFUSED.labels(str(error.status)).inc()
        elif not isinstance(error, SandurError):
            self._app.log.error(
                "unexpected error", request_id=self._request_id, operation=self._routed.operation, exc_info=error
            )
        elif answer.status >= _FAILED:
            self._app.log.warning(
                "request failed", request_id=self._request_id, reason=f"{type(error).__name__}: {error}"
            )
        return answer

    async def _send(self, answer: Answer, send: Send) -> None:
        if answer.status == _CLIENT_GONE:
            return
        headers = [*answer.headers, (REQUEST_ID, self._request_id.encode())]
        body = answer.body
        if self._method == "HEAD":
            body = b""
        elif answer.status not in _WITHOUT_BODY:
            headers.append((CONTENT_LENGTH, b"%d" % len(body)))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _tell(self, answer: Answer, seconds: float, rounds: Rounds) -> None:
        operation, template, status = self._routed.operation, self._routed.template, answer.status
        measures = self._app.measures
        measures.observe((self._dialect.name, operation, self._method, template, str(status)), seconds)
        measures.observe_rounds(operation, rounds.count)
        tenant, lake, principal = self._identity or ("", "", "")
        self._app.log.info(
            "request",
            method=self._method,
            route=template,
            status=status,
            ms=round(seconds * 1000, 3),
            request_id=self._request_id,
            tenant=tenant,
            workspace=lake,
            principal=principal,
            **self._what(),
        )

    def _what(self) -> Mapping[str, str]:
        """What was to be changed, as it was asked for: the path names it, and of a rename the body."""
        if self._method in _READING:
            return _NOTHING
        path = self._scope["raw_path"][:LOGGED_BYTES_MAX].decode("utf-8", "replace")
        return {"path": path, "names": self._names.decode("utf-8", "replace")} if self._names else {"path": path}
