"""Traces: spans reach a collector over HTTP, follow the context of the client, and are off by default."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from structlog.testing import capture_logs

from sandur.errors import BadRequest
from sandur.server.serve import build
from sandur.settings import Settings, load_settings
from tests.server.conftest import Catalogs

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


class Collector:
    """A receiver of OTLP over HTTP on loopback."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sent = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"])))
                collector.spans += [
                    span for one in sent.resource_spans for scope in one.scope_spans for span in scope.spans
                ]
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


async def traced(collector: Collector, headers: dict[str, str], *, sampled: float) -> tuple[str, list[str]]:
    """The `traceparent` of the answer, and the trace ids in the log, of one request to a server that then stops."""
    settings = Settings(store="memory:", traces_endpoint=collector.url, traces_sampled=sampled)
    app, catalog = build(settings)
    await catalog.start()
    sent: list[dict[str, object]] = []
    raw = [(b"host", b"localhost"), *((name.encode(), value.encode()) for name, value in headers.items())]
    scope = {"type": "http", "method": "GET", "raw_path": b"/v1/namespaces", "query_string": b"", "headers": raw}

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    with capture_logs() as logged:
        await app(scope, receive, send)  # type: ignore[arg-type] # As httpx would send it.
    await catalog.close()
    answered = dict(sent[0]["headers"])  # type: ignore[call-overload] # Pairs of bytes.
    ids = [line.get("trace_id", "") for line in logged if line["event"] == "request"]
    return answered.get(b"traceparent", b"").decode(), ids


async def test_a_span_follows_the_context_of_the_client_and_has_its_store_calls(collector: Collector) -> None:
    answered, ids = await traced(collector, {"traceparent": f"00-{TRACE}-{PARENT}-01"}, sampled=0.0)

    (span,) = collector.spans
    attributes = {one.key: one.value.string_value or one.value.int_value for one in span.attributes}
    assert (span.name, span.trace_id.hex(), span.parent_span_id.hex()) == ("listNamespaces", TRACE, PARENT)
    assert answered == f"00-{TRACE}-{span.span_id.hex()}-01"
    assert ids == [TRACE]
    assert (attributes["http.route"], attributes["sandur.outcome"]) == ("/v1/{prefix}/namespaces", "done")
    assert span.events
    assert span.events[0].name.partition(" ")[0] in {"get", "head", "list", "get_if_changed", "are_current"}


@pytest.mark.parametrize(
    ("sampled", "headers", "spans"),
    [(1.0, {}, 1), (0.0, {}, 0), (1.0, {"traceparent": f"00-{TRACE}-{PARENT}-00"}, 0), (1.0, {"traceparent": "x"}, 1)],
)
async def test_the_client_decides_and_otherwise_the_setting(
    collector: Collector, sampled: float, headers: dict[str, str], spans: int
) -> None:
    answered, ids = await traced(collector, headers, sampled=sampled)

    assert len(collector.spans) == spans
    assert bool(answered) == bool(spans)
    assert ids == ([collector.spans[0].trace_id.hex()] if spans else [TRACE if "traceparent" in headers else ""])


async def test_without_an_endpoint_nothing_is_traced(catalogs: Catalogs) -> None:
    client = await catalogs.open(traces_sampled=1.0)

    answer = await client.get("/v1/namespaces")

    assert "traceparent" not in answer.headers
    with pytest.raises(BadRequest, match="traces_endpoint"):
        load_settings(flags={"traces_endpoint": "collector:4318"})
