"""The ASGI application: finds the route of a request, runs its handler, and adds limits, identity, metrics and logs."""

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec
import structlog

from sandur.clock import Clock
from sandur.errors import Busy, SandurError
from sandur.operations.lake import Lakes
from sandur.server.context import Call, identify
from sandur.server.errors import Problem, encode_problem
from sandur.server.http import (
    ALLOW,
    CONTENT_TYPE,
    REQUEST_ID,
    Answer,
    ClientGone,
    HttpRequest,
    Receive,
    Refused,
    Scope,
    Send,
    json_answer,
    read_body,
    send_answer,
)
from sandur.server.metrics import REQUEST_SECONDS, REQUESTS_REFUSED, STORAGE_ROUNDS, Metrics, Rounds, current_rounds
from sandur.server.routing import Dialect, Route
from sandur.settings import Settings

_REQUEST_ID: Final = re.compile(rb"[\x21-\x7e]{1,128}\Z")
_CLIENT_GONE: Final = Answer(499)  # It is logged and never sent.
_SERVER_ERROR: Final = 500
_READS: Final = ("GET", "HEAD")
_RENAMES: Final = "rename"
_NO_FIELDS: Final[Mapping[str, str]] = {}
_STORE_SECONDS_MAX: Final = 5.0
_QUOTED_BYTES_MAX: Final = 200
LOGGED_BYTES_MAX: Final = 1_024


class Catalog(Protocol):
    """The catalog that the application serves; it lives as long as the application."""

    @property
    def lakes(self) -> Lakes: ...

    @property
    def is_started(self) -> bool:
        """Whether the store probe passed and the catalog is open."""
        ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def reach_store(self) -> None:
        """Make one small store call; raises when the store does not answer."""
        ...

    def update_metrics(self) -> None:
        """Bring the metrics of this process up to date."""
        ...


class App:
    """The application of one process."""

    def __init__(
        self,
        *,
        dialects: Sequence[Dialect],
        catalog: Catalog,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        mounted = [(mount, dialect) for dialect in dialects for mount in dialect.mounts]
        self._mounts = sorted(mounted, key=lambda one: -len(one[0]))  # A mount may lie below another one.
        self._catalog = catalog
        self._pages = _Pages(catalog, metrics)
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._log = structlog.get_logger().bind()  # Bound once: each call of an unbound logger makes a new one.

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        path = scope["raw_path"]
        for mount, dialect in self._mounts:
            if path.startswith(mount):
                await self._serve(dialect, mount, scope, receive, send)
                return
        method = scope["method"]
        await send_answer(await self._pages.answer(method, path), send, method=method)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._catalog.start()
        except SandurError as error:
            await send({"type": "lifespan.startup.failed", "message": f"sandur: {error}"})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._catalog.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, dialect: Dialect, mount: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """One request of a dialect, from its head to the end of its answer."""
        began = time.perf_counter()
        method, path, headers = scope["method"], scope["raw_path"], dict(scope["headers"])
        sent_id = headers.get(b"x-request-id", b"")
        request_id = sent_id.decode("ascii") if _REQUEST_ID.match(sent_id) else self._clock.new_id()
        route, values = dialect.router.match(method, path, mount=mount)
        rounds = Rounds(route.operation)
        current_rounds.set(rounds)
        settings, metrics = self._settings, self._metrics
        identity, body = None, b""
        metrics.under_way += 1
        try:
            self._check_load()
            body = await read_body(receive, headers, settings.request_bytes_max)
            request = HttpRequest(method, path, scope["query_string"], headers, body, request_id)
            identity = identify(request, settings, needs_token=not route.is_open)
            answer = await route.handler(
                Call(self._catalog.lakes, settings, route.operation, values, request, identity)
            )
        except ClientGone:
            answer = _CLIENT_GONE
        except Exception as error:  # noqa: BLE001 - the one place that turns errors into answers
            answer = self._failed(error, dialect, route.operation, request_id)
        finally:
            metrics.under_way -= 1
        try:
            if answer is not _CLIENT_GONE:
                await send_answer(answer, send, (REQUEST_ID, request_id.encode()), method=method)
        finally:
            seconds = time.perf_counter() - began
            status = str(answer.status)
            metrics.observe(REQUEST_SECONDS, seconds, dialect.name, route.operation, method, route.path, status)
            metrics.observe(STORAGE_ROUNDS, rounds.count, route.operation)
            tenant, workspace, principal = identity or ("", "", "")
            self._log.info(
                "request",
                method=method,
                route=route.path,
                status=answer.status,
                ms=round(seconds * 1000, 3),
                request_id=request_id,
                tenant=tenant,
                workspace=workspace,
                principal=principal,
                **(_NO_FIELDS if method in _READS else _changed(path, route, body)),
            )

    def _check_load(self) -> None:
        if self._metrics.under_way > self._settings.requests_at_once_max:
            self._metrics.count(REQUESTS_REFUSED, "busy")
            raise Busy("Too many requests are in progress; try again")

    def _failed(self, error: Exception, dialect: Dialect, operation: str, request_id: str) -> Answer:
        """The answer to a request that failed. Server errors are logged, unexpected ones with their trace."""
        answer = dialect.errors.answer(error, operation, request_id)
        if isinstance(error, Refused):
            self._metrics.count(REQUESTS_REFUSED, str(error.status))
        elif not isinstance(error, SandurError):
            self._log.error("unexpected error", request_id=request_id, operation=operation, exc_info=error)
        elif answer.status >= _SERVER_ERROR:
            self._log.warning("request failed", request_id=request_id, reason=f"{type(error).__name__}: {error}")
        return answer


def _changed(path: bytes, route: Route, body: bytes) -> Mapping[str, str]:
    """What a request changes, for the log: its path, and for a rename its body, which has the names."""
    fields = {"path": path[:LOGGED_BYTES_MAX].decode("utf-8", "replace")}
    if body and route.operation.startswith(_RENAMES):
        fields["names"] = body[:LOGGED_BYTES_MAX].decode("utf-8", "replace")
    return fields


class _Pages:
    """The pages outside the APIs: `/healthz`, `/readyz` and `/metrics`; everything else is not found."""

    def __init__(self, catalog: Catalog, metrics: Metrics) -> None:
        self._catalog = catalog
        self._exposition = metrics.exposition
        self._pages = {b"/healthz": self._healthz, b"/readyz": self._readyz, b"/metrics": self._metrics}

    async def answer(self, method: str, path: bytes) -> Answer:
        page = self._pages.get(path)
        if page is None:
            quoted = path[:_QUOTED_BYTES_MAX].decode("latin-1")
            message = f"Nothing is served at {quoted}; the catalog is at /v1 and /iceberg/v1"
            return json_answer(encode_problem(Problem(404, "NotFoundException", message)), status=404)
        if method not in _READS:
            allowed = ", ".join(_READS).encode()
            return Answer(405, b"Method Not Allowed", ((CONTENT_TYPE, b"text/plain; charset=utf-8"), (ALLOW, allowed)))
        return await page()

    async def _healthz(self) -> Answer:
        return _status("alive")

    async def _readyz(self) -> Answer:
        if not self._catalog.is_started:
            return _status("not ready", reason="the server has not finished its start")
        try:
            await asyncio.wait_for(self._catalog.reach_store(), _STORE_SECONDS_MAX)
        except TimeoutError:
            return _status("not ready", reason=f"the store did not answer within {_STORE_SECONDS_MAX:g} seconds")
        except SandurError as error:
            return _status("not ready", reason=f"the store does not answer: {error}")
        return _status("ready")

    async def _metrics(self) -> Answer:
        self._catalog.update_metrics()
        body, content_type = await asyncio.to_thread(self._exposition)
        return Answer(200, body, ((CONTENT_TYPE, content_type.encode()),))


def _status(status: str, *, reason: str | None = None) -> Answer:
    if reason is None:
        return json_answer(msgspec.json.encode({"status": status}))
    return json_answer(msgspec.json.encode({"status": status, "reason": reason}), status=503)
