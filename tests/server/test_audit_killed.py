"""A server that is killed loses at most the audit records that it has not written yet; the next one continues."""

from pathlib import Path
from typing import Any

import httpx

from tests.server.logins import ADMIN_SECRET, created_api_key
from tests.server.process import ServerProcess, server_process

AUDIT = "/api/sandur/v1/audit"
POLLS_MAX = 20_000


def _recorded(client: httpx.Client) -> list[str]:
    """The ids of the numbered requests in the trail, in their order."""
    found: list[str] = []
    query: dict[str, str] = {"operation": "listNamespaces", "page_size": "1000"}
    while True:
        page: dict[str, Any] = client.get(AUDIT, params=query).raise_for_status().json()
        assert page["damaged"] == []
        found += [record["request_id"] for record in page["records"]]
        if page["next_token"] is None:
            return found
        query["page_token"] = page["next_token"]


def _client(server: ServerProcess, key: str) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {key}"}, timeout=60)


def test_a_killed_server_loses_only_its_last_records_and_the_next_one_continues(tmp_path: Path) -> None:
    settings = {"authentication": "on", "admin_secret": ADMIN_SECRET, "fsync": "never", "log_level": "error"}
    sent: list[str] = []
    flushed: list[str] = []
    found: list[str] = []

    def send(client: httpx.Client) -> None:
        sent.append(f"request-{len(sent):05d}")
        client.get("/v1/namespaces", headers={"x-request-id": sent[-1]}).raise_for_status()

    with server_process(tmp_path, **settings) as server:
        key = created_api_key(server.url)
        with _client(server, key) as client:
            for _ in range(POLLS_MAX):
                send(client)
                if flushed := _recorded(client):
                    break
            for _ in range(50):
                send(client)
        server.process.kill()
        server.process.wait()
    count = len(sent)
    with server_process(tmp_path, **settings) as server, _client(server, key) as client:
        after_crash = _recorded(client)
        send(client)
        for _ in range(POLLS_MAX):
            if sent[-1] in (found := _recorded(client)):
                break

    assert flushed
    assert after_crash[: len(flushed)] == flushed
    assert after_crash == sent[: len(after_crash)]
    assert len(after_crash) <= count
    assert found == [*after_crash, sent[-1]]
