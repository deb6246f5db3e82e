"""Logins at providers that answer as the specifications allow, and as they do not; oidc-provider does neither."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest

from sandur.client.openid import Issuer, discover
from sandur.errors import BadRequest, SandurError, Unauthenticated, Unavailable
from tests.cli.test_login import BusyClock

Answer = tuple[int, Any]


class Provider:
    """A provider that gives each endpoint's answers in their order, and remembers the forms that it got."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.discovery: dict[str, object] = {
            "issuer": url,
            "token_endpoint": f"{url}/token",
            "device_authorization_endpoint": f"{url}/device",
        }
        device = {"device_code": "d", "user_code": "U", "verification_uri": f"{url}/enter", "expires_in": 60}
        self.device: Answer = (200, {**device, "interval": 2})
        self.tokens: list[Answer] = []
        self.forms: list[dict[str, list[str]]] = []

    def answer(self, path: str, form: str) -> Answer:
        if path == "/.well-known/openid-configuration":
            return 200, self.discovery
        self.forms.append(parse_qs(form))
        return self.device if path == "/device" else self.tokens.pop(0)

    async def login(self, clock: BusyClock, scopes: str = "openid offline_access") -> str:
        async with httpx.AsyncClient() as http:
            provider = await discover(http, Issuer(self.url, "sandur", "cli", scopes), "cli")
            return (await provider.login_by_device(lambda _text: None, clock)).access_token


@pytest.fixture
def provider() -> Iterator[Provider]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
            status, answer = found.answer(self.path, body)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Provider(f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        with contextlib.ExitStack() as stack:
            stack.callback(server.shutdown)
            yield found


async def test_a_client_that_polls_too_often_slows_down(provider: Provider) -> None:
    pending, slow = ({"error": error} for error in ("authorization_pending", "slow_down"))
    provider.tokens = [(400, pending), (400, slow), (400, pending), (200, {"access_token": "mine"})]
    clock = BusyClock()

    assert await provider.login(clock) == "mine"
    assert clock.waits == [2, 2, 7, 7]


async def test_a_code_expires_when_the_provider_said(provider: Provider) -> None:
    provider.tokens = [(400, {"error": "authorization_pending"})] * 40
    clock = BusyClock()

    with pytest.raises(Unauthenticated, match="expired"):
        await provider.login(clock)

    assert sum(clock.waits) == 60


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ((400, {"error": "access_denied", "error_description": "no"}), Unauthenticated, "access_denied no"),
        ((400, {"error": "expired_token"}), Unauthenticated, "expired_token"),
        ((400, b"<html>"), Unauthenticated, "status 400"),
        ((503, b""), Unavailable, "status 503"),
        ((200, b"<html>"), Unavailable, "not valid"),
        ((200, b'{"a":' + b"[" * 3_000), Unavailable, "not valid"),
        ((400, b'{"a":' + b"[" * 3_000), Unauthenticated, "status 400"),
    ],
)
async def test_a_refusal_of_the_provider_is_passed_on(
    provider: Provider, answer: Answer, error: type[SandurError], message: str
) -> None:
    provider.tokens = [answer]

    with pytest.raises(error, match=message):
        await provider.login(BusyClock())


@pytest.mark.parametrize(
    ("supported", "requested"),
    [(["openid"], "openid"), (["offline_access"], "openid offline_access"), (None, "openid offline_access")],
)
async def test_a_refresh_token_is_requested_unless_the_provider_has_none(
    provider: Provider, supported: list[str] | None, requested: str
) -> None:
    provider.discovery["scopes_supported"] = supported
    provider.tokens = [(200, {"access_token": "mine"})]

    await provider.login(BusyClock())

    assert provider.forms[0] == {"client_id": ["cli"], "scope": [requested]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"issuer": "https://other.example"}, "is the configuration of https://other.example"),
        ({"token_endpoint": "http://other.example/token"}, "needs https"),
        ({"revocation_endpoint": "ftp://127.0.0.1"}, "needs https"),
        ({"device_authorization_endpoint": ""}, "leave out --device"),
    ],
)
async def test_a_provider_that_sends_tokens_elsewhere_is_refused(
    provider: Provider, change: dict[str, object], message: str
) -> None:
    provider.discovery.update(change)

    with pytest.raises(BadRequest, match=message):
        await provider.login(BusyClock())

    assert provider.forms == []
