"""The ASGI application: finds the route of a request, runs its handler, and adds limits, identity, metrics and logs."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from sandur.catalog.security.privileges import AUTHENTICATED, OPEN, Needs
from sandur.errors import SandurError
from sandur.server.authentication.authenticator import Authenticator
from sandur.server.context import Call
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
    has_body,
    is_large,
    json_answer,
    read_body,
    send_answer,
    send_parts,
)
from sandur.server.metrics import Metrics, Rounds
from sandur.server.process import RunningCatalog
from sandur.server.requests import READS, Requests, RunningExchange
from sandur.settings import Settings

Handler = Callable[[Call], Awaitable[Answer]]

_PREFIX: Final = "{prefix}"
_QUOTED_BYTES_MAX: Final = 200
_CLIENT_GONE: Final = Answer(499)  # It is logged and never sent.
_SERVER_ERROR: Final = 500
_METRICS: Final = b"/metrics"
_PAGES: Final = frozenset({b"/healthz", b"/readyz", _METRICS})
_OPEN_BODY_BYTES_MAX: Final = 64 << 10
"""The largest body of a route that needs no token: a form of OAuth is much smaller."""


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


class SignedIn(NamedTuple):
    """A request with the token of its session, if it has one, and the cookies that the answer sets."""

    request: HttpRequest
    cookies: Headers = ()


class Browsers(NamedTuple):
    """What a dialect for browsers adds: sessions in cookies, and pages for errors. Links and forms may lead to it."""

    signed_in: Callable[[Authenticator, HttpRequest], Awaitable[SignedIn]]
    failure_page: Callable[[Problem, RunningExchange], Answer]


class Dialect(NamedTuple):
    """One API: the beginnings of its paths, its routes, and its errors.

    A mount without a slash at its end has no routes: it only makes this dialect answer such paths with its own error.
    """

    name: str
    mounts: Sequence[bytes]
    router: Router
    errors: ErrorMap
    browsers: Browsers | None = None


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
        metrics: Metrics,
        requests: Requests,
    ) -> None:
        mounted = [(mount, dialect) for dialect in dialects for mount in dialect.mounts]
        self._mounts = sorted(mounted, key=lambda one: -len(one[0]))  # A mount may lie below another one.
        self._catalog = catalog
        self._authenticator: Authenticator = catalog.authenticator
        self._settings = settings
        self._metrics = metrics
        self.requests = requests
        self._metrics_port = settings.metrics_port or -1
        self._page_errors = dialects[0].errors
        self._cross_site = CrossSiteGuard(settings)

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
        began, requests = time.perf_counter(), self.requests
        method, path, headers = scope["method"], scope["raw_path"], dict(scope["headers"])
        route, values = dialect.router.match(method, path, mount=mount)
        known = (dialect.name, route.operation, route.needs, values)
        exchange = RunningExchange(
            scope,
            headers,
            requests.request_id(headers),
            *known,
            route=route.path,
            rounds=Rounds(route.operation),
            began=began,
        )
        answer = await self._answer(exchange, dialect, route, receive)
        exchange.sent_bytes = len(answer.body)
        try:
            if answer is not _CLIENT_GONE:
                added: Headers = ((REQUEST_ID, exchange.request_id.encode()), *exchange.added)
                if requests.is_secured and not _is_cacheable(answer):
                    added = (*added, NO_STORE)
                if answer.parts:
                    await send_parts(answer, answer.parts, receive, send, *added)
                else:
                    await send_answer(answer, send, *added, method=method)
        finally:
            requests.observe(exchange, path, answer.status)

    async def _answer(self, exchange: RunningExchange, dialect: Dialect, route: Route, receive: Receive) -> Answer:
        """The answer to a request, also if it fails, and its audit record."""
        requests = self.requests
        requests.begin(exchange)
        try:
            answer = await self._handle(exchange, route, receive, dialect.browsers)
            exchange.status = answer.status
        except ClientGone as raised:
            exchange.error, answer = raised, _CLIENT_GONE
        except asyncio.CancelledError as raised:
            exchange.error = raised
            raise
        except Exception as raised:  # noqa: BLE001 - the one place that turns errors into answers
            answer = self._failed(raised, exchange, dialect)
            exchange.status = answer.status
        finally:
            requests.end(exchange)
        return answer

    async def _handle(
        self, exchange: RunningExchange, route: Route, receive: Receive, browsers: Browsers | None
    ) -> Answer:
        """Identify the caller, read the body, and run the handler of the route."""
        scope, headers, requests = exchange.scope, exchange.headers, self.requests
        is_open = route.needs is OPEN
        takes_forms = is_open or browsers is not None
        self._cross_site.check(scope["method"], headers, takes_forms=takes_forms, takes_links=browsers is not None)
        request = _request(scope, headers, exchange.request_id)
        if browsers:
            request, cookies = await browsers.signed_in(self._authenticator, request)
            exchange.added = (*exchange.added, *cookies)
        try:
            await requests.identify(exchange, request)
        except Refused:
            if browsers and not is_large(headers):  # A session is over: its form is kept.
                exchange.body = await read_body(receive, headers, _OPEN_BODY_BYTES_MAX)
            raise
        # The body of a client without a valid token is not read.
        bytes_max = _OPEN_BODY_BYTES_MAX if is_open else self._settings.request_bytes_max
        if has_body(headers):
            requests.reserve_body(exchange, bytes_max)
            requests.keep_body(
                exchange, await read_body(receive, headers, bytes_max, partial(requests.grow_body, exchange))
            )
        else:
            exchange.body = b""
        if exchange.body:
            request = msgspec.structs.replace(request, body=exchange.body)
        call = await requests.authorize(exchange, request)
        answer = await call.with_current_names(route.handler)
        requests.check_decided(exchange)
        return answer

    async def _check_page(self, method: str, path: bytes, headers: Mapping[bytes, bytes]) -> None:
        """Raise Refused for a page of another site, and for metrics without a token if the APIs need one."""
        self._cross_site.check(method, headers)
        if path == _METRICS:
            request = HttpRequest(method, path, b"", headers, b"", "")
            await self._authenticator.check_current(await self._authenticator.identify(request, needs_token=True))

    async def _page(self, method: str, path: bytes) -> Answer:
        """A page outside the APIs; every other path is not found."""
        if path not in _PAGES:
            message = f"Nothing is served at {_quote(path)}; the catalog is at /v1 and /iceberg/v1"
            return json_answer(encode_problem(Problem(404, "NotFoundException", message)), status=404)
        if method not in READS:
            allowed = ", ".join(READS).encode()
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

    def _failed(self, error: Exception, exchange: RunningExchange, dialect: Dialect) -> Answer:
        """The answer to a request that failed."""
        is_public = self._settings.authentication != "off"
        known = (error, exchange.operation, exchange.request_id)
        if dialect.browsers:
            problem = dialect.errors.problem(*known, is_public=is_public)
            answer = dialect.browsers.failure_page(problem, exchange)
        else:
            answer = dialect.errors.answer(*known, is_public=is_public)
        self.requests.note_failure(error, exchange, is_server_error=answer.status >= _SERVER_ERROR)
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


def _status(status: str, *, reason: str | None = None) -> Answer:
    if reason is None:
        return json_answer(msgspec.json.encode({"status": status}))
    return json_answer(msgspec.json.encode({"status": status, "reason": reason}), status=503)
