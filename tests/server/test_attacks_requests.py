"""Attacks on the server around its operations: bodies before tokens, open pages, names in errors, secrets in logs."""

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import httpx
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from sandur.errors import Unavailable
from sandur.server.serve import build
from sandur.storage.contract import list_all
from sandur.storage.memory import MemoryStore
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.server.conftest import Catalogs
from tests.server.logins import ADMIN_SECRET, SECURED, bearer, token_of
from tests.server.requests import create_table, set_properties
from tests.server.wire import exchange, serving

T = TypeVar("T")

UNITY = "/api/2.1/unity-catalog"
LARGE_BYTES = 32 << 20


class Parts:
    """A body that counts how much of it was taken."""

    def __init__(self, part: bytes, count: int) -> None:
        self._part, self._count = part, count
        self.taken = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self._count):
            self.taken += 1
            yield self._part


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eDp5"}])
async def test_without_a_valid_token_no_byte_of_the_body_is_read(catalogs: Catalogs, headers: dict[str, str]) -> None:
    client = await catalogs.open_with(SECURED)
    body = Parts(b" " * (1 << 20), 32)

    refused = await client.post("/v1/namespaces", content=body, headers=headers)

    assert refused.status_code == 401
    assert refused.headers["connection"] == "close"
    assert body.taken == 0


async def test_the_answer_comes_before_the_body() -> None:
    app, catalog = build(SECURED)
    await catalog.start()
    head = f"POST /v1/namespaces HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LARGE_BYTES}\r\n\r\n"

    async with serving(app) as port:
        answer = await exchange(port, head.encode())
    await catalog.close()

    assert answer.startswith(b"HTTP/1.1 401 ")


async def test_a_small_refused_body_keeps_the_connection(catalogs: Catalogs) -> None:
    client = await catalogs.open_with(SECURED)

    refused = await client.post("/v1/namespaces", json={"namespace": ["ns"]})

    assert refused.status_code == 401
    assert "connection" not in refused.headers


@pytest.mark.parametrize("path", ["/v1/oauth/tokens", "/api/1.0/unity-control/auth/tokens"])
async def test_a_route_without_a_token_takes_only_small_bodies(catalogs: Catalogs, path: str) -> None:
    client = await catalogs.open_with(SECURED)

    refused = await client.post(path, data={"grant_type": "client_credentials", "client_secret": "x" * (65 << 10)})

    assert refused.status_code == 413


async def test_metrics_need_a_token_if_the_apis_do(catalogs: Catalogs) -> None:
    secured, plain = await catalogs.open_with(SECURED), await catalogs.open()
    admin = await bearer(secured)

    refused = await secured.get("/metrics")

    assert refused.status_code == 401
    assert "sandur_" not in refused.text
    assert (await secured.get("/metrics", headers=admin)).status_code == 200
    assert (await plain.get("/metrics")).status_code == 200
    assert (await secured.get("/metrics", headers={**admin, "X-Sandur-Tenant": "a/b"})).status_code == 400


async def test_the_metrics_port_serves_metrics_without_a_token_and_nothing_else(catalogs: Catalogs) -> None:
    client = await catalogs.open_with(replace(SECURED, metrics_port=9_464))
    admin = await bearer(client)
    apart = "http://10.1.2.3:9464"

    assert (await client.get(f"{apart}/metrics")).status_code == 200
    assert (await client.get(f"{apart}/readyz")).status_code == 200
    assert (await client.get(f"{apart}/v1/config", headers=admin)).status_code == 404
    assert (await client.get("/metrics")).status_code == 401


async def test_every_answer_forbids_sniffing(client: httpx.AsyncClient) -> None:
    for path in ("/v1/config", "/v1/nowhere", "/metrics", "/healthz", "/nowhere"):
        assert (await client.get(path)).headers["x-content-type-options"] == "nosniff"


async def test_no_cache_on_the_way_keeps_an_answer_for_one_principal(catalogs: Catalogs) -> None:
    client = await catalogs.open_with(SECURED)
    admin = await bearer(client)
    await client.post("/v1/namespaces", json={"namespace": ["ns"]}, headers=admin)
    await client.post("/v1/namespaces/ns/tables", json=create_table("t"), headers=admin)

    listed = await client.get("/v1/namespaces", headers=admin)
    loaded = await client.get("/v1/namespaces/ns/tables/t", headers=admin)
    refused = await client.get("/v1/namespaces")

    assert listed.headers.get_list("cache-control") == ["no-store"]
    assert loaded.headers.get_list("cache-control") == ["private"]
    assert refused.headers.get_list("cache-control") == ["no-store"]


async def test_a_header_does_not_make_a_client_a_pipeline(catalogs: Catalogs) -> None:
    store = MemoryStore()
    client = await catalogs.open(store)
    hidden = {"X-Sandur-Run-Id": "run-1", "X-Sandur-Task-Id": "system-tables"}
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})
    await client.post("/v1/namespaces/ns/tables", json=create_table("t"), headers=hidden)
    await client.post("/v1/namespaces/ns/tables/t", json=set_properties(a="b"), headers=hidden)
    await client.post("/v1/namespaces/ns/tables/t", json=set_properties(a="c"))

    stored = [await store.get(listed.key) for listed in await list_all(store, "")]
    declared = [found.data for found in stored if found and b"system-tables" in found.data]

    assert declared
    assert not [data for data in declared if b'"pipeline"' in data]


async def test_an_unknown_warehouse_reveals_no_names(catalogs: Catalogs) -> None:
    secured, plain = await catalogs.open_with(SECURED), await catalogs.open()
    admin = await bearer(secured)
    for client in (secured, plain):
        await client.post(f"{UNITY}/catalogs", json={"name": "merger-2027"}, headers=admin)

    refused = await secured.get("/v1/config?warehouse=x", headers=admin)
    helped = await plain.get("/v1/config?warehouse=x")

    assert refused.json()["error"] == {
        "message": "Warehouse does not exist, or you have no right in it: x",
        "type": "NoSuchWarehouseException",
        "code": 404,
    }
    assert "merger-2027" in helped.text


async def test_a_bad_location_reveals_no_address_of_the_server(catalogs: Catalogs) -> None:
    allowed = ("s3://bucket-of-another/tables",)
    secured, plain = await catalogs.open_with(replace(SECURED, allowed_locations=allowed)), await catalogs.open()
    admin = await bearer(secured)
    body = create_table("t", location="s3://elsewhere/t")
    keyed = {**admin, "Idempotency-Key": "0197f22e-79b0-7cc3-98c4-dc0c0c07398f"}
    for client in (secured, plain):
        await client.post("/v1/namespaces", json={"namespace": ["ns"]}, headers=admin)

    refused = [await secured.post("/v1/namespaces/ns/tables", json=body, headers=keyed) for _ in range(2)]
    credentials = await secured.post(
        f"{UNITY}/temporary-path-credentials", json={"url": "s3://x/y", "operation": "PATH_READ"}, headers=admin
    )
    helped = await plain.post("/v1/namespaces/ns/tables", json=body)

    for answer in refused:
        assert answer.status_code == 400
        assert "s3://elsewhere/t" in answer.text
        assert "memory:" not in answer.text
    assert all("bucket-of-another" not in answer.text for answer in [*refused, credentials])
    assert "allowed_locations" in helped.text


async def test_an_overlap_does_not_name_the_other_user(catalogs: Catalogs) -> None:
    client = await catalogs.open_with(SECURED)
    admin = await bearer(client)
    await client.post("/v1/namespaces", json={"namespace": ["ns"]}, headers=admin)
    hidden = create_table("hidden", location="memory://store/tables/default/default/main/place")
    made = await client.post("/v1/namespaces/ns/tables", json=hidden, headers=admin)
    volume = {"catalog_name": "main", "schema_name": "ns", "name": "v", "volume_type": "EXTERNAL"}
    below = {**volume, "storage_location": made.json()["metadata"]["location"] + "/v"}

    refused = await client.post(f"{UNITY}/volumes", json=below, headers=admin)

    assert refused.status_code == 400
    assert refused.json()["message"].endswith("it overlaps a location in use")


class BrokenStore(WrappingStore):
    """Fails with an error that names its address, once `is_broken` is set."""

    is_broken = False

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        del call
        if self.is_broken:
            raise Unavailable("http://10.9.8.7:9000/bucket: connection refused")
        return await perform()


async def test_a_failing_store_is_named_in_the_log_only(catalogs: Catalogs) -> None:
    store = BrokenStore(MemoryStore())
    client = await catalogs.open_with(SECURED, store)
    admin = await bearer(client)
    store.is_broken = True

    with capture_logs() as logs:
        unready = await client.get("/readyz")
        failed = await client.get("/v1/namespaces", headers=admin)

    assert (unready.status_code, failed.status_code) == (503, 503)
    assert "10.9.8.7" not in unready.text + failed.text
    assert failed.headers["x-request-id"] in failed.text
    assert "10.9.8.7" in str(logs)


async def test_no_token_and_no_secret_is_logged(catalogs: Catalogs) -> None:
    client = await catalogs.open_with(SECURED)
    good = await token_of(client)
    bad = await token_of(await catalogs.open_with(SECURED))
    basic = base64.b64encode(f"admin:{ADMIN_SECRET}".encode()).decode()
    secrets = [ADMIN_SECRET, good, bad, basic, "hush-hush"]
    exchange_type = "urn:ietf:params:oauth:grant-type:token-exchange"
    token_type = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a name

    with capture_logs() as logs:
        await catalogs.open_with(SECURED)
        for value in [
            f"Bearer {ADMIN_SECRET}",
            f"Bearer {good}",
            f"Bearer {bad}",
            f"Basic {basic}",
            "Bearer hush-hush",
        ]:
            headers = {"Authorization": value}
            await client.get("/v1/config", headers=headers)
            await client.get("/metrics", headers=headers)
            await client.get(f"{UNITY}/catalogs", headers=headers)
            await client.post("/v1/namespaces", json={"namespace": ["ns"]}, headers=headers)
        for path in ["/v1/oauth/tokens", "/iceberg/v1/oauth/tokens", "/api/1.0/unity-control/auth/tokens"]:
            for secret in secrets:
                credentials = {"grant_type": "client_credentials", "client_id": "me", "client_secret": secret}
                subject = {"grant_type": exchange_type, "subject_token": secret, "subject_token_type": token_type}
                await client.post(path, data=credentials)
                await client.post(path, data=subject)
                await client.post(f"{path}?ext=cookie", data=subject)
            await client.post(
                path, data={"grant_type": "client_credentials"}, headers={"Authorization": f"Basic {basic}"}
            )
    text = str(logs)

    assert len([line for line in logs if line["event"] == "request"]) > 50
    assert [secret for secret in secrets if secret in text] == []
