"""What every request passes through, whatever its protocol: limits, identity, access, veto, audit, metrics and log."""

import logging
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import structlog

from sandur.catalog.security.manifest import Access
from sandur.catalog.security.privileges import OPEN
from sandur.clock import Clock
from sandur.errors import BadRequest, Busy, Damaged, SandurError
from sandur.operations.audit.notes import current_notebook
from sandur.server.audit import Exchange, declared, outcome_of, record_request, trace_id_of
from sandur.server.authentication.authenticator import Authenticator
from sandur.server.context import CAPABILITIES, NO_CAPABILITIES, Call, capabilities_of
from sandur.server.errors import spread
from sandur.server.http import CONTENT_LENGTH, RETRY_AFTER, Headers, HttpRequest, Refused
from sandur.server.identity import Identity
from sandur.server.metric_families import (
    GRANT_DECISIONS,
    REQUEST_BYTES,
    REQUEST_SECONDS,
    REQUESTS_REFUSED,
    RESPONSE_BYTES,
    SIGN_INS,
    STORAGE_ROUNDS,
)
from sandur.server.metrics import Metrics, Rounds, current_rounds
from sandur.server.process import RunningCatalog
from sandur.server.traces import context_of
from sandur.settings import Settings
from sandur.trace_context import current_trace, parse_context

if TYPE_CHECKING:
    from opentelemetry.trace import Span

READS: Final = ("GET", "HEAD")
LOGGED_BYTES_MAX: Final = 1_024
_SHARES: Final = 4
"""The parts of a limit of which one caller, or one body of unknown length, gets one."""

TRACEPARENT: Final = b"traceparent"
TRACESTATE: Final = b"tracestate"
_RENAMES: Final = "rename"
_NO_FIELDS: Final[Mapping[str, str]] = {}
_REQUEST_ID: Final = re.compile(rb"[\x21-\x7e]{1,128}\Z")


class RunningExchange(Exchange, kw_only=True):
    """A request on its way through the server. `route` is the pattern of its path; `body` is None until it is read.

    `added` are headers of the answer, whatever it is: the cookies of a session.
    """

    route: str
    rounds: Rounds
    began: float
    body: bytes | None = None
    failure: Mapping[str, str] = _NO_FIELDS
    is_ended: bool = False
    body_bytes: int = 0
    sent_bytes: int = 0
    holder: tuple[str, str] | None = None
    """Whom the request is counted for, by tenant and principal; None if it is not."""
    added: Headers = ()
    span: "Span | None" = None


class UncheckedRequest(Exception):
    """An operation did not check what its caller may do: a mistake in the program, so its answer is withheld."""


class Requests:
    """The requests of one process, of all protocols together.

    A protocol calls, in this order: `begin`, `identify`, `authorize`, then its handler, `check_decided`, `end` when the
    answer is known, also if it is an error, and `observe` when the answer has been sent.
    """

    def __init__(self, *, catalog: RunningCatalog, settings: Settings, clock: Clock, metrics: Metrics) -> None:
        self._catalog = catalog
        self._authenticator: Authenticator = catalog.authenticator
        self._settings = settings
        self.clock = clock
        self._metrics = metrics
        self._is_audited = catalog.audit.is_on
        self._traces = catalog.traces
        self._keeps_calls = settings.slow_request_ms > 0
        self._held: dict[tuple[str, str], int] = {}
        self._body_bytes = 0
        self.is_secured = settings.authentication == "on"
        self._log = structlog.get_logger().bind()  # Bound once: each call of an unbound logger makes a new one.

    def request_id(self, headers: Mapping[bytes, bytes]) -> str:
        """The id that the client sent, or a new one."""
        sent = headers.get(b"x-request-id", b"")
        return sent.decode("ascii") if _REQUEST_ID.match(sent) else self.clock.new_id()

    def begin(self, exchange: RunningExchange) -> None:
        headers = exchange.headers
        sent = headers.get(TRACEPARENT)
        context = parse_context(sent, headers.get(TRACESTATE, b"")) if sent else None
        if self._traces and (span := self._traces.begin(exchange.operation, context)):
            exchange.span, exchange.rounds.calls = span, []
            context = context_of(span, context.state if context else "")
            exchange.trace_id = context.trace_id
            exchange.added = (*exchange.added, (TRACEPARENT, context.parent.encode()))
        elif self._keeps_calls:
            exchange.rounds.calls = []
        current_trace.set(context)  # Also None: a task may serve several requests.
        current_rounds.set(exchange.rounds)
        if self._is_audited:
            current_notebook.set(exchange)
        self._metrics.under_way += 1

    async def identify(self, exchange: RunningExchange, request: HttpRequest) -> None:
        """Find out who sends the request. Raises Busy if too many requests are in progress, Refused without a token."""
        if self._metrics.under_way > self._settings.requests_at_once_max:
            self._metrics.count(REQUESTS_REFUSED, "busy")
            raise Busy("Too many requests are in progress; try again")
        needs_token = exchange.needs is not OPEN
        if not self.is_secured or not needs_token:
            exchange.identity = await self._authenticator.identify(request, needs_token=needs_token)
        else:
            identity = exchange.identity = await self._sign_in(request)
            self._count_holder(exchange, (identity.tenant, identity.principal))

    async def _sign_in(self, request: HttpRequest) -> Identity:
        result = "unavailable"
        try:
            identity = await self._authenticator.identify(request, needs_token=True)
            result = "ok"
        except (Refused, BadRequest):
            result = "refused"
            raise
        finally:
            self._metrics.count(SIGN_INS, result)
        return identity

    def _count_holder(self, exchange: RunningExchange, holder: tuple[str, str]) -> None:
        """Raise Refused if one principal would take more than its share of a server that is half full."""
        held = self._held.get(holder, 0)
        most = self._settings.requests_at_once_max
        if held >= max(1, most // _SHARES) and self._metrics.under_way > most // 2:
            text = "Too many of your requests are in progress on a busy server; try again"
            raise Refused(429, text, (RETRY_AFTER, b"%d" % spread(1, exchange.request_id)))
        exchange.holder = holder
        self._held[holder] = held + 1

    def reserve_body(self, exchange: RunningExchange, bytes_max: int) -> None:
        """Raise Busy if the bodies in memory leave no room for that of this request."""
        length = exchange.headers.get(CONTENT_LENGTH, b"")
        # A body without a length is usually much smaller than the limit.
        self.grow_body(exchange, min(int(length[:20]), bytes_max) if length.isdigit() else bytes_max // _SHARES)

    def grow_body(self, exchange: RunningExchange, size_bytes: int) -> None:
        """As much of the body is in memory, or will be; Busy if the bodies of other requests leave no room for it."""
        others_bytes = self._body_bytes - exchange.body_bytes
        if size_bytes > exchange.body_bytes:
            if others_bytes and others_bytes + size_bytes > self._settings.bodies_bytes_max:
                self._metrics.count(REQUESTS_REFUSED, "bodies")
                raise Busy("Too many large requests are in progress; try again")
            self._hold_body(exchange, size_bytes)

    def keep_body(self, exchange: RunningExchange, body: bytes) -> None:
        """The body was read: it holds the room that it takes, and no longer what was reserved for it."""
        exchange.body = body
        self._hold_body(exchange, len(body))

    def _hold_body(self, exchange: RunningExchange, size_bytes: int) -> None:
        self._body_bytes += size_bytes - exchange.body_bytes
        exchange.body_bytes = size_bytes

    async def authorize(self, exchange: RunningExchange, request: HttpRequest) -> Call:
        """The call of an identified request; its operations decide by what its route needs. A veto may refuse it."""
        identity = exchange.identity
        if identity is None:
            raise UncheckedRequest(f"{exchange.operation} has no identity")
        if self.is_secured:
            capabilities = capabilities_of(request) if CAPABILITIES in request.headers else NO_CAPABILITIES
            exchange.access = Access(identity.caller, exchange.needs, [], capabilities)
        call = Call(
            self._catalog.lakes,
            self._authenticator,
            self._settings,
            exchange.operation,
            exchange.values,
            request,
            identity,
            exchange.access,
        )
        if self._catalog.veto and exchange.needs is not OPEN:
            await self._catalog.veto.check(call, exchange.needs)
        return call

    def check_decided(self, exchange: RunningExchange) -> None:
        """Raise UncheckedRequest if nothing was decided about the caller: nothing of the answer may be sent then."""
        access = exchange.access
        if access and exchange.needs is not OPEN and not access.decisions:
            raise UncheckedRequest(f"{exchange.operation} answered without a decision about {access.caller.name}")

    def note_failure(self, error: Exception, exchange: RunningExchange, *, is_server_error: bool) -> None:
        """Count and log an error. The log line of the request gets the reason of a server error.

        Unexpected errors are logged with their trace.
        """
        exchange.error = error
        if isinstance(error, Refused):
            self._metrics.count(REQUESTS_REFUSED, str(error.status))
        elif isinstance(error, Damaged):
            self._catalog.incidents.object_damaged(error.key, error.reason)
        elif not isinstance(error, SandurError):
            known = {"request_id": exchange.request_id, "operation": exchange.operation}
            self._log.error("unexpected error", **known, exc_info=error)
        if isinstance(error, SandurError) and is_server_error:
            exchange.failure = {"reason": f"{type(error).__name__}: {error}"}

    def end(self, exchange: RunningExchange) -> None:
        """Record the request for the audit trail, once."""
        if exchange.is_ended:
            return
        exchange.is_ended = True
        self._metrics.under_way -= 1
        self._body_bytes -= exchange.body_bytes
        if holder := exchange.holder:
            if self._held[holder] == 1:
                del self._held[holder]
            else:
                self._held[holder] -= 1
        if exchange.access:
            for decision in exchange.access.decisions:
                self._metrics.count(GRANT_DECISIONS, "allowed" if decision.verdict.outcome == "allowed" else "denied")
        if self._is_audited:
            exchange.time_ms = self.clock.now_ms()
            record_request(self._catalog.audit, self._settings, exchange)

    def observe(self, exchange: RunningExchange, path: bytes, status: int | str) -> None:
        """Measure and log a request; `status` is that of the answer in its protocol."""
        seconds, method, rounds = time.perf_counter() - exchange.began, exchange.scope["method"], exchange.rounds
        labels = (exchange.protocol, exchange.operation, method, exchange.route, str(status))
        self._metrics.observe(REQUEST_SECONDS, seconds, *labels)
        self._metrics.observe(STORAGE_ROUNDS, rounds.count, exchange.operation)
        self._metrics.count(RESPONSE_BYTES, exchange.protocol, times=exchange.sent_bytes)
        if exchange.body:
            self._metrics.count(REQUEST_BYTES, exchange.protocol, times=len(exchange.body))
        ms, outcome = round(seconds * 1_000, 3), outcome_of(exchange)
        if exchange.span and self._traces:
            attributes: dict[str, str | int] = {
                "http.request.method": method,
                "http.route": exchange.route,
                "http.response.status_code": str(status),
                "sandur.dialect": exchange.protocol,
                "sandur.request_id": exchange.request_id,
                "sandur.rounds": rounds.count,
                "sandur.outcome": outcome,
            }
            has_failed = outcome in {"failed", "unknown"}
            self._traces.end(exchange.span, attributes, rounds.calls or [], has_failed=has_failed)
        is_sampled = outcome != "done" or method not in READS or self._is_read_logged()
        if exchange.failure or (is_sampled and self._log.is_enabled_for(logging.INFO)):
            known = {**self._logged(exchange, path, status, ms), "outcome": outcome}
            (self._log.warning if exchange.failure else self._log.info)("request", **known, **exchange.failure)
        if self._keeps_calls and ms > self._settings.slow_request_ms:
            known = self._logged(exchange, path, status, ms)
            self._log.warning("slow request", **known, outcome=outcome, calls=rounds.calls)

    def _is_read_logged(self) -> bool:
        share = self._settings.log_reads_sampled
        return share >= 1 or self.clock.chance() < share

    def _logged(self, exchange: RunningExchange, path: bytes, status: int | str, ms: float) -> dict[str, object]:
        """The fields of a log line about a request."""
        method, headers = exchange.scope["method"], exchange.headers
        tenant, workspace, principal = exchange.identity[:3] if exchange.identity else ("", "", "")
        fields: dict[str, object] = {
            "method": method,
            "route": exchange.route,
            "operation": exchange.operation,
            "status": status,
            "ms": ms,
            "rounds": exchange.rounds.count,
            "bytes_in": len(exchange.body or b""),
            "bytes_out": exchange.sent_bytes,
            "request_id": exchange.request_id,
            "tenant": tenant,
            "workspace": workspace,
            "principal": principal,
            "client": declared(headers, b"user-agent"),
        }
        if trace_id := exchange.trace_id or trace_id_of(headers):
            fields["trace_id"] = trace_id
        return fields if method in READS else {**fields, **_changed(path, exchange)}


def _changed(path: bytes, exchange: RunningExchange) -> Mapping[str, str]:
    """What a request changes, for the log: its path, and for a rename its body, which has the names."""
    fields = {"path": path[:LOGGED_BYTES_MAX].decode("utf-8", "replace")}
    if exchange.body and exchange.operation.startswith(_RENAMES):
        fields["names"] = exchange.body[:LOGGED_BYTES_MAX].decode("utf-8", "replace")
    return fields
