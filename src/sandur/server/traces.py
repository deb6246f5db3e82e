"""Traces for OpenTelemetry: one span per request, with its store calls as events. Off unless `traces_endpoint` is set.

Whether a request is traced is decided at its start, so that every other request costs one comparison. A client that
sends `traceparent` decides for its requests (W3C Trace Context); of the others, `traces_sampled` says how many.
"""

import importlib.util
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from sandur import __version__
from sandur.clock import Clock
from sandur.errors import BadRequest
from sandur.server.metrics import StoreCall
from sandur.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.trace import Span

_PARENT: Final = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?\Z")
_SAMPLED: Final = 1


class Traces:
    """Makes the spans of one process, and sends them to a collector beside the requests."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        if importlib.util.find_spec("opentelemetry") is None:
            raise BadRequest("setting traces_endpoint needs OpenTelemetry: pip install 'sandur[otel]'")
        # Only here: a server without traces loads none of it.
        from opentelemetry import trace  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        resource = Resource.create({"service.name": "sandur", "service.version": __version__})
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=settings.traces_endpoint)))
        self._tracer = self._provider.get_tracer("sandur", __version__)
        self._trace = trace
        self._sampled, self._clock = settings.traces_sampled, clock

    def begin(self, operation: str, headers: Mapping[bytes, bytes]) -> "Span | None":
        """The span of a request; None if it is not traced."""
        sent = _PARENT.match(headers.get(b"traceparent", b""))
        if sent is None:
            is_traced = self._clock.chance() < self._sampled
            return self._tracer.start_span(operation, kind=self._trace.SpanKind.SERVER) if is_traced else None
        if not int(sent[3], 16) & _SAMPLED:
            return None
        trace = self._trace
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
        parent = trace.SpanContext(int(sent[1], 16), int(sent[2], 16), is_remote=True, trace_flags=flags)
        context = trace.set_span_in_context(trace.NonRecordingSpan(parent))
        return self._tracer.start_span(operation, context=context, kind=trace.SpanKind.SERVER)

    def end(
        self, span: "Span", attributes: Mapping[str, str | int], calls: list[StoreCall], *, has_failed: bool
    ) -> None:
        """End a span; each store call becomes an event of it."""
        span.set_attributes(attributes)
        for call, area, result, ms in calls:
            span.add_event(f"{call} {area}", {"result": result, "ms": ms})
        if has_failed:
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))
        span.end()

    def close(self) -> None:
        """Send what is left, and stop."""
        self._provider.shutdown()


def ids_of(span: "Span") -> tuple[str, bytes]:
    """The trace id, and the `traceparent` that names this span."""
    context = span.get_span_context()
    return f"{context.trace_id:032x}", f"00-{context.trace_id:032x}-{context.span_id:016x}-01".encode()
