"""Traces: spans reach a collector, follow the context of the client, and go on in what Sandur sends; off by default."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import jwt
import msgspec
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from structlog.testing import capture_logs

from sandur.errors import BadRequest
from sandur.server.serve import build
from sandur.setting_sources import load_settings
from sandur.settings import OidcSettings, OpaSettings, Settings
from tests.server.audited import audited_server
from tests.server.conftest import Catalogs
from tests.server.logins import SECURED
from tests.server.providers import own_key
from tests.server.requests import create_table, set_properties

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


SENT = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}


def receipts_in(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("events/*/iceberg/committed/*.json")}


@pytest.mark.parametrize("is_traced", [True, False])
async def test_every_writer_of_a_receipt_writes_the_trace_of_its_request(
    collector: Collector, tmp_path: Path, *, is_traced: bool
) -> None:
    """Also a server without traces keeps the context of the client. The next commit, of another trace, writes a receipt
    that is missing: as the commit itself wrote it.
    """
    table = "/v1/namespaces/ns/tables/t"
    endpoint = collector.url if is_traced else ""
    async with audited_server(store=str(tmp_path), traces_endpoint=endpoint, traces_sampled=0.0) as server:
        await server.client.post("/v1/namespaces", json={"namespace": ["ns"]})
        await server.client.post("/v1/namespaces/ns/tables", json=create_table("t"))
        answer = await server.client.post(table, json=set_properties(k="1"), headers=SENT)
    written = {file: data for file, data in receipts_in(tmp_path).items() if TRACE.encode() in data}
    for file in written:
        file.unlink()

    async with audited_server(store=str(tmp_path)) as server:
        other = f"00-{PARENT}{PARENT}-{PARENT}-01"
        await server.client.post(table, json=set_properties(k="2"), headers={"traceparent": other})

    (source,) = [json.loads(data)["source"] for data in written.values()]
    span = answer.headers["traceparent"].split("-")[2] if is_traced else PARENT
    assert (source["trace_id"], source["span_id"]) == (TRACE, span)
    assert written.items() <= receipts_in(tmp_path).items()


async def test_the_trail_has_the_trace_in_which_the_server_recorded_the_request(collector: Collector) -> None:
    async with audited_server(
        authentication="on", audit="all", traces_endpoint=collector.url, traces_sampled=1.0
    ) as server:
        headers = await server.admin()
        for sent in ({}, {"traceparent": f"00-{TRACE}-{PARENT}-00"}, SENT):
            await server.client.get("/v1/namespaces", headers={**headers, **sent})
        records = await server.records()

    own = collector.spans[0].trace_id.hex()
    assert [(one.trace_id, one.declared_trace_id) for one in records] == [(own, ""), ("", TRACE), (TRACE, TRACE)]


class Upstream(BaseHTTPRequestHandler):
    """A service that Sandur asks: it refuses everything, and keeps the headers that it got."""

    got: list[dict[str, str]]

    def do_GET(self) -> None:
        self.got.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(503)
        self.end_headers()

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def upstream() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The URL of the service, and the headers of the requests to it."""
    got: list[dict[str, str]] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), type("_", (Upstream,), {"got": got})) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", got
        finally:
            server.shutdown()
            thread.join()


async def test_policies_and_identity_providers_get_the_context_of_the_request(catalogs: Catalogs) -> None:
    forged = {"iss": "", "aud": "sandur", "sub": "x", "exp": 2_000_000_000}
    with upstream() as (url, got):
        oidc = OidcSettings(issuer=f"{url}/realm", audience="sandur")
        token = jwt.encode({**forged, "iss": oidc.issuer}, own_key(), algorithm="RS256", headers={"kid": "k"})
        by_policy = await catalogs.open(opa=OpaSettings(url=f"{url}/v1/data/allow", timeout="PT1M"))
        by_token = await catalogs.open_with(msgspec.structs.replace(SECURED, oidc=(oidc,)))

        await by_policy.get("/v1/namespaces", headers=SENT)
        await by_policy.get("/v1/namespaces")
        await by_token.get("/v1/namespaces", headers={**SENT, "authorization": f"Bearer {token}"})

    assert [one.get("traceparent") for one in got] == [SENT["traceparent"], None, SENT["traceparent"]]
    assert [one.get("tracestate") for one in got] == ["vendor=1", None, "vendor=1"]


async def test_the_span_of_the_server_is_the_parent_of_what_it_sends(collector: Collector, catalogs: Catalogs) -> None:
    with upstream() as (url, got):
        client = await catalogs.open(
            opa=OpaSettings(url=f"{url}/v1/data/allow", timeout="PT1M"),
            traces_endpoint=collector.url,
            traces_sampled=0.0,
        )
        answer = await client.get("/v1/namespaces", headers=SENT)

    assert got[0]["traceparent"] == answer.headers["traceparent"] != SENT["traceparent"]
