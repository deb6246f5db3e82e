"""The Java clients of Delta at the socket: every request has an upgrade header, also those with a body."""

import json

import pytest

from sandur.server.serve import build
from sandur.settings import Settings
from tests.server.unity.client import UNITY, Json
from tests.server.wire import exchange, serving

UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQBAAAAAAIAAAAA\r\n"


def encode_request(method: str, path: str, body: Json, *, upgrades: bool = True) -> tuple[bytes, bytes]:
    data = json.dumps(body).encode()
    headers = UPGRADE if upgrades else b"Connection: close\r\n"
    head = f"{method} {UNITY}{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n".encode()
    return head + headers + b"\r\n", data


@pytest.mark.parametrize("is_cut", [False, True], ids=["in one packet", "body in a later packet"])
async def test_requests_with_an_upgrade_header_keep_their_bodies(*, is_cut: bool) -> None:
    app, catalog = build(Settings(store="memory:", log_level="error"))
    await catalog.start()
    requests = [
        encode_request("POST", "/schemas", {"catalog_name": "main", "name": "s"}),
        encode_request("POST", "/delta/v1/catalogs/main/schemas/s/staging-tables", {"name": "t"}),
        encode_request(
            "GET", "/delta/preview/commits", {"table_id": "0190b6a0-0000-7000-8000-000000000000", "start_version": 0}
        ),
        encode_request("POST", "/delta/v1/catalogs/main/schemas/s/staging-tables", {"name": "u"}, upgrades=False),
    ]

    async with serving(app) as port:
        packets = [part for request in requests for part in request]
        answer = await exchange(port, *packets if is_cut else [b"".join(packets)])
    await catalog.close()

    statuses = [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [200, 200, 404, 200]
    assert answer.count(b'"required-protocol"') == 2
