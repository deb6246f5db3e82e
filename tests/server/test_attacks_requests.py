"""Attacks on the server around its operations: bodies before tokens, open pages, names in errors, secrets in logs."""

from collections.abc import AsyncIterator

import httpx
import pytest
from msgspec.structs import replace

from sandur.server.serve import build
from sandur.settings import Settings
from tests.server.conftest import Catalogs
from tests.server.wire import exchange, serving

SECRET = "s3cr3t-" * 6
BEARER = {"Authorization": f"Bearer {SECRET}"}
SECURED = Settings(store="memory:", log_level="error", authentication="token", token=SECRET)
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

    refused = await secured.get("/metrics")

    assert refused.status_code == 401
    assert "sandur_" not in refused.text
    assert (await secured.get("/metrics", headers=BEARER)).status_code == 200
    assert (await plain.get("/metrics")).status_code == 200
    assert (await secured.get("/metrics", headers={**BEARER, "X-Sandur-Tenant": "a/b"})).status_code == 400


async def test_the_metrics_port_serves_metrics_without_a_token_and_nothing_else(catalogs: Catalogs) -> None:
    client = await catalogs.open_with(replace(SECURED, metrics_port=9_464))
    apart = "http://10.1.2.3:9464"

    assert (await client.get(f"{apart}/metrics")).status_code == 200
    assert (await client.get(f"{apart}/readyz")).status_code == 200
    assert (await client.get(f"{apart}/v1/config", headers=BEARER)).status_code == 404
    assert (await client.get("/metrics")).status_code == 401


async def test_every_answer_forbids_sniffing(client: httpx.AsyncClient) -> None:
    for path in ("/v1/config", "/v1/nowhere", "/metrics", "/healthz", "/nowhere"):
        assert (await client.get(path)).headers["x-content-type-options"] == "nosniff"
