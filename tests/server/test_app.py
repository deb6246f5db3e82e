"""The application around every request: back-pressure, request ids, unexpected errors, metrics."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx
import msgspec
import pytest
from structlog.testing import capture_logs

from sandur.errors import OutcomeUnknown, Unavailable
from sandur.operations.counters import Count
from sandur.server.metrics import Metrics
from sandur.server.requests import LOGGED_BYTES_MAX
from sandur.storage.memory import MemoryStore
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.server.conftest import Catalogs
from tests.server.requests import create_table, rename, set_properties

T = TypeVar("T")


class StoppedStore(WrappingStore):
    """Blocks every call until `may_go` is set."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.is_asked = asyncio.Event()

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        del call
        self.is_asked.set()
        await self.may_go.wait()
        return await perform()


class FailingStore(WrappingStore):
    """Raises `error` when it is set."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.error: Exception | None = None
        self.only_writes = False

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        if self.error and (call.is_write or not self.only_writes):
            raise self.error
        return await perform()


async def test_requests_beyond_the_limit_are_refused_before_any_effect(catalogs: Catalogs) -> None:
    store = StoppedStore()
    client = await catalogs.open(store, requests_at_once_max=1)
    store.may_go.clear()
    store.is_asked.clear()

    first = asyncio.create_task(client.get("/v1/namespaces"))
    await store.is_asked.wait()
    refused = await client.post("/v1/namespaces", json={"namespace": ["ns"]})
    alive = await client.get("/healthz")
    store.may_go.set()

    assert refused.status_code == 503
    assert refused.headers["retry-after"] in {"1", "2"}
    assert refused.json()["error"]["type"] == "SlowDownException"
    assert alive.status_code == 200
    assert (await first).json()["namespaces"] == []
    assert (await client.get("/v1/namespaces/ns")).status_code == 404


@pytest.mark.parametrize("given", ["mine-1", "a" * 128])
async def test_the_request_id_of_the_client_is_returned(client: httpx.AsyncClient, given: str) -> None:
    for path in ("/v1/config", "/v1/nowhere"):
        assert (await client.get(path, headers={"X-Request-Id": given})).headers["x-request-id"] == given


@pytest.mark.parametrize("given", [None, "", "two words", "a" * 129, "é"])
async def test_a_missing_or_invalid_request_id_is_replaced(client: httpx.AsyncClient, given: str | None) -> None:
    headers = {} if given is None else {b"X-Request-Id": given.encode()}

    made = (await client.get("/v1/config", headers=headers)).headers["x-request-id"]

    assert len(made) == 36


async def test_the_log_names_the_target_of_a_change_and_not_of_a_read(catalogs: Catalogs) -> None:
    with capture_logs() as logs:
        client = await catalogs.open()
        await client.post("/v1/namespaces", json={"namespace": ["ns"]})
        await client.post("/v1/namespaces/ns/tables", json=create_table("t"))
        logs.clear()
        await client.get("/v1/namespaces/ns/tables/t")
        await client.post("/v1/tables/rename", json=rename("t", "u"))
        await client.delete("/v1/namespaces/ns/tables/u")
        await client.delete("/v1/namespaces/ns/tables/%0A%ff" + "x" * 3_000)
    lines = [line for line in logs if line["event"] == "request"]

    assert [line["method"] for line in lines] == ["GET", "POST", "DELETE", "DELETE"]
    assert "path" not in lines[0]
    assert lines[1]["path"] == "/v1/tables/rename"
    assert msgspec.json.decode(lines[1]["names"]) == rename("t", "u")
    assert (lines[2]["path"], lines[2]["principal"]) == ("/v1/namespaces/ns/tables/u", "anonymous")
    assert len(lines[3]["path"]) == LOGGED_BYTES_MAX
    assert "names" not in lines[3]


async def test_an_unexpected_error_is_a_500_without_details_and_a_trace_in_the_log(catalogs: Catalogs) -> None:
    store = FailingStore()
    with capture_logs() as logs:
        client = await catalogs.open(store)
        store.error = RuntimeError("/etc/secret")
        answer = await client.get("/v1/namespaces", headers={"X-Request-Id": "r-1"})
        store.error = None

    assert answer.status_code == 500
    assert answer.json()["error"] == {
        "message": "Internal error; see the server log for request r-1",
        "type": "InternalServerError",
        "code": 500,
    }
    (line,) = [line for line in logs if line["event"] == "unexpected error"]
    assert line["request_id"] == "r-1"
    assert "/etc/secret" in str(line["exc_info"])


async def test_an_unavailable_store_is_a_503_that_may_be_retried(catalogs: Catalogs) -> None:
    store = FailingStore()
    client = await catalogs.open(store)
    store.error = Unavailable("the store is away")

    answer = await client.get("/v1/namespaces")
    store.error = None

    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1


async def test_a_commit_of_unknown_outcome_is_reported_as_unknown(catalogs: Catalogs) -> None:
    store = FailingStore()
    client = await catalogs.open(store)
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})
    await client.post("/v1/namespaces/ns/tables", json=create_table("t"))
    store.error, store.only_writes = OutcomeUnknown("no answer"), True

    answer = await client.post("/v1/namespaces/ns/tables/t", json=set_properties(k="v"))
    store.error = None

    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "CommitStateUnknownException"


async def test_the_server_is_alive_but_not_ready_before_startup_completes() -> None:
    from sandur.server.serve import build  # noqa: PLC0415 - not started on purpose
    from sandur.settings import Settings  # noqa: PLC0415 - likewise

    app, _ = build(Settings(store="memory:"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).status_code == 503


async def test_requests_storage_and_caches_are_counted(client: httpx.AsyncClient) -> None:
    await client.post("/v1/namespaces", json={"namespace": ["counted"]})
    await client.post("/v1/namespaces/counted/tables", json=create_table("t"))
    await client.get("/v1/namespaces/counted/tables/t")
    await client.get("/v1/namespaces/counted/tables")

    page = (await client.get("/metrics")).text

    for line in (
        'sandur_request_seconds_count{dialect="iceberg",method="GET",operation="loadTable",',
        'sandur_storage_calls_total{area="names",call="put",operation="createTable",result="ok"}',
        'sandur_storage_rounds_count{operation="loadTable"}',
        'sandur_cache_reads_total{result="hit"}',
        'uc_preview_index_update_total{result="ok"}',
        "sandur_requests_under_way 0.0",
    ):
        assert line in page, line
    assert "counted" not in page, "names are not labels"


def test_counters_never_decrease_when_a_lake_is_evicted() -> None:
    metrics = Metrics()

    for times in (2, 5, 5, 3, 4):  # A lake is evicted before the fourth.
        metrics.follow([Count("sandur_audit_writes_total", "result", "done", times)])

    assert b'sandur_audit_writes_total{result="done"} 6.0' in metrics.exposition()[0]


async def test_the_log_line_of_a_request_says_why_the_store_failed(catalogs: Catalogs) -> None:
    store = FailingStore()
    client = await catalogs.open(store)
    store.error = Unavailable("object k: cannot be read: the keys are wrong")

    with capture_logs() as logged:
        await client.get("/v1/namespaces")
    store.error = None

    (line,) = [line for line in logged if line["event"] == "request"]
    assert (line["log_level"], line["status"]) == ("warning", 503)
    assert line["reason"] == "Unavailable: object k: cannot be read: the keys are wrong"


class SlowStore(WrappingStore):
    """Takes longer than a millisecond for a write."""

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        if call.is_write:
            await asyncio.sleep(0.005)
        return await perform()


async def test_a_slow_request_is_logged_with_its_storage_calls(catalogs: Catalogs) -> None:
    slow = await catalogs.open(SlowStore(MemoryStore()), slow_request_ms=1)
    silent = await catalogs.open(SlowStore(MemoryStore()), slow_request_ms=0)

    with capture_logs() as logged:
        for client in (slow, silent):
            await client.post("/v1/namespaces", json={"namespace": ["ns"]})

    (line,) = [line for line in logged if line["event"] == "slow request"]
    assert (line["log_level"], line["operation"], line["outcome"]) == ("warning", "createNamespace", "done")
    assert ("put", "namespaces", "ok") in {call[:3] for call in line["calls"]}


async def test_only_a_part_of_the_successful_reads_is_logged(catalogs: Catalogs) -> None:
    client = await catalogs.open(log_level="info", log_reads_sampled=0.0)
    trace = "0af7651916cd43dd8448eb211c80319c"

    with capture_logs() as logged:
        await client.get("/v1/namespaces")
        await client.get("/v1/namespaces/none", headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
        await client.post("/v1/namespaces", json={"namespace": ["ns"]})

    lines = [line for line in logged if line["event"] == "request"]
    assert [(line["operation"], line["outcome"]) for line in lines] == [
        ("loadNamespaceMetadata", "refused"),
        ("createNamespace", "done"),
    ]
    assert lines[0]["trace_id"] == trace
