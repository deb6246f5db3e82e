"""Traces for OpenTelemetry: one span per request, with its store calls as events. Off unless `traces_endpoint` is set.

Whether a request is traced is decided at its start, so that every other request costs one comparison. A client that
sends `traceparent` decides for its requests (W3C Trace Context); of the others, `traces_sampled` says how many.
"""

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sandur import __version__
from sandur.clock import Clock
from sandur.errors import BadRequest
from sandur.server.metrics import StoreCall
from sandur.settings import Settings
from sandur.trace_context import TraceContext

if TYPE_CHECKING:
    from opentelemetry.trace import Span


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

    def begin(self, operation: str, sent: TraceContext | None) -> "Span | None":
        """The span of a request, whose client sent that context; None if it is not traced."""
        if sent is None:
            is_traced = self._clock.chance() < self._sampled
            return self._tracer.start_span(operation, kind=self._trace.SpanKind.SERVER) if is_traced else None
        if not sent.is_sampled:
            return None
        trace = self._trace
        flags, state = trace.TraceFlags(trace.TraceFlags.SAMPLED), trace.TraceState.from_header([sent.state])
        ids = int(sent.trace_id, 16), int(sent.span_id, 16)
        parent = trace.SpanContext(*ids, is_remote=True, trace_flags=flags, trace_state=state)
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


def context_of(span: "Span", state: str = "") -> TraceContext:
    """The context in which this span is the parent."""
    context = span.get_span_context()
    return TraceContext(f"{context.trace_id:032x}", f"{context.span_id:016x}", is_sampled=True, state=state)
