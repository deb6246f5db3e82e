"""The veto of Open Policy Agent: it refuses what its policy refuses, and everything while it gives no valid answer."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from sandur.settings import OpaSettings
from tests.server.conftest import Catalogs
from tests.servers.processes import free_ports


class PolicyService:
    """A service that gives every request the same answer, and remembers the inputs."""

    def __init__(self, answer: bytes, status: int) -> None:
        self.inputs: list[dict[str, Any]] = []
        inputs = self.inputs

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                inputs.append(json.loads(body)["input"])
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_arguments: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        url = f"http://127.0.0.1:{self._server.server_address[1]}/v1/data/sandur/allow"
        self.settings = OpaSettings(url=url, timeout="PT1M")  # A busy machine may need long.

    @contextmanager
    def running(self) -> Iterator["PolicyService"]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


async def answered(catalogs: Catalogs, answer: object, status: int = 200) -> tuple[httpx.Response, dict[str, Any]]:
    """The answer to one request while the policy service answers like this, and the input that it got."""
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    with PolicyService(body, status).running() as service:
        client = await catalogs.open(opa=service.settings)
        got = await client.post("/v1/namespaces", json={"namespace": ["sales"]})
        return got, service.inputs[0]


async def test_a_policy_that_allows_leaves_the_request_to_the_grants(catalogs: Catalogs) -> None:
    for answer in ({"result": True}, {"result": {"allow": True}}):
        assert (await answered(catalogs, answer))[0].status_code == 200


async def test_the_policy_sees_who_does_what_to_what(catalogs: Catalogs) -> None:
    _, given = await answered(catalogs, {"result": True})

    assert given["operation"] == "createNamespace"
    assert given["principal"] == "anonymous"
    assert given["parameters"] == {"prefix": "main"}
    assert given["body"] == {"namespace": ["sales"]}
    assert given["privileges"] == ["CREATE SCHEMA"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"result": False}, "no reason given"),
        ({"result": {"allow": False, "reason": "not on a Sunday"}}, "not on a Sunday"),
        ({}, "no reason given"),
    ],
    ids=["false", "with a reason", "undefined"],
)
async def test_a_policy_that_refuses_ends_the_request(catalogs: Catalogs, answer: object, reason: str) -> None:
    got, _ = await answered(catalogs, answer)

    assert got.status_code == 403
    assert got.json()["error"]["type"] == "ForbiddenException"
    assert got.json()["error"]["message"].endswith(reason)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"not json", 200),
        (b'{"more":' + b"[" * 5_000, 200),
        ({"result": "yes"}, 200),
        ({"result": True}, 500),
        (b"x" * (64 << 10) + b"x", 200),
    ],
    ids=["no JSON", "nested too deeply", "no decision", "server error", "too large"],
)
async def test_without_a_valid_answer_no_request_is_served(catalogs: Catalogs, answer: object, status: int) -> None:
    got, _ = await answered(catalogs, answer, status)

    assert got.status_code == 503
    assert (await (await catalogs.open()).get("/v1/namespaces/sales")).status_code == 404


async def test_a_policy_service_that_is_down_serves_no_request(catalogs: Catalogs) -> None:
    client = await catalogs.open(opa=OpaSettings(url=f"http://127.0.0.1:{free_ports(1)[0]}/v1/data/sandur/allow"))

    assert (await client.get("/v1/namespaces")).status_code == 503
    assert (await client.get("/healthz")).status_code == 200


async def test_the_policy_gets_no_body_that_is_nested_too_deeply(catalogs: Catalogs) -> None:
    with PolicyService(b'{"result": true}', 200).running() as service:
        client = await catalogs.open(opa=service.settings)
        got = await client.post("/v1/namespaces", content=b'{"namespace":' + b"[" * 5_000)

        assert got.status_code == 400
        assert [given["body"] for given in service.inputs] == [None]


async def test_secrets_are_not_sent_to_the_policy(catalogs: Catalogs) -> None:
    with PolicyService(b'{"result": true}', 200).running() as service:
        client = await catalogs.open(opa=service.settings)
        secret = {"name": "c", "purpose": "STORAGE", "aws_iam_role": {"role_arn": "arn:aws:iam::1:role/secret"}}
        await client.post("/api/2.1/unity-catalog/credentials", json=secret)

        assert "secret" not in json.dumps(service.inputs)
