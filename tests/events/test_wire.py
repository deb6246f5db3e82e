"""The stream of events over a real connection: it arrives at once, and a server that stops ends it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec

from tests.server.process import server_process
from tests.server.requests import create_table

STREAM = "/api/sandur/v1/events/stream"


def _events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """The types and data of what arrives, without heartbeats."""
    kind = ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data" and kind != "heartbeat":
            yield kind, msgspec.json.decode(value)


def test_a_stream_over_a_real_connection_arrives_at_once_and_ends_when_the_server_stops(tmp_path: Path) -> None:
    with server_process(tmp_path, fsync="never") as server:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            client.post("/v1/namespaces", json={"namespace": ["ns"]}).raise_for_status()
            with client.stream("GET", f"{STREAM}?kind=committed") as stream:
                assert stream.headers["transfer-encoding"] == "chunked"
                events = _events(stream.iter_lines())
                client.post("/v1/namespaces/ns/tables", json=create_table("t")).raise_for_status()
                kind, data = next(events)
                assert (kind, data["name"], data["version"]) == ("table.committed", "t", 0)

                server.process.terminate()
                kind, data = next(events)
                assert (kind, "connect again" in data["reason"]) == ("end", True)
                assert list(events) == []
        assert server.process.wait(60) == 0
        assert "error" not in server.log
