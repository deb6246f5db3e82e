"""The ASGI application: finds the route of a request, runs its handler, and adds limits, identity, metrics and logs."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec
import structlog

from sandur.catalog.privileges import AUTHENTICATED, OPEN, Needs
from sandur.catalog.security import Access
from sandur.clock import Clock
from sandur.errors import Busy, Damaged, SandurError
from sandur.operations.audit.notes import current_notebook
from sandur.server.audit import Exchange, record_request
from sandur.server.authentication.authenticator import Authenticator
from sandur.server.context import Call, capabilities_of
from sandur.server.cross_site import CrossSiteGuard
from sandur.server.errors import ErrorMap, Problem, encode_problem
from sandur.server.http import (
    ALLOW,
    CACHE_CONTROL,
    CLOSE,
    CONTENT_TYPE,
    NO_STORE,
    REQUEST_ID,
    Answer,
    ClientGone,
    Headers,
    HttpRequest,
    Receive,
    Refused,
    Scope,
    Send,
    is_large,
    json_answer,
    read_body,
    send_answer,
)
from sandur.server.metrics import REQUEST_SECONDS, REQUESTS_REFUSED, STORAGE_ROUNDS, Metrics, Rounds, current_rounds
from sandur.server.process import RunningCatalog
from sandur.settings import Settings

Handler = Callable[[Call], Awaitable[Answer]]

_PREFIX: Final = "{prefix}"
_QUOTED_BYTES_MAX: Final = 200
_REQUEST_ID: Final = re.compile(rb"[\x21-\x7e]{1,128}\Z")
_CLIENT_GONE: Final = Answer(499)  # It is logged and never sent.
_SERVER_ERROR: Final = 500
_READS: Final = ("GET", "HEAD")
_METRICS: Final = b"/metrics"
_PAGES: Final = frozenset({b"/healthz", b"/readyz", _METRICS})
_RENAMES: Final = "rename"
_NO_FIELDS: Final[Mapping[str, str]] = {}
_OPEN_BODY_BYTES_MAX: Final = 64 << 10
"""The largest body of a route that needs no token: a form of OAuth is much smaller."""
LOGGED_BYTES_MAX: Final = 1_024


class Route(msgspec.Struct, frozen=True):
    """One operation of a dialect, named as in its specification, and the privileges that it needs.

    An advertised route is listed by the `config` operation of its dialect.
    """

    method: str
    path: str
    operation: str
    handler: Handler
    needs: Needs
    is_advertised: bool = True


def _refusal(status: int, message: str, *headers: tuple[bytes, bytes]) -> Route:
    """The route of a request that has none: its handler refuses."""

    async def refuse(_call: Call) -> Answer:
        raise Refused(status, message, *headers)

    return Route("", "(none)", "(none)", refuse, AUTHENTICATED)


class _Node(msgspec.Struct):
    literals: dict[bytes, "_Node"] = {}
    parameter: "_Node | None" = None
    parameter_name: str = ""
    routes: dict[str, Route] = {}

    def add(self, segments: Sequence[str], route: Route) -> None:
        node = self
        for segment in segments:
            if not segment.startswith("{"):
                node = node.literals.setdefault(segment.encode(), _Node())
                continue
            if node.parameter is None:
                node.parameter = _Node()
                node.parameter_name = segment.strip("{}")
            node = node.parameter
        node.routes[route.method] = route

    def find(self, segments: Sequence[bytes], values: dict[str, bytes]) -> "_Node | None":
        """The node of a path, its parameters added to `values`; a literal goes before a parameter. None if absent."""
        node = self
        for segment in segments:
            following = node.literals.get(segment)
            if following is None:
                if node.parameter is None or not segment:
                    return None
                values[node.parameter_name] = segment
                following = node.parameter
            node = following
        return node if node.routes else None


class Router:
    """Finds routes below a mount. Segments are compared before they are decoded.

    A route whose path begins with `{prefix}` is also served without a prefix; `default_prefix` then stands in.
    `base` is the part of the routes' paths that belongs to the mount. Unknown paths get `unknown_status`.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        unknown_status: int,
        base: str = "",
        default_prefix: str | None = None,
        ignores_trailing_slash: bool = False,
    ) -> None:
        self._unknown_status = unknown_status
        self._ignores_trailing_slash = ignores_trailing_slash
        self._base = f"{base.strip('/')}/".encode()
        self._defaults = {} if default_prefix is None else {"prefix": quote(default_prefix, safe="").encode()}
        self._plain = _Node()
        self._prefixed = _Node()
        for route in routes:
            segments = route.path.removeprefix(base).strip("/").split("/")
            if segments[0] == _PREFIX:
                segments = segments[1:]
                self._prefixed.add(segments, route)
            self._plain.add(segments, route)

    def match(self, method: str, path: bytes, *, mount: bytes) -> tuple[Route, Mapping[str, bytes]]:
        """The route of a path below the mount, and the encoded values of its parameters in their order.

        A literal segment is never taken for a prefix when it fits.
        """
        tail = path[len(mount) :] if mount.endswith(b"/") else b""
        segments = (tail.rstrip(b"/") if self._ignores_trailing_slash else tail).split(b"/")
        values = self._defaults.copy()
        node = self._plain.find(segments, values)
        if node is None and segments[0]:
            values = {"prefix": segments[0]}
            node = self._prefixed.find(segments[1:], values)
        if node is None:
            message = f"No route for request: {method} {_quote(path)}"
            if tail.startswith(self._base):
                base = self._base.decode().strip("/")
                message += f"; clients add /{base} themselves: remove it from the end of the client's URI"
            return _refusal(self._unknown_status, message), {}
        route = node.routes.get(method)
        if route is None:
            allowed = ", ".join(node.routes)
            message = f"Method not allowed: {method} {_quote(path)}; allowed: {allowed}"
            return _refusal(405, message, (ALLOW, allowed.encode())), values
        return route, values


class Dialect(NamedTuple):
    """One API: the beginnings of its paths, its routes, and its errors.

    A mount without a slash at its end has no routes: it only makes this dialect answer such paths with its own error.
    """

    name: str
    mounts: Sequence[bytes]
    router: Router
    errors: ErrorMap


class _Exchange(Exchange, kw_only=True):
    """A request on its way through the application. `body` is None until it is read."""

    dialect: Dialect
    route: Route
    body: bytes | None = None
    failure: Mapping[str, str] = _NO_FIELDS


class UncheckedRequest(Exception):
    """An operation did not check what its caller may do: a mistake in the program, so its answer is withheld."""


def _quote(path: bytes) -> str:
    return path[:_QUOTED_BYTES_MAX].decode("latin-1")


class App:
    """The application of one process."""

    def __init__(
        self,
        *,
        dialects: Sequence[Dialect],
        catalog: RunningCatalog,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        mounted = [(mount, dialect) for dialect in dialects for mount in dialect.mounts]
        self._mounts = sorted(mounted, key=lambda one: -len(one[0]))  # A mount may lie below another one.
        self._catalog = catalog
        self._authenticator: Authenticator = catalog.authenticator
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._is_audited = catalog.audit.is_on
        self._is_secured = settings.authentication == "on"
        self._metrics_port = settings.metrics_port or -1
        self._page_errors = dialects[0].errors
        self._cross_site = CrossSiteGuard(settings)
        self._log = structlog.get_logger().bind()  # Bound once: each call of an unbound logger makes a new one.

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["raw_path"]
        server = scope.get("server")
        is_apart = server is not None and server[1] == self._metrics_port
        for mount, dialect in self._mounts:
            if path.startswith(mount) and not is_apart:
                await self._serve(dialect, mount, scope, receive, send)
                return
        method = scope["method"]
        try:
            if not is_apart:
                await self._check_page(method, path, dict(scope["headers"]))
            answer = await self._page(method, path)
        except (Refused, SandurError) as error:
            answer = self._page_errors.answer(error, "", "")
        await send_answer(answer, send, method=method)

    async def _serve(self, dialect: Dialect, mount: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """One request of a dialect, from its head to the end of its answer."""
        began = time.perf_counter()
        method, headers = scope["method"], dict(scope["headers"])
        route, values = dialect.router.match(method, scope["raw_path"], mount=mount)
        known = (dialect.name, route.operation, route.needs, values)
        exchange = _Exchange(scope, headers, self._request_id(headers), *known, dialect=dialect, route=route)
        rounds = Rounds(route.operation)
        current_rounds.set(rounds)
        metrics = self._metrics
        metrics.under_way += 1
        try:
            answer = await self._answer(exchange, receive)
        finally:
            metrics.under_way -= 1
        try:
            if answer is not _CLIENT_GONE:
                added: Headers = ((REQUEST_ID, exchange.request_id.encode()),)
                if self._is_secured and not _is_cacheable(answer):
                    added = (*added, NO_STORE)
                await send_answer(answer, send, *added, method=method)
        finally:
            seconds = time.perf_counter() - began
            status = str(answer.status)
            metrics.observe(REQUEST_SECONDS, seconds, dialect.name, route.operation, method, route.path, status)
            metrics.observe(STORAGE_ROUNDS, rounds.count, route.operation)
            self._log_request(exchange, answer, seconds)

    async def _answer(self, exchange: "_Exchange", receive: Receive) -> Answer:
        """The answer to a request, also if it fails, and its audit record."""
        if self._is_audited:
            current_notebook.set(exchange)
        try:
            answer = await self._handle(exchange, receive)
            exchange.status = answer.status
        except ClientGone as raised:
            exchange.error, answer = raised, _CLIENT_GONE
        except asyncio.CancelledError as raised:
            exchange.error = raised
            raise
        except Exception as raised:  # noqa: BLE001 - the one place that turns errors into answers
            exchange.error = raised
            answer = self._failed(raised, exchange)
            exchange.status = answer.status
        finally:
            if self._is_audited:
                exchange.time_ms = self._clock.now_ms()
                record_request(self._catalog.audit, self._settings, exchange)
        return answer

    async def _handle(self, exchange: "_Exchange", receive: Receive) -> Answer:
        """Identify the caller, read the body, and run the handler of the route."""
        scope, headers, route, settings = exchange.scope, exchange.headers, exchange.route, self._settings
        is_open = route.needs is OPEN
        self._check_load()
        self._cross_site.check(scope["method"], headers, takes_forms=is_open)
        request = _request(scope, headers, exchange.request_id)
        identity = exchange.identity = await self._authenticator.identify(request, needs_token=not is_open)
        # The body of a client without a valid token is not read.
        bytes_max = _OPEN_BODY_BYTES_MAX if is_open else settings.request_bytes_max
        exchange.body = await read_body(receive, headers, bytes_max)
        if exchange.body:
            request = msgspec.structs.replace(request, body=exchange.body)
        if self._is_secured:
            exchange.access = Access(identity.caller, route.needs, capabilities=capabilities_of(request))
        call = Call(
            self._catalog.lakes,
            self._authenticator,
            settings,
            route.operation,
            exchange.values,
            request,
            identity,
            exchange.access,
        )
        if self._catalog.veto and not is_open:
            await self._catalog.veto.check(call, route.needs)
        answer = await route.handler(call)
        if exchange.access and not is_open and not exchange.access.decisions:
            raise UncheckedRequest(f"{route.operation} answered without a decision about {identity.caller.name}")
        return answer

    def _log_request(self, exchange: "_Exchange", answer: Answer, seconds: float) -> None:
        method, route = exchange.scope["method"], exchange.route
        tenant, workspace, principal = exchange.identity[:3] if exchange.identity else ("", "", "")
        body = exchange.body or b""
        (self._log.warning if exchange.failure else self._log.info)(
            "request",
            method=method,
            route=route.path,
            status=answer.status,
            ms=round(seconds * 1000, 3),
            request_id=exchange.request_id,
            tenant=tenant,
            workspace=workspace,
            principal=principal,
            **(_NO_FIELDS if method in _READS else _changed(exchange.scope["raw_path"], route, body)),
            **exchange.failure,
        )

    def _request_id(self, headers: Mapping[bytes, bytes]) -> str:
        sent = headers.get(b"x-request-id", b"")
        return sent.decode("ascii") if _REQUEST_ID.match(sent) else self._clock.new_id()

    async def _check_page(self, method: str, path: bytes, headers: Mapping[bytes, bytes]) -> None:
        """Raise Refused for a page of another site, and for metrics without a token if the APIs need one."""
        self._cross_site.check(method, headers)
        if path == _METRICS:
            await self._authenticator.identify(HttpRequest(method, path, b"", headers, b"", ""), needs_token=True)

    async def _page(self, method: str, path: bytes) -> Answer:
        """A page outside the APIs; every other path is not found."""
        if path not in _PAGES:
            message = f"Nothing is served at {_quote(path)}; the catalog is at /v1 and /iceberg/v1"
            return json_answer(encode_problem(Problem(404, "NotFoundException", message)), status=404)
        if method not in _READS:
            allowed = ", ".join(_READS).encode()
            return Answer(405, b"Method Not Allowed", ((CONTENT_TYPE, b"text/plain; charset=utf-8"), (ALLOW, allowed)))
        if path == _METRICS:
            self._catalog.update_metrics()
            body, content_type = await asyncio.to_thread(self._metrics.exposition)
            return Answer(200, body, ((CONTENT_TYPE, content_type.encode()),))
        return await self._readiness() if path == b"/readyz" else _status("alive")

    async def _readiness(self) -> Answer:
        if not self._catalog.is_started:
            return _status("not ready", reason="the server has not finished its start")
        reason = await self._catalog.health.problem()
        if reason and self._settings.authentication != "off":
            reason = "the store cannot be used; see the server log"
        return _status("not ready", reason=reason) if reason else _status("ready")

    def _check_load(self) -> None:
        if self._metrics.under_way > self._settings.requests_at_once_max:
            self._metrics.count(REQUESTS_REFUSED, "busy")
            raise Busy("Too many requests are in progress; try again")

    def _failed(self, error: Exception, exchange: "_Exchange") -> Answer:
        """The answer to a request that failed; the log line of the request gets the reason of a server error.

        Unexpected errors are logged with their trace.
        """
        operation, request_id = exchange.route.operation, exchange.request_id
        is_public = self._settings.authentication != "off"
        answer = exchange.dialect.errors.answer(error, operation, request_id, is_public=is_public)
        if isinstance(error, Refused):
            self._metrics.count(REQUESTS_REFUSED, str(error.status))
        elif isinstance(error, Damaged):
            self._catalog.incidents.object_damaged(error.key, error.reason)
        elif not isinstance(error, SandurError):
            self._log.error("unexpected error", request_id=request_id, operation=operation, exc_info=error)
        if isinstance(error, SandurError) and answer.status >= _SERVER_ERROR:
            exchange.failure = {"reason": f"{type(error).__name__}: {error}"}
        if exchange.body is None and is_large(exchange.headers):
            return Answer(answer.status, answer.body, (*answer.headers, CLOSE))
        return answer


def _request(scope: Scope, headers: Mapping[bytes, bytes], request_id: str) -> HttpRequest:
    """The request as far as it has arrived: without its body."""
    peer = (scope.get("client") or ("",))[0]
    return HttpRequest(scope["method"], scope["raw_path"], scope["query_string"], headers, b"", request_id, peer)


def _is_cacheable(answer: Answer) -> bool:
    """What one principal may see is not for others: caches on the way keep no answer that does not say so."""
    for name, _ in answer.headers:  # noqa: SIM110 - a generator costs three times as much
        if name is CACHE_CONTROL:
            return True
    return False


def _changed(path: bytes, route: Route, body: bytes) -> Mapping[str, str]:
    """What a request changes, for the log: its path, and for a rename its body, which has the names."""
    fields = {"path": path[:LOGGED_BYTES_MAX].decode("utf-8", "replace")}
    if body and route.operation.startswith(_RENAMES):
        fields["names"] = body[:LOGGED_BYTES_MAX].decode("utf-8", "replace")
    return fields


def _status(status: str, *, reason: str | None = None) -> Answer:
    if reason is None:
        return json_answer(msgspec.json.encode({"status": status}))
    return json_answer(msgspec.json.encode({"status": status, "reason": reason}), status=503)
